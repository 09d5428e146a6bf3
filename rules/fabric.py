"""NV: what holds an NVLink fabric together: one domain, its manager, and peer access over its links."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations

from topocheck.ask import NVLINK, TOPO, Ask, Device
from topocheck.domain import covers, shares_clique
from topocheck.kinds import kinds
from topocheck.models import nvlinks_by_design, spans_hosts
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.reliance import Reliance, relying
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, read_at, rule
from topocheck.snapshot import Fabric, LogFact
from topocheck.subjects import Load, loads, without_nvlink

__all__ = ["RULES"]

QUERY = "nvidia-smi -q, given as NODE=FILE"
COMPLETED = "completed"


@rule("NV003", "the NVLink domain of a group is one", over=relying, severity="error")
def domain_is_one(ask: Ask, group: Reliance) -> Iterator[Finding]:
    """One cluster UUID has one clique, all GPUs of a node are of it, and its nodes' IMEX works."""
    ask.rest_on(ask.placement.placed.basis)
    column = ask.placement.placed.node
    if missing := [rank for rank in group.ranks if column[rank] is None]:
        ask.rank_gap(missing)
    accused = [*torn_nodes(group), *partitions(group), *imex_faults(ask.placement, group)]
    yield from accused
    silent = [node.name for node in group.nodes if not all_told(node)]
    if silent:
        ask.gap("cluster UUID and clique of the NVLink fabric", silent, QUERY, part="fabric")
    unready = [node.name for node in group.nodes if any(not_ready(fabric) for fabric, _ in reports(node))]
    if unready:
        ask.gap("a completed NVLink fabric", unready, QUERY, because="NV002", part="fabric")
    several = {domain for node in group.nodes for domain in domains(node)}
    apart = len(several) > 1 or any(not uuid.strip("0") for uuid, _ in several)
    if apart and not accused and group.elsewhere is not None:
        need = f"one NVLink domain ({group.what})"
        ask.gap(need, [node.name for node in group.nodes], QUERY, because=group.elsewhere)
    if not (apart or accused or missing or silent or unready or shares_clique(ask.placement, group.nodes)):
        ask.gap(
            "that the IMEX daemons are of one domain",
            [node.name for node in group.nodes],
            "the NCCL_DEBUG=INFO log of every node, from its first line (MNNVL 1 ... cliqueSize)",
            part="fabric",
        )


def reports(node: Node) -> Sequence[tuple[Fabric, list[int] | None]]:
    """What the GPUs of a node report of their fabric."""
    return node.machine.fabric if node.machine else ()


def domains(node: Node) -> dict[tuple[str, int], Fabric]:
    """Cluster UUID and clique of each report that has both, with one report of each."""
    found: dict[tuple[str, int], Fabric] = {}
    for fabric, _ in reports(node):
        if fabric.cluster_uuid is not None and fabric.clique is not None:
            found.setdefault((fabric.cluster_uuid.replace("-", ""), fabric.clique), fabric)
    return found


def all_told(node: Node) -> bool:
    """Every report of a node has cluster UUID and clique, and none of its GPUs is without one."""
    found = [fabric.cluster_uuid is not None and fabric.clique is not None for fabric, _ in reports(node)]
    return bool(found) and all(found) and covers(node, range(len(node.machine.gpus) if node.machine else 0))


def not_ready(fabric: Fabric) -> bool:
    """The state is known, and it is not that of a fabric in use."""
    return fabric.state is not None and fabric.state.lower() != COMPLETED


def spelled(domain: tuple[str, int]) -> str:
    """A domain as people compare it."""
    return f"cluster UUID {domain[0]}, clique {domain[1]}"


def torn_nodes(group: Reliance) -> Iterator[Finding]:
    """Nodes whose own GPUs report several domains."""
    for node in group.nodes:
        found = domains(node)
        if len(found) > 1:
            parts = first((spelled(domain) for domain in found), 3)
            yield Finding(
                message=f"the GPUs of {node} report several NVLink domains ({parts}): {group.what} cannot "
                "use NVLink between all of them",
                fix=f"drain {node}, put its GPUs into one partition and reset them",
                cause="node in several domains",
                subjects=(node.name,),
                evidence=tuple(read_at(one.at, spelled(key), "fabric") for key, one in found.items()),
                ranks=group.ranks,
            )


def partitions(group: Reliance) -> Iterator[Finding]:
    """Nodes of one cluster UUID in several cliques: one rack, cut into partitions."""
    cliques: dict[str, dict[int, list[Node]]] = {}
    for node in group.nodes:
        for uuid, clique in domains(node):
            cliques.setdefault(uuid, {}).setdefault(clique, []).append(node)
    for uuid, parts in cliques.items():
        if len(parts) > 1 and uuid.strip("0"):
            told = [f"clique {clique} on {first(map(str, nodes), 4)}" for clique, nodes in parts.items()]
            yield Finding(
                message=f"{group.what} needs one NVLink domain, and its nodes are in several cliques of "
                f"cluster {uuid}: {first(told)}. NVLink does not join cliques",
                fix="put the nodes into one partition of the NVLink switches, or take nodes of one clique",
                cause="cluster in several cliques",
                subjects=(str(group),),
                evidence=tuple(
                    read_at(domains(nodes[0])[uuid, clique].at, f"{nodes[0]}: clique {clique}", "fabric")
                    for clique, nodes in parts.items()
                ),
                ranks=group.ranks,
            )


