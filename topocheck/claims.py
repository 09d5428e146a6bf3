"""What the processes of a world claim about themselves, as columns.

100,000 claims as objects take 15 MB, and a loop over them as long as their decoding.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import astuple

from topocheck.errors import TwoJobsError
from topocheck.ranges import first
from topocheck.snapshot import At, RankClaim

__all__ = ["UNKNOWN", "ClaimColumns", "claimed_size", "enter", "tied", "united"]

UNKNOWN = -1
"""In the columns: not claimed."""


RANK, WORLD, SIZE, LOCAL_RANK, NODE_RANK, GPU, PID, AT = map(
    RankClaim.__struct_fields__.index,
    ("rank", "world", "size", "local_rank", "node_rank", "gpu", "pid", "at"),
)
"""Places of the fields of a claim."""


@dataclass(slots=True)
class ClaimColumns:
    """Claims of all processes of one world, as parallel columns; -1 is not claimed."""

    rank: list[int] = field(default_factory=list)
    machine: list[int] = field(default_factory=list)
    gpu: list[int] = field(default_factory=list)
    local_rank: list[int] = field(default_factory=list)
    node_rank: list[int] = field(default_factory=list)
    pid: array[int] = field(default_factory=partial(array, "q"))
    """Of little use, and all numbers are different: as bytes they take a quarter of the memory."""
    sizes: dict[int, int] = field(default_factory=dict)
    """World sizes claimed, each with the first rank that claims it."""
    at: dict[int, At] = field(default_factory=dict)
    """Place of a claim, by its index in the columns, where it has one of its own."""

    def __len__(self) -> int:
        return len(self.rank)

    def picked(self, indexes: Sequence[int]) -> ClaimColumns:
        """Some of the claims; the sizes are those of all of them, which do not say who claims which."""
        return ClaimColumns(
            rank=[self.rank[index] for index in indexes],
            machine=[self.machine[index] for index in indexes],
            gpu=[self.gpu[index] for index in indexes],
            local_rank=[self.local_rank[index] for index in indexes],
            node_rank=[self.node_rank[index] for index in indexes],
            pid=array("q", [self.pid[index] for index in indexes]),
            sizes=dict(self.sizes),
            at={place: self.at[index] for place, index in enumerate(indexes) if index in self.at},
        )

    def add(self, other: ClaimColumns) -> None:
        """Add the claims of other columns."""
        self.at.update({len(self) + index: at for index, at in other.at.items()})
        for size, rank in other.sizes.items():
            self.sizes.setdefault(size, rank)
        for name in ("rank", "machine", "gpu", "local_rank", "node_rank", "pid"):
            getattr(self, name).extend(getattr(other, name))

    def extend(self, columns: Sequence[tuple[Any, ...]], machine: int) -> None:
        """Add the fields of claims of one machine."""
        ranks, sizes, places = columns[RANK], columns[SIZE], columns[AT]
        if places.count(None) < len(places):
            start = len(self.rank)
            self.at.update({n: at for n, at in enumerate(places, start) if at is not None})
        if sizes[0] not in self.sizes or sizes.count(sizes[0]) < len(sizes):
            for rank, size in zip(ranks, sizes, strict=True):
                if size is not None:
                    self.sizes.setdefault(size, rank)
        self.rank += ranks
        self.machine += [machine] * len(ranks)
        self.gpu += numbered(columns[GPU])
        self.local_rank += numbered(columns[LOCAL_RANK])
        numbers = numbered(columns[NODE_RANK])
        # Mostly one number, which is kept once and not for each rank.
        self.node_rank += [numbers[0]] * len(numbers) if one_value(numbers) else numbers
        self.pid.extend(pids(columns[PID]))


def enter(worlds: dict[str, ClaimColumns], claims: Sequence[RankClaim], machine: int) -> tuple[int, ...]:
    """Add the claims of one machine to the columns of their worlds. Gives the distinct node ranks claimed."""
    # They are equally long; to check that would cost as much as the rest.
    columns = tuple(zip(*map(astuple, claims), strict=False))
    names, node_ranks = columns[WORLD], columns[NODE_RANK]
    if not one_value(names):
        for name in dict.fromkeys(names):
            enter(worlds, [claim for claim in claims if claim.world == name], machine)
    else:
        if names[0] not in worlds:
            worlds[names[0]] = ClaimColumns()
        worlds[names[0]].extend(columns, machine)
    return tuple([number for number in dict.fromkeys(node_ranks) if number is not None])


def united(worlds: dict[str, ClaimColumns]) -> dict[str, ClaimColumns]:
    """The claims of one world where the processes name several and the plan has one.

    Raises TwoJobsError where two of them have the same rank: then they are several.
    """
    if not any(worlds):
        return worlds
    whole, holder = ClaimColumns(), dict[int, str]()
    for name, columns in sorted(worlds.items()):
        for rank in columns.rank:
            if holder.setdefault(rank, name) != name:
                listed = first([name for name in sorted(worlds) if name], 4)
                raise TwoJobsError(
                    f"the processes are of several worlds ({listed}), each with a rank {rank}, and the plan "
                    "has one: declare them in the plan, for instance `worlds: 2`"
                )
        whole.add(columns)
    return {"": whole}


def claimed_size(worlds: Mapping[str, ClaimColumns]) -> int | None:
    """World size that all processes of the only world claim; None if none does or they differ."""
    claims = worlds.get("")
    return next(iter(claims.sizes)) if claims is not None and len(claims.sizes) == 1 else None


def pids(numbers: tuple[int | None, ...]) -> array[int]:
    """Process ids as bytes; a number that no system gives to a process is as good as none."""
    try:
        return array("q", numbered(numbers))
    except OverflowError:
        return array("q", [UNKNOWN if number is None or number >> 63 else number for number in numbers])


def one_value(values: Sequence[Any]) -> bool:
    """All are equal; there is at least one."""
    return values.count(values[0]) == len(values)


def numbered(numbers: Sequence[Any]) -> Sequence[int]:
    """Numbers as the columns hold them."""
    return [UNKNOWN if number is None else number for number in numbers] if None in numbers else numbers


def tied(claims: Iterable[RankClaim], ties: list[int]) -> Iterator[RankClaim]:
    """Claims with the machine's GPU ordinals in place of the snapshot's."""
    for claim in claims:
        gpu = None if claim.gpu is None else ties[claim.gpu]
        yield claim if gpu == claim.gpu else msgspec.structs.replace(claim, gpu=gpu)
