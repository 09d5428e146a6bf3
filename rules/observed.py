"""OBS: what the running job shows of itself agrees with the plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from topocheck.ask import Ask
from topocheck.communicators import DUPLICATE
from topocheck.edgeends import one_sided
from topocheck.jobfacts import facts_of
from topocheck.launched import is_refused_for_space
from topocheck.placement import Placement
from topocheck.ranges import first, fold
from topocheck.raydriver import REFUSAL
from topocheck.rdma import FIXES, rdma_of, spell
from topocheck.rendezvous import loopbacks
from topocheck.rule import Finding, NotApplicable, Severity, Situations, read_at, rule, the
from topocheck.snapshot import JobFact
from topocheck.subjects import TensorGroup, between_nodes, running, tensor_groups
from topocheck.traffic import Flow, flows, global_members

__all__ = ["RULES"]

LOG = "the NCCL_DEBUG=INFO log of every node, from its first line to its last"

CLAIMED = re.compile(
    r"Duplicate GPU|Multiple Ranks are using|libibverbs|ibv_|Unable to open device|P2P is disabled|"
    r"XML Import|No device found|RAS",
    re.IGNORECASE,
)
"""Warnings that a rule with a cause speaks for: ID004, NET009, NV005, ENV003."""
RENDEZVOUS = re.compile(
    r"clients joined|Dist(?:Store|Network)Error|connectFullMesh|Rendezvous(?:Timeout|Connection)Error"
)
"""Lines by which processes say that they did not meet."""


def running_groups(placement: Placement) -> Situations[TensorGroup] | NotApplicable:
    """TP groups of the running job."""
    job = running(placement)
    if isinstance(job, NotApplicable):
        return job
    groups = tensor_groups(placement)
    if isinstance(groups, NotApplicable):
        return groups
    return {(key, group.index): [group] for key, members in groups.items() for group in members}


@rule("OBS002", "TP edges ran over P2P", over=running_groups, severity="warning")
def tensor_edges_over_p2p(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """Shared memory or a socket between two GPUs of one node means that peer access was not used."""
    wanted = set(group.ranks)
    inside = [
        flow for flow in flows(ask.placement) if {flow.src, flow.dst} <= wanted and not flow.between_nodes
    ]
    ask.rest_on("observed")
    slow = [flow for flow in inside if flow.edge.via in ("SHM", "NET")]
    for severity in ("error", "warning"):
        pairs = {tuple(sorted((f.src or 0, f.dst or 0))) for f in slow if severity_of(ask, f) == severity}
        lines = [flow for flow in slow if severity_of(ask, flow) == severity]
        if pairs:
            how = lines[0].edge.how or lines[0].edge.via
            ran = first(f"ranks {a}-{b} ran over {how}" for a, b in sorted(pairs))
            yield Finding(
                message=f"TP group {group.index}: {ran} instead of P2P: their exchange goes through "
                "host memory",
                fix="check peer access (nvidia-smi topo -p2p r), NCCL_P2P_DISABLE and NCCL_P2P_LEVEL; if the "
                "hardware has none, keep TP on the pairs that have it",
                cause=f"no P2P ({severity})",
                subjects=tuple(f"ranks {a}-{b}" for a, b in sorted(pairs)),
                evidence=tuple(flow.evidence() for flow in lines),
                severity="error" if severity == "error" else "warning",
                ranks=min(pairs),
                mark="edge",
            )
    seen = {rank for flow in inside for rank in (flow.src, flow.dst)}
    if not wanted <= seen:
        ask.gap("edges inside a TP group", [f"ranks {fold(wanted - seen)}"], LOG)


def severity_of(ask: Ask, flow: Flow) -> Severity:
    """Error where NVLink or peer access is shown for the pair, so that P2P was possible."""
    column = ask.placement.placed
    node = flow.src_node
    if node is None or node.shape is None or flow.src is None or flow.dst is None:
        return "warning"
    a, b = column.gpu[flow.src], column.gpu[flow.dst]
    if a is None or b is None or max(a, b) >= node.shape.gpus:
        return "warning"
    link = node.shape.link(a, b)
    possible = (link is not None and link.nvlink) or node.shape.peer(a, b) == "OK"
    return "error" if possible else "warning"


@rule("OBS003", "edges between nodes ran over RDMA", over=between_nodes, severity="error", required=True)
def edges_over_rdma(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Sockets between nodes: an order of magnitude slower, and no error tells of it."""
    ask.rest_on("observed")
    found = [flow for flow in flows(placement) if flow.between_nodes]
    sockets = [flow for flow in found if flow.edge.network == "Socket"]
    if sockets:
        yield over_sockets(placement, sockets)
    told = [flow for flow in found if flow.edge.via != "NET" or flow.edge.network is not None]
    silent = without_edge(placement, told)
    if silent:
        ask.gap("an edge between the nodes", silent, LOG)


