"""What the processes of a world claim about themselves, as columns.

A loop over 100,000 claims as objects takes as long as decoding them; columns are filled and read many
at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from topocheck.snapshot import At, RankClaim

__all__ = ["UNKNOWN", "ClaimColumns", "tied"]

UNKNOWN = -1
"""In the columns: not claimed."""


@dataclass(slots=True)
class ClaimColumns:
    """Claims of all processes of one world, as parallel columns; -1 is not claimed."""

    rank: list[int] = field(default_factory=list)
    machine: list[int] = field(default_factory=list)
    gpu: list[int] = field(default_factory=list)
    local_rank: list[int] = field(default_factory=list)
    pid: list[int] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    """World sizes claimed, each with the first rank that claims it."""
    at: dict[int, At] = field(default_factory=dict)
    """Place of a claim, by its index in the columns, where it has one of its own."""

    def __len__(self) -> int:
        return len(self.rank)

    def extend(self, claims: Sequence[RankClaim], machines: Iterable[int]) -> None:
        """Add claims, each with the machine that it is of."""
        if not claims:
            return
        start, names = len(self.rank), RankClaim.__struct_fields__
        fields = dict(zip(names, zip(*map(msgspec.structs.astuple, claims), strict=True), strict=True))
        self.machine.extend(machines)
        for name in ("rank", "gpu", "local_rank", "pid"):
            getattr(self, name).extend(numbered(fields[name]))
        for size in dict.fromkeys(fields["size"]):
            if size is not None and size not in self.sizes:
                self.sizes[size] = fields["rank"][fields["size"].index(size)]
        if fields["at"].count(None) < len(claims):
            places = enumerate(fields["at"], start)
            self.at.update({place: at for place, at in places if at is not None})


def numbered(numbers: Sequence[int | None]) -> Sequence[int | None]:
    """Numbers as the columns hold them."""
    return [UNKNOWN if number is None else number for number in numbers] if None in numbers else numbers


def tied(claims: Iterable[RankClaim], ties: list[int]) -> Iterator[RankClaim]:
    """Claims with the machine's GPU ordinals in place of the snapshot's."""
    for claim in claims:
        gpu = None if claim.gpu is None else ties[claim.gpu]
        yield claim if gpu == claim.gpu else msgspec.structs.replace(claim, gpu=gpu)
