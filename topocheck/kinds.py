"""Nodes that show the same but for their identity: rules look at one of each kind.

A cluster of 12,500 nodes has some dozens of them. What a running job showed of a node, a foreign process on
its GPUs, or two sources that contradict each other make a node a kind of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from topocheck.condition import NodeState
from topocheck.machine import Machine
from topocheck.placement import Node, Placement
from topocheck.plan import Policy
from topocheck.settings import own_options

__all__ = ["by_kind", "clock_limits", "kind_numbers", "kinds", "per_node", "with_strays"]

Answer = TypeVar("Answer")

SKEW_S, LARGE_SKEW_S = 1.0, 30.0
"""From where on times of two hosts mislead readers of logs, where policy does not say, and where rendezvous
and certificates fail."""


def clock_limits(policy: Policy) -> tuple[float, float]:
    """Errors of a clock, in seconds, above which it is a warning and an error."""
    least = policy.clock_error_s or SKEW_S
    return least, max(LARGE_SKEW_S, least)


def by_kind(
    placement: Placement, key: Callable[[Node], Hashable], *, others: bool = False
) -> dict[Hashable, list[Node]]:
    """Expected nodes by what `key` sees of them. It is asked once for each kind, and must see no identity.

    With `others` the hosts that carry ranks and have no place in the plan are asked as well.
    """
    found: dict[Hashable, list[Node]] = {}
    joined = set()
    for members in with_strays(placement) if others else kinds(placement):
        situation = key(members[0])
        if situation in found:
            joined.add(situation)
            found[situation] = found[situation] + members
        else:
            found[situation] = members
    for situation in joined:
        found[situation].sort(key=lambda node: node.index)
    return found


def kinds(placement: Placement) -> list[list[Node]]:
    """Expected nodes by kind, kinds in the order of their first node."""
    return placement.keep("kinds of nodes", find_kinds)


def kind_numbers(placement: Placement) -> list[int]:
    """Number of each node's kind; hosts without a place in the plan are kinds of their own."""
    return placement.keep("numbers of kinds", find_numbers)


def find_numbers(placement: Placement) -> list[int]:
    """Kinds are numbered in their order."""
    numbers = [0] * len(placement.nodes)
    for number, members in enumerate(with_strays(placement)):
        for node in members:
            numbers[node.index] = number
    return numbers


def with_strays(placement: Placement) -> list[list[Node]]:
    """Kinds of the expected nodes, then the hosts that carry ranks and have no place, each by itself."""
    return [*kinds(placement), *([node] for node in placement.nodes[placement.expected :])]


def per_node(placement: Placement, ask: Callable[[Node], Answer]) -> list[Answer]:
    """What `ask` says of each node, by index. It is asked once for each kind, and must see no identity."""
    found = cast("list[Answer]", [None] * len(placement.nodes))
    for members in with_strays(placement):
        answer = ask(members[0])
        for node in members:
            found[node.index] = answer
    return found


def find_kinds(placement: Placement) -> list[list[Node]]:
    """Sort all expected nodes into kinds."""
    gpu, told, ranks_on = placement.placed.gpu, placement.facts_by_node, placement.ranks_on
    limits, options = clock_limits(placement.plan.policy), own_options(placement)
    found: dict[Hashable, list[Node]] = {}
    for node in placement.nodes[: placement.expected]:
        machine, ranks = node.machine, ranks_on.get(node.index, ())
        gpus = tuple([gpu[rank] for rank in ranks])
        own = node.index in told or (machine is not None and is_own(machine))
        key: Hashable = node.index if own else None if machine is None else look(machine, limits)
        found.setdefault((key, gpus, options.get(node.index, ())), []).append(node)
    return list(found.values())


def is_own(machine: Machine) -> bool:
    """It shows something that no other machine does."""
    return bool(
        machine.observed
        or machine.conflicts
        or machine.two_uuids
        or machine.twins
        or any(state.busy or state.strayed for state, _ in machine.states)
    )


def look(machine: Machine, limits: tuple[float, ...]) -> tuple[Any, ...]:
    """What rules see of a machine; of equal parts one object is kept over all machines."""
    return (
        None if machine.shape is None else id(machine.shape.alike),
        id(machine.software),
        id(machine.coverage),
        id(machine.numbering),
        id(machine.fabric),
        tuple(map(id, machine.environments)),
        tuple(map(id, machine.listed)),
        tuple(map(id, machine.limits_alike)),
        len({limits.container for limits in machine.limits}),
        tuple(map(id, machine.verbs)),
        tuple(map(id, machine.model)),
        tuple([state_key(state, ties, limits) for state, ties in machine.states]),
        tuple([(file.path, file.kind, file.exists, *file.settings.items()) for file in machine.files]),
        machine.plugins,
        machine.faults,
        machine.sliced,
        machine.named_models,
        machine.untied,
        machine.has_claims,
        len(machine.gpus),
    )


def state_key(state: NodeState, ties: list[int] | None, limits: tuple[float, ...]) -> tuple[Any, ...]:
    """What rules see of one view of a machine's state; of a clock's error, which limits it exceeds."""
    error = None if state.clock is None else state.clock.error_seconds
    return (
        id(state.idle),
        state.matched,
        id(state.ports),
        id(state.netdevs),
        None if state.clock is None else state.clock.synchronised,
        None if error is None else tuple([error > limit for limit in limits]),
        None if ties is None else tuple(ties),
    )
