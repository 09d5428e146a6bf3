"""What a plan declares, written out: where the engine's formula puts every rank, and its layers.

No evidence is read. The same formula carries the verdicts of `topocheck verify` until the job shows
itself, so a wrong size or order is seen here before anything is launched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, pairwise

import msgspec

from topocheck.engines import ENGINES
from topocheck.engines.layout import LayerSplit
from topocheck.errors import UsageError
from topocheck.inventory import Inventory
from topocheck.placement import Placement, place
from topocheck.plan import NodeRange, Plan
from topocheck.planfile import derive

__all__ = ["SCHEMA", "Declaration", "DeclaredRank", "declare", "describe", "hostfile", "rankfile"]

SCHEMA = "topocheck.declared/1"

HOST = re.compile(r"[A-Za-z0-9_.:-]+")
"""Names that a hostfile or a rankfile can hold: blanks, = and # mean something there."""


class DeclaredRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank where the engine's formula puts it."""

    rank: int
    """Global rank."""
    coordinates: dict[str, int]
    """Position along each axis, slowest first."""
    stage: int
    """Pipeline stage."""
    node: str | None
    """Name of its node; null if nothing says where it goes."""
    gpu: int | None
    """Index of its GPU on that node, CUDA_VISIBLE_DEVICES unset."""
    layers: list[tuple[int, int]] | None
    """Layers that it holds as [first, end), one range a chunk; null if the plan names no layers."""


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """A plan written out."""

    schema: str
    """`topocheck.declared/` and the major version."""
    engine: str
    """Engine, as the plan names it."""
    engine_version: str | None
    """Version whose layout was used; null where all known versions agree."""
    world: int
    """Number of ranks."""
    sizes: dict[str, int]
    """Size of each axis, slowest first."""
    groups: dict[str, int]
    """Ranks in each group of the further kinds that have more than one: expert, embedding ..."""
    nodes: list[str]
    """Nodes in order."""
    layer_rule: str | None
    """The rule or override that split the layers; null if the plan names no layers."""
    assumptions: list[str]
    """What was assumed or derived."""
    unplaced: str | None
    """Why the formula puts the ranks on no node; null if it does."""
    ranks: list[DeclaredRank]
    """Ranks in order; the first ones if not all were asked for."""


def declare(plan: Plan, world: int | None = None) -> tuple[Placement, list[str]]:
    """The placement that a plan alone predicts, and what was assumed or derived.

    `world` is the number of ranks that the launcher starts: it fixes the data parallel size that a plan
    leaves out. Raises LayoutError for sizes that the engine refuses, UsageError if `world` cannot be.
    """
    full = derive(plan, world)
    placement = place(full, Inventory())
    if world is not None and placement.world != world:
        raise UsageError(f"the sizes of the plan make {placement.world} ranks and not {world}")
    assumed = list(placement.assumptions)
    if full.parallel.data != plan.parallel.data:
        assumed.append(f"data {full.parallel.data}: it follows from a world of {world} ranks")
    if isinstance(plan.nodes, NodeRange):
        assumed.append(f"{plan.nodes.min} nodes, the fewest that the plan allows")
    return placement, assumed


def why_unplaced(placement: Placement) -> str | None:
    """Why the engine's formula puts the ranks on no node; None if it does."""
    return None if placement.columns["predicted"].complete else placement.facts.refusal


def describe(placement: Placement, assumed: list[str], most: int | None = None) -> Declaration:
    """A declared placement with its first `most` ranks, all without it.

    Raises LayoutError if the engine refuses the layers of the plan.
    """
    layout, plan = placement.layout, placement.plan
    split = split_of(plan, layout.size("pipeline"))
    shown = placement.world if most is None else min(most, placement.world)
    return Declaration(
        schema=SCHEMA,
        engine=plan.engine,
        engine_version=plan.engine_version or layout.version,
        world=placement.world,
        sizes=dict(layout.axes),
        groups={kind: layout.size(kind) for kind in layout.kinds() if kind in layout.extra},
        nodes=[node.name for node in placement.nodes],
        layer_rule=None if split is None else split.rule,
        assumptions=assumed,
        unplaced=why_unplaced(placement),
        ranks=[declared_rank(placement, split, rank) for rank in range(shown)],
    )


def split_of(plan: Plan, stages: int) -> LayerSplit | None:
    """Layers of each stage; None if the plan gives neither their number nor a list of them."""
    listed = plan.layers if isinstance(plan.layers, tuple) else None
    override = plan.layers if isinstance(plan.layers, str) else None
    layers = plan.model.layers if plan.model is not None else None
    if listed is not None:
        override = ",".join(map(str, listed))
        layers = sum(listed) if layers is None else layers
    if layers is None:
        return None
    return ENGINES[plan.engine].split(layers, stages, override, plan.engine_version, {})


def declared_rank(placement: Placement, split: LayerSplit | None, rank: int) -> DeclaredRank:
    """One rank."""
    column, layout = placement.columns["predicted"], placement.layout
    position, stage = column.node[rank], layout.coordinate(rank, "pipeline")
    return DeclaredRank(
        rank=rank,
        coordinates=layout.coordinates(rank),
        stage=stage,
        node=None if position is None else placement.nodes[position].name,
        gpu=column.gpu[rank],
        layers=None if split is None else list(split.held(stage)),
    )


def hostfile(placement: Placement) -> Iterator[str]:
    """Lines `HOST slots=N` in node order, as Open MPI and DeepSpeed read them.

    Raises UsageError if nodes have no names, or if ranks do not fill one node after the other, which a
    hostfile cannot say.
    """
    seats = seated(placement)
    if any(there < here for (here, _), (there, _) in pairwise(seats)):
        raise UsageError("the ranks do not fill one node after the other: a rankfile can say it")
    return (f"{host} slots={len(list(ranks))}" for host, ranks in groupby(names_of(placement, seats)))


def rankfile(placement: Placement) -> Iterator[str]:
    """Lines `rank N=HOST slot=M`, as Open MPI reads them: M is the M-th slot of HOST's processors.

    Raises UsageError if nodes have no names.
    """
    seats = seated(placement)
    hosts = names_of(placement, seats)
    return (
        f"rank {rank}={host} slot={slot}"
        for rank, (host, (_, slot)) in enumerate(zip(hosts, seats, strict=True))
    )


def seated(placement: Placement) -> list[tuple[int, int]]:
    """(node, local GPU) of each rank. Raises UsageError where nothing says it."""
    if reason := why_unplaced(placement):
        raise UsageError(f"nothing says which node a rank is on: {reason}")
    column = placement.columns["predicted"]
    return [
        (node, gpu)
        for node, gpu in zip(column.node, column.gpu, strict=True)
        if node is not None and gpu is not None
    ]


def names_of(placement: Placement, seats: list[tuple[int, int]]) -> list[str]:
    """Host name of each rank. Raises UsageError if the plan names no nodes, or one that no file can hold."""
    names = placement.plan.nodes
    if not isinstance(names, tuple):
        raise UsageError("the plan names no nodes: write them in node-rank order, nodes: [host-a, host-b]")
    if bad := next((name for name in names if not HOST.fullmatch(name)), None):
        raise UsageError(f"the node name {bad!r} cannot stand in a hostfile: write the host's own name")
    return [names[node] for node, _ in seats]
