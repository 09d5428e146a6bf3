"""PP: stages are whole, in order, and their boundaries have a fast way."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from topocheck.ask import Ask, Device
from topocheck.crossing import crossing_severity
from topocheck.domain import in_one_domain
from topocheck.jobfacts import facts_of
from topocheck.kinds import kind_numbers, per_node
from topocheck.placement import Node, Placement
from topocheck.plan import NodeRange
from topocheck.profiles import distances_from, hides_distances
from topocheck.ranges import first, fold
from topocheck.rdma import Rdma, rdma_of
from topocheck.rule import Evidence, Finding, NotApplicable, Severity, Situations, read_at, rule, the
from topocheck.stagelinks import stage_pairs
from topocheck.subjects import (
    INNER,
    Boundary,
    along,
    every_rank_told,
    replica_of,
    stage_boundaries,
    tensor_groups,
    told_by,
)

__all__ = ["RULES"]

STAGES_BY_NODE_RANK = ("sglang",)
"""Engines whose nodes work out from their rank alone which stages they start."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of the model."""

    index: int

    def __str__(self) -> str:
        return f"replica {self.index}"


def replicas(placement: Placement) -> Situations[Replica]:
    """Copies of the model: those with all ranks placed as one situation."""
    count = 1
    for axis, size in placement.layout.axes:
        count *= size if axis not in INNER else 1
    broken = {replica_of(placement, rank) for rank in placement.unplaced}
    whole = [Replica(index) for index in range(count) if index not in broken]
    found: dict[Hashable, list[Replica]] = {index: [Replica(index)] for index in sorted(broken)}
    return {**({"whole": whole} if whole else {}), **found}


@rule("PP001", "each replica has all its stages", over=replicas, severity="error", required=True)
def replica_is_whole(ask: Ask, replica: Replica) -> Iterator[Finding]:
    """A pipeline with one stage missing completes nothing."""
    placement = ask.placement
    ask.rest_on(placement.placed.basis)
    missing = [rank for rank in placement.unplaced if replica_of(placement, rank) == replica.index]
    if not missing:
        return
    if starts_wrong_stages(placement):
        yield stages_not_started(placement)
        return
    if not every_rank_told(placement):
        ask.rank_gap(missing)
        return
    stages = sorted({placement.layout.coordinate(rank, "pipeline") for rank in missing})
    yield Finding(
        message=f"{replica} lacks ranks {fold(missing)} of stage {fold(stages)}: with one stage missing "
        "nothing completes",
        fix="start the missing processes, or remove the replica from the plan",
        cause="stage incomplete",
        subjects=(str(replica),),
        evidence=told_by(placement),
        ranks=tuple(missing),
    )


def starts_wrong_stages(placement: Placement) -> bool:
    """Before launch, an engine that derives stages from the node rank cannot start them on so many nodes.

    Data replicas may be servers of their own, and Ray places workers itself: then the formula says nothing.
    """
    by_ray = any(fact.name.strip("-") == "use-ray" for fact in facts_of(placement, "option"))
    return (
        placement.phase == "predicted"
        and placement.facts.refusal != ""
        and placement.plan.engine in STAGES_BY_NODE_RANK
        and placement.layout.size("data") == 1
        and not (by_ray or isinstance(placement.plan.nodes, NodeRange))
    )


def stages_not_started(placement: Placement) -> Finding:
    """The finding of sizes for which some stage is started nowhere, in the engine's words."""
    layout, nodes, title = placement.layout, placement.expected, placement.facts.engine.title
    sizes = f"tensor {layout.size('tensor')} x pipeline {layout.size('pipeline')}"
    why = placement.facts.refusal.removeprefix(f"{title}: ")
    return Finding(
        message=f"{title} cannot start {sizes} on {nodes} nodes: {why}",
        fix="use a number of nodes that divides the stages, or a multiple of the stages that divides "
        "stages x tensor size",
        cause="stages not started",
        subjects=(f"{sizes} on {nodes} nodes",),
        evidence=(Evidence(source="plan", fact=f"{sizes}, nodes {nodes}"),),
    )


def boundaries_by_rdma(placement: Placement) -> Situations[Boundary] | NotApplicable:
    """Stage boundaries between nodes; those with working RDMA at both ends are one situation."""
    found = stage_boundaries(placement)
    if isinstance(found, NotApplicable):
        return found
    return placement.keep("boundaries by RDMA", lambda p: sort_by_rdma(p, found))


