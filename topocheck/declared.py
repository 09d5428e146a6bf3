"""What a plan declares, written out: where every rank will be, its layers, its groups.

No evidence is read. The same formula carries the verdicts of `topocheck verify` until the job shows
itself, so a wrong size or order is seen here before anything is launched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, structs

from topocheck.declaration import (
    SCHEMA,
    Declaration,
    DeclaredJob,
    DeclaredRank,
    DeclaredStage,
    DeclaredWorld,
)
from topocheck.engines import ENGINES
from topocheck.engines.engine import Engine
from topocheck.engines.layout import Layout
from topocheck.errors import LayoutError, UsageError
from topocheck.formula import derive, sizes_of, slots_of
from topocheck.layers import modules_of, split_of
from topocheck.plan import NodeRange, Parallel, Plan
from topocheck.ranges import local_ranks
from topocheck.spelling import short_name
from topocheck.worlds import first_gpus, worlds_of

if TYPE_CHECKING:
    from topocheck.commands.rankorder import RankOrder

__all__ = ["Declared", "Order", "crowded", "declare", "declare_all", "describe", "document", "ranks_of"]

Order = Callable[[int, int], "RankOrder | None"]
"""(nodes, ranks) -> where the launcher of a command puts its ranks; None where it does not decide."""

ALWAYS = ("tensor", "pipeline", "data")
"""Kinds of group that are listed even where each has one rank."""
POSITIONS = frozenset({*Parallel.__struct_fields__, "attention_tensor", "expert_data"})
"""Kinds of group in which the position of a rank is a coordinate. The others are two axes together."""


class Declared(Struct, frozen=True, kw_only=True):
    """One world of a plan, with a place for every rank."""

    name: str = ""
    """Name of the world; empty if it is the only one."""
    plan: Plan
    """Its plan, sizes that follow from the world filled in."""
    engine: Engine
    layout: Layout
    names: Sequence[str]
    """Names of its nodes in order."""
    nodes: Sequence[int] = ()
    """Node of each rank by its place; empty if nothing says it."""
    local_ranks: Sequence[int] = ()
    """Local rank of each rank; empty likewise."""
    gpus: Sequence[int] = ()
    """GPU of each rank by its index on the node; empty likewise."""
    refusal: str = ""
    """Why nothing says on which node a rank is; empty if something does."""
    assumptions: tuple[str, ...] = ()
    """What was assumed or derived."""


def declare_all(
    plan: Plan, world: int | None = None, order: Order | None = None, said: Sequence[str] = ()
) -> list[Declared]:
    """Every world of a plan. Raises as `declare`, UsageError for a number of ranks and several worlds."""
    worlds = worlds_of(plan)
    if len(worlds) == 1:
        name, only = worlds[0]
        return [declare(only, world, order, said, name)]
    if world is not None:
        raise UsageError(f"--world counts the ranks of one world, and the plan has {len(worlds)}")
    taken = first_gpus(plan)
    return [
        moved(declare(one, None, None, said, name), offsets)
        for (name, one), offsets in zip(worlds, taken, strict=True)
    ]


def declare(
    plan: Plan,
    world: int | None = None,
    order: Order | None = None,
    said: Sequence[str] = (),
    name: str = "",
) -> Declared:
    """What the plan of one world declares.

    `world` is the number of ranks that the launcher starts: it fixes the data parallel size that a plan
    leaves out. `order` says where the launcher puts them, `said` what was assumed before. Raises LayoutError
    for sizes that the engine refuses, alone or in this world.
    """
    full = derive(plan, world)
    engine = ENGINES[full.engine]
    layout = engine.layout(sizes_of(full), full.engine_version, full.order)
    if world is not None and layout.world != world:
        raise LayoutError(unequal(plan, engine, layout.world, world))
    assumed = list(said)
    if full.engine_version is None and layout.version is not None:
        assumed.append(f"{engine.title} {layout.version}, the newest version known")
    if full.parallel.data != plan.parallel.data:
        assumed.append(f"data {full.parallel.data}: it follows from a world of {world} ranks")
    if isinstance(full.nodes, NodeRange):
        assumed.append(f"{full.nodes.min} nodes, the fewest that the plan allows")
    bare = Declared(
        name=name,
        plan=full,
        engine=engine,
        layout=layout,
        names=names_of(full),
        assumptions=tuple(assumed),
    )
    placed = order(len(bare.names), layout.world) if order is not None else None
    if placed is not None:
        return by_launcher(bare, placed)
    return by_ray(bare) if full.launcher == "ray" else by_formula(bare)


def unequal(plan: Plan, engine: Engine, ranks: int, world: int) -> str:
    """Why the sizes of a plan make no such world; the engine's words where its data size follows from it."""
    if plan.parallel.data is None and "data" in engine.sizes:
        rest = f"not divisible by {ranks}, the product of the plan's sizes"
        return f"{engine.title}: world_size ({world}) is {rest}"
    return f"the sizes of the plan make {ranks} ranks and not {world}"


