"""Where each rank lies, by one kind of evidence: predicted, claimed or observed.

A column holds machine and GPU of each rank as plain lists: 100,000 ranks are checked in tens of
milliseconds this way. The three columns stand side by side and are never mixed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from topocheck.communicators import Member, Sightings, tagged_members, world_communicators
from topocheck.inventory import UNKNOWN, Inventory
from topocheck.plan import Basis
from topocheck.snapshot import At

__all__ = ["Column", "Sighting", "claimed_column", "observed_column"]


@dataclass(frozen=True, slots=True)
class Sighting:
    """One statement that a rank is on a machine and drives a GPU."""

    rank: int
    machine: int
    gpu: int | None
    pid: int | None
    at: At | None


@dataclass(slots=True)
class Column:
    """Ranks by one kind of evidence. Indexes are ranks; None is not known."""

    basis: Basis
    node: list[int | None]
    """Position of the node in the placement's list."""
    gpu: list[int | None]
    """Ordinal of the GPU on that node."""
    at: dict[int, At] = field(default_factory=dict)
    """Where a rank's place was read, if it has a line of its own."""
    twice: dict[int, list[Sighting]] = field(default_factory=dict)
    """Ranks that several processes hold: all sightings of each."""
    stray: list[Sighting] = field(default_factory=list)
    """Ranks outside 0..world-1."""

    @property
    def empty(self) -> bool:
        """No rank is known."""
        return all(node is None for node in self.node)

    @property
    def complete(self) -> bool:
        """Every rank's node is known."""
        return None not in self.node


def blank(basis: Basis, world: int) -> Column:
    """A column that knows nothing yet."""
    return Column(basis, [None] * world, [None] * world)


def claimed_column(inventory: Inventory, world: int, name: str = "") -> Column:
    """What the processes claim in their environments. `node` holds machine indexes at first."""
    column = blank("claimed", world)
    claims = inventory.claims.get(name)
    if claims is None:
        return column
    node, gpu = column.node, column.gpu
    for index, (rank, machine, device) in enumerate(
        zip(claims.rank, claims.machine, claims.gpu, strict=True)
    ):
        if 0 <= rank < world and node[rank] is None:
            node[rank] = machine
            gpu[rank] = device if device != UNKNOWN else None
            if index in claims.at:
                column.at[rank] = claims.at[index]
        else:
            pid = claims.pid[index] if claims.pid[index] != UNKNOWN else None
            place = None if device == UNKNOWN else device
            again(column, Sighting(rank, machine, place, pid, claims.at.get(index)), world)
    return column


def observed_column(seen: Sightings, world: int) -> Column:
    """What communicators of the world's size prove. `node` holds machine indexes at first."""
    column = blank("observed", world)
    for comm in world_communicators(seen, world):
        fill(column, comm.everyone(), world)
    fill(column, tagged_members(seen), world)
    return column


def fill(column: Column, members: Iterable[Member], world: int) -> None:
    """Enter members whose ranks are global; two members of one rank are two processes that hold it."""
    entered = set()
    for member in members:
        rank = member.rank
        sighting = Sighting(rank, member.machine, member.gpu, member.pid, member.at)
        known = rank < world and column.node[rank] is not None
        if rank >= world or rank in entered or (known and differs(column, sighting)):
            again(column, sighting, world)
            continue
        entered.add(rank)
        column.node[rank] = member.machine
        if member.gpu is not None:
            column.gpu[rank] = member.gpu
        if member.at is not None:
            column.at.setdefault(rank, member.at)


def differs(column: Column, sighting: Sighting) -> bool:
    """The rank is already known to be elsewhere."""
    if column.node[sighting.rank] != sighting.machine:
        return True
    return None not in (column.gpu[sighting.rank], sighting.gpu) and column.gpu[sighting.rank] != sighting.gpu


def again(column: Column, sighting: Sighting, world: int) -> None:
    """A rank out of range, or one that another process holds already."""
    rank = sighting.rank
    if not 0 <= rank < world:
        column.stray.append(sighting)
        return
    if rank not in column.twice:
        machine = column.node[rank]
        if machine is not None:
            column.twice[rank] = [Sighting(rank, machine, column.gpu[rank], None, column.at.get(rank))]
    column.twice.setdefault(rank, []).append(sighting)
