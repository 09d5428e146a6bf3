"""What rules are asked over: tensor groups, node loads, stage boundaries.

Equal situations are one: 12,500 groups on the same ordinals of the same hardware shape are checked
once. Everything here is computed once for a placement and kept with it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise

from topocheck.engines.layout import Group
from topocheck.models import has_nvlink
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.rule import NotApplicable, Situations

__all__ = [
    "INNER",
    "Boundary",
    "Load",
    "TensorGroup",
    "crossings",
    "every_rank_told",
    "loads",
    "members",
    "replica_of",
    "stage_boundaries",
    "tensor_groups",
    "without_nvlink",
]

INNER = ("tensor", "pipeline", "context", "sequence")
"""Axes inside one copy of the model."""


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

    a: Node | None
    """None, as `b`, where nothing shows the nodes of the ranks."""
    b: Node | None
    ranks: tuple[int, ...]
    """One pair of ranks across it, lower stage first; without nodes all ranks that it may be about."""

    def __str__(self) -> str:
        if self.a is None or self.b is None:
            return f"boundaries of ranks {fold(self.ranks)}"
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
            kind, load = nodes[place].kind, len(placement.ranks_on[place])
            key = index if kind is None else (kind, tuple(gpus), load)
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
        key: Hashable = place if node.kind is None else (node.kind, gpus)
        found.setdefault(key, []).append(Load(node, tuple(ranks), gpus))
    if placement.unplaced:
        found["unplaced"] = [Load(None, tuple(placement.unplaced), ())]
    return found


def stage_boundaries(placement: Placement) -> Situations[Boundary] | NotApplicable:
    """Pairs of nodes that neighbouring pipeline stages join."""
    if placement.layout.size("pipeline") == 1:
        return NotApplicable("one pipeline stage")
    found = placement.keep("boundaries", lambda p: crossing_pairs(p, ("pipeline",)))
    if not found:
        return NotApplicable("neighbouring stages share their node everywhere")
    return found


def crossings(placement: Placement) -> Situations[Boundary] | NotApplicable:
    """Pairs of nodes that any group of the plan joins, neighbours in the group's order."""
    if placement.world == 1:
        return NotApplicable("one rank")
    found = placement.keep(
        "crossings", lambda p: crossing_pairs(p, tuple(n for n, size in p.layout.axes if size > 1))
    )
    if not found:
        return NotApplicable("no group crosses nodes")
    return found


def crossing_pairs(placement: Placement, kinds: tuple[str, ...]) -> dict[Hashable, list[Boundary]]:
    """Distinct pairs of nodes between neighbours of the groups of these kinds, then what is not known."""
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
    found: dict[Hashable, list[Boundary]] = {
        pair: [Boundary(nodes[pair[0]], nodes[pair[1]], ranks)] for pair, ranks in pairs.items()
    }
    if placement.unplaced:
        found["unplaced"] = [Boundary(None, None, tuple(placement.unplaced))]
    return found


def replica_of(placement: Placement, rank: int) -> int:
    """Which copy of the model a rank belongs to: its position along all axes that are not inside one."""
    index = 0
    for axis, size in placement.layout.axes:
        if axis not in INNER:
            index = index * size + placement.layout.coordinate(rank, axis)
    return index


def every_rank_told(placement: Placement) -> bool:
    """Every expected node told all its ranks, so that a rank which nobody told does not exist."""
    if placement.phase == "predicted":
        return False  # there are no ranks yet
    if any(snapshot.ranks or snapshot.observed for snapshot in placement.inventory.unlabelled):
        return False
    part = "ranks" if placement.phase == "claimed" else "observed"
    machines = [node.machine for node in placement.nodes[: placement.expected]]
    return all(machine is not None and getattr(machine.coverage, part) == "all" for machine in machines)


def without_nvlink(placement: Placement) -> NotApplicable | None:
    """Proof that no GPU of the job has NVLink by design: every node's models are known."""
    models = {model for node in placement.nodes[: placement.expected] for model in node.models}
    if all(has_nvlink(model) is False for model in models):
        return NotApplicable(f"{first(sorted(map(str, models)))} has no NVLink")
    return None