def names_of(plan: Plan) -> Sequence[str]:
    """Names of the nodes, made up where the plan gives a number."""
    if isinstance(plan.nodes, tuple):
        return plan.nodes
    count = plan.nodes.min if isinstance(plan.nodes, NodeRange) else plan.nodes
    return [f"node {place}" for place in range(count)]


def by_formula(bare: Declared) -> Declared:
    """Where the engine's formula puts the ranks."""
    slots, refusal = slots_of(bare.engine, bare.layout, len(bare.names))
    if slots is None:
        return structs.replace(bare, refusal=refusal)
    said = (
        "ranks are where the engine's formula puts them, CUDA_VISIBLE_DEVICES unset: nothing claims or shows "
        "them yet"
    )
    return structs.replace(
        bare,
        nodes=slots.nodes,
        local_ranks=local_ranks(slots.nodes),
        gpus=slots.gpus,
        assumptions=(*bare.assumptions, said),
    )


def by_launcher(bare: Declared, order: RankOrder) -> Declared:
    """Where the launcher of the command puts the ranks."""
    if order.refusal:
        return structs.replace(bare, refusal=order.refusal)
    said = f"ranks are where {order.launcher} puts them ({order.rule}), CUDA_VISIBLE_DEVICES unset"
    return structs.replace(
        bare,
        plan=structs.replace(bare.plan, nodes=order.hosts) if order.hosts else bare.plan,
        names=order.hosts or bare.names,
        nodes=order.nodes,
        local_ranks=order.local_ranks,
        gpus=order.gpus,
        assumptions=(*bare.assumptions, *order.notes, said),
    )


def by_ray(bare: Declared) -> Declared:
    """Where Ray puts the ranks, as far as that is known before it does; the same as in `topocheck verify`."""
    from topocheck.inventory import Inventory  # noqa: PLC0415 - what evidence needs is not needed otherwise
    from topocheck.placement import place  # noqa: PLC0415

    placement = place(bare.plan, Inventory())
    column, loose = placement.columns["predicted"], placement.facts.binding.loose
    said = tuple(dict.fromkeys((*bare.assumptions, *placement.assumptions)))
    seats = [
        (node, gpu)
        for node, gpu in zip(column.node, column.gpu, strict=True)
        if node is not None and gpu is not None
    ]
    known = (
        {}
        if len(seats) < placement.world
        else {
            "nodes": [node for node, _ in seats],
            "local_ranks": local_ranks([node for node, _ in seats]),
            "gpus": [gpu for _, gpu in seats],
        }
    )
    return structs.replace(
        bare,
        names=[f"node {at}" if at in loose else node.name for at, node in enumerate(placement.nodes)],
        refusal="" if known else placement.facts.refusal or "Ray places the ranks",
        assumptions=said,
        **known,
    )


