"""Communicators of the running job, and what they prove about global ranks.

A rank in a log is a rank inside one communicator. Only a communicator of the world's size gives
global ranks; engines build a further one for each group, with ranks of its own. Smaller ones are
joined to global ranks by process and GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from topocheck.errors import TwoJobsError
from topocheck.inventory import Inventory
from topocheck.lives import forget_past_lives
from topocheck.snapshot import At, CommRank, Edge, LogFact

__all__ = ["Communicator", "Member", "SeenEdge", "Sightings", "sightings"]

DUPLICATE = "duplicate:"
"""Prefix of the names of pseudo communicators made from NCCL's own duplicate-GPU warnings."""

PHASES = ("seen", "start", "complete", "destroyed")
"""How far initialisation got, in order."""


@dataclass(frozen=True, slots=True)
class Member:
    """One rank of one communicator, as one process showed it."""

    rank: int
    machine: int
    gpu: int | None
    pid: int | None
    phase: str
    at: At | None

    def shares_place(self, other: Member) -> bool:
        """Nothing speaks against the two being on one GPU."""
        return self.machine == other.machine and (None in (self.gpu, other.gpu) or self.gpu == other.gpu)

    def may_be(self, other: Member) -> bool:
        """Nothing speaks against the two being one process and device; a process may drive several GPUs."""
        return self.shares_place(other) and (None in (self.pid, other.pid) or self.pid == other.pid)

    def joined(self, other: Member) -> Member:
        """Both views of one member: what either shows, and the furthest phase."""
        return Member(
            self.rank,
            self.machine,
            other.gpu if self.gpu is None else self.gpu,
            other.pid if self.pid is None else self.pid,
            max(self.phase, other.phase, key=PHASES.index),
            self.at or other.at,
        )


@dataclass(slots=True)
class Communicator:
    """One communicator as far as it was seen."""

    id: str
    size: int | None
    members: dict[int, list[Member]] = field(default_factory=dict)
    """Members by rank; two for one rank if two processes showed it."""
    cliques: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    """Active MNNVL cliques: (cliqueId, cliqueSize) -> machines that reported it."""

    @property
    def whole(self) -> bool:
        """Every rank was seen exactly once."""
        return (
            self.size == len(self.members)
            and all(0 <= rank < self.size for rank in self.members)
            and all(len(seen) == 1 for seen in self.members.values())
        )

    def everyone(self) -> Iterator[Member]:
        """All members in rank order."""
        for rank in sorted(self.members):
            yield from self.members[rank]


@dataclass(frozen=True, slots=True)
class SeenEdge:
    """An edge with the machine that logged it."""

    edge: Edge
    machine: int


@dataclass(slots=True)
class Sightings:
    """Everything that the running job showed of itself."""

    communicators: dict[str, Communicator]
    edges: list[SeenEdge]
    facts: list[tuple[LogFact, int]]
    """Further statements with the machine that made them."""
    unlabelled_edges: int
    """Edges in text that names no host."""
    unlabelled_members: int = 0
    """Ranks of communicators in text that names no host."""
    restarts: dict[str, int] = field(default_factory=dict)
    """Sources in which the job was started again, each with the last line that is past."""

    @property
    def any(self) -> bool:
        """The job was seen running: a communicator or an edge exists."""
        unlabelled = self.unlabelled_edges or self.unlabelled_members
        return bool(self.communicators or self.edges or unlabelled)

    def is_past(self, at: At | None) -> bool:
        """The line is of a start that ended."""
        return at is not None and at.line is not None and at.line <= self.restarts.get(at.source, 0)

    def of_size(self, world: int) -> list[Communicator]:
        """Communicators of the world's size, those with most members first."""
        found = [comm for comm in self.communicators.values() if comm.size == world]
        return sorted(found, key=lambda comm: (-len(comm.members), comm.id))


