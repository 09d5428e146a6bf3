"""ID: the launch gives every process the number that the engine needs."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Hashable, Iterator

import msgspec

from topocheck.ask import Ask
from topocheck.claims import UNKNOWN
from topocheck.jobfacts import facts_of, number, the_job
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, read_at, rule, the

__all__ = ["RULES"]

PROBE = "topocheck probe in the job's own processes on every node"


def claiming_nodes(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes whose processes claim ranks."""
    nodes = [node for node in placement.nodes if node.machine is not None and node.machine.has_claims]
    if not nodes and placement.phase == "observed":
        return NotApplicable("the job runs, and no environment of its processes was looked at")
    return {node.index: [node] for node in nodes} if len(nodes) <= 64 else alike(placement, nodes)


def alike(placement: Placement, nodes: list[Node]) -> Situations[Node]:
    """Nodes of a large job by what their claims look like: block launches are one situation."""
    found: dict[Hashable, list[Node]] = {}
    for node in nodes:
        found.setdefault(odd(placement, node) and node.index, []).append(node)
    return found


def numbers_on(placement: Placement, node: Node) -> list[tuple[int, int]]:
    """(rank, local rank) of each process of a node that claims both."""
    claims = placement.inventory.claims.get("")
    if claims is None:
        return []
    by_node = placement.keep("numbers by node", numbers_by_node)
    return by_node.get(node.index, [])


def numbers_by_node(placement: Placement) -> dict[int, list[tuple[int, int]]]:
    """(rank, local rank) of all processes by node position; one that is seen twice is one."""
    claims = placement.inventory.claims[""]
    found: dict[int, dict[tuple[int, int], None]] = {}
    for rank, local, machine in zip(claims.rank, claims.local_rank, claims.machine, strict=True):
        place = placement.node_of.get(machine)
        if place is not None and local != UNKNOWN:
            found.setdefault(place, {})[rank, local] = None
    return {place: list(numbers) for place, numbers in found.items()}


def own_gpus(placement: Placement, node: Node) -> bool:
    """Each process of the node claims a GPU of its own: containers may each count local ranks from 0."""
    column = placement.columns["claimed"]
    gpus = [column.gpu[rank] for rank, _ in numbers_on(placement, node) if 0 <= rank < placement.world]
    return None not in gpus and len(set(gpus)) == len(gpus)


def odd(placement: Placement, node: Node) -> str | None:
    """What does not fit about the numbers of a node, in words."""
    numbers = numbers_on(placement, node)
    locals_ = [local for _, local in numbers]
    twice = sorted(local for local, count in Counter(locals_).items() if count > 1)
    if twice and not own_gpus(placement, node):
        return f"local ranks {fold(twice)} are held by several processes of it"
    bases = {rank - local for rank, local in numbers}
    node_ranks = node.machine.node_ranks if node.machine else ()
    if len(bases) != 1 or len(node_ranks) != 1:
        return None  # dealt out in turn (cyclic, plane), or no node rank to compare with
    base, size = bases.pop(), len(numbers)
    expected = node_ranks[0] * size
    even = size * placement.expected == placement.world
    if even and base != expected:
        return f"node rank {node_ranks[0]} x {size} processes is {expected}, and its ranks start at {base}"
    return None


@rule("ID006", "rank, local rank and node rank agree", over=claiming_nodes, severity="error")
def numbers_agree(ask: Ask, node: Node) -> Iterator[Finding]:
    """RANK = NODE_RANK x local size + LOCAL_RANK in a block launch; each local rank once."""
    placement = ask.placement
    ask.rest_on("claimed")
    if not numbers_on(placement, node):
        ask.gap("local ranks of the processes", [node.name], PROBE)
        return
    fact = odd(placement, node)
    if fact:
        ranks = [rank for rank, _ in numbers_on(placement, node)]
        yield Finding(
            message=f"the numbers on {node} do not agree: {fact}. Two sources of the node order are in use, "
            "and groups meet the wrong peers",
            fix="derive rank, local rank and node rank from one launcher, in one order of nodes",
            cause="numbers disagree",
            subjects=(f"{node} (ranks {fold(ranks)})",),
            evidence=(Evidence(source="rank probe", fact=fact),),
            ranks=tuple(ranks),
        )