def without_edge(placement: Placement, told: Sequence[Flow]) -> list[str]:
    """Expected nodes that none of these edges ends at."""
    covered = {node.index for flow in told for node in (flow.near, *flow.nodes)}
    return [node.name for node in placement.nodes[: placement.expected] if node.index not in covered]


def over_sockets(placement: Placement, sockets: Sequence[Flow]) -> Finding:
    """The finding of edges over sockets, with the reasons that the logs of their ends give."""
    nodes = list(dict.fromkeys(node for flow in sockets for node in (flow.near, *flow.nodes)))
    edges = dict.fromkeys(map(str, sockets))
    known = {node: rdma for node in nodes if (rdma := rdma_of(placement, node)) and rdma.cause in FIXES}
    reasons = first((f"{node}: {rdma.reason}" for node, rdma in known.items() if not rdma.works), 3)
    fixes = [rdma.fix for rdma in known.values() if not rdma.works]
    return Finding(
        message=f"edges {first(edges)} between nodes ({first(map(str, nodes))}) ran over NET/Socket, not "
        "RDMA: every exchange between the nodes pays for it" + (f" ({reasons})" if reasons else ""),
        fix=f"{fixes[0] if fixes else 'mend what made NCCL choose sockets (its lines after NET/IB)'}, and "
        "launch again",
        cause="sockets between nodes",
        subjects=tuple(f"edge {edge}" for edge in edges),
        evidence=tuple(flow.evidence() for flow in sockets),
        severity="warning" if placement.plan.policy.boundary == "any" else "error",
        ranks=tuple(rank for flow in sockets[:16] for rank in (flow.src, flow.dst) if rank is not None),
        mark="edge",
    )


