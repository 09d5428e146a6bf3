"""Where each rank lies, by one kind of evidence: predicted, claimed or observed.

A column holds machine and GPU of each rank as plain lists: 100,000 ranks are checked in tens of
milliseconds this way. The three columns stand side by side and are never mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import sub

from topocheck.claims import UNKNOWN, ClaimColumns
from topocheck.communicators import Member, Sightings, tagged_members, world_communicators
from topocheck.inventory import Inventory
from topocheck.plan import Basis
from topocheck.runs import runs_of, spread
from topocheck.snapshot import At

__all__ = ["Column", "Sighting", "claimed_column", "observed_column", "one_process", "pass_over"]


@dataclass(frozen=True, slots=True)
class Sighting:
    """One statement that a rank is on a machine and drives a GPU."""

    rank: int
    machine: int
    gpu: int | None
    pid: int | None
    at: At | None

    def may_be(self, other: Sighting) -> bool:
        """Nothing speaks against the two being one process on one GPU, seen twice."""
        return (
            self.machine == other.machine
            and (None in (self.gpu, other.gpu) or self.gpu == other.gpu)
            and (None in (self.pid, other.pid) or self.pid == other.pid)
        )

    def joined(self, other: Sighting) -> Sighting:
        """Both views of one process."""
        gpu = other.gpu if self.gpu is None else self.gpu
        pid = other.pid if self.pid is None else self.pid
        return Sighting(self.rank, self.machine, gpu, pid, self.at or other.at)

    @property
    def order(self) -> tuple[int, ...]:
        """Sightings of one rank in an order that does not hang on the order of the input."""
        return self.machine, *(-1 if number is None else number for number in (self.gpu, self.pid))


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
    """Ranks that were seen in several places: all sightings of each, the one in `node` and `gpu` first."""
    stray: list[Sighting] = field(default_factory=list)
    """Ranks outside 0..world-1."""
    pid: dict[int, int] = field(default_factory=dict)
    """Process of a rank, where a log shows it or several claims hold the rank."""
    block: int = 0
    """Ranks a machine, where all ranks are claimed in whole blocks of so many, each in order; else 0."""

    @property
    def empty(self) -> bool:
        """No rank is known."""
        if self.node and self.node[0] is not None:  # nearly always so, and to count them all takes long
            return False
        return self.node.count(None) == len(self.node)

    @property
    def complete(self) -> bool:
        """Every rank's node is known."""
        return None not in self.node


def one_process(sightings: Sequence[Sighting]) -> bool:
    """All are of one process of one machine, known by its pid: it was shown on several GPUs."""
    return len({(seen.machine, seen.pid) for seen in sightings}) == 1 and sightings[0].pid is not None


def blank(basis: Basis, world: int) -> Column:
    """A column that knows nothing yet."""
    return Column(basis, [None] * world, [None] * world)


def pass_over(predicted: Column, first_gpus: Sequence[int | None], step: int) -> None:
    """Move the ranks of each node past GPUs of other worlds; `step` GPUs lie between two ranks (SGLang).

    None is a node on which nobody knows which GPUs the others leave.
    """
    taken = dict(enumerate(first_gpus))
    for rank, (node, gpu) in enumerate(zip(predicted.node, predicted.gpu, strict=True)):
        if node is not None and gpu is not None:
            past = taken.get(node, 0)
            predicted.gpu[rank] = None if past is None else gpu + past * step


def claimed_column(inventory: Inventory, world: int, name: str = "") -> Column:
    """What the processes claim in their environments. `node` holds machine indexes at first."""
    column = blank("claimed", world)
    claims = inventory.claims.get(name)
    if claims is None:
        return column
    if enter_blocks(column, claims):
        return column
    node, gpu = column.node, column.gpu
    if len(set(claims.rank)) == len(claims) and min(claims.rank) >= 0 and max(claims.rank) < world:
        enter_once(column, claims)
        return column
    further = []
    for index, (rank, machine, device) in enumerate(
        zip(claims.rank, claims.machine, claims.gpu, strict=True)
    ):
        if 0 <= rank < world and node[rank] is None:
            node[rank] = machine
            gpu[rank] = device if device != UNKNOWN else None
            if index in claims.at:
                column.at[rank] = claims.at[index]
        else:
            further.append(index)
    if further:
        note_processes(column, claims)
    for index in further:
        again(column, claimed(claims, index))
    return column


