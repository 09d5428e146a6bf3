"""PP: stages are whole, in order, and their boundaries have a fast way."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from topocheck.ask import Ask, Device
from topocheck.crossing import crossing_severity
from topocheck.domain import domains_between, in_one_domain
from topocheck.jobfacts import facts_of
from topocheck.kinds import kind_numbers, per_node
from topocheck.placement import Node, Placement
from topocheck.plan import NodeRange
from topocheck.profiles import distances_from, hides_distances
from topocheck.ranges import first, fold
from topocheck.rdma import Rdma, rdma_of
from topocheck.rule import (
    Alike,
    Evidence,
    Finding,
    NotApplicable,
    Severity,
    Situations,
    read_at,
    rule,
    situations,
    the,
)
from topocheck.stagepairs import boundary_of, stage_pairs, stages_together
from topocheck.subjects import (
    INNER,
    Boundary,
    Gpus,
    every_rank_told,
    groups_apart,
    replica_of,
    tensor_groups,
    told_by,
    unknown_boundary,
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
    found: dict[Hashable, Sequence[Replica]] = {index: [Replica(index)] for index in sorted(broken)}
    whole = [index for index in range(count) if index not in found] if found else range(count)
    return {**({"whole": Alike(whole, Replica)} if whole else {}), **found}


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
    return stages_together(placement) or placement.keep("boundaries by RDMA", sort_by_rdma)


def sort_by_rdma(placement: Placement) -> dict[Hashable, Sequence[Boundary]]:
    """Boundaries by whether RDMA works at both ends."""
    works = per_node(placement, lambda node: (rdma := rdma_of(placement, node)) is not None and rdma.works)
    pairs = stage_pairs(placement)

    def boundary(number: int) -> Boundary:
        return boundary_of(placement, pairs[number])

    apart = [number for number, pair in enumerate(pairs) if pair.a != pair.b]
    keys = ("works" if works[pairs[n].a] and works[pairs[n].b] else n for n in apart)
    found = situations(keys, boundary, apart, [pair.a for pair in pairs])
    if placement.unplaced:
        found["unplaced"] = [unknown_boundary(placement)]
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
    together = stages_together(placement)
    if together is not None:
        return together
    if (hidden := hides_distances(placement)) is not None:
        return NotApplicable(hidden)
    ends = placement.keep("boundary ends", find_ends)
    return ends or NotApplicable("every boundary between nodes lies in an NVLink domain")


def find_ends(placement: Placement) -> dict[Hashable, Sequence[End]]:
    """Nodes with a neighbour stage on another node, by kind and the GPUs of the ranks that have it."""
    gpus, kinds = far_gpus(placement), kind_numbers(placement)

    def end(place: int) -> End:
        return End(placement.nodes[place], tuple(far_ranks(placement, place)))

    found = situations(
        [(kinds[place], own) for place, own in gpus.items()], end, gpus, range(len(placement.nodes))
    )
    if placement.unplaced:
        found["unplaced"] = [End(None, tuple(placement.unplaced))]
    return found


def far_gpus(placement: Placement) -> dict[int, Gpus]:
    """GPUs of the ranks of each node that have a neighbour stage on another, nodes in their order."""
    between, column = domains_between(placement), placement.placed
    found: list[Gpus] = [()] * len(placement.nodes)
    several = set()
    for a, b, _, lower, upper in stage_pairs(placement):
        if a != b and between(a, b) is not True:
            for place, gpus in ((a, lower), (b, upper)):
                if found[place]:
                    several.add(place)
                else:
                    found[place] = gpus
    for place in several:
        found[place] = tuple([column.gpu[rank] for rank in far_ranks(placement, place)])
    return {place: gpus for place, gpus in enumerate(found) if gpus}


def far_ranks(placement: Placement, place: int) -> Iterator[int]:
    """Ranks of a node with a neighbour stage on another node that is not in its NVLink domain."""
    column, between = placement.placed.node, domains_between(placement)
    stride, last = placement.layout.strides["pipeline"], placement.layout.size("pipeline") - 1
    for rank in placement.ranks_on[place]:
        stage = rank // stride % (last + 1)
        beside = [rank - stride] * (stage > 0) + [rank + stride] * (stage < last)
        others = [other for peer in beside if (other := column[peer]) is not None and other != place]
        if any(between(place, other) is not True for other in others):
            yield rank


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
    column, size = placement.placed, placement.layout.size("tensor")
    ask.rest_on(column.basis)
    if placement.unplaced:
        ask.rank_gap(placement.unplaced)
    swapped = []
    for group in groups_apart(placement):
        ranks = group.ranks
        places = sorted({place for rank in ranks if (place := column.node[rank]) is not None})
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
