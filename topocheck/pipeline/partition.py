"""The partition of layers into stages whose heaviest stage is lightest: exact, not a heuristic.

Two steps. The least possible weight of the heaviest stage is found by bisection over it, where filling each
stage as far as it goes decides whether a weight is possible: weights are not negative, so that a stage which
takes more never leaves more to the rest. Among the partitions that reach it, dynamic programming over (stages
made, layers taken) finds the one with the smallest sum of squares, whose other stages are even too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

__all__ = ["Load", "Room", "best_counts"]


@dataclass(frozen=True, slots=True)
class Load:
    """What stages carry, in whole numbers of one unit: bytes, parameters, parts of a nanosecond."""

    layers: Sequence[int]
    """Of each layer; not negative."""
    first: int = 0
    """What the first stage carries beside its layers: the embedding."""
    last: int = 0
    """What the last stage carries beside its layers: final norm and head."""
    _sums: Sequence[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sums", tuple(accumulate(self.layers, initial=0)))

    def of(self, start: int, end: int) -> int:
        """Load of a stage with the layers from `start` to before `end`; the ends belong to it."""
        extra = (self.first if start == 0 else 0) + (self.last if end == len(self.layers) else 0)
        return self._sums[end] - self._sums[start] + extra


@dataclass(frozen=True, slots=True)
class Room:
    """A second load that no stage may exceed: the memory of a GPU."""

    load: Load
    most: int


def best_counts(load: Load, stages: int, room: Room | None = None) -> tuple[int, ...] | None:
    """Layers of each stage, at least one in each; None if no partition has room.

    The heaviest stage is as light as it can be, then the sum of squares as small as it can be; of equal
    partitions the one whose last stages begin first.
    """
    rooms = () if room is None else (room,)
    if stages > len(load.layers) or not _reaches(stages, rooms, load):
        return None
    low, high = 0, sum(load.layers) + load.first + load.last
    while low < high:
        middle = (low + high) // 2
        if _reaches(stages, (*rooms, Room(load, middle)), load):
            high = middle
        else:
            low = middle + 1
    return _evenest(load, stages, (*rooms, Room(load, low)))


def _reaches(stages: int, rooms: Sequence[Room], load: Load) -> bool:
    """Whether so many stages take all layers, each at least one and none more than the rooms hold."""
    count, start = len(load.layers), 0
    for stage in range(1, stages):
        end = start + 1
        latest = count - (stages - stage)
        if not _fits(start, end, rooms):
            return False
        while end < latest and _fits(start, end + 1, rooms):
            end += 1
        start = end
    return _fits(start, count, rooms)


def _fits(start: int, end: int, rooms: Sequence[Room]) -> bool:
    return all(room.load.of(start, end) <= room.most for room in rooms)


def _evenest(load: Load, stages: int, rooms: Sequence[Room]) -> tuple[int, ...]:
    """The partition with the smallest sum of squares that the rooms hold; there is one."""
    count = len(load.layers)
    best: dict[int, int] = {0: 0}
    origins: list[dict[int, int]] = []
    for stage in range(1, stages + 1):
        found: dict[int, int] = {}
        origin: dict[int, int] = {}
        for start, squares in best.items():
            ends = [count] if stage == stages else range(start + 1, count - (stages - stage) + 1)
            for end in ends:
                if not _fits(start, end, rooms):
                    break  # further ends only add
                total = squares + load.of(start, end) ** 2
                if end not in found or total < found[end]:
                    found[end], origin[end] = total, start
        best = found
        origins.append(origin)
    bounds = [count]
    for origin in reversed(origins):
        bounds.append(origin[bounds[-1]])
    bounds.reverse()
    return tuple(end - start for start, end in pairwise(bounds))