def sort_by_rdma(placement: Placement, boundaries: Situations[Boundary]) -> dict[Hashable, list[Boundary]]:
    """Boundaries by whether RDMA works at both ends."""
    works = per_node(placement, lambda node: (rdma := rdma_of(placement, node)) is not None and rdma.works)
    found: dict[Hashable, list[Boundary]] = {}
    for key, pairs in boundaries.items():
        a, b = pairs[0].a, pairs[0].b
        fine = a is not None and b is not None and works[a.index] and works[b.index]
        found.setdefault("works" if fine else key, []).extend(pairs)
    return found


@rule(
    "PP003",
    "a stage boundary between nodes has RDMA",
    over=boundaries_by_rdma,
    severity="error",
    required=True,
)
def boundary_has_rdma(ask: Ask, boundary: Boundary) -> Iterator[Finding]:
    """Working RDMA at both ends, or one NVLink domain."""
    placement = ask.placement
    ask.rest_on(placement.placed.basis)
    if boundary.a is None or boundary.b is None:
        ask.rank_gap(boundary.ranks)
        return
    if in_one_domain(placement, (boundary.a, boundary.b)):
        return
    severity: Severity = "warning" if placement.plan.policy.boundary == "any" else "error"
    for node in (boundary.a, boundary.b):
        rdma = rdma_of(placement, node)
        if rdma is None:
            ask.gap(
                "working RDMA",
                [node.name],
                "topocheck probe on every node, or its NCCL_DEBUG=INFO log from the first line",
                part="nics",
            )
        elif not rdma.works:
            yield boundary_without_rdma(boundary, node, rdma, severity)


def boundary_without_rdma(boundary: Boundary, node: Node, rdma: Rdma, severity: Severity) -> Finding:
    """The finding of one end without RDMA."""
    return Finding(
        message=f"stage boundary {boundary} has no RDMA at {node}: {rdma.reason}. Every microbatch crosses "
        "it over sockets",
        fix=rdma.fix,
        cause=f"no RDMA: {rdma.cause}",
        subjects=(str(boundary),),
        evidence=rdma.evidence,
        severity=severity,
        ranks=boundary.ranks,
        mark="edge",
    )


@dataclass(frozen=True, slots=True)
class End:
    """Ranks of one node whose neighbouring stage is on another."""

    node: Node | None
    """None for the ranks whose node nothing shows."""
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.node} (ranks {fold(self.ranks)})"


def boundary_ends(placement: Placement) -> Situations[End] | NotApplicable:
    """Ends of stage boundaries between nodes, by hardware and GPUs; NVLink between nodes needs no NIC."""
    boundaries = stage_boundaries(placement)
    if isinstance(boundaries, NotApplicable):
        return boundaries
    if (hidden := hides_distances(placement)) is not None:
        return NotApplicable(hidden)
    ends = placement.keep("boundary ends", find_ends)
    return ends or NotApplicable("every boundary between nodes lies in an NVLink domain")


def find_ends(placement: Placement) -> dict[Hashable, list[End]]:
    """Ranks with a neighbour stage on another node, grouped by node and then by situation."""
    nodes, kinds = placement.nodes, kind_numbers(placement)
    stride = placement.layout.strides["pipeline"]
    sides: dict[int, list[tuple[Sequence[int], tuple[int | None, ...]]]] = {}
    for pair in stage_pairs(placement):
        if pair.in_domain is not True:
            sides.setdefault(pair.a, []).append((pair.ranks, pair.lower))
            sides.setdefault(pair.b, []).append(([rank + stride for rank in pair.ranks], pair.upper))
    found: dict[Hashable, list[End]] = {}
    for place in sorted(sides):
        ranks, gpus = united(sides[place])
        found.setdefault((kinds[place], gpus), []).append(End(nodes[place], ranks))
    if placement.unplaced:
        found["unplaced"] = [End(None, tuple(placement.unplaced))]
    return found


