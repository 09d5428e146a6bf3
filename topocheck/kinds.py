"""Nodes that show the same but for their identity: rules look at one of each kind.

A cluster of 12,500 nodes has some dozens of them. What a running job showed of a node, a foreign process on
its GPUs, or two sources that contradict each other make a node a kind of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import TypeVar, cast

from topocheck.likeness import LARGE_SKEW_S, OWN, SKEW_S, USUAL_LIMITS, look
from topocheck.placement import Node, Placement
from topocheck.plan import Policy
from topocheck.settings import own_options

__all__ = ["by_kind", "clock_limits", "in_order", "kind_numbers", "kinds", "per_node", "with_strays"]

Answer = TypeVar("Answer")

POSITION = attrgetter("index")


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
    return {situation: in_order(alike) for situation, alike in found.items()}


def in_order(alike: Sequence[list[Node]]) -> list[Node]:
    """Nodes of several kinds as one list; the list of one kind as it is, so that it is known again."""
    return alike[0] if len(alike) == 1 else sorted(chain.from_iterable(alike), key=POSITION)


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
    nodes, looks = placement.nodes[: placement.expected], looks_of(placement)
    for place in placement.facts_by_node.keys() & range(len(looks)):
        looks[place] = OWN, place
    for place, options in own_options(placement).items():
        if place < len(looks):
            looks[place] = looks[place], options
    found = defaultdict[Hashable, list[Node]](list)
    for node, key in zip(nodes, zip(looks, gpus_in_use(placement), strict=True), strict=True):
        found[key].append(node)
    return list(found.values())


def looks_of(placement: Placement) -> list[Hashable]:
    """What is seen of each expected node's machine: a number for each look, and for none."""
    limits = clock_limits(placement.plan.policy)
    usual = limits == USUAL_LIMITS
    machines = [node.machine for node in placement.nodes[: placement.expected]]
    looks = [one and ((usual and one.look) or look(one, limits)) for one in machines]
    # Machines share the objects: to hash the look of each machine takes longer than all the rest.
    numbers: dict[Hashable, int] = {}
    by_id = {
        key: numbers.setdefault(seen, len(numbers))
        for key, seen in dict(zip(map(id, looks), looks, strict=True)).items()
    }
    return [(OWN, place) if seen == OWN else by_id[id(seen)] for place, seen in enumerate(looks)]


def gpus_in_use(placement: Placement) -> Iterable[tuple[int | None, ...]]:
    """GPUs that the ranks of each expected node drive, in their order; () for each if all drive the same."""
    gpu, ranks_on = placement.placed.gpu, placement.ranks_on
    nodes = placement.expected
    share = gpu[: placement.world // nodes]
    if placement.runs and len(ranks_on) == nodes == len(placement.nodes) and gpu == share * nodes:
        return repeat((), nodes)  # as in a block launch on equal nodes
    return [tuple([gpu[rank] for rank in ranks_on.get(place, ())]) for place in range(nodes)]