@rule("OBS009", "edges between nodes used GPUDirect", over=between_nodes, severity="warning")
def edges_use_gpudirect(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Without GPUDirect RDMA every message is staged through host memory."""
    ask.rest_on("observed")
    found = [
        f for f in flows(placement) if f.between_nodes and f.edge.via == "NET" and f.edge.network != "Socket"
    ]
    lone = one_sided(placement)  # what differs between two ends is OBS004's, or NCCL's own choice
    staged = [flow for flow in found if flow.edge.gdr is False and flow.ends not in lone]
    refused = [
        (placement.nodes[place], fact)
        for place, facts in placement.facts_by_node.items()
        for fact in facts
        if fact.kind == "gdr-disabled"
    ]
    if staged or refused:
        parts = [f"edges {first(dict.fromkeys(map(str, staged)))} ran without GDRDMA"] if staged else []
        nodes = dict.fromkeys(str(node) for node, _ in refused)
        if refused:
            parts.append(
                f"NCCL disabled it on {first(nodes)} for {first(dict.fromkeys(f.value for _, f in refused))}"
            )
        yield Finding(
            message=f"GPUDirect RDMA is not used: {'; '.join(parts)}. Messages are staged through host "
            "memory",
            fix="load nvidia_peermem or use dma-buf on every node, keep the NIC on the GPU's PCIe switch, "
            "and check NCCL_NET_GDR_LEVEL",
            cause="no GPUDirect",
            subjects=(*(f"edge {flow}" for flow in staged), *nodes),
            evidence=(*(flow.evidence() for flow in staged), *(spell(fact) for _, fact in refused)),
            ranks=tuple(rank for flow in staged[:1] for rank in (flow.src, flow.dst) if rank is not None),
            mark="edge",
        )
    silent = without_edge(placement, [flow for flow in found if flow.edge.gdr is not None])
    if silent:
        ask.gap("an RDMA edge between the nodes", silent, LOG)


def started(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, if it was seen running, or seen to end before it had a communicator."""
    logged = any(fact.kind == "abort" for facts in placement.facts_by_node.values() for fact in facts)
    begun = facts_of(placement, "group-init")
    return the(placement) if logged or begun or endings(placement) else running(placement)


def unfinished(placement: Placement) -> list[str]:
    """Ranks by their coordinates that began to build their groups, and of which no line shows the end."""
    told = facts_of(placement, "group-init")
    ended = {fact.name for fact in told if fact.value == "end"}
    return list(dict.fromkeys(fact.name for fact in told if fact.name not in ended))


def endings(placement: Placement) -> list[JobFact]:
    """Lines of engines and launchers by which the start ended, but for those of which a rule knows the cause.

    ID015 speaks for refusals for want of room, ID014 for a rendezvous that fails at a loopback address and
    for what else then ends on that host.
    """
    aborts = [fact for fact in facts_of(placement, "abort") if not placement.seen.is_past(fact.at)]
    if loopbacks(placement):
        apart = {fact.host for fact in aborts if RENDEZVOUS.search(fact.value)} - {None}
        aborts = [fact for fact in aborts if fact.host not in apart and not RENDEZVOUS.search(fact.value)]
    refused = [
        fact
        for fact in facts_of(placement, "refused")
        if not (is_refused_for_space(fact.value) or REFUSAL in fact.value or placement.seen.is_past(fact.at))
    ]
    return [*refused, *aborts]


@rule("OBS006", "every rank finished initialisation", over=started, severity="error")
def initialisation_finished(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """An abort line or a refusal, or every rank complete. A log that stops early proves neither."""
    ask.rest_on("observed")
    aborts = [
        (placement.nodes[place].name, fact.value, fact.at)
        for place, facts in placement.facts_by_node.items()
        for fact in facts
        if fact.kind == "abort" and not CLAIMED.search(fact.value)
    ]
    aborts += [(fact.host or "a host", fact.value, fact.at) for fact in endings(placement)]
    if aborts:
        nodes = dict.fromkeys(name for name, _, _ in aborts)
        yield Finding(
            message=f"initialisation was aborted on {first(nodes)}: {aborts[0][1]}",
            fix="mend what the line names; the other ranks only wait for this one",
            cause="aborted",
            subjects=tuple(nodes),
            evidence=tuple(read_at(at, f"abort on {name}: {value}") for name, value, at in aborts),
        )
        return
    if hanging := unfinished(placement):
        ask.gap("that a rank which began to build its process groups ended it", hanging, LOG)
    done = set()
    for comm in placement.seen.of_size(placement.world):
        done |= {m.rank for m in comm.everyone() if m.phase in ("complete", "destroyed")}
    waiting = sorted(set(range(placement.world)) - done)
    if waiting:
        ask.gap("that a rank finished initialisation", [f"ranks {fold(waiting)}"], LOG)


def grouped(placement: Placement) -> Situations[str] | NotApplicable:
    """Kinds of group of the plan that have communicators of their own."""
    job = running(placement)
    if isinstance(job, NotApplicable):
        return job
    kinds = [kind for kind in placement.layout.kinds() if kind in ("tensor", "pipeline", "data", "context")]
    if not kinds:
        return NotApplicable("no group has more than one rank")
    return {kind: [kind] for kind in kinds}


@rule("OBS008", "communicators have the members of the plan's groups", over=grouped, severity="error")
def communicators_match_groups(ask: Ask, kind: str) -> Iterator[Finding]:
    """A whole communicator of a group's size whose members are no group of the plan."""
    placement = ask.placement
    ask.rest_on("observed")
    wanted = {frozenset(group) for group in placement.layout.groups(kind)}
    size = placement.layout.size(kind)
    built = built_groups(placement)
    of_size = {members: name for members, name in built.items() if len(members) == size}
    if size == placement.world or not of_size:
        if size == placement.world and frozenset(range(size)) in built:
            return
        ask.gap(f"communicators of the {kind} groups", [f"groups of {size} ranks"], LOG)
        return
    planned = {
        frozenset(group) for other in placement.layout.kinds() for group in placement.layout.groups(other)
    }
    beside = {
        frozenset(pair)
        for other in ("pipeline", "context", "sequence")
        for group in placement.layout.groups(other)
        for pair in zip(group, [*group[1:], group[0]], strict=True)
    }  # torch builds a communicator for each pair of neighbours that send to each other
    strange = [members for members in of_size if members not in planned | beside]
    missing = [group for group in wanted if group not in built]
    if strange and len(missing) == len(wanted):
        yield strange_groups(placement, kind, strange, of_size)
    elif missing:
        ask.gap(f"communicators of the {kind} groups", [f"ranks {fold(min(missing, key=min))}"], LOG)


def built_groups(placement: Placement) -> dict[frozenset[int], str]:
    """Members of every whole communicator in global ranks, with its name."""
    found: dict[frozenset[int], str] = {}
    for comm in placement.seen.communicators.values():
        if comm.id.startswith(DUPLICATE) or not comm.whole:
            continue
        members = global_members(placement, comm)
        if len(members) == comm.size:
            found.setdefault(frozenset(members.values()), comm.id)
    return found


def strange_groups(
    placement: Placement, kind: str, strange: Sequence[frozenset[int]], names: dict[frozenset[int], str]
) -> Finding:
    """The finding of communicators that no group of the plan explains."""
    spelled = [f"{{{fold(members)}}}" for members in sorted(strange, key=min)]
    planned = [f"{{{fold(group)}}}" for group in placement.layout.groups(kind)]
    comms = [placement.seen.communicators[names[members]] for members in strange]
    return Finding(
        message=f"the job built groups of ranks {first(spelled, 4)}, the plan's {kind} groups are "
        f"{first(planned, 4)}: the engine orders its ranks otherwise",
        fix="correct sizes or order in the plan, or the engine's own order option",
        cause=f"{kind} groups differ",
        subjects=tuple(spelled),
        evidence=tuple(read_at(next(comm.everyone()).at, f"communicator {comm.id}") for comm in comms),
        ranks=tuple(min(strange, key=min)),
    )


RULES = (
    initialisation_finished,
    communicators_match_groups,
    edges_over_rdma,
    tensor_edges_over_p2p,
    edges_use_gpudirect,
)
