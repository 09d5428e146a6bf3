"""The placement as the report shows it: ranks, nodes, shapes and what the findings mark."""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.domain import domain_of
from topocheck.engines.layout import LayerSplit
from topocheck.hardware import Shape
from topocheck.layers import layer_split
from topocheck.placement import Node, Placement
from topocheck.plan import BASES, Policy
from topocheck.report import (
    GpuReport,
    GroupReport,
    NodeReport,
    PlacementReport,
    Placing,
    RankReport,
    ShapeReport,
)
from topocheck.rule import severity_in
from topocheck.snapshot import At
from topocheck.subjects import replica_of
from topocheck.verify import RuleResult
from topocheck.whereabouts import reported_nics, versions_of

__all__ = ["placement_report"]

NO_POLICY = Policy()
MOST_MARKS = 500
"""Marks kept for the drawing."""


def placement_report(placement: Placement, results: Sequence[RuleResult]) -> PlacementReport:
    """Rank -> stage -> node -> GPU, with where each fact came from."""
    layout = placement.layout
    split = layer_split(placement.plan, layout)
    groups = {rank: index for index, group in enumerate(layout.groups("tensor")) for rank in group}
    shapes: dict[int, int] = {}
    nodes = [node_report(placement, node, shapes) for node in placement.nodes]
    return PlacementReport(
        phase=placement.phase,
        world=placement.world,
        axes=dict(layout.axes),
        ranks=[rank_report(placement, rank, groups[rank], split) for rank in range(placement.world)],
        nodes=nodes,
        unused=list(placement.unused),
        shapes=[shape_report(placement, identity) for identity in shapes],
        marks=marks(results, placement.plan.policy),
    )


def rank_report(placement: Placement, rank: int, group: int, split: LayerSplit | None) -> RankReport:
    """One rank by all columns."""
    layout = placement.layout
    stage = layout.coordinate(rank, "pipeline")
    place = placing(placement, rank, placement.phase)
    return RankReport(
        rank=rank,
        coordinates=layout.coordinates(rank),
        stage=stage,
        replica=replica_of(placement, rank),
        tensor_group=group,
        node=place.node if place else None,
        gpu=place.gpu if place else None,
        layers=None if split is None or split.chunks else list(split.ranges[stage]),
        sources={basis: found for basis in BASES if (found := placing(placement, rank, basis)) is not None},
    )


def placing(placement: Placement, rank: int, basis: str) -> Placing | None:
    """Where one column puts a rank."""
    column = placement.columns[basis]  # type: ignore[index]  # BASES are the keys
    place, gpu = column.node[rank], column.gpu[rank]
    if place is None and gpu is None:
        return None
    node = None if place is None else placement.nodes[place]
    ordinal = gpu
    if basis == "predicted" and node is not None and node.machine is not None and gpu is not None:
        ordinal = node.machine.at_index(gpu)
    name = None
    if node is not None:
        name = node.gpu_name(ordinal) if ordinal is not None else None if gpu is None else f"GPU {gpu}"
    return Placing(
        node=None if node is None else node.name,
        gpu=name,
        source=spell(column.at.get(rank), basis, placement),
    )


def spell(at: At | None, basis: str, placement: Placement) -> str:
    """Where a placing was read, in words."""
    if at is not None:
        return at.source if at.line is None else f"{at.source}:{at.line}"
    if basis == "predicted":
        return f"{placement.facts.engine.title}'s formula"
    return "rank probe" if basis == "claimed" else "log"


def node_report(placement: Placement, node: Node, shapes: dict[int, int]) -> NodeReport:
    """One node and its GPUs."""
    ranks = placement.ranks_on.get(node.index, [])
    machine = node.machine
    users: dict[int, list[int]] = {}
    for rank in ranks:
        gpu = placement.placed.gpu[rank]
        if placement.phase == "predicted" and gpu is not None:
            found = machine.at_index(gpu) if machine else None
            gpu = gpu if found is None else found
        if gpu is not None:
            users.setdefault(gpu, []).append(rank)
    shape = node.shape
    domain = domain_of(node)
    count = max(len(machine.gpus) if machine else 0, max(users, default=-1) + 1)
    return NodeReport(
        name=node.name,
        position=node.index,
        bound_by=node.bound_by,
        seen=machine is not None,
        shape=None if shape is None else shapes.setdefault(id(shape), len(shapes)),
        domain=domain if isinstance(domain, str) else None,
        gpus=[gpu_report(node, ordinal, users.get(ordinal, [])) for ordinal in range(count)],
        boot=machine.host.boot_id if machine else None,
        nics=reported_nics(machine) if machine else None,
        versions=versions_of(machine.software) if machine else {},
    )


def gpu_report(node: Node, ordinal: int, ranks: list[int]) -> GpuReport:
    """One GPU and the ranks on it."""
    machine, shape = node.machine, node.shape
    known = machine.gpus[ordinal] if machine is not None and ordinal < len(machine.gpus) else None
    model = shape.hardware.gpus[ordinal].model if shape is not None and ordinal < shape.gpus else None
    return GpuReport(
        ordinal=ordinal,
        uuid=known.uuid if known else None,
        bus=known.bus if known else None,
        index=known.nvml if known else None,
        model=model or (known.model if known else None),
        ranks=ranks,
    )


def shape_report(placement: Placement, identity: int) -> ShapeReport:
    """One hardware shape."""
    nodes = [node for node in placement.nodes if node.shape is not None and id(node.shape) == identity]
    shape = nodes[0].shape
    if shape is None:  # a node was chosen by its shape just above
        raise AssertionError(identity)
    count = range(shape.gpus)
    return ShapeReport(
        title=shape.title(),
        gpus=[gpu.model or "GPU" for gpu in shape.hardware.gpus],
        links=[[cell(shape, a, b) for b in count] for a in count],
        nics=[nic.name for nic in shape.hardware.nics],
        near=[[nic.name for nic in (shape.nearest_nics(gpu) or ("", ()))[1]] for gpu in count],
        nodes=len(nodes),
    )


def cell(shape: Shape, a: int, b: int) -> str | None:
    """Class of a pair as the matrix shows it."""
    if a == b:
        return "X"
    link = shape.link(a, b)
    return None if link is None else str(link)


def marks(results: Sequence[RuleResult], policy: Policy = NO_POLICY) -> list[GroupReport]:
    """What the findings mark in the drawing; one that is waived or known is for information."""
    found = [
        GroupReport(
            rule=result.rule.id,
            severity=severity_in(policy, result.rule, finding) if finding.counts else "info",
            ranks=list(pair),
            kind=finding.mark,
        )
        for result in results
        for finding in result.findings
        if finding.ranks
        for pair in (pairs(finding.ranks) if finding.mark == "edge" else [finding.ranks])
    ]
    return found[:MOST_MARKS]


def pairs(ranks: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Ends of edges, two by two."""
    return list(dict.fromkeys(ranks[at : at + 2] for at in range(0, len(ranks) - 1, 2)))
