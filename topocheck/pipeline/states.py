"""What each stage of a measured pipeline did at each moment, and what it stood still for.

A stage that does not compute lacks its next input, or is still held by the send of its last output. Until
the other side has begun its part, the stage is blocked by that stage; from then on the transfer itself takes
the time. Times of two stages are set against each other only where their clocks compare. Where they do not, a
transfer takes no longer than the shorter of its two ends: both hold it, and one also the wait for the other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice, pairwise
from typing import Literal, NamedTuple

from topocheck.pipeline.clocks import Alignment
from topocheck.pipeline.trace import Key, Trace, Unit, departure_ns

__all__ = ["Run", "State", "What", "Why"]

What = Literal["computing", "transfer", "blocked", "work", "unknown"]

Why = Literal[
    "",
    "arrival",
    "circular",
    "clocks",
    "drain",
    "nothing recorded",
    "occupied",
    "outside",
    "overhead",
    "return",
    "times",
    "unpaired",
]
"""Evidence for `work` (arrival: the input came later; nothing recorded; drain), else why it is unknown."""

FINE = 4
"""Clocks must agree to a quarter of the time that is to be told apart."""


class State(NamedTuple):
    """One stage from `start` to `end`, in ns of the first stage's clock where it compares."""

    start: int
    end: int
    what: What
    who: int = -1
    """Stage that blocks; the sender of a transfer."""
    whom: int = -1
    """Receiver of a transfer."""
    why: Why = ""
    unit: Key | None = None
    """What is computed."""


class Told(NamedTuple):
    """A state without its times."""

    what: What
    who: int = -1
    whom: int = -1
    why: Why = ""


UNPAIRED, CLOCKS = Told("unknown", why="unpaired"), Told("unknown", why="clocks")
TIMES, OVERHEAD = Told("unknown", why="times"), Told("unknown", why="overhead")


@dataclass
class Run:
    """A trace whose clocks are aligned."""

    trace: Trace
    alignment: Alignment
    skip: int = 0
    """Units at the start that do not count: warm-up."""

    @cached_property
    def units(self) -> list[dict[Key, Unit]]:
        """Units of each stage by their key."""
        return self.trace.unit_of()

    @cached_property
    def shifts(self) -> list[int]:
        """What is added to the times of each stage."""
        return [self.alignment.shifts.get(stage.clock, 0) for stage in self.trace.stages]

    @cached_property
    def rows(self) -> list[list[State]]:
        """All that each stage did in its window, without a gap."""
        return [list(_Lane(self, stage).walk()) for stage in range(len(self.trace.stages))]

    @cached_property
    def windows(self) -> list[tuple[int, int]]:
        """Start and end of what counts for each stage: the same for all whose clocks compare."""
        spans = [self._own(stage) for stage in range(len(self.trace.stages))]
        found = []
        for stage in range(len(spans)):
            near = [spans[other] for other in range(len(spans)) if self.error(stage, other) is not None]
            found.append((min(start for start, _ in near), max(end for _, end in near)))
        return found

    def _own(self, stage: int) -> tuple[int, int]:
        """First and last time of a stage's computing, warm-up left out."""
        units = self.trace.stages[stage].units
        kept = list({unit.unit: None for unit in units})[self.skip :]
        starts = (unit.compute_start_ns for unit in units if not kept or unit.unit == kept[0])
        return (
            min(starts) + self.shifts[stage],
            max(unit.compute_end_ns for unit in units) + self.shifts[stage],
        )

    def took(self, unit: Unit) -> int | None:
        """Time in ns that the transfer of a unit's input took, both ends ready; None if it is not known.

        Where clocks do not compare it is the shorter of the two ends, which is the most that it can be.
        """
        peer, begun, there = unit.receive_from, unit.receive_start_ns, unit.receive_end_ns
        sent = self.units[peer].get(unit.key) if peer is not None and peer < len(self.units) else None
        if peer is None or begun is None or there is None or sent is None or sent.send_start_ns is None:
            return None
        if self.error(unit.stage, peer) is None:
            return (
                None
                if sent.send_end_ns is None
                else min(there - begun, sent.send_end_ns - sent.send_start_ns)
            )
        shift = self.shifts[peer] - self.shifts[unit.stage]
        return max(0, there - max(begun, sent.send_start_ns + shift))

    def error(self, one: int, other: int) -> int | None:
        """How far the clocks of two stages may be apart, in ns; None if they do not compare."""
        return self.alignment.error(self.trace.stages[one].clock, self.trace.stages[other].clock)


