"""What rules are asked over: tensor groups, node loads, stage boundaries.

Equal situations are one: 12,500 groups on the same ordinals of the same hardware shape are checked
once. Everything here is computed once for a placement and kept with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import itemgetter
from typing import TypeVar

from topocheck.engines.layout import Group, Layout
from topocheck.kinds import kind_numbers
from topocheck.placement import Node, Placement
from topocheck.profiles import without_links
from topocheck.ranges import first, fold
from topocheck.rule import Evidence, NotApplicable, Situations, situations, the

__all__ = [
    "INNER",
    "Boundary",
    "Gpus",
    "Load",
    "TensorGroup",
    "along",
    "between_nodes",
    "carriers",
    "crossing_pairs",
    "crossings",
    "every_rank_told",
    "groups_apart",
    "loads",
    "members",
    "replica_of",
    "running",
    "side_by_side",
    "tensor_groups",
    "told_by",
    "unknown_boundary",
    "within_nodes",
    "without_nvlink",
]

Entry = TypeVar("Entry")

Places = tuple[int | None, int | None]
"""Nodes of two ranks by position."""
Gpus = tuple[int | None, ...]
"""GPUs of some ranks by the phase's column; None where it knows none."""

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
    gpus: Gpus

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
    """TP groups by situation: where they lie on one node, by the node's kind and the GPUs used."""
    if placement.layout.size("tensor") == 1:
        return NotApplicable("tensor parallel size is 1")
    return placement.keep("tensor groups", find_tensor_groups)


def find_tensor_groups(placement: Placement) -> dict[Hashable, Sequence[TensorGroup]]:
    """Sort all TP groups into situations."""
    layout, column, kinds = placement.layout, placement.placed, kind_numbers(placement)

    def group(index: int) -> TensorGroup:
        return TensorGroup(index, group_at(layout, "tensor", index))

    gpus = along(layout, "tensor", column.gpu)
    places, *others = by_member(layout, "tensor", column.node)
    indexes = range(len(places))
    if None not in places and all(peers == places for peers in others):
        keys: Iterable[Hashable] = zip([kinds[place or 0] for place in places], gpus, strict=True)
    else:
        rows = zip(indexes, along(layout, "tensor", column.node), gpus, strict=True)
        keys = (lie(kinds, *row) for row in rows)
    return situations(keys, group, indexes, places)


def lie(
    kinds: Sequence[int], index: int, places: tuple[int | None, ...], gpus: tuple[int | None, ...]
) -> Hashable:
    """How a group lies: on GPUs of a node of some kind, by itself where not on one node, or nowhere known."""
    place = places[0]
    if place is not None and places.count(place) == len(places):
        return kinds[place], gpus
    return index if places.count(None) < len(places) else "unplaced"


def groups_apart(placement: Placement) -> list[TensorGroup]:
    """TP groups that are not shown to lie on one node, some of whose nodes are known."""
    groups = tensor_groups(placement)
    if isinstance(groups, NotApplicable):
        return []
    return [alike[0] for key, alike in groups.items() if isinstance(key, int)]


def group_at(layout: Layout, axis: str, index: int) -> range:
    """Ranks of the group with this number along an axis that the engine has."""
    stride, size = layout.strides[axis], layout.sizes[axis]
    block, offset = divmod(index, stride)
    first = block * stride * size + offset
    return range(first, first + stride * size, stride)


def along(layout: Layout, axis: str, column: list[Entry]) -> Iterator[tuple[Entry, ...]]:
    """Entries of a column for the ranks of each group along an axis, in the order of the groups.

    An axis that the engine does not have gives groups of one rank.
    """
    return zip(*by_member(layout, axis, column), strict=True)


def by_member(layout: Layout, axis: str, column: list[Entry]) -> list[list[Entry]]:
    """The same turned: entries for the first member of each group, then for the second of each ..."""
    stride, size = layout.strides.get(axis, 1), layout.sizes.get(axis, 1)
    if stride == 1:
        return [column[n::size] for n in range(size)]
    starts = range(0, layout.world, stride * size)
    return [
        [*chain.from_iterable([column[start + stride * n : start + stride * (n + 1)] for start in starts])]
        for n in range(size)
    ]


def members(column: list[int | None], ranks: Group) -> list[int | None]:
    """Entries of a column for the ranks of a group."""
    if isinstance(ranks, range):
        return column[ranks.start : ranks.stop : ranks.step]
    return [column[rank] for rank in ranks]


def loads(placement: Placement) -> Situations[Load]:
    """Nodes with ranks, by kind."""
    return placement.keep("loads", find_loads)


def find_loads(placement: Placement) -> dict[Hashable, Sequence[Load]]:
    """Sort all nodes that carry ranks into situations: on nodes of one kind they use like GPUs."""
    kinds, ranks_on = kind_numbers(placement), placement.ranks_on

    def load(place: int) -> Load:
        ranks = tuple(ranks_on[place])
        gpus = tuple([placement.placed.gpu[rank] for rank in ranks])
        return Load(placement.nodes[place], ranks, gpus)

    own = range(len(placement.nodes))
    found = situations([kinds[place] for place in ranks_on], load, ranks_on, own)
    if placement.unplaced:
        found["unplaced"] = [Load(None, tuple(placement.unplaced), ())]
    return found


