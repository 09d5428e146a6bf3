"""The placement as the report shows it: ranks, nodes, shapes and what the findings mark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from topocheck.claims import UNKNOWN
from topocheck.domain import domain_of
from topocheck.engines.layout import LayerSplit
from topocheck.fabric_graph import fabric_of
from topocheck.hardware import Link, Shape
from topocheck.layers import layer_split
from topocheck.placement import Node, Placement
from topocheck.plan import BASES, Policy
from topocheck.report import (
    DeviceReport,
    GpuReport,
    GroupReport,
    NodeReport,
    PlacementReport,
    Placing,
    RankReport,
    ShapeReport,
)
from topocheck.rule import severity_in
from topocheck.rules.rails import Rails
from topocheck.shapediff import differences, layer_of, rate_of, state_of
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
    local = local_ranks(placement)
    nodes = [node_report(placement, node, shapes) for node in placement.nodes]
    return PlacementReport(
        phase=placement.phase,
        world=placement.world,
        axes=dict(layout.axes),
        ranks=[
            rank_report(placement, rank, groups[rank], split, local.get(rank))
            for rank in range(placement.world)
        ],
        nodes=nodes,
        unused=list(placement.unused),
        shapes=shape_reports(placement, shapes),
        marks=marks(results, placement.plan.policy),
    )


def local_ranks(placement: Placement) -> dict[int, int]:
    """Local rank of each rank whose process claims one; the first claim, where there are several."""
    claims = placement.inventory.claims.get("")
    if claims is None:
        return {}
    seats = zip(reversed(claims.rank), reversed(claims.local_rank), strict=True)
    return {rank: local for rank, local in seats if local != UNKNOWN}


def rank_report(
    placement: Placement, rank: int, group: int, split: LayerSplit | None, local: int | None
) -> RankReport:
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
        local_rank=local,
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
        switch=switch_of(placement, node),
    )


def switch_of(placement: Placement, node: Node) -> str | None:
    """The one switch that a description of the fabric hangs a node on."""
    fabric = fabric_of(placement)
    switches = fabric.places.get(node.index, ()) if fabric is not None else ()
    return switches[0].partition("/")[2] if len(switches) == 1 else None


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


def shape_reports(placement: Placement, order: Iterable[int]) -> list[ShapeReport]:
    """The distinct hardware shapes by their identities, each compared with the one that most nodes have."""
    found = {id(node.shape): node.shape for node in placement.nodes if node.shape is not None}
    counts = Counter([id(node.shape) for node in placement.nodes if node.shape is not None])
    if not counts:
        return []
    [(commonest, most)] = counts.most_common(1)
    usual, alone = found[commonest], 2 * most > counts.total()
    return [
        shape_report(
            found[identity],
            counts[identity],
            usual,
            most=alone and identity == commonest,
            rails=rail_numbers(found[identity], placement.plan.policy.expect_rails),
        )
        for identity in order
    ]


def rail_numbers(shape: Shape, declared: Sequence[str]) -> dict[str, int]:
    """Rail of each RDMA device by name, whatever NCCL_IB_HCA leaves of them."""
    names = tuple(name.partition(":")[0] for name in declared)
    return Rails(shape, frozenset(nic.name for nic in shape.hardware.nics), names).numbers


def shape_report(
    shape: Shape, nodes: int, usual: Shape, *, most: bool, rails: Mapping[str, int]
) -> ShapeReport:
    """One hardware shape."""
    gpus, nics = range(shape.gpus), range(len(shape.hardware.nics))
    return ShapeReport(
        title=shape.title(),
        gpus=[gpu.model or "GPU" for gpu in shape.hardware.gpus],
        links=[[cell(shape, a, b) for b in gpus] for a in gpus],
        nics=[nic.name for nic in shape.hardware.nics],
        near=[[nic.name for nic in (shape.nearest_nics(gpu) or ("", ()))[1]] for gpu in gpus],
        nodes=nodes,
        numa=[gpu.numa for gpu in shape.hardware.gpus],
        devices=[
            DeviceReport(
                name=nic.name,
                layer=layer_of(nic),
                rate_gbps=rate_of(nic),
                state=state_of(nic),
                numa=nic.numa,
                rail=rails.get(nic.name),
            )
            for nic in shape.hardware.nics
        ],
        nic_links=[[spelled(shape.nic_link(gpu, nic)) for nic in nics] for gpu in gpus],
        usual=most,
        differs=differences(usual, shape),
    )


def cell(shape: Shape, a: int, b: int) -> str | None:
    """Class of a pair as the matrix shows it."""
    if a == b:
        return "X"
    return spelled(shape.link(a, b))


def spelled(link: Link | None) -> str | None:
    """NV18, PIX, SYS ...; None if it is not known."""
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
