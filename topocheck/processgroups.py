"""Processes of the running job that talk to each other: communicators joined by the processes they share.

An engine builds several communicators over the same processes. Those of one world hang together by them,
and worlds stay apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from topocheck.inventory import Inventory
from topocheck.snapshot import CommRank

__all__ = ["ProcessGroup", "Seat", "communicators", "joined"]

Seat = tuple[int, int | None, int | None]
"""Machine, process and GPU of a member, as far as known. Containers of one machine may reuse a pid."""


@dataclass(slots=True)
class ProcessGroup:
    """Processes joined by communicators."""

    comms: list[str] = field(default_factory=list)
    """Names of the communicators."""
    size: int = 0
    """Ranks of the largest of them."""
    seats: set[Seat] = field(default_factory=set)
    """Members that were seen."""

    @property
    def machines(self) -> set[int]:
        """Machines that its members run on."""
        return {machine for machine, _, _ in self.seats}

    @property
    def order(self) -> tuple[tuple[int, int, int], str]:
        """Place in a list of groups that does not hang on the order of the input: machine, GPU, process."""
        first = min((m, -1 if gpu is None else gpu, -1 if pid is None else pid) for m, pid, gpu in self.seats)
        return first, self.comms[0]


def communicators(inventory: Inventory) -> dict[str, ProcessGroup]:
    """Every communicator as a group of its own."""
    drives: dict[tuple[int, int], set[int]] = {}
    members: list[tuple[int, CommRank, int | None]] = []
    for number, machine in enumerate(inventory.machines):
        for observed, ties in machine.observed:
            for entry in observed.comms:
                gpu = entry.gpu if entry.gpu is None or ties is None else ties[entry.gpu]
                members.append((number, entry, gpu))
                if entry.pid is not None and gpu is not None:
                    drives.setdefault((number, entry.pid), set()).add(gpu)
    found: dict[str, ProcessGroup] = {}
    for number, entry, gpu in members:
        group = found.setdefault(entry.comm, ProcessGroup([entry.comm]))
        group.size = max(group.size, entry.size or 0)
        known = drives.get((number, entry.pid), set()) if entry.pid is not None else set()
        group.seats.add((number, entry.pid, min(known) if gpu is None and len(known) == 1 else gpu))
    return found


def joined(comms: Collection[ProcessGroup]) -> list[ProcessGroup]:
    """Communicators that share a process as one group, in an order of their own."""
    parent = list(range(len(comms)))
    home: dict[Seat | str, int] = {}

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    for number, comm in enumerate(comms):
        for key in named(comm):
            parent[root(number)] = root(home.setdefault(key, number))
    found: dict[int, ProcessGroup] = {}
    for number, comm in enumerate(comms):
        whole = found.setdefault(root(number), ProcessGroup())
        whole.comms += comm.comms
        whole.size = max(whole.size, comm.size)
        whole.seats |= comm.seats
    for group in found.values():
        group.comms.sort()
    return sorted(found.values(), key=lambda group: group.order)


def named(group: ProcessGroup) -> Iterable[Seat | str]:
    """What ties it to others: members of which process or GPU is known; without any, its own name."""
    found = [seat for seat in group.seats if seat[1:] != (None, None)]
    return found or group.comms