class _Lane:
    """One stage, from the start of its window to the end."""

    def __init__(self, run: Run, stage: int) -> None:
        self.run, self.stage = run, stage
        self.trace = run.trace.stages[stage]
        self.shift = run.shifts[stage]
        sends = [
            (unit.send_start_ns + self.shift, unit.send_end_ns + self.shift, unit)
            for unit in self.trace.units
            if unit.send_start_ns is not None and unit.send_end_ns is not None
        ]
        self.sends = sorted(sends, key=lambda send: send[:2])
        self.send_starts = [start for start, _, _ in self.sends]
        self.sent_until = list(accumulate((end for _, end, _ in self.sends), max))
        """Latest end of all sends up to each one: those still under way are found without a search."""
        self.occupied = [start for start, _ in self.trace.occupied]

    def walk(self) -> Iterator[State]:
        """States in order."""
        at, end = self.run.windows[self.stage]
        for unit in self.trace.units:
            for number, (first, last) in enumerate(_pieces(unit)):
                start, stop = max(first + self.shift, at), min(last + self.shift, end)
                if start > at and at < end:
                    yield from self._gap(at, min(start, end), unit, inside=number > 0)
                if stop > start:
                    yield State(start, stop, "computing", unit=unit.key)
                at = max(at, stop)
        if at < end:
            yield from self._gap(at, end, None, inside=False)

    def _gap(self, start: int, end: int, unit: Unit | None, *, inside: bool) -> Iterator[State]:
        """Time without computing before a unit, between two pieces of it, or after the last."""
        under_way = bisect_right(self.sent_until, start), bisect_left(self.send_starts, end)
        held = [send for send in self.sends[slice(*under_way)] if send[1] > start]
        needed = None if unit is None or inside else _Input(self.run, unit, end - start)
        edges = {start, end}
        for send in held:
            edges |= {send[0], send[1], *_Output(self.run, send[2], end - start).edges}
        if needed is not None:
            edges |= set(needed.edges)
        edges |= set(self._occupied_edges(start, end))
        ordered = sorted(edge for edge in edges if start <= edge <= end)
        for first, last in pairwise(ordered):
            middle = (first + last) // 2
            told = self._told(middle, held, needed, unit, end - start, inside=inside)
            yield State(first, last, *told)

    def _told(
        self,
        time: int,
        held: Sequence[tuple[int, int, Unit]],
        needed: _Input | None,
        unit: Unit | None,
        length: int,
        *,
        inside: bool,
    ) -> Told:
        """What the stage stands still for at one time: the longer of its last send and its next input."""
        covering = [send for send in held if send[0] <= time < send[1]]
        send = max(covering, key=lambda one: one[1], default=None)
        if send is not None and (needed is None or not needed.asked(time) or send[1] >= needed.arrival_or(0)):
            return _Output(self.run, send[2], length).at(time)
        if unit is None:
            return Told("work", why="drain")
        told = needed.at(time) if needed is not None else None
        if told is not None:
            return told
        if self.stage == 0 and (inside or unit.receive_from is None) and unit.ready_ns is None:
            return self._unrecorded(time, unit)
        return OVERHEAD

    def _unrecorded(self, time: int, unit: Unit) -> Told:
        """The first stage where nothing says when its input was there."""
        place = bisect_right(self.occupied, time - self.shift) - 1
        if place >= 0 and time - self.shift < self.trace.occupied[place][1]:
            return Told("unknown", why="occupied")
        if not self.run.trace.everything_recorded:
            return Told("unknown", why="overhead" if unit.backward else "arrival")
        return Told("work", why="nothing recorded")

    def _occupied_edges(self, start: int, end: int) -> Iterator[int]:
        place = max(0, bisect_right(self.occupied, start - self.shift) - 1)
        for first, last in islice(self.trace.occupied, place, None):
            if first + self.shift >= end:
                return
            yield from (first + self.shift, last + self.shift)


def _pieces(unit: Unit) -> Iterator[tuple[int, int]]:
    """Times in which a unit was computed."""
    at = unit.compute_start_ns
    for start, end in unit.holes:
        yield at, start
        at = end
    if unit.compute_end_ns > at:
        yield at, unit.compute_end_ns