def enter_blocks(column: Column, claims: ClaimColumns) -> bool:
    """Claims in blocks of neighbouring ranks, each block of one machine, as a block launch makes them.

    False, and nothing is entered, for others, and where the machines differ in the GPUs that they use.
    """
    ranks, machines, world = claims.rank, claims.machine, len(column.node)
    if len(claims) != world or claims.at:
        return False
    size = next((place for place, machine in enumerate(machines) if machine != machines[0]), world)
    gpu, firsts, hosts = claims.gpu[:size], ranks[::size], runs_of(machines, size)
    if world % size or hosts is None or UNKNOWN in gpu or claims.gpu != gpu * len(firsts):
        return False
    by_first = dict(zip(firsts, hosts, strict=True))
    found = list(map(by_first.get, range(0, world, size)))
    steps = (list(map(sub, ranks[n::size], firsts)) == [n] * len(firsts) for n in range(1, size))
    if None in found or not all(steps):
        return False
    column.node, column.gpu, column.block = spread(found, size), list(claims.gpu), size
    return True


def enter_once(column: Column, claims: ClaimColumns) -> None:
    """Claims of ranks in range, each claimed once: nearly always so, and then quick."""
    node, gpu = column.node, column.gpu
    for rank, machine, device in zip(claims.rank, claims.machine, claims.gpu, strict=True):
        node[rank], gpu[rank] = machine, device
    if UNKNOWN in claims.gpu:
        column.gpu = [None if device == UNKNOWN else device for device in gpu]
    column.at = {claims.rank[index]: at for index, at in claims.at.items()}


def note_processes(column: Column, claims: ClaimColumns) -> None:
    """Process of the first claim of each rank: tells a further claim from the same one made again."""
    firsts: dict[int, int] = {}
    for rank, pid in zip(claims.rank, claims.pid, strict=True):
        firsts.setdefault(rank, pid)
    column.pid = {rank: pid for rank, pid in firsts.items() if pid != UNKNOWN}


def claimed(claims: ClaimColumns, index: int) -> Sighting:
    """One claim as a sighting."""
    numbers = claims.gpu[index], claims.pid[index]
    gpu, pid = (None if number == UNKNOWN else number for number in numbers)
    return Sighting(claims.rank[index], claims.machine[index], gpu, pid, claims.at.get(index))


def observed_column(seen: Sightings, world: int) -> Column:
    """What communicators of the world's size prove. `node` holds machine indexes at first."""
    if not seen.communicators:
        nothing: list[int | None] = [None] * world
        return Column("observed", nothing, nothing)  # one list is enough: nothing is entered into it
    column = blank("observed", world)
    for comm in world_communicators(seen, world):
        fill(column, comm.everyone(), world)
    fill(column, tagged_members(seen), world)
    name_gpus(column, seen)
    return column


def name_gpus(column: Column, seen: Sightings) -> None:
    """GPUs of ranks that the engine names by process alone: by the process's other communicators."""
    processes = {
        (column.node[rank], pid): rank for rank, pid in column.pid.items() if column.gpu[rank] is None
    }
    found: dict[int, set[int]] = {}
    for comm in seen.communicators.values() if processes else ():
        for member in comm.everyone():
            rank = processes.get((member.machine, member.pid or UNKNOWN))
            if rank is not None and member.gpu is not None:
                found.setdefault(rank, set()).add(member.gpu)
    for rank, gpus in found.items():
        column.gpu[rank] = gpus.pop() if len(gpus) == 1 else None


def fill(column: Column, members: Iterable[Member], world: int) -> None:
    """Enter members whose ranks are global; two members of one rank are two processes that hold it.

    A further communicator may be of later processes on the same GPUs: only its places are compared.
    """
    before = {rank for rank, node in enumerate(column.node) if node is not None}
    for member in members:
        pid = None if member.rank in before else member.pid
        sighting = Sighting(member.rank, member.machine, member.gpu, pid, member.at)
        if 0 <= member.rank < world and column.node[member.rank] is None:
            put(column, sighting)
        else:
            again(column, sighting)


def put(column: Column, sighting: Sighting) -> None:
    """Make a sighting the place of its rank."""
    rank = sighting.rank
    column.node[rank], column.gpu[rank] = sighting.machine, sighting.gpu
    if sighting.pid is not None:
        column.pid[rank] = sighting.pid
    if sighting.at is not None:
        column.at[rank] = sighting.at


def again(column: Column, sighting: Sighting) -> None:
    """A rank out of range, or one that is known already: seen once more, or in another place."""
    rank = sighting.rank
    if not 0 <= rank < len(column.node):
        column.stray.append(sighting)
        return
    held = column.twice.get(rank) or [holder(column, rank)]
    same = next((place for place, other in enumerate(held) if other.may_be(sighting)), None)
    if same is None:
        held.append(sighting)
    else:
        held[same] = held[same].joined(sighting)
    held.sort(key=lambda seen: seen.order)
    put(column, held[0])
    if len(held) > 1:
        column.twice[rank] = held


def holder(column: Column, rank: int) -> Sighting:
    """The sighting that a rank's place was taken from."""
    machine = column.node[rank]
    if machine is None:  # only ranks that are known are seen again
        raise AssertionError(rank)
    return Sighting(rank, machine, column.gpu[rank], column.pid.get(rank), column.at.get(rank))
