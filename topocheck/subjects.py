"""What rules are asked over: tensor groups, node loads, stage boundaries.

Equal situations are one: 12,500 groups on the same ordinals of the same hardware shape are checked
once. Everything here is computed once for a placement and kept with it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise

from topocheck.engines.layout import Group
from topocheck.placement import Node, Placement
from topocheck.ranges import fold
from topocheck.rule import NotApplicable, Situations

__all__ = [
    "Boundary",
    "Load",
    "TensorGroup",
    "crossings",
    "loads",
    "stage_boundaries",
    "tensor_groups",
]


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """One tensor-parallel group."""

    index: int
    ranks: Group

    def __str__(self) -> str:
        return f"TP group {self.index} (ranks {fold(self.ranks)})"


@dataclass(frozen=True, slots=True)
class Load:
    """The ranks of one node and the GPUs that they drive."""

    node: Node | None
    """None for the ranks whose node nothing shows."""
    ranks: tuple[int, ...]
    gpus: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.node} (ranks {fold(self.ranks)})"


@dataclass(frozen=True, slots=True)
class Boundary:
    """Two nodes that neighbouring stages, or the ranks of a group, join."""

    a: Node
    b: Node
    ranks: tuple[int, int]
    """One pair of ranks across it, lower stage first."""

    def __str__(self) -> str:
        return f"{self.a} - {self.b} (rank {self.ranks[0]} -> {self.ranks[1]})"


def tensor_groups(placement: Placement) -> Situations[TensorGroup] | NotApplicable:
    """TP groups by situation: where they lie on one node, by the node's shape and the GPUs used."""
    if placement.layout.size("tensor") == 1:
        return NotApplicable("tensor parallel size is 1")
    return placement.keep("tensor groups", find_tensor_groups)


def find_tensor_groups(placement: Placement) -> dict[Hashable, list[TensorGroup]]:
    """Sort all TP groups into situations."""
    column, nodes = placement.placed, placement.nodes
    found: dict[Hashable, list[TensorGroup]] = {}
    for index, ranks in enumerate(placement.layout.groups("tensor")):
        places, gpus = members(column.node, ranks), members(column.gpu, ranks)
        place = places[0]
        key: Hashable = index if places.count(None) < len(places) else "unplaced"
        if place is not None and places.count(place) == len(places):
            key = (id(nodes[place].shape), tuple(gpus)) if nodes[place].shape else index
        found.setdefault(key, []).append(TensorGroup(index, ranks))
    return found


def members(column: list[int | None], ranks: Group) -> list[int | None]:
    """Entries of a column for the ranks of a group."""
    if isinstance(ranks, range):
        return column[ranks.start : ranks.stop : ranks.step]
    return [column[rank] for rank in ranks]


def loads(placement: Placement) -> Situations[Load]:
    """Nodes with ranks, by hardware shape, GPUs used and what is known of the list of GPUs."""
    return placement.keep("loads", find_loads)


def find_loads(placement: Placement) -> dict[Hashable, list[Load]]:
    """Sort all nodes that carry ranks into situations."""
    gpu = placement.placed.gpu
    found: dict[Hashable, list[Load]] = {}
    for place, ranks in placement.ranks_on.items():
        node = placement.nodes[place]
        gpus = tuple([gpu[rank] for rank in ranks])
        key: Hashable = place
        if node.shape is not None and node.machine is not None:
            key = id(node.shape), gpus, len(node.machine.gpus), node.machine.coverage.gpus
        found.setdefault(key, []).append(Load(node, tuple(ranks), gpus))
    if placement.unplaced:
        found["unplaced"] = [Load(None, tuple(placement.unplaced), ())]
    return found


def stage_boundaries(placement: Placement) -> Situations[Boundary] | NotApplicable:
    """Pairs of nodes that neighbouring pipeline stages join."""
    if placement.layout.size("pipeline") == 1:
        return NotApplicable("one pipeline stage")
    found = placement.keep("boundaries", lambda p: crossing_pairs(p, ("pipeline",)))
    if not found and placement.placed.complete:
        return NotApplicable("neighbouring stages share their node everywhere")
    return found


def crossings(placement: Placement) -> Situations[Boundary] | NotApplicable:
    """Pairs of nodes that any group of the plan joins, neighbours in the group's order."""
    if placement.world == 1:
        return NotApplicable("one rank")
    found = placement.keep(
        "crossings", lambda p: crossing_pairs(p, tuple(n for n, size in p.layout.axes if size > 1))
    )
    if not found and placement.placed.complete:
        return NotApplicable("no group crosses nodes")
    return found


def crossing_pairs(placement: Placement, kinds: tuple[str, ...]) -> dict[Hashable, list[Boundary]]:
    """Distinct pairs of nodes between neighbours of the groups of these kinds."""
    column, nodes = placement.placed.node, placement.nodes
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    for kind in kinds:
        for ranks in placement.layout.groups(kind):
            places = members(column, ranks)
            if places.count(places[0]) == len(places):
                continue
            for position, (a, b) in enumerate(pairwise(places)):
                if a != b and a is not None and b is not None:
                    pairs.setdefault((a, b), (ranks[position], ranks[position + 1]))
    return {pair: [Boundary(nodes[pair[0]], nodes[pair[1]], ranks)] for pair, ranks in pairs.items()}
