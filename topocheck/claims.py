"""What the processes of a world claim about themselves, as columns.

100,000 claims as objects would take 15 MB and a loop over each; as columns they are a few arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from msgspec.structs import astuple

from topocheck.snapshot import At, RankClaim

__all__ = ["UNKNOWN", "ClaimColumns"]

UNKNOWN = -1
"""In the columns: not claimed."""


@dataclass(slots=True)
class ClaimColumns:
    """Claims of all processes of one world, as parallel columns; -1 is not claimed."""

    rank: array[int] = field(default_factory=lambda: array("l"))
    machine: array[int] = field(default_factory=lambda: array("l"))
    gpu: array[int] = field(default_factory=lambda: array("l"))
    local_rank: array[int] = field(default_factory=lambda: array("l"))
    pid: array[int] = field(default_factory=lambda: array("l"))
    sizes: dict[int, int] = field(default_factory=dict)
    """World sizes claimed, each with the first rank that claims it."""
    at: dict[int, At] = field(default_factory=dict)
    """Place of a claim, by its index in the columns, where it has one of its own."""

    def __len__(self) -> int:
        return len(self.rank)

    def extend(self, claims: Sequence[RankClaim], machines: Iterable[int]) -> None:
        """Add claims, each with the machine that it is of. Raises OverflowError beyond 64 bits."""
        if not claims:
            return
        start = len(self.rank)
        fields = dict(zip(RankClaim.__struct_fields__, zip(*map(astuple, claims), strict=True), strict=True))
        self.machine.extend(machines)
        for name in ("rank", "gpu", "local_rank", "pid"):
            getattr(self, name).fromlist(numbered(fields[name]))
        for size in dict.fromkeys(fields["size"]):
            if size is not None and size not in self.sizes:
                self.sizes[size] = fields["rank"][fields["size"].index(size)]
        if fields["at"].count(None) < len(claims):
            places = enumerate(fields["at"], start)
            self.at.update({place: at for place, at in places if at is not None})


def numbered(numbers: Sequence[int | None]) -> list[int]:
    """Numbers as the columns hold them."""
    if None in numbers:
        return [UNKNOWN if number is None else number for number in numbers]
    return cast("list[int]", list(numbers))