def imex_faults(placement: Placement, group: Reliance) -> Iterator[Finding]:
    """Nodes on which NCCL found the domain and could not share memory in it."""
    for node in group.nodes:
        failed = [f for f in placement.facts_by_node.get(node.index, ()) if f.kind == "mnnvl-failed"]
        if failed:
            yield Finding(
                message=f"NCCL found the NVLink domain on {node} and cannot share memory in it: "
                f"{failed[0].value[:200]}. {group.what} leaves NVLink or does not start",
                fix="start one IMEX domain for exactly the job's nodes (nvidia-imex-ctl -N shows it) and "
                "give the containers its channel device",
                cause="IMEX does not work",
                subjects=(node.name,),
                evidence=tuple(read_at(fact.at, fact.value, "log") for fact in failed),
                ranks=group.ranks,
            )


def managed(placement: Placement) -> Situations[Node] | NotApplicable:
    """All nodes, unless none has NVSwitches that a manager of its own looks after."""
    if all(switched(alike[0]) is False for alike in kinds(placement)):
        return NotApplicable("no node has NVSwitches of its own")
    return dict(enumerate(kinds(placement)))


def told(node: Node, *kinds: str) -> tuple[LogFact, ...]:
    """Statements of these kinds in what a node's programs and listings say."""
    observed = node.machine.observed if node.machine else ()
    return tuple(fact for seen, _ in observed for fact in seen.facts if fact.kind in kinds)


def switched(node: Node) -> bool | None:
    """The node has NVSwitches of its own: by its PCI devices, its models, its links; None if not known."""
    counts = [fact.value for fact in told(node, "nvswitches")]
    if counts:
        return any(count.isdecimal() and int(count) for count in counts)
    models = node.models
    if None not in models and all(nvlinks_by_design(m) is None or spans_hosts(m) for m in models):
        return False  # cards with bridges or without, and trays whose switches are elsewhere in the rack
    shape = node.shape
    if shape is None or not shape.gpus:
        return None
    known = {shape.nvswitch(gpu) for gpu in range(shape.gpus)}
    if True in known:
        return True
    links = [shape.link(a, b) for a, b in combinations(range(shape.gpus), 2)]
    whole = len(models) == 1 and nvlinks_by_design(*models)
    if whole and len(links) > 1 and all(link is not None and link.nvlink for link in links):
        return all(link is not None and link.count == whole for link in links)  # all its links to each peer
    return False if known == {False} else None


@rule("NV004", "the fabric manager runs, of the driver's version", over=managed, severity="warning")
def manager_runs(ask: Ask, node: Node) -> Iterator[Finding]:
    """A fabric that was set up had a manager of the right version: another one refuses to start."""
    ask.know()
    board = switched(node)
    wrong = list(manager_faults(node)) if board is not False else []
    if wrong:
        yield Finding(
            message=f"the fabric manager of {node} {' and '.join(words for words, _ in wrong)}: one of "
            "another version refuses to start, and without one the NVSwitches stay dark (CUDA error 802)",
            fix="install the fabric manager of exactly the driver's version, start it (systemctl start "
            "nvidia-fabricmanager), then reset the GPUs",
            cause="fabric manager",
            subjects=(node.name,),
            evidence=tuple(evidence for _, evidence in wrong),
            ranks=tuple(ask.placement.ranks_on.get(node.index, ())),
            mark="gpu",
        )
    elif board is None:
        ask.gap("whether the board has NVSwitches", [node.name], TOPO, part="links")
    elif board and not manager_seen(node):
        supply = "systemctl status nvidia-fabricmanager, or nvidia-smi -q, given as NODE=FILE"
        ask.gap("the fabric manager", [node.name], supply, part="fabric")


def manager_faults(node: Node) -> Iterator[tuple[str, Evidence]]:
    """What is wrong with the manager, in words, each with its source."""
    software = node.machine.software if node.machine else None
    last = next((fact for fact in reversed(told(node, "fabric-manager")) if fact.value != "ran"), None)
    if last is not None and last.value in ("failed", "inactive"):
        state = "has failed" if last.value == "failed" else "is not running"
        yield state, read_at(last.at, f"fabric manager {last.value}")
    refused = told(node, "fabric-manager-mismatch")
    for fact in refused[:1]:
        own, _, driver = fact.value.partition(" ")
        yield f"is of version {own}, the driver of {driver}", read_at(fact.at, f"refused: {fact.value}")
    if software is None or refused or None in (software.fabric_manager, software.driver):
        return
    if software.fabric_manager != software.driver:
        source = first(node.machine.sources, 2) if node.machine else "software"
        words = f"is of version {software.fabric_manager}, the driver of {software.driver}"
        yield words, Evidence(source=source or "software", fact=f"fabric manager {words}")


