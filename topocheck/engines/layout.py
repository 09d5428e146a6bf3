"""Who is rank r: axes, coordinates and groups of one world.

A Layout is a row-major mesh: axes are listed from the slowest varying to the fastest, so that
`rank = ((c0 * n1 + c1) * n2 + c2) ...`. Groups are lines of a mesh, and lines are ranges, which cost
nothing for 100,000 ranks. Groups that follow no axis (expert groups, decode context) are lines of
another mesh over the same ranks; the engine gives them as `extra`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from math import prod
from typing import overload

__all__ = ["Axes", "Group", "LayerSplit", "Layout", "Lines", "Slot", "Slots"]

Axes = tuple[tuple[str, int], ...]
"""(name, size) of each axis of a mesh, slowest varying first."""

Group = Sequence[int]
"""Ranks of one group, in the order of the engine's own list."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where an engine's formula puts a rank: node by position, GPU by local index."""

    node: int
    """Position of the node in the engine's node order, from 0."""
    gpu: int
    """Index of the GPU on that node as the process counts them, visibility variables unset."""


@dataclass(frozen=True, slots=True)
class Slots(Sequence[Slot]):
    """Slots of all ranks by rank, as two columns: 100,000 objects would cost more than all checks on them."""

    nodes: Sequence[int]
    """Node of each rank by position."""
    gpus: Sequence[int]
    """GPU of each rank by its local index."""

    def __len__(self) -> int:
        return len(self.nodes)

    @overload
    def __getitem__(self, rank: int) -> Slot: ...

    @overload
    def __getitem__(self, rank: slice) -> list[Slot]: ...

    def __getitem__(self, rank: int | slice) -> Slot | list[Slot]:
        if isinstance(rank, slice):
            return list(map(Slot, self.nodes[rank], self.gpus[rank]))
        return Slot(self.nodes[rank], self.gpus[rank])


@dataclass(frozen=True)
class Lines:
    """Groups of a mesh whose members differ along some axes and agree in all others.

    Iterating gives the groups in the order of their first rank, members ascending. A group is a range
    where its members are evenly spaced. Each rank is in exactly one group, except with `ends`.
    """

    axes: Axes
    """The mesh, which need not be the one that the Layout's own axes make."""
    along: tuple[str, ...]
    """Axes along which the members of one group differ; none makes groups of one rank."""
    ends: bool = False
    """Only the first and the last member of each line count, as in Megatron's embedding groups."""

    @cached_property
    def members(self) -> Sequence[int]:
        """Ranks of the first group, the one that holds rank 0."""
        ranks = _offsets(self.axes, self.along)
        return (ranks[0], ranks[-1]) if self.ends and len(ranks) > 1 else ranks

    @cached_property
    def firsts(self) -> Sequence[int]:
        """First rank of each group."""
        return _offsets(self.axes, [name for name, _ in self.axes if name not in self.along])

    def __len__(self) -> int:
        return len(self.firsts)

    def __iter__(self) -> Iterator[Group]:
        members, starts = self.members, list(self.firsts)
        if isinstance(members, range):  # as many groups as the step is lie side by side, and the next follow
            step, last = members.step, starts[-members.step :]
            ends = starts[step:] + [first + members.stop for first in last]  # the same objects once more
            return map(range, starts, ends, repeat(step))
        return (tuple([first + member for member in members]) for first in starts)


def _offsets(axes: Axes, names: Sequence[str]) -> Sequence[int]:
    """Ranks that are 0 on every axis but the named ones, ascending; a range where evenly spaced."""
    runs: list[range] = []
    stride = 1
    for name, size in reversed(axes):
        if name in names and size > 1:
            if runs and runs[-1].stop == stride:  # goes on where the faster run ends
                runs[-1] = range(0, stride * size, runs[-1].step)
            else:
                runs.append(range(0, stride * size, stride))
        stride *= size
    if len(runs) <= 1:
        return runs[0] if runs else range(1)
    found = [0]
    for run in reversed(runs):
        found = [first + offset for first in found for offset in run]
    return tuple(found)


@dataclass(frozen=True)
class Layout:
    """The ranks of one world. Sizes and ranks are plain numbers; names are topocheck's own."""

    engine: str
    """Engine, as the plan names it."""
    version: str | None
    """Engine version whose rule this is; None where none was asked for and all known versions agree."""
    axes: Axes
    """(name, size), slowest first: `tensor`, `pipeline`, `data`, `context`, ..."""
    extra: Mapping[str, Lines | tuple[Group, ...]] = field(default_factory=dict)
    """Groups that are no line of this mesh, by kind: `expert`, `decode_context`, ..."""

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Size of each axis by name."""
        return dict(self.axes)

    @cached_property
    def world(self) -> int:
        """Number of ranks."""
        return prod(size for _, size in self.axes)

    @cached_property
    def strides(self) -> dict[str, int]:
        """Distance between neighbours along each axis."""
        strides, step = {}, 1
        for name, size in reversed(self.axes):
            strides[name] = step
            step *= size
        return strides

    def size(self, kind: str) -> int:
        """Size of an axis, or members of each group of another kind; 1 for what the engine does not have."""
        groups = self.extra.get(kind)
        if groups is None:
            return self.sizes.get(kind, 1)
        return len(groups.members if isinstance(groups, Lines) else groups[0])

    def coordinate(self, rank: int, axis: str) -> int:
        """Position of a rank along one of `axes`; 0 for an axis that the engine does not have."""
        return rank // self.strides[axis] % self.sizes[axis] if axis in self.sizes else 0

    def coordinates(self, rank: int) -> dict[str, int]:
        """Position of a rank along each axis, slowest first."""
        return {name: self.coordinate(rank, name) for name, _ in self.axes}

    def groups(self, kind: str) -> tuple[Group, ...]:
        """All groups of a kind, ordered by their first rank.

        Each rank is in exactly one of them; of kind `embedding` only the ends of each pipeline are.
        A kind that the engine does not have gives groups of one rank.
        """
        return tuple(self.extra.get(kind) or Lines(self.axes, (kind,)))

    def kinds(self) -> tuple[str, ...]:
        """Kinds of group that have more than one rank, the mesh's axes first."""
        axes = [name for name, size in self.axes if size > 1]
        return (*axes, *(kind for kind in self.extra if self.size(kind) > 1))


@dataclass(frozen=True, slots=True)
class LayerSplit:
    """Which layers each stage holds: indexes from 0, end exclusive."""

    ranges: tuple[tuple[int, int], ...]
    """(first, end) of each stage, in stage order; empty stages have first == end.

    With virtual stages (chunks) these are the virtual stages, in the order in which data passes them.
    """
    chunks: tuple[tuple[tuple[int, int], ...], ...] = ()
    """With virtual stages the ranges of each stage, one a chunk; () without."""
    rule: str = ""
    """The rule or override that gave it, in the engine's words."""
    others: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Virtual stages to which an override gives what is no layer: `embedding`, `mtp`, `loss`; {} without.

    Virtual stage k is chunk k // stages of stage k % stages.
    """

    def held(self, stage: int) -> tuple[tuple[int, int], ...]:
        """Ranges of layers that the ranks of one stage hold: one, or one a chunk."""
        return self.chunks[stage] if self.chunks else (self.ranges[stage],)