def carriers(placement: Placement) -> Situations[Node]:
    """Nodes with ranks, by kind."""
    return placement.keep("nodes with ranks", find_carriers)


def find_carriers(placement: Placement) -> dict[Hashable, list[Node]]:
    """The nodes of the loads."""
    kinds, nodes = kind_numbers(placement), placement.nodes
    found: dict[Hashable, list[Node]] = {}
    for place in placement.ranks_on:
        found.setdefault(kinds[place], []).append(nodes[place])
    return found


def unknown_boundary(placement: Placement) -> Boundary:
    """What ranks without a node may be part of."""
    return Boundary(None, None, tuple(placement.unplaced))


def within_nodes(placement: Placement) -> NotApplicable | None:
    """Proof that no group of the plan joins two nodes."""
    if placement.world == 1:
        return NotApplicable("one rank")
    if placement.unplaced:
        return None
    sizes = placement.layout.sizes
    if any(size > 1 and next(side_by_side(placement, axis), None) for axis, size in sizes.items()):
        return None
    return NotApplicable("no group crosses nodes")


def running(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, if it was seen running."""
    if placement.phase != "observed":
        return NotApplicable("the job was not seen running")
    return the(placement)


def between_nodes(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The running job, if any of its groups crosses nodes."""
    job = running(placement)
    if isinstance(job, NotApplicable):
        return job
    if placement.expected == 1 and len(placement.nodes) == 1:
        return NotApplicable("the job has one node")
    return within_nodes(placement) or job


def crossings(placement: Placement) -> Situations[Boundary] | NotApplicable:
    """Pairs of nodes that any group of the plan joins, neighbours in the group's order."""
    kinds = tuple(name for name, size in placement.layout.axes if size > 1)
    return within_nodes(placement) or placement.keep("crossings", lambda p: crossing_pairs(p, kinds))


def crossing_pairs(placement: Placement, kinds: tuple[str, ...]) -> dict[Hashable, list[Boundary]]:
    """Distinct pairs of nodes between neighbours of the groups of these kinds, then what is not known."""
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    for kind in kinds:
        on_axis = kind in placement.layout.sizes and kind not in placement.layout.extra
        found = neighbours(placement, kind) if on_axis else scattered(placement, kind)
        for (a, b), ranks in found:
            if a != b and a is not None and b is not None:
                pairs.setdefault((a, b), ranks)
    nodes = placement.nodes
    crossing: dict[Hashable, list[Boundary]] = {
        (a, b): [Boundary(nodes[a], nodes[b], ranks)] for (a, b), ranks in pairs.items()
    }
    if placement.unplaced:
        crossing["unplaced"] = [unknown_boundary(placement)]
    return crossing


def neighbours(placement: Placement, axis: str) -> Iterator[tuple[Places, tuple[int, int]]]:
    """Places of neighbours along an axis with the lowest ranks that have them."""
    stride = placement.layout.strides[axis]
    for start, lower, upper in side_by_side(placement, axis):
        ranks = range(start, start + len(lower))
        last_wins = zip(zip(reversed(lower), reversed(upper), strict=True), reversed(ranks), strict=True)
        for places, rank in sorted(dict(last_wins).items(), key=itemgetter(1)):
            yield places, (rank, rank + stride)


def side_by_side(placement: Placement, axis: str) -> Iterator[tuple[int, list[int | None], list[int | None]]]:
    """(first rank, places of the ranks from it on, places of their neighbours), where the two differ.

    Neighbours are one stride apart, so that no group is made: 100,000 ranks take some milliseconds.
    """
    column, stride = placement.placed.node, placement.layout.strides[axis]
    span = stride * placement.layout.sizes[axis]
    for start in range(0, placement.world, span):
        lower, upper = column[start : start + span - stride], column[start + stride : start + span]
        if lower != upper:
            yield start, lower, upper


def scattered(placement: Placement, kind: str) -> Iterator[tuple[Places, tuple[int, int]]]:
    """The same for groups that follow no axis."""
    for ranks in placement.layout.groups(kind):
        places = members(placement.placed.node, ranks)
        yield from zip(pairwise(places), pairwise(ranks), strict=True)


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


def told_by(placement: Placement) -> tuple[Evidence, ...]:
    """What each node told of its ranks."""
    return tuple(
        Evidence(
            source=first(node.machine.sources, 2) if node.machine else placement.phase,
            fact=f"{node}: ranks {fold(placement.ranks_on.get(node.index, ())) or 'none'}",
        )
        for node in placement.nodes[: placement.expected]
    )


def without_nvlink(placement: Placement) -> NotApplicable | None:
    """Proof that no GPU of the job has NVLink, by the models or the profiles of all nodes."""
    why = placement.keep("no NVLink", lambda p: without_links(p, p.nodes[: p.expected]))
    return None if why is None else NotApplicable(why)