def several_nodes(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, if it has several nodes."""
    if placement.expected == 1 and len(placement.nodes) == 1:
        return NotApplicable("the job has one node")
    return the(placement)


@rule("ID007", "node ranks are complete and unique", over=several_nodes, severity="error")
def node_ranks_complete(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """A permutation of 0..N-1: a constant node rank makes every node the first."""
    ask.know()
    constant = [fact for fact in facts_of(placement, "node-rank") if fact.value.startswith("constant ")]
    workers = [fact for fact in constant if fact.name == "worker"]
    if workers and placement.expected > 2:
        yield Finding(
            message=f"every worker is started with node rank {workers[0].value.split()[-1]}, and the job has "
            f"{placement.expected} nodes: all workers take the same ranks",
            fix="use the index that the launcher gives each pod (LWS_WORKER_INDEX, JOB_COMPLETION_INDEX)",
            cause="constant node rank",
            subjects=("worker template",),
            evidence=tuple(read_at(fact.at, f"node rank {fact.value}") for fact in workers),
        )
    holders: dict[int, list[str]] = {}
    silent = []
    for node in placement.nodes:
        ranks = node.machine.node_ranks if node.machine else ()
        for rank in ranks:
            holders.setdefault(rank, []).append(node.name)
        if not ranks:
            silent.append(node.name)
    doubled = {rank: names for rank, names in holders.items() if len(names) > 1}
    if doubled:
        parts = [f"node rank {rank} on {first(names)}" for rank, names in sorted(doubled.items())]
        yield Finding(
            message=f"{first(parts, 4)}: each of these nodes takes the same ranks, and the job waits for the "
            "others",
            fix="give each node its own --node-rank, 0 to N-1, rank 0 where the master address is",
            cause="node rank twice",
            subjects=tuple(name for names in doubled.values() for name in names),
            evidence=tuple(Evidence(source="rank probe", fact=part) for part in parts),
        )
    beyond = sorted(rank for rank in holders if rank >= placement.expected)
    if beyond:
        yield Finding(
            message=f"node ranks {fold(beyond)} exist and the plan has {placement.expected} nodes",
            fix="number the nodes 0 to N-1, or correct `nodes:` in the plan",
            cause="node rank out of range",
            subjects=tuple(f"node rank {rank}" for rank in beyond),
            evidence=tuple(
                Evidence(source="rank probe", fact=f"node rank {rank} on {first(holders[rank])}")
                for rank in beyond
            ),
        )
    if silent:
        ask.gap("node ranks", silent, PROBE)


@rule("ID012", "the launcher starts no launchers", over=the_job, severity="error")
def no_launcher_of_launchers(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Tasks a node x processes a task must not exceed the GPUs of a node."""
    tasks = [
        value
        for f in facts_of(placement, "processes-per-node")
        if f.name == "launcher" and (value := number(f.value))
    ]
    inner = [
        value
        for f in facts_of(placement, "processes-per-node")
        if f.name == "agent" and (value := number(f.value))
    ]
    if not tasks or not inner:
        ask.gap(
            "how many tasks a node the launcher starts, and how many processes each of them",
            ["launch command"],
            "the launch script or command, given as a file",
        )
        return
    ask.know()
    product = max(tasks) * max(inner)
    share = -(-placement.world // placement.expected)
    if max(tasks) > 1 and max(inner) > 1 and product > share:
        evidence = facts_of(placement, "processes-per-node")
        yield Finding(
            message=f"the launcher starts {max(tasks)} tasks a node and each starts {max(inner)} processes: "
            f"{product} processes for {share} ranks a node",
            fix="start one task a node (ntasks-per-node=1) and let it start the processes, or the reverse",
            cause="launcher of launchers",
            subjects=(f"{product} processes a node",),
            evidence=tuple(read_at(f.at, f"{f.name or 'launch'}: {f.value} a node") for f in evidence),
        )


@rule("ID014", "the rendezvous address reaches all nodes", over=several_nodes, severity="error")
def rendezvous_is_reachable(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Not loopback in a job of several nodes, and the same on all of them."""
    addresses = rendezvous_addresses(placement)
    if not addresses:
        ask.gap(
            "the rendezvous address",
            ["job"],
            "the engine's start-up log, or MASTER_ADDR by topocheck probe in the job's own processes",
        )
        return
    ask.know()
    local = [(name, value, at) for name, value, at in addresses if is_loopback(value)]
    if local:
        yield Finding(
            message=f"{local[0][0]} is {local[0][1]}, which every node takes for itself, and the job has "
            f"{placement.expected} nodes: the others wait for a rendezvous that never comes",
            fix="set it to an address of the first node that all nodes reach (MASTER_ADDR, --dist-init-addr, "
            "--data-parallel-address, VLLM_HOST_IP)",
            cause="loopback rendezvous",
            subjects=tuple(dict.fromkeys(f"{name} {value}" for name, value, _ in local)),
            evidence=tuple(at for _, _, at in local),
        )
    masters = {value for name, value, _ in addresses if name == "MASTER_ADDR"}
    if len(masters) > 1:
        yield Finding(
            message=f"MASTER_ADDR differs over the nodes: {first(sorted(masters))}. Each waits for its own",
            fix="give all nodes the same MASTER_ADDR",
            cause="rendezvous differs",
            subjects=tuple(sorted(masters)),
            evidence=tuple(at for name, _, at in addresses if name == "MASTER_ADDR"),
        )


def rendezvous_addresses(placement: Placement) -> list[tuple[str, str, Evidence]]:
    """(what, address, where) of every rendezvous that the evidence names."""
    found = [
        (fact.name or "rendezvous", fact.value, read_at(fact.at, f"{fact.name}: {fact.value}"))
        for fact in facts_of(placement, "rendezvous")
    ]
    for node in placement.nodes:
        for raw in node.machine.environments if node.machine else ():
            value = msgspec.json.decode(raw, type=dict[str, str]).get("MASTER_ADDR")
            if value:
                where = Evidence(source="environment", fact=f"MASTER_ADDR={value} on {node}")
                found.append(("MASTER_ADDR", value, where))
    return found


def is_loopback(address: str) -> bool:
    """localhost, 127.0.0.0/8 or ::1, with or without scheme and port."""
    host = address.rpartition("//")[2].strip("[]")
    for candidate in (host, host.rpartition(":")[0].strip("[]")):
        if candidate.lower() in ("localhost", "localhost.localdomain"):
            return True
        try:
            return ipaddress.ip_address(candidate).is_loopback
        except ValueError:
            continue
    return False


RULES = (node_ranks_complete, numbers_agree, no_launcher_of_launchers, rendezvous_is_reachable)
