"""PP: stages are whole, in order, and their boundaries have a fast way."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from topocheck.ask import Ask
from topocheck.domain import in_one_domain
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.rdma import Rdma, rdma_of
from topocheck.rule import Evidence, Finding, NotApplicable, Severity, Situations, rule, the
from topocheck.subjects import Boundary, members, stage_boundaries, tensor_groups

__all__ = ["RULES"]

INNER = ("tensor", "pipeline", "context", "sequence")
"""Axes inside one copy of the model."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of the model."""

    index: int

    def __str__(self) -> str:
        return f"replica {self.index}"


def replica_of(placement: Placement, rank: int) -> int:
    """Which copy of the model a rank belongs to: its position along all other axes."""
    index = 0
    for axis, size in placement.layout.axes:
        if axis not in INNER:
            index = index * size + placement.layout.coordinate(rank, axis)
    return index


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
    reported = all(
        node.machine is not None
        and (node.machine.coverage.ranks if placement.phase == "claimed" else node.machine.coverage.observed)
        == "all"
        for node in placement.nodes[: placement.expected]
    )
    if not reported:
        ask.rank_gap(missing)
        return
    stages = sorted({placement.layout.coordinate(rank, "pipeline") for rank in missing})
    yield Finding(
        message=f"{replica} lacks ranks {fold(missing)} of stage {fold(stages)}: with one stage missing "
        "nothing completes",
        fix="start the missing processes, or remove the replica from the plan",
        cause="stage incomplete",
        subjects=(str(replica),),
        ranks=tuple(missing),
    )


@rule(
    "PP003", "a stage boundary between nodes has RDMA", over=stage_boundaries, severity="error", required=True
)
def boundary_has_rdma(ask: Ask, boundary: Boundary) -> Iterator[Finding]:
    """Working RDMA at both ends, or one NVLink domain."""
    placement = ask.placement
    ask.rest_on(placement.placed.basis)
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


@rule("PP004", "the NIC of a boundary is near its GPU", over=lambda p: boundary_gpus(p), severity="warning")  # noqa: PLW0108 - it stands below
def nic_is_near(ask: Ask, end: End) -> Iterator[Finding]:
    """PIX and PXB are near, SYS is far; PHB and NODE say nothing unless another NIC is nearer."""
    ask.rest_on(ask.placement.placed.basis)
    far: list[int] = []
    for rank in end.ranks:
        device = ask.device(rank)
        if device is None:
            continue
        shape = end.node.shape
        near = shape.nearest_nics(device.ordinal) if shape and device.ordinal < shape.gpus else None
        if near is None or near[0] in ("PHB", "NODE"):
            ask.gap(
                "which NIC is near each GPU",
                [end.node.name],
                "nvidia-smi topo -m with its NIC columns, given as NODE=FILE",
            )
        elif near[0] == "SYS":
            far.append(device.ordinal)
    if far and end.node.machine is not None:
        indexes = [
            end.node.machine.gpus[gpu].nvml if gpu < len(end.node.machine.gpus) else gpu for gpu in far
        ]
        names = [f"GPU{gpu if index is None else index}" for gpu, index in zip(far, indexes, strict=True)]
        yield Finding(
            message=f"{first(names)} of {end.node} send stage boundaries and have only NICs across the "
            "socket interconnect (SYS)",
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
            ranks=end.ranks,
            mark="gpu",
        )


@dataclass(frozen=True, slots=True)
class End:
    """Ranks of one node whose neighbouring stage is on another."""

    node: Node
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.node} (ranks {fold(self.ranks)})"


def boundary_gpus(placement: Placement) -> Situations[End] | NotApplicable:
    """Ends of stage boundaries between nodes, by shape and GPUs."""
    boundaries = stage_boundaries(placement)
    if isinstance(boundaries, NotApplicable):
        return boundaries
    return placement.keep("boundary ends", find_ends)


def find_ends(placement: Placement) -> dict[Hashable, list[End]]:
    """Ranks with a neighbour stage on another node, grouped by node and then by situation."""
    column = placement.placed
    ranks_of: dict[int, set[int]] = {}
    for ranks in placement.layout.groups("pipeline"):
        places = members(column.node, ranks)
        if places.count(places[0]) == len(places):
            continue
        for position in range(len(places) - 1):
            a, b = places[position], places[position + 1]
            if a is not None and b is not None and a != b:
                ranks_of.setdefault(a, set()).add(ranks[position])
                ranks_of.setdefault(b, set()).add(ranks[position + 1])
    found: dict[Hashable, list[End]] = {}
    for place, numbers in ranks_of.items():
        node, ranks = placement.nodes[place], tuple(sorted(numbers))
        key: Hashable = place
        if node.shape is not None:
            key = id(node.shape), tuple([column.gpu[rank] for rank in ranks])
        found.setdefault(key, []).append(End(node, ranks))
    return found


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
    crossing = []
    for ranks in placement.layout.groups("tensor"):
        places = {place for place in members(column.node, ranks) if place is not None}
        if len(places) > 1:
            crossing.append((ranks, places))
    if placement.unplaced:
        ask.rank_gap(placement.unplaced)
    swapped = [
        (ranks, places)
        for ranks, places in crossing
        if all(hosts_stages(placement, place) and len(placement.ranks_on[place]) >= size for place in places)
    ]
    if swapped:
        ranks, places = swapped[0]
        names = [placement.nodes[place].name for place in sorted(places)]
        yield Finding(
            message=f"{len(swapped)} TP groups cross nodes while {first(names)} each hold several stages: "
            "TP, which all-reduces in every layer, takes the network, and PP, which sends one activation, "
            "NVLink",
            fix="exchange the two: let consecutive ranks of a node form the TP group (TP innermost in the "
            "order)",
            cause="inside out",
            subjects=tuple(f"TP ranks {fold(ranks)}" for ranks, _ in swapped[:8]),
            count=len(swapped),
            ranks=tuple(ranks),
        )


def hosts_stages(placement: Placement, place: int) -> bool:
    """A node holds several stages."""
    return len({placement.layout.coordinate(r, "pipeline") for r in placement.ranks_on[place]}) > 1


RULES = (order_is_inside_out, replica_is_whole, boundary_has_rdma, nic_is_near)
