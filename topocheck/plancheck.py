"""What a plan asks of its engine that the engine does not have: it would ignore it in silence."""

from __future__ import annotations

from typing import Any

import yaml

from topocheck.engines import ENGINES
from topocheck.errors import PlanError
from topocheck.formula import ranks_of_sizes
from topocheck.layeroptions import check_options
from topocheck.plan import NodeRange, Plan, World
from topocheck.strictyaml import line_of
from topocheck.worlds import deal, world_plan

__all__ = ["check_plan", "of_all_worlds"]

MAX_WORLD = 10_000_000

Keys = dict[str, tuple[Any, Any]]
"""Key and value nodes of a mapping by key."""


def check_plan(plan: Plan, root: yaml.MappingNode, source: str) -> None:
    """Refuse what an engine does not take, of the plan or of one of its worlds. Raises PlanError."""
    keys = _keys(root)
    if "engine" in keys:
        _check_engine(plan, keys, source)
    if "worlds" in keys:
        _check_worlds(plan, keys, source)


def _keys(root: yaml.MappingNode) -> Keys:
    """Key and value nodes of a mapping that was read before."""
    return {key.value: (key, value) for key, value in root.value}


def _check_worlds(plan: Plan, keys: Keys, source: str) -> None:
    """Refuse worlds of more ranks than there can be, a number that the nodes do not divide, wrong sizes."""
    key, node = keys["worlds"]
    if isinstance(plan.worlds, int):
        total = plan.worlds * ranks_of_sizes(plan)
        if deal(plan.nodes, plan.worlds) is None:
            problem, fix = f"{plan.worlds} worlds do not divide the nodes", "name each world and its nodes"
            raise PlanError(problem, path=source, line=line_of(key), fix=fix)
    else:
        worlds = {name: world_plan(plan, world) for name, world in plan.worlds.items()}
        total = sum(map(ranks_of_sizes, worlds.values()))
        for name, (_, own) in _keys(node).items():
            world = worlds[name]
            common = {key: keys[key] for key in keys if key != "order" or world.engine == plan.engine}
            _check_engine(world, {**common, **_keys(own)}, source)
    if total > MAX_WORLD:
        problem, fix = f"the worlds have {total:,} ranks together", f"{MAX_WORLD:,} are the most"
        raise PlanError(problem, path=source, line=line_of(key), fix=fix)


def _check_engine(plan: Plan, keys: Keys, source: str) -> None:
    """Refuse sizes and an order that the engine does not take: it would ignore them in silence.

    `keys` are the nodes that the plan, or the plan of one of its worlds, was read from.
    """
    engine = ENGINES[plan.engine]
    if plan.order is not None and not engine.orders:
        problem = f"{engine.title} takes no order of the axes"
        raise PlanError(problem, path=source, line=line_of(keys["order"][0]), fix="remove 'order'")
    if isinstance(plan.layers, dict):
        check_options(engine, keys["layers"][1], source)
    for key, _ in keys["parallel"][1].value if "parallel" in keys else ():
        if key.value not in engine.sizes and getattr(plan.parallel, key.value) != 1:
            problem, fix = f"{engine.title} has no size '{key.value}'", f"it takes {', '.join(engine.sizes)}"
            raise PlanError(problem, path=source, line=line_of(key), fix=fix)
    if (world := ranks_of_sizes(plan)) > MAX_WORLD:
        problem, fix = f"the sizes make a world of {world:,} ranks", f"{MAX_WORLD:,} are the most"
        raise PlanError(problem, path=source, line=line_of(keys["parallel"][0]), fix=fix)


def of_all_worlds(worlds: object) -> dict[str, Any]:
    """Engine and nodes of a plan that leaves them to its worlds, each of which gives them."""
    if not isinstance(worlds, dict):
        return {}
    every: list[World] = list(worlds.values())
    found: dict[str, Any] = {}
    if all(world.engine for world in every):
        found["engine"] = every[0].engine
    named = [world.nodes for world in every if isinstance(world.nodes, tuple)]
    if len(named) == len(every):
        found["nodes"] = tuple(dict.fromkeys(name for nodes in named for name in nodes))
    elif all(world.nodes for world in every):
        found["nodes"] = sum(map(_most, every))
    return found


def _most(world: World) -> int:
    """Most nodes that a world has."""
    if isinstance(world.nodes, NodeRange):
        return world.nodes.max
    return world.nodes if isinstance(world.nodes, int) else len(world.nodes or ())