def moved(one: Declared, offsets: Sequence[int]) -> Declared:
    """A world whose nodes carry other worlds too, its GPUs after theirs. `offsets` are GPUs by node."""
    if not offsets or not one.nodes:
        return one
    gpus = [gpu + offsets[node] for gpu, node in zip(one.gpus, one.nodes, strict=True)]
    said = "worlds that share a node use its GPUs one after the other"
    return structs.replace(one, gpus=gpus, assumptions=(*one.assumptions, said))


def crowded(one: Declared) -> list[tuple[int, int, list[int]]]:
    """(node, GPU, ranks) of each GPU that several ranks would drive."""
    found: dict[tuple[int, int], list[int]] = {}
    for rank, seat in enumerate(zip(one.nodes, one.gpus, strict=True)):
        found.setdefault(seat, []).append(rank)
    return [(*seat, ranks) for seat, ranks in sorted(found.items()) if len(ranks) > 1]


def describe(one: Declared) -> DeclaredWorld:
    """A world written out, but for its ranks. Raises LayoutError if the engine refuses the plan's layers."""
    layout, plan = one.layout, one.plan
    stages = layout.size("pipeline")
    split = split_of(plan, stages)
    modules = modules_of(plan, stages, split)
    return DeclaredWorld(
        engine=plan.engine,
        engine_version=plan.engine_version or layout.version,
        world=layout.world,
        sizes={short_name(axis): size for axis, size in layout.axes},
        nodes=list(one.names),
        layer_rule=None if split is None else split.rule,
        assumptions=list(one.assumptions),
        unplaced=one.refusal or None,
        groups={
            short_name(kind): [list(group) for group in layout.groups(kind)]
            for kind in dict.fromkeys((*ALWAYS, *layout.kinds()))
        },
        stages=[
            DeclaredStage(
                stage=stage,
                layers=None if split is None else list(split.held(stage)),
                modules=None if modules is None else list(modules[stage]),
            )
            for stage in range(stages)
        ],
    )


def ranks_of(one: Declared, stages: Sequence[DeclaredStage], most: int | None = None) -> list[DeclaredRank]:
    """Its first `most` ranks, all without it."""
    layout, further = one.layout, positions(one.layout)
    axes = [(short_name(axis), layout.strides[axis], size) for axis, size in layout.axes]
    shown = layout.world if most is None else min(most, layout.world)
    placed = bool(one.nodes)
    ranks = []
    for rank in range(shown):
        coordinates = {name: rank // stride % size for name, stride, size in axes}
        stage = coordinates.get("pp", 0)
        coordinates |= {kind: places[rank] for kind, places in further.items() if rank in places}
        ranks.append(
            DeclaredRank(
                world=one.name or UNSET,
                rank=rank,
                coordinates=coordinates,
                node=one.names[one.nodes[rank]] if placed else None,
                local_rank=one.local_ranks[rank] if placed else None,
                gpu_index=one.gpus[rank] if placed else None,
                layers=stages[stage].layers,
            )
        )
    return ranks


def positions(layout: Layout) -> dict[str, dict[int, int]]:
    """Position of each rank in its group, by kind, for groups that divide an axis or follow none."""
    return {
        short_name(kind): {rank: place for group in layout.groups(kind) for place, rank in enumerate(group)}
        for kind in layout.kinds()
        if kind in layout.extra and kind in POSITIONS
    }


def document(worlds: Sequence[Declared]) -> Declaration | DeclaredJob:
    """A plan written out as one document. Raises LayoutError if an engine refuses the plan's layers."""
    written = [describe(one) for one in worlds]
    ranks = [rank for one, world in zip(worlds, written, strict=True) for rank in ranks_of(one, world.stages)]
    if len(worlds) == 1:
        return Declaration(**{**structs.asdict(written[0]), "schema": SCHEMA}, ranks=ranks)
    names = [one.name for one in worlds]
    return DeclaredJob(schema=SCHEMA, worlds=dict(zip(names, written, strict=True)), ranks=ranks)
