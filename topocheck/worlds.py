"""The worlds of a job: replicas, prefill and decode pools, each with ranks from 0 of its own.

The key of a rank is (world, rank). Each world is a plan of its own, made of what it gives and of what the
whole plan gives for all.
"""

from __future__ import annotations

from typing import get_args

from msgspec.structs import asdict, replace

from topocheck.engines import ENGINES
from topocheck.errors import LayoutError
from topocheck.plan import NodeRange, Plan, Role, World

__all__ = ["Nodes", "deal", "first_gpus", "ranks_of", "role_of", "world_plan", "worlds_of"]

Nodes = int | tuple[str, ...] | NodeRange
"""Nodes as a plan gives them."""

OF_ONE_ENGINE = ("engine_version", "order", "layers")
"""What of a plan says nothing about a world of another engine."""


def worlds_of(plan: Plan) -> list[tuple[str, Plan]]:
    """Name and plan of each world that `worlds:` declares, in order; ("", plan) for a plan of one world.

    Raises LayoutError for a number of worlds that the nodes cannot be dealt to.
    """
    if plan.worlds == 1:
        return [("", plan)]
    if isinstance(plan.worlds, int):
        return [(str(number), one) for number, one in enumerate(dealt(plan, plan.worlds))]
    return [(name, world_plan(plan, world)) for name, world in plan.worlds.items()]


def world_plan(plan: Plan, world: World) -> Plan:
    """The plan of one world: what it gives, else what the whole plan gives."""
    given = {key: value for key, value in asdict(world).items() if value is not None and key != "role"}
    if given.get("engine", plan.engine) != plan.engine:
        given = {**dict.fromkeys(OF_ONE_ENGINE), **given}
    return replace(plan, worlds=1, **given)


def role_of(plan: Plan, name: str) -> Role | None:
    """What a world does where prefill and decode are apart: by its key, else by its name; None for neither.

    `name` is that of a world, or of one of its data replicas: `decode.dp0`.
    """
    worlds = plan.worlds if isinstance(plan.worlds, dict) else {}
    world = worlds.get(name) or worlds.get(name.rpartition(".dp")[0])
    if world is not None and world.role is not None:
        return world.role
    roles: tuple[Role, ...] = get_args(Role)
    return next((role for role in roles if name.lower().startswith(role)), None)


def dealt(plan: Plan, count: int) -> list[Plan]:
    """As many equal plans, the nodes dealt to them in order."""
    shares = deal(plan.nodes, count)
    if shares is None:
        raise LayoutError(f"{count} worlds cannot be dealt to {spell(plan.nodes)}")
    return [replace(plan, worlds=1, nodes=share) for share in shares]


def deal(nodes: Nodes, count: int) -> list[Nodes] | None:
    """Nodes of each of `count` equal worlds: consecutive blocks, or several worlds on each node.

    None where neither of the two numbers divides the other, and for a number that is not settled.
    """
    if isinstance(nodes, NodeRange):
        return None
    total = nodes if isinstance(nodes, int) else len(nodes)
    if total % count and count % total:
        return None
    each, crowd = max(total // count, 1), max(count // total, 1)
    if isinstance(nodes, int):
        return [each] * count
    return [nodes[number // crowd * each : number // crowd * each + each] for number in range(count)]


def spell(nodes: Nodes) -> str:
    """Nodes in words."""
    if isinstance(nodes, NodeRange):
        return f"{nodes.min} to {nodes.max} nodes"
    total = nodes if isinstance(nodes, int) else len(nodes)
    return "one node" if total == 1 else f"{total} nodes"


def ranks_of(plan: Plan) -> int | None:
    """Number of ranks of one world; None for sizes that its engine refuses."""
    sizes = {name: size for name, size in asdict(plan.parallel).items() if size is not None}
    try:
        return ENGINES[plan.engine].layout(sizes, plan.engine_version, plan.order).world
    except LayoutError:
        return None


def first_gpus(plan: Plan) -> list[tuple[int, ...]]:
    """For each of `worlds_of`, by node: how many GPUs of that node the worlds before it take.

    Nobody declares them: worlds that share a node are taken to use its GPUs one after the other, as vLLM's
    and SGLang's replicas do. Empty for a world whose nodes are its own, as far as the plan says.
    """
    if plan.worlds == 1:
        return [()]
    if isinstance(plan.worlds, int) and isinstance(plan.nodes, int):
        crowd, ranks = plan.worlds // plan.nodes, ranks_of(plan) or 0
        return [(number % crowd * ranks,) if crowd > 1 else () for number in range(plan.worlds)]
    taken: dict[str, int] = {}
    found = []
    for _, world in worlds_of(plan):
        names = world.nodes if isinstance(world.nodes, tuple) else ()
        offsets = tuple(taken.get(name, 0) for name in names)
        found.append(offsets if any(offsets) else ())
        for name in names:
            taken[name] = taken.get(name, 0) + -(-(ranks_of(world) or 0) // len(names))
    return found
