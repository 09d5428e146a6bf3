"""Who is rank r: axes, coordinates and groups of one world.

A Layout is a row-major mesh: axes are listed from the slowest varying to the fastest, so that
`rank = ((c0 * n1 + c1) * n2 + c2) ...`. Groups along one axis are ranges, which cost nothing for
100,000 ranks. Groups that are no line of the mesh (expert groups, decode context) are given by the
engine as `extra`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

__all__ = ["Group", "LayerSplit", "Layout", "Slot"]

Group = Sequence[int]
"""Ranks of one group, in the order of the engine's own list."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where an engine's formula puts a rank: node by position, GPU by local index."""

    node: int
    """Position of the node in the engine's node order, from 0."""
    gpu: int
    """Index of the GPU on that node as the process counts them, visibility variables unset."""


@dataclass(frozen=True)
class Layout:
    """The ranks of one world. Sizes and ranks are plain numbers; names are topocheck's own."""

    engine: str
    """Engine, as the plan names it."""
    version: str | None
    """Engine version whose rule this is; None where all known versions agree."""
    axes: tuple[tuple[str, int], ...]
    """(name, size), slowest first: `tensor`, `pipeline`, `data`, `context`, ..."""
    extra: Mapping[str, tuple[Group, ...]] = field(default_factory=dict)
    """Groups that are no line of the mesh, by kind: `expert`, `decode_context`, ..."""

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

    def size(self, axis: str) -> int:
        """Size of an axis; 1 for an axis that the engine does not have."""
        return self.sizes.get(axis, 1)

    def coordinate(self, rank: int, axis: str) -> int:
        """Position of a rank along one axis; 0 for an axis that the engine does not have."""
        return rank // self.strides[axis] % self.sizes[axis] if axis in self.sizes else 0

    def coordinates(self, rank: int) -> dict[str, int]:
        """Position of a rank along each axis, slowest first."""
        return {name: self.coordinate(rank, name) for name, _ in self.axes}

    def groups(self, kind: str) -> tuple[Group, ...]:
        """All groups of a kind, ordered by their first rank. Each rank is in exactly one.

        An axis that the engine does not have gives groups of one rank.
        """
        if kind in self.extra:
            return self.extra[kind]
        size, step = self.size(kind), self.strides.get(kind, 1)
        block = size * step
        return tuple(
            range(base + offset, base + offset + block, step)
            for base in range(0, self.world, block)
            for offset in range(step)
        )

    def kinds(self) -> tuple[str, ...]:
        """Kinds of group that have more than one rank, the mesh's axes first."""
        axes = [name for name, size in self.axes if size > 1]
        return (*axes, *(kind for kind, groups in self.extra.items() if len(groups) < self.world))


@dataclass(frozen=True, slots=True)
class LayerSplit:
    """Which layers each stage holds: indexes from 0, end exclusive."""

    ranges: tuple[tuple[int, int], ...]
    """(first, end) of each stage, in stage order; empty stages have first == end."""
    chunks: tuple[tuple[tuple[int, int], ...], ...] = ()
    """With virtual stages the ranges of each stage, one a chunk; () without."""
    rule: str = ""
    """The rule or override that gave it, in the engine's words."""
