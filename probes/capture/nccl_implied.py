"""Communicators of processes that show no Init line: rings, trees and channel lines imply them.

Only rank 0 of a communicator prints the order of a ring, which shows the size; trees and neighbours
show the rank of their writer, and so does the near end of a connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from topocheck.probes.capture.nccl_lines import Seat
from topocheck.probes.capture.nccl_members import Member
from topocheck.probes.capture.nccl_names import made_name
from topocheck.probes.capture.nccl_prefix import Record, Writer
from topocheck.probes.capture.nccl_statements import Statements

__all__ = ["implied_members"]


@dataclass(slots=True)
class Hint:
    """What the lines of one process say about its place."""

    record: Record
    """The first of these lines."""
    ranks: set[int] = field(default_factory=set)
    """Ranks that it calls its own."""
    sizes: set[int] = field(default_factory=set)
    """Sizes of rings that it printed whole."""
    reach: int = 0
    """Highest rank that it names."""
    buses: set[str] = field(default_factory=set)
    """GPUs at the near end of its connections."""
    ring: bool = False
    """It printed the order of a ring."""
    placed: bool = False
    """It printed a ring, a tree or its neighbours: more than connections."""

    def member(self, size: int | None) -> Member:
        """The membership that is implied."""
        bus = next(iter(self.buses)) if len(self.buses) == 1 else None
        seat = Seat(next(iter(self.ranks)), size, cuda=self.record.cuda, bus=bus)
        return Member(self.record, seat, "seen")


def implied_members(log: Statements, known: Iterable[Member]) -> list[Member]:
    """One membership for each process that shows one place only and has no Init line.

    Processes are joined where somebody printed a ring and their ranks agree with it. Connections
    alone make no membership, but where the whole text has no Init line, the ring of a host is taken
    as that of its other processes.
    """
    writers = {member.record.writer for member in known}
    hints = [
        hint
        for writer, hint in collect_hints(log).items()
        if writer not in writers and writer[1] is not None and len(hint.ranks) == 1 and len(hint.sizes) < 2
    ]
    placed = [hint for hint in hints if hint.placed]
    hosts = {hint.record.host for hint in placed if hint.ring and not writers}
    near = [hint for hint in hints if not hint.placed and hint.record.host in hosts]
    return (
        name_together([*placed, *near])
        or name_together(placed)
        or [member for hint in placed for member in name_alone(hint)]
    )


def collect_hints(log: Statements) -> dict[Writer, Hint]:
    """Collect what each process says about its place."""
    hints: dict[Writer, Hint] = {}
    for printed, ring in ((log.rings, True), (log.places, False)):
        for record, seat in printed:
            hint = hints.setdefault(record.writer, Hint(record))
            hint.placed = True
            hint.ring |= ring
            hint.ranks.add(seat.rank)
            hint.sizes |= {seat.size} if seat.size is not None else set()
            hint.reach = max(hint.reach, seat.rank)
    for connection in log.connections:
        hop = connection.hop
        hint = hints.setdefault(connection.record.writer, Hint(connection.record))
        hint.ranks |= {hop.near} if hop.near is not None else set()
        hint.buses |= {hop.near_bus} if hop.near_bus else set()
        hint.reach = max(hint.reach, hop.src, hop.dst)
    return hints


def name_together(hints: list[Hint]) -> list[Member]:
    """The processes as one communicator; [] without a ring, or if ranks or sizes contradict it."""
    sizes = {size for hint in hints for size in hint.sizes}
    ranks = [rank for hint in hints for rank in hint.ranks]
    size = next(iter(sizes), None)
    outside = size is not None and any(hint.reach >= size for hint in hints)
    ring = any(hint.ring for hint in hints)
    if not ring or outside or len(sizes) > 1 or len(set(ranks)) < len(ranks):
        return []
    return named([hint.member(size) for hint in hints], size)


def name_alone(hint: Hint) -> list[Member]:
    """A process whose communicator nobody else shows; [] if its own lines contradict each other."""
    size = next(iter(hint.sizes), None)
    outside = size is not None and hint.reach >= size
    return [] if outside else named([hint.member(size)], size)


def named(members: list[Member], size: int | None) -> list[Member]:
    """Memberships of one communicator, with its name."""
    name = made_name(size, 1, members)
    for member in members:
        member.name = name
    return members
