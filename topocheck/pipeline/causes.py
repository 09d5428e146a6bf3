"""Why the stages of a measured pipeline waited: each wait followed to the stage where it begins.

A stage that is blocked by another waits for what that one waits for. At the end of such a chain some stage
computes, a transfer takes its time, or work is missing. Waiting for a stage that computes is that stage's
unevenness as far as it computes longer on one unit than the waiting stage does. For the rest it is late
because it began late, by what it waited for itself. Where it did not wait, no other unit was there to work
on: the pipeline fills or drains, or has too few units at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from statistics import median

from topocheck.pipeline.states import Run, State, Why
from topocheck.pipeline.trace import Key, stage_times

__all__ = ["Causes", "Split", "split"]


@dataclass(slots=True)
class Split:
    """The time of one stage, in ns."""

    stage: int
    window: int
    computing: int = 0
    work: defaultdict[Why, int] = field(default_factory=lambda: defaultdict(int))
    """Without work, by the evidence; "" is waiting for a stage that computes no longer than this one."""
    neighbour: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Waiting for a slower stage, by stage."""
    boundary: defaultdict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    """Waiting for transfers, by sender and receiver."""
    unknown: defaultdict[Why, int] = field(default_factory=lambda: defaultdict(int))
    ends: int = 0
    """Idle before the first unit and after the last: fill and drain."""


def split(run: Run) -> list[Split]:
    """The time of each stage by what it went to."""
    causes = Causes(run)
    return [causes.split(stage) for stage in range(len(run.trace.stages))]


class Causes:
    """All stages of a run, to follow waits through."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rows = run.rows
        self.starts = [[state.start for state in row] for row in self.rows]
        self._first: list[dict[Key, int]] = [{} for _ in self.rows]
        """Place in its row of the first piece of each unit."""
        for row, first in zip(self.rows, self._first, strict=True):
            for place, state in enumerate(row):
                if state.unit is not None:
                    first.setdefault(state.unit, place)
        self._excess_left: dict[tuple[int, int, Key], int] = {}
        """By waiting stage, other stage and unit."""

    def split(self, stage: int) -> Split:
        """The time of one stage."""
        start, end = self.run.windows[stage]
        found = Split(stage=stage, window=end - start)
        worked = [state for state in self.rows[stage] if state.what == "computing"]
        for state in self.rows[stage]:
            if state.what == "computing":
                found.computing += state.end - state.start
                continue
            if not worked or state.end <= worked[0].start or state.start >= worked[-1].end:
                found.ends += state.end - state.start
            for root, by in self._roots(stage, state, frozenset({stage})):
                self._add(found, root, by, len(self.rows))
        return found

    def _roots(self, stage: int, state: State, seen: frozenset[int]) -> Iterator[tuple[State, int]]:
        """Where a wait begins, piece by piece, and at which stage."""
        if state.what != "blocked":
            yield state, stage
            return
        if state.who in seen:
            yield state._replace(what="unknown", why="circular"), stage
            return
        at = state.start
        for other in self._during(state.who, state.start, state.end):
            if other.start > at:
                yield State(at, other.start, "unknown", why="outside"), stage
            yield from self._roots(state.who, other, seen | {state.who})
            at = other.end
        if at < state.end:
            yield State(at, state.end, "unknown", why="outside"), stage

    def _during(self, stage: int, start: int, end: int) -> Iterator[State]:
        """What a stage did in some time."""
        row = self.rows[stage]
        for place in range(max(0, bisect_right(self.starts[stage], start) - 1), len(row)):
            state = row[place]
            if state.start >= end:
                return
            if state.end > start:
                yield state._replace(start=max(state.start, start), end=min(state.end, end))

    def _add(self, found: Split, root: State, by: int, follow: int) -> None:
        """Count one piece of waiting; lateness is followed through so many stages."""
        length = root.end - root.start
        if root.what == "computing" and root.unit is not None:
            left = length - self._uneven(found, by, root.unit, length)
            if follow and left:
                left -= sum(self._before(by, root.unit, left, found, follow))
            if left:
                found.work[""] += left
        elif root.what == "transfer":
            found.boundary[root.who, root.whom] += length
        elif root.what == "work":
            found.work[root.why] += length
        else:
            found.unknown[root.why] += length

    def _uneven(self, found: Split, by: int, key: Key, length: int) -> int:
        """Count what of the wait is the other stage's longer computing on this unit; gives how much."""
        place = found.stage, by, key
        if place not in self._excess_left:
            self._excess_left[place] = int(self._excess(found.stage, by, key))
        uneven = min(length, self._excess_left[place])
        self._excess_left[place] -= uneven
        if uneven:
            found.neighbour[by] += uneven
        return uneven

    def _before(self, by: int, key: Key, length: int, found: Split, follow: int) -> Iterator[int]:
        """Count by what the other stage was late itself: what it waited for before it computed this unit.

        Gives what is counted. What it did not wait for is nobody's delay: fill, or too few units.
        """
        row = self.rows[by]
        for place in range(self._first[by].get(key, 0) - 1, -1, -1):
            state = row[place]
            if state.what == "computing" or not length:
                return
            state = state._replace(start=max(state.start, state.end - length))
            for root, other in self._roots(by, state, frozenset({by})):
                self._add(found, root, other, follow - 1)
            length -= state.end - state.start
            yield state.end - state.start

    @cached_property
    def times(self) -> list[dict[bool, float]]:
        """Median time of each stage's forward and backward pass, in ns."""
        found = []
        for stage in self.run.trace.stages:
            passes: dict[bool, float] = {}
            for backward in (False, True):
                took = [
                    unit.busy_ns for unit in stage.units if unit.backward == backward and unit.busy_ns > 0
                ]
                if took:
                    passes[backward] = median(took)
            found.append(passes)
        return found

    @cached_property
    def whole(self) -> Sequence[float]:
        """Median time of each stage on a unit, both passes."""
        return stage_times(self.run.trace)

    def _excess(self, stage: int, other: int, key: Key) -> Fraction:
        """By how much another stage computes longer on a unit than this one does, as a rule.

        The rule is the ratio of medians, so that a unit which is large for all stages is nobody's unevenness.
        """
        unit = self.run.units[other][key]
        mine, theirs = self.whole[stage], self.whole[other]
        # What lies between two transfers of a profile may be both passes, so that only units compare there.
        if self.run.trace.kind == "units" and self.times[stage].keys() == self.times[other].keys():
            mine, theirs = self.times[stage][unit.backward], self.times[other][unit.backward]
        if not theirs or mine >= theirs:
            return Fraction(0)
        return unit.busy_ns * (1 - Fraction(mine) / Fraction(theirs))