def sightings(inventory: Inventory) -> Sightings:
    """Collect what the job showed on all machines."""
    seen = Sightings({}, [], [], 0)
    for number, machine in enumerate(inventory.machines):
        for observed, ties in machine.observed:
            for entry in observed.comms:
                add_member(seen.communicators, entry, number, ties)
            seen.edges += [SeenEdge(edge, number) for edge in observed.edges]
            seen.facts += [(fact, number) for fact in observed.facts]
    for snapshot in inventory.unlabelled:
        if snapshot.observed is not None:
            seen.unlabelled_edges += len(snapshot.observed.edges)
            seen.unlabelled_members += len(snapshot.observed.comms)
    forget_past_lives(seen, inventory.job)
    return seen


def add_member(
    communicators: dict[str, Communicator], entry: CommRank, machine: int, ties: list[int] | None
) -> None:
    """Add one membership; several lines of one process are one member."""
    comm = communicators.setdefault(entry.comm, Communicator(entry.comm, entry.size))
    comm.size = entry.size if comm.size is None else comm.size
    gpu = entry.gpu if entry.gpu is None or ties is None else ties[entry.gpu]
    member = Member(entry.rank, machine, gpu, entry.pid, entry.phase, entry.at)
    known = comm.members.setdefault(entry.rank, [])
    same = next((place for place, other in enumerate(known) if other.may_be(member)), None)
    if same is None:
        known.append(member)
    else:
        known[same] = known[same].joined(member)
    if entry.clique is not None and entry.clique_size is not None:
        comm.cliques.setdefault((entry.clique, entry.clique_size), set()).add(machine)


def world_communicators(seen: Sightings, world: int) -> list[Communicator]:
    """Communicators that give global ranks: of the world's size, and agreeing with each other.

    Raises TwoJobsError if two of them share no process: then the input holds two jobs.
    Where an engine built several that order the same processes differently, none is trusted.
    """
    found = seen.of_size(world)
    for other in found[1:]:
        refuse_two_jobs(found[0], other)
    return found if all(agree(found[0], other) for other in found[1:]) else []


def agree(first: Communicator, second: Communicator) -> bool:
    """No rank lies on different machines or GPUs in the two."""
    return all(
        any(known.shares_place(member) for known in first.members.get(rank, members))
        for rank, members in second.members.items()
        for member in members
    )


def refuse_two_jobs(first: Communicator, second: Communicator) -> None:
    """Two communicators of the world's size with no process in common are two jobs."""
    if first.size == 1:
        return  # each process of a larger job may have one of its own
    processes = {(m.machine, m.pid) for m in first.everyone() if m.pid is not None}
    others = {(m.machine, m.pid) for m in second.everyone() if m.pid is not None}
    shared = first.members.keys() & second.members.keys()
    if processes and others and shared and not processes & others:
        raise TwoJobsError(
            f"the input holds two jobs: communicators {first.id} and {second.id} both have "
            f"{first.size} ranks and no process in common: give the evidence of one job"
        )


def launcher_ranks(seen: Sightings) -> dict[tuple[int, int], int]:
    """Global rank of a process by the launcher's own tag on its lines: (machine, pid) -> rank."""
    ranks = {}
    for fact, machine in seen.facts:
        if fact.kind == "mpi-rank" and fact.pid is not None and fact.value.isdigit():
            ranks[machine, fact.pid] = int(fact.value)
    return ranks


def tagged_members(seen: Sightings) -> Iterable[Member]:
    """Members of duplicate-GPU warnings, where the launcher's tags prove that ranks are global ones."""
    tags = launcher_ranks(seen)
    for comm in seen.communicators.values():
        if not comm.id.startswith(DUPLICATE):
            continue
        known = [
            tags[m.machine, m.pid] == m.rank
            for m in comm.everyone()
            if m.pid is not None and (m.machine, m.pid) in tags
        ]
        if known and all(known):
            yield from comm.everyone()