class _End:
    """One end of a transfer, seen by the stage that waits in it."""

    def __init__(self, run: Run, unit: Unit, peer: int | None, length: int) -> None:
        self.unit, self.peer = unit, peer
        known = peer is not None and peer < len(run.units)
        self.other = run.units[peer].get(unit.key) if peer is not None and known else None
        error = run.error(unit.stage, peer) if peer is not None and known else None
        self.comparable = error is not None and FINE * error <= length
        self.shift = run.shifts[unit.stage]
        self.other_shift = run.shifts[peer] if peer is not None and known else 0

    def took(self) -> int | None:
        """Most time that the transfer itself took, by the shorter of its two ends."""
        if self.other is None:
            return None
        sender, receiver = (self.unit, self.other) if self.sends else (self.other, self.unit)
        sent = _length(sender.send_start_ns, sender.send_end_ns)
        received = _length(receiver.receive_start_ns, receiver.receive_end_ns)
        return None if sent is None or received is None else min(sent, received)

    sends = False


def _length(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else end - start


class _Input(_End):
    """What a stage needs for its next unit."""

    def __init__(self, run: Run, unit: Unit, length: int) -> None:
        super().__init__(run, unit, unit.receive_from, length)
        end = unit.receive_end_ns if unit.receive_from is not None else unit.ready_ns
        self.arrival = None if end is None else end + self.shift
        begun = unit.receive_start_ns
        self.begun = None if begun is None else begun + self.shift
        self.sent = None
        if self.other is not None and self.comparable:
            self.sent = departure_ns(self.other) + self.other_shift
        took = None if self.comparable else self.took()
        self.moving = None if took is None or self.arrival is None else self.arrival - took
        """Where clocks do not compare: from when on the transfer can have been on its way."""

    @property
    def edges(self) -> Iterator[int]:
        """Times at which what is waited for may change."""
        return (edge for edge in (self.arrival, self.begun, self.sent, self.moving) if edge is not None)

    def asked(self, time: int) -> bool:
        """Whether the stage waits for it already; a receive that comes after a send has not begun."""
        return self.begun is not None and time >= self.begun

    def arrival_or(self, time: int) -> int:
        """When it was there, or another time where that is not known."""
        return time if self.arrival is None else self.arrival

    def at(self, time: int) -> Told | None:
        """What is waited for; None when the input was there."""
        if self.arrival is not None and time >= self.arrival:
            return None
        if self.peer is None:
            return None if self.arrival is None else Told("work", why="arrival")
        told = Told("transfer", self.peer, self.unit.stage)
        if self.other is None:
            told = UNPAIRED
        elif not self.comparable:
            told = told if self.moving is not None and time >= self.moving else CLOCKS
        elif self.sent is not None and time < self.sent:
            told = Told("blocked", self.peer)
        elif self.arrival is None:
            told = TIMES
        elif self.begun is not None and time < self.begun:
            told = OVERHEAD
        return told


class _Output(_End):
    """What a stage sends and has not got rid of yet."""

    sends = True

    def __init__(self, run: Run, unit: Unit, length: int) -> None:
        super().__init__(run, unit, unit.send_to, length)
        self.taken = self.there = None
        if self.other is not None and self.comparable:
            begun, there = self.other.receive_start_ns, self.other.receive_end_ns
            self.taken = None if begun is None else begun + self.other_shift
            self.there = None if there is None else there + self.other_shift
        took = None if self.comparable else self.took()
        end = unit.send_end_ns
        self.moving = None if took is None or end is None else end + self.shift - took

    @property
    def edges(self) -> Iterator[int]:
        """Times at which what is waited for may change."""
        return (edge for edge in (self.taken, self.there, self.moving) if edge is not None)

    def at(self, time: int) -> Told:
        """What keeps the send."""
        if self.peer is None:
            return Told("unknown", why="return")
        told = Told("transfer", self.unit.stage, self.peer)
        if self.other is None:
            told = UNPAIRED
        elif not self.comparable:
            told = told if self.moving is not None and time >= self.moving else CLOCKS
        elif self.taken is None:
            told = TIMES
        elif time < self.taken:
            told = Told("blocked", self.peer)
        elif self.there is not None and time >= self.there:
            told = OVERHEAD
        return told