def manager_seen(node: Node) -> bool:
    """It is proven to have set the fabric up, to run, or to be installed in the driver's version."""
    software = node.machine.software if node.machine else None
    same = software is not None and None not in (software.fabric_manager, software.driver)
    runs = any(fact.value in ("running", "configured") for fact in told(node, "fabric-manager"))
    return same or runs or any((fabric.state or "").lower() == COMPLETED for fabric, _ in reports(node))


def linked(placement: Placement) -> Situations[Load] | NotApplicable:
    """Nodes with several ranks, unless no GPU of the job has NVLink by design."""
    bare = without_nvlink(placement)
    if bare is not None:
        return bare
    if not placement.unplaced and all(len(ranks) == 1 for ranks in placement.ranks_on.values()):
        return NotApplicable("each node has one rank")
    return placement.keep("linked loads", linked_loads)


def linked_loads(placement: Placement) -> dict[Hashable, Sequence[Load]]:
    """Nodes with ranks by kind, and those that stopped before they had any."""
    found: dict[Hashable, Sequence[Load]] = dict(loads(placement))
    for place, facts in placement.facts_by_node.items():
        if place not in placement.ranks_on and any(fact.kind == "p2p-disabled" for fact in facts):
            found["told", place] = [Load(placement.nodes[place], (), ())]
    return found


REASONS = {
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "DISABLED": "switched off by a driver setting",
    "NS": "not supported",
}
"""Words for what the driver says of a pair; `U` is not known to itself."""


@rule("NV005", "NVLink gives peer access", over=linked, severity="error")
def links_give_access(ask: Ask, load: Load) -> Iterator[Finding]:
    """Pairs of GPUs in use that NVLink joins and whose peer access the driver refuses."""
    node, devices = load.node, list(ask.devices(load.ranks).values())
    refused, unknown = {}, set[str]()
    for a, b in combinations(devices, 2):
        pair = judged(a, b)
        if pair in ("link", "peer"):
            unknown.add(pair)
        elif pair:
            refused[f"GPUs {a.index}-{b.index}: {REASONS.get(pair, pair)}"] = Evidence(
                source=first(a.node.machine.sources, 2) if a.node.machine else "hardware",
                fact=f"GPUs {a.index}-{b.index} joined by NVLink, peer access {pair}",
            )
    said = told(node, "p2p-disabled", "abort") if node else ()
    for fact in said:
        if fact.value.startswith("NVLINK") or "P2P is disabled between NVLINK" in fact.value:
            refused.setdefault(f"NCCL: {fact.value[:120]}", read_at(fact.at, fact.value, "log"))
    if refused and node is not None:
        yield access_off(node, load, refused)
    if "link" in unknown:
        ask.gap("link of each pair of GPUs", [str(node)], f"{NVLINK}, or {TOPO}", part="links")
    if "peer" in unknown:
        supply = "nvidia-smi topo -p2p r, given as NODE=FILE"
        ask.gap("peer access of each pair of GPUs", [str(node)], supply, part="peers")


def judged(a: Device, b: Device) -> str:
    """The refusal of a pair that NVLink joins, empty if there is none; `link` or `peer` is not known."""
    shape = a.node.shape
    if a.ordinal == b.ordinal:
        return ""
    if shape is None or max(a.ordinal, b.ordinal) >= shape.gpus:
        return "link"
    link = shape.link(a.ordinal, b.ordinal)
    if link is None:
        return "link"
    if not link.nvlink:
        return ""
    answers = {shape.peer(a.ordinal, b.ordinal), shape.peer(b.ordinal, a.ordinal)}
    refusals = sorted(answer for answer in answers if answer not in (None, "OK", "U"))
    return refusals[0] if refusals else "" if answers == {"OK"} else "peer"


def access_off(node: Node, load: Load, refused: dict[str, Evidence]) -> Finding:
    """The finding of one node."""
    return Finding(
        message=f"NVLink joins GPUs of {node} and the driver gives them no peer access ({first(refused, 4)}"
        "): NCCL stops, or goes through host memory",
        fix="look for a setting that switches peer access off (NVreg_RegistryDwords, vGPU, MIG, confidential "
        "computing), then reset the GPUs; NCCL_IGNORE_DISABLED_P2P=1 only hides it",
        cause="peer access off",
        subjects=(node.name,),
        evidence=tuple(refused.values()),
        ranks=load.ranks,
        mark="gpu",
    )


RULES = (domain_is_one, manager_runs, links_give_access)
