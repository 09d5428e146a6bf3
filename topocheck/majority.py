"""What is the same on most nodes, and who differs: both values and all nodes are named.

With two nodes, or with as many of one kind as of the other, there is no majority, and that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

from topocheck.inventory import Machine
from topocheck.kinds import kinds
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.report import Evidence

__all__ = ["Split", "split", "split_nodes"]

Value = TypeVar("Value", bound=Hashable)

MOST_NAMED = 8
"""Nodes named of each value; the others are counted."""


@dataclass(frozen=True, slots=True)
class Split(Generic[Value]):
    """Nodes of the job by one value of theirs."""

    groups: tuple[tuple[Value, tuple[Node, ...]], ...]
    """Each value with its nodes, the commonest first."""
    silent: tuple[Node, ...]
    """Nodes that do not show it."""

    @property
    def usual(self) -> bool:
        """The first value is that of more than half of the nodes that show one."""
        sizes = [len(nodes) for _, nodes in self.groups]
        return bool(sizes) and 2 * sizes[0] > sum(sizes)

    @property
    def odd(self) -> tuple[Node, ...]:
        """Nodes that differ from the majority, all where there is none; () if no two nodes differ."""
        if len(self.groups) < 2:
            return ()
        return tuple(node for _, nodes in self.groups[1 if self.usual else 0 :] for node in nodes)

    def told(self, what: str, spell: Callable[[Value], str] = str) -> str:
        """The difference in words: `node-b has driver 575.57.08, the other 7 nodes 570.86.15`."""
        if not self.usual:
            has = ", ".join(f"{spell(value)} on {named(nodes)}" for value, nodes in self.groups)
            return f"{what} differs and no majority says which is right: {has}"
        (usual, most), *rest = self.groups
        has = ", ".join(f"{spell(value)} on {named(nodes)}" for value, nodes in rest)
        others = f"the other {len(most)} nodes" if len(most) > 1 else named(most)
        return f"{what} is {has}, and {spell(usual)} on {others}"

    def evidence(self, what: str, spell: Callable[[Value], str] = str) -> tuple[Evidence, ...]:
        """One fact for each value, with where it was read."""
        return tuple(
            Evidence(source=nodes[0].read_in(), fact=f"{what} {spell(value)}: {named(nodes)}")
            for value, nodes in self.groups
        )


def named(nodes: Sequence[Node]) -> str:
    """Names of nodes, the first ones."""
    return first((node.name for node in nodes), MOST_NAMED)


def split(placement: Placement, what: Callable[[Machine], Value | None]) -> Split[Value]:
    """The nodes that the plan expects by a value of theirs; None is a node that does not show it."""
    return split_nodes(placement, lambda node: None if node.machine is None else what(node.machine))


def split_nodes(placement: Placement, what: Callable[[Node], Value | None]) -> Split[Value]:
    """The same where the value is not the machine's alone. Nodes of one kind are asked once."""
    by_value: dict[Value, list[Node]] = {}
    silent: list[Node] = []
    for members in kinds(placement):
        value = what(members[0])
        if value is None:
            silent += members
        else:
            by_value.setdefault(value, []).extend(members)
    groups = [(value, in_order(placement, nodes)) for value, nodes in by_value.items()]
    groups.sort(key=lambda entry: (-len(entry[1]), entry[1][0].index))
    return Split(tuple(groups), in_order(placement, silent))


def in_order(placement: Placement, nodes: list[Node]) -> tuple[Node, ...]:
    """Nodes in the plan's order. Mostly they are all that it expects."""
    if len(nodes) == placement.expected:
        return placement.nodes[: placement.expected]
    return tuple(sorted(nodes, key=attrgetter("index")))
