"""Which process is which rank of which communicator, and to which communicator a connection belongs.

A commId names a communicator, but up to 2.22 the communicators split off one parent with one color
share theirs, whatever their size; from 2.23 on split communicators have none, and up to 2.15 nobody
has. What the log does not tie together stays apart: each process then has a communicator by itself.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from topocheck.probes.capture.nccl_lines import Clique, Hop, Seat, Step
from topocheck.probes.capture.nccl_prefix import Record, Writer

__all__ = ["Comms", "Member"]

Key = tuple[object, ...]


@dataclass(slots=True, eq=False)
class Member:
    """One process in one communicator, put together from its lines."""

    first: Record
    """The line that shows it first."""
    seat: Seat
    """Rank, size, GPU."""
    step: Step
    """How far initialisation got."""
    started: int = 0
    """Line of Init START; 0 where it is not in the text."""
    completed: int | None = None
    """Line of Init COMPLETE."""
    ended: int | None = None
    """Line of Destroy or Abort."""
    name: str = ""
    """Name of the communicator."""
    clique: Clique | None = None
    """Its NVLink clique, if active."""

    def lives(self, line: int) -> bool:
        """The communicator existed when that line was written."""
        return self.started <= line and (self.ended is None or line <= self.ended)

    def fits(self, hop: Hop) -> bool:
        """The connection can be one of this communicator, seen from this rank."""
        size = self.seat.size
        inside = size is None or max(hop.src, hop.dst) < size
        return inside and (hop.near is None or hop.near == self.seat.rank)


class Comms:
    """The communicators of one log."""

    def __init__(self, seats: Iterable[tuple[Record, Seat]]) -> None:
        self.members: list[Member] = []
        self.unjoined = 0
        """Members that may belong together, in a log that does not say with whom."""
        self._by_writer: dict[Writer, list[Member]] = defaultdict(list)
        for record, seat in seats:
            self._take(record, seat)
        self._name()
        self._steps: dict[tuple[Writer, int | None], list[tuple[int, Member | None]]] = self._timeline()

    def add(self, member: Member) -> None:
        """Add a member that has its name already."""
        self.members.append(member)
        self._by_writer[member.first.writer].append(member)

    def knows(self, record: Record) -> bool:
        """The process has at least one membership."""
        return record.writer in self._by_writer

    def name_of(self, record: Record, hop: Hop) -> str | None:
        """The communicator of a connection; None if the log leaves several, or none."""
        if record.pid is None:
            return None
        mine = self._by_writer.get(record.writer, ())
        if hop.pointer:
            named = {member.name for member in mine if member.seat.pointer == hop.pointer}
            return named.pop() if len(named) == 1 else None
        building = self._in_init(record)
        if building and building.fits(hop):
            return building.name
        names = {member.name for member in mine if member.lives(record.line) and member.fits(hop)}
        return names.pop() if len(names) == 1 else None

    def member_at(self, record: Record) -> Member | None:
        """The membership that a thread was working on when it wrote a line."""
        building = self._in_init(record)
        if building:
            return building
        mine = [member for member in self._by_writer.get(record.writer, ()) if member.lives(record.line)]
        return mine[0] if len(mine) == 1 else None

    def _take(self, record: Record, seat: Seat) -> None:
        """Add one line to the membership that it belongs to, or begin a new one."""
        member = self._find(record, seat)
        if member is None:
            member = Member(record, seat, seat.step)
            self.add(member)
        if seat.step == "start":
            member.started = record.line
        elif seat.step == "complete":
            member.step, member.completed = "complete", record.line
        elif seat.step == "destroyed":
            member.step, member.ended = "destroyed", record.line

    def _find(self, record: Record, seat: Seat) -> Member | None:
        """The living membership of the process that a line speaks of."""
        for member in reversed(self._by_writer.get(record.writer, ())):
            other = member.seat
            same = (other.pointer, other.rank, other.size) == (seat.pointer, seat.rank, seat.size)
            named = None in (other.comm_id, seat.comm_id) or other.comm_id == seat.comm_id
            if same and named and member.ended is None:
                again = seat.step == "start" and member.step in ("complete", "destroyed")
                return None if again else member
        return None

    def _timeline(self) -> dict[tuple[Writer, int | None], list[tuple[int, Member | None]]]:
        """For each thread, in order, the lines where an initialisation begins (None) or is complete."""
        steps: dict[tuple[Writer, int | None], list[tuple[int, Member | None]]] = defaultdict(list)
        for member in self.members:
            thread = (member.first.writer, member.first.tid)
            if member.started:
                steps[thread].append((member.started, None))
            if member.completed is not None:
                steps[thread].append((member.completed, member))
        for lines in steps.values():
            lines.sort(key=lambda step: step[0])
        return steps

    def _in_init(self, record: Record) -> Member | None:
        """The membership whose initialisation ran in this thread at this line.

        Initialisations of one thread follow each other, so the next step tells, also where NCCL up to
        2.18.1 prints no START.
        """
        steps = self._steps.get((record.writer, record.tid), [])
        place = bisect_right(steps, record.line, key=lambda step: step[0])
        member = steps[place][1] if place < len(steps) else None
        return member if member and member.started <= record.line else None

    def _name(self) -> None:
        """Name all communicators, parents before the ones split off them."""
        groups = _Groups()
        for member in self.members:
            member.name = "" if groups.add(member, self._parent(member)) else member.name
        groups.close()
        self.unjoined = groups.unjoined

    def _parent(self, member: Member) -> Member | None:
        """The membership that was split, by its address in the process."""
        before = [
            other
            for other in self._by_writer[member.first.writer]
            if other.seat.pointer == member.seat.parent and other is not member
        ]
        return before[-1] if member.seat.parent and before else None
