"""Which process is which rank of which communicator, and to which communicator a line belongs."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.capture.nccl_lines import Clique, Hop, Seat, Step
from topocheck.probes.capture.nccl_prefix import Record, Writer

__all__ = ["Member", "Members", "join_lines"]


@dataclass(slots=True, eq=False)
class Member:
    """One process in one communicator, put together from its lines."""

    record: Record
    """The line that shows it first."""
    seat: Seat
    """Rank, size, GPU."""
    step: Step
    """How far initialisation got."""
    started: int = 0
    """Line of Init START; 0 where the text has none, as up to 2.18.1."""
    completed: int | None = None
    """Line of Init COMPLETE."""
    ended: int | None = None
    """Line of Destroy or Abort."""
    name: str = ""
    """Name of the communicator, equal for all its members."""
    parent: Member | None = None
    """The same process in the communicator that was split."""
    clique: Clique | None = None
    """Its NVLink clique over several hosts, if it has one."""

    @property
    def process(self) -> tuple[object, ...]:
        """What tells processes apart, and the GPUs of a process that drives several."""
        host, pid = self.record.writer
        return (host, self.seat.pointer if pid is None else pid, self.seat.cuda)

    def lives(self, line: int) -> bool:
        """The communicator may have existed when that line was written."""
        return self.started <= line and (self.ended is None or line <= self.ended)

    def seats_device(self, device: str | None) -> bool:
        """The device in the bracket of a channel line can be this rank's.

        It is a bus id up to 2.18.1, an NVML index later, a CUDA number before 2.5.
        """
        seat = self.seat
        if device is None:
            return True
        if len(device) > 2:
            return seat.bus is None or parse_bus(device) == seat.bus
        known = {seat.nvml, seat.cuda}
        return seat.nvml is None or (device.isdecimal() and int(device) in known)


def join_lines(seats: Iterable[tuple[Record, Seat]]) -> list[Member]:
    """Put the START, COMPLETE, Destroy and other lines of each communicator of each process together."""
    members: list[Member] = []
    by_writer: dict[Writer, list[Member]] = defaultdict(list)
    for record, seat in seats:
        mine = by_writer[record.writer]
        member = same_member(mine, seat)
        if member is None:
            parent = next((other for other in reversed(mine) if is_parent(other, seat)), None)
            member = Member(record, seat, seat.step, parent=parent)
            members.append(member)
            mine.append(member)
        take_step(member, record, seat)
    return members


def same_member(mine: list[Member], seat: Seat) -> Member | None:
    """The living membership of the process that a line speaks of."""
    for member in reversed(mine):
        known = member.seat
        same = (known.pointer, known.rank, known.size) == (seat.pointer, seat.rank, seat.size)
        named = None in (known.comm_id, seat.comm_id) or known.comm_id == seat.comm_id
        if same and named and member.ended is None:
            # A second START at the same address is a new communicator: the end of the old was not shown.
            return None if seat.step == "start" and member.step in {"start", "complete"} else member
    return None


def is_parent(member: Member, seat: Seat) -> bool:
    """The membership is the one that was split."""
    return seat.parent is not None and member.seat.pointer == seat.parent


def take_step(member: Member, record: Record, seat: Seat) -> None:
    """Note how far a line brings its communicator, and what it says more than earlier lines."""
    if seat.step != "seen":
        member.step = seat.step
    if seat.step == "start":
        member.started = record.line
    elif seat.step == "complete":
        member.completed = record.line
    elif seat.step == "destroyed":
        member.ended = record.line
    known = member.seat
    member.seat = replace(
        known,
        comm_id=known.comm_id or seat.comm_id,
        cuda=seat.cuda if known.cuda is None else known.cuda,
        nvml=seat.nvml if known.nvml is None else known.nvml,
        bus=known.bus or seat.bus,
    )


class Members:
    """All memberships of one log, by process and by time."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._by_writer: dict[Writer, list[Member]] = defaultdict(list)
        self._by_name: dict[str, dict[int, Member]] = defaultdict(dict)
        self._steps: dict[tuple[Writer, int | None], list[tuple[int, Member]]] = defaultdict(list)
        for member in members:
            writer = member.record.writer
            self._by_writer[writer].append(member)
            self._by_name[member.name][member.seat.rank] = member
            steps = self._steps[writer, member.record.tid]
            steps.extend((line, member) for line in (member.started, member.completed) if line)
        for steps in self._steps.values():
            steps.sort(key=lambda step: step[0])

    def comm_of(self, record: Record, hop: Hop) -> str | None:
        """The communicator of a connection; None if the log leaves several, or none.

        A connection made during initialisation lies between its START and COMPLETE in one thread;
        since 2.22 connections are made at first use, in another thread.
        """
        if record.pid is None:
            return None
        mine = self._by_writer.get(record.writer, [])
        if hop.pointer:
            fitting = [member for member in mine if member.seat.pointer == hop.pointer]
        else:
            building = self._completed_next(record)
            if building and self._fits(building, hop):
                return building.name
            fitting = [member for member in mine if member.lives(record.line) and self._fits(member, hop)]
        names = {member.name for member in fitting}
        return names.pop() if len(names) == 1 else None

    def _fits(self, member: Member, hop: Hop) -> bool:
        """The connection can be one of that communicator: its ranks exist there, on those devices."""
        seat, ranks = member.seat, self._by_name[member.name]
        if hop.near not in {None, seat.rank}:
            return False
        if seat.size is not None and max(hop.src, hop.dst) >= seat.size:
            return False
        ends = ((hop.src, hop.src_dev), (hop.dst, hop.dst_dev))
        return all(rank not in ranks or ranks[rank].seats_device(device) for rank, device in ends)

    def at(self, record: Record) -> Member | None:
        """The membership that a thread was working on when it wrote a line of initialisation."""
        building = self._completed_next(record) or self._begun_before(record)
        if building:
            return building
        living = [member for member in self._by_writer.get(record.writer, []) if member.lives(record.line)]
        return living[0] if len(living) == 1 and record.pid is not None else None

    def _completed_next(self, record: Record) -> Member | None:
        """The membership whose COMPLETE is the next step of the thread.

        Initialisations of one thread follow each other, so this holds also without START lines.
        """
        steps = self._steps.get((record.writer, record.tid), [])
        place = bisect_right(steps, record.line, key=lambda step: step[0])
        if record.pid is None or place == len(steps):
            return None
        line, member = steps[place]
        return member if line == member.completed and member.started <= record.line else None

    def _begun_before(self, record: Record) -> Member | None:
        """The membership whose START is the last step of the thread, if its COMPLETE was not shown."""
        steps = self._steps.get((record.writer, record.tid), [])
        place = bisect_right(steps, record.line, key=lambda step: step[0])
        if record.pid is None or not place:
            return None
        line, member = steps[place - 1]
        return member if line == member.started and member.completed is None else None
