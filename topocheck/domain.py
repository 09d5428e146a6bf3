"""NVLink domains that reach over several hosts, and what proves one.

Either all four fields together (cluster UUID not zero, clique, state completed, on a model that can
span hosts), or NCCL's own clique: MNNVL active with as many members as its communicator has. Never
one field of the first: unrelated racks share clique ids, and single-host switches report a zero UUID.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topocheck.kinds import kind_numbers, per_node
from topocheck.models import spans_hosts
from topocheck.placement import Node, Placement
from topocheck.snapshot import JobFact

__all__ = [
    "all_in_one_domain",
    "covers",
    "domain_of",
    "domains_between",
    "domains_of",
    "in_one_domain",
    "reported",
    "shares_clique",
    "told_apart",
]

ZERO = "0" * 32
COMPLETED = "completed"


def covers(node: Node, gpus: Sequence[int | None]) -> bool:
    """The fabric reports of a node are about all of these GPUs, as far as it is known which they are."""
    reports = node.machine.fabric if node.machine is not None else ()
    if any(not fabric.gpus and not fabric.unnamed for fabric, _ in reports):
        return True
    shown = {ties[gpu] if ties else gpu for fabric, ties in reports for gpu in fabric.gpus}
    return shown.issuperset(gpu for gpu in gpus if gpu is not None)


def domain_of(node: Node) -> str | bool | None:
    """Domain that a node's fabric proves.

    False if it proves that there is none beyond the host; None if it is not known.
    """
    spans = {spans_hosts(model) for model in node.models}
    shown = reported(node)
    if False in spans or shown is False:
        return False
    states = {(fabric.state or "").lower() for fabric, _ in node.machine.fabric} if node.machine else set()
    return shown if states == {COMPLETED} and spans == {True} else None


def domains_of(placement: Placement) -> list[str | bool | None]:
    """`domain_of` all nodes by their index."""
    return placement.keep("domains", lambda p: per_node(p, domain_of))


def reported(node: Node) -> str | bool | None:
    """Cluster UUID and clique that all entries of a node's fabric report, in whatever state it is.

    Equal ones prove nothing alone; different ones are different domains. False is a zero UUID.
    """
    found: set[str | bool | None] = set()
    for fabric, _ in node.machine.fabric if node.machine else ():
        uuid = fabric.cluster_uuid
        if uuid is not None and uuid.replace("-", "").strip("0") == "":
            found.add(False)
        elif uuid is None or fabric.clique is None:
            found.add(None)
        else:
            found.add(f"{uuid}.{fabric.clique}")
    return found.pop() if len(found) == 1 else None


def in_one_domain(placement: Placement, nodes: Sequence[Node]) -> bool | None:
    """Whether these nodes lie in one NVLink domain: proven, disproven, or not known."""
    if placement.seen.communicators and shares_clique(placement, nodes):
        return True
    proven = domains_of(placement)
    domains = [proven[node.index] for node in nodes]
    if False in domains:
        return False
    if None not in domains:
        return len(set(domains)) == 1
    shown = {reported(node) for node in nodes} - {None}
    return False if len(shown) > 1 else None


def domains_between(placement: Placement) -> Callable[[int, int], bool | None]:
    """`in_one_domain` for two nodes by their indexes, asked once for each two kinds of node."""
    return placement.keep("domains between nodes", find_between)


def find_between(placement: Placement) -> Callable[[int, int], bool | None]:
    """Communicators tell nodes of one kind apart: with some it is asked once for each two nodes."""
    nodes, known = placement.nodes, dict[tuple[int, int], bool | None]()
    kinds = range(len(nodes)) if placement.seen.communicators else kind_numbers(placement)

    def between(a: int, b: int) -> bool | None:
        key = kinds[a], kinds[b]
        if key not in known:
            known[key] = in_one_domain(placement, (nodes[a], nodes[b]))
        return known[key]

    return between


def all_in_one_domain(placement: Placement, nodes: Sequence[Node]) -> bool:
    """Whether it is proven of these nodes; of thousands that are not, two mostly show it."""
    return bool(in_one_domain(placement, nodes[:2]) and in_one_domain(placement, nodes))


def shares_clique(placement: Placement, nodes: Sequence[Node]) -> bool:
    """One communicator whose active MNNVL clique has all its ranks holds all these nodes."""
    wanted = {node.index for node in nodes}
    for comm in placement.seen.communicators.values():
        if not comm.cliques:
            continue
        members = {placement.node_of.get(member.machine) for member in comm.everyone()}
        for _, size in comm.cliques:
            if size == comm.size and comm.whole and wanted <= members:
                return True
    return False


def told_apart(placement: Placement, ranks: Sequence[int]) -> tuple[JobFact, ...]:
    """Telemetry by which ranks are in different NVLink domains, one line of each domain; () if none says so.

    It accuses alone: equal domains would need the state of the fabric as well.
    """
    told = placement.keep("told domains", told_domains)
    found: dict[str, JobFact] = {}
    for rank in ranks if told else ():
        if rank in told:
            found.setdefault(told[rank].value, told[rank])
    return tuple(found.values()) if len(found) > 1 else ()


def told_domains(placement: Placement) -> dict[int, JobFact]:
    """What the job's telemetry says of the domain of each rank; a rank that is told two says nothing."""
    found: dict[int, JobFact] = {}
    twice = set()
    for fact in placement.inventory.job:
        if fact.kind == "nvlink-domain" and fact.name.isdecimal() and len(fact.name) < 8:
            known = found.setdefault(int(fact.name), fact)
            if known.value != fact.value:
                twice.add(int(fact.name))
    return {rank: fact for rank, fact in found.items() if rank not in twice}
