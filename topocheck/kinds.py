"""Nodes that show the same but for their identity: rules look at one of each kind.

A cluster of 12,500 nodes has some dozens of them. What a running job showed of a node, a foreign process on
its GPUs, or two sources that contradict each other make a node a kind of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import chain
from operator import attrgetter
from typing import TypeVar, cast

from topocheck.likeness import LARGE_SKEW_S, OWN, SKEW_S, USUAL_LIMITS, look
from topocheck.placement import Node, Placement
from topocheck.plan import Policy
from topocheck.settings import own_options

__all__ = ["by_kind", "clock_limits", "in_order", "kind_numbers", "kinds", "per_node", "with_strays"]

Answer = TypeVar("Answer")


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
    found: dict[Hashable, list[list[Node]]] = {}
    for members in with_strays(placement) if others else kinds(placement):
        found.setdefault(key(members[0]), []).append(members)
    return {situation: in_order(parts) for situation, parts in found.items()}


def in_order(parts: list[list[Node]]) -> list[Node]:
    """Nodes of several kinds in the plan's order; those of one kind are in it."""
    return parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts), key=attrgetter("index"))


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
    usual = limits == USUAL_LIMITS
    found: dict[Hashable, list[Node]] = {}
    for node in placement.nodes[: placement.expected]:
        machine, ranks = node.machine, ranks_on.get(node.index, ())
        gpus = tuple([gpu[rank] for rank in ranks])
        key: Hashable = None if machine is None else (usual and machine.look) or look(machine, limits)
        if node.index in told or key == OWN:
            key = node.index
        found.setdefault((key, gpus, options.get(node.index, ())), []).append(node)
    return list(found.values())
