"""Where an engine's formula puts the ranks of a plan, from the plan alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from msgspec import structs

from topocheck.engines import ENGINES
from topocheck.engines.engine import Engine
from topocheck.engines.layout import Layout, Slots
from topocheck.errors import LayoutError
from topocheck.plan import Plan

__all__ = ["RANK_AXES", "SUBDIVIDED", "derive", "ranks_of_sizes", "sizes_of", "slots_of"]

RANK_AXES = (
    "tensor",
    "pipeline",
    "data",
    "context",
    "sequence",
    "data_replicate",
    "data_shard",
    "data_external",
)
"""Axes that multiply to the world size. The others divide an axis of these and add no ranks."""
SUBDIVIDED = {"sglang": frozenset({"context"})}
"""Rank axes that divide TP in one engine and add no ranks there (`srt/runtime_context.py`: attn_cp)."""


def sizes_of(plan: Plan) -> dict[str, int]:
    """Sizes that the plan gives."""
    given = {name: getattr(plan.parallel, name) for name in plan.parallel.__struct_fields__}
    return {name: size for name, size in given.items() if size is not None}


def slots_of(
    engine: Engine, layout: Layout, nodes: int, options: Mapping[str, object] | None = None
) -> tuple[Slots | None, str]:
    """(node and GPU of each rank, world / nodes ranks on each node; why there are none).

    `options` are what the engine's own command line says of GPUs. Never raises: what the engine refuses is
    the reason.
    """
    if layout.world % nodes:
        return None, f"{layout.world} ranks do not divide over {nodes} nodes"
    try:
        slots = engine.slots(layout, [layout.world // nodes] * nodes, **(options or {}))
    except LayoutError as error:
        return None, str(error)
    return slots, "" if slots is not None else f"{engine.title} leaves it to the launcher"


def derive(plan: Plan, world: int | None) -> Plan:
    """The plan with the size that it leaves out and that a world of `world` ranks fixes.

    Only `data` is derived, where the engine takes it and the product of the other rank axes divides the
    world. Everything else that was left out stays None, which is 1 to the engine.
    """
    parallel = plan.parallel
    if not world or plan.worlds != 1 or parallel.data is not None or "data" not in ENGINES[plan.engine].sizes:
        return plan
    data, rest = divmod(world, ranks_of_sizes(plan))
    if rest:
        return plan
    return structs.replace(plan, parallel=structs.replace(parallel, data=data))


def ranks_of_sizes(plan: Plan) -> int:
    """Product of the sizes that are given and add ranks."""
    axes = set(RANK_AXES) - SUBDIVIDED.get(plan.engine, frozenset())
    return prod(getattr(plan.parallel, axis) or 1 for axis in axes)