def united(
    sides: Sequence[tuple[Sequence[int], tuple[int | None, ...]]],
) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Ranks of one node and their GPUs: those that send and those that receive, each once."""
    if len(sides) == 1:
        return tuple(sides[0][0]), sides[0][1]
    gpus = {rank: gpu for ranks, own in sides for rank, gpu in zip(ranks, own, strict=True)}
    ranks = tuple(sorted(gpus))
    return ranks, tuple([gpus[rank] for rank in ranks])


@rule("PP004", "the NIC of a boundary is near its GPU", over=boundary_ends, severity="warning")
def nic_is_near(ask: Ask, end: End) -> Iterator[Finding]:
    """PIX and PXB are near, SYS is far; PHB and NODE say nothing unless another NIC is nearer."""
    devices = ask.devices(end.ranks)
    far: dict[int, Device] = {}
    for rank, device in devices.items():
        shape = device.node.shape
        near = shape.nearest_nics(device.ordinal) if shape and device.ordinal < shape.gpus else None
        if near is None or near[0] in {"PHB", "NODE"}:
            ask.gap(
                "which NIC is near each GPU",
                [device.node.name],
                distances_from(
                    ask.placement, device.node, "nvidia-smi topo -m with its NIC columns, given as NODE=FILE"
                ),
                part="nics",
            )
        elif near[0] == "SYS":
            far[rank] = device
    if far and end.node is not None and end.node.machine is not None:
        names = [f"GPU{device.index}" for device in far.values()]
        yield Finding(
            message=f"{first(names)} of {end.node} (ranks {fold(far)}) send stage boundaries and have only "
            "NICs across the socket interconnect (SYS)",
            fix="let the ranks of the boundary use GPUs with a NIC on their PCIe switch, or accept the "
            "slower path",
            cause="boundary NIC is far",
            subjects=tuple(f"{name} of {end.node}" for name in names),
            evidence=(
                Evidence(
                    source=", ".join(end.node.machine.sources) or "hardware",
                    fact=f"nearest NIC of {first(names)}: SYS",
                ),
            ),
            ranks=tuple(far),
            mark="gpu",
        )


def inverted(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The whole placement, where TP and PP both have something to lose."""
    groups = tensor_groups(placement)
    if isinstance(groups, NotApplicable):
        return groups
    if placement.layout.size("pipeline") == 1:
        return NotApplicable("one pipeline stage")
    return the(placement)


@rule("PP008", "TP inside, PP outside", over=inverted, severity="error")
def order_is_inside_out(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Stages share a node while TP groups cross nodes: an exchange of stages would cure both."""
    column, layout = placement.placed, placement.layout
    size = layout.size("tensor")
    ask.rest_on(column.basis)
    if placement.unplaced:
        ask.rank_gap(placement.unplaced)
    swapped = []
    for ranks, row in zip(layout.groups("tensor"), along(layout, "tensor", column.node), strict=True):
        if row.count(row[0]) == len(row):
            continue
        places = sorted({place for place in row if place is not None})
        if len(places) > 1 and all(
            hosts_stages(placement, place) and len(placement.ranks_on[place]) >= size for place in places
        ):
            nodes = [placement.nodes[place] for place in places]
            severity = crossing_severity(placement, nodes, in_one_domain(placement, nodes))
            if severity is not None:
                swapped.append((severity, ranks, nodes))
    if swapped:
        severity, ranks, nodes = min(swapped, key=lambda found: found[0] != "error")
        names = [node.name for node in nodes]
        yield Finding(
            message=f"{len(swapped)} TP groups cross nodes while {first(names)} each hold several stages: "
            "TP, which all-reduces in every layer, takes the network, and PP, which sends one activation, "
            "NVLink",
            fix="exchange the two: let consecutive ranks of a node form the TP group (TP innermost in the "
            "order)",
            cause="inside out",
            subjects=tuple(f"TP ranks {fold(group)}" for _, group, _ in swapped[:8]),
            count=len(swapped),
            evidence=tuple(
                read_at(column.at.get(rank), f"rank {rank}, {stage_of(placement, rank)}", column.basis)
                for rank in placement.ranks_on[nodes[0].index][:size]
            ),
            severity=severity,
            ranks=tuple(ranks),
        )


def stage_of(placement: Placement, rank: int) -> str:
    """Stage and node of a rank."""
    place = placement.placed.node[rank]
    where = "no known node" if place is None else placement.nodes[place].name
    return f"stage {placement.layout.coordinate(rank, 'pipeline')}, is on {where}"


def hosts_stages(placement: Placement, place: int) -> bool:
    """A node holds several stages."""
    return len({placement.layout.coordinate(r, "pipeline") for r in placement.ranks_on[place]}) > 1


RULES = (order_is_inside_out, replica_is_whole, boundary_has_rdma, nic_is_near)
