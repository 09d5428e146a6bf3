"""The GPUs and the RDMA devices of one host, kept as columns until somebody asks.

A cluster has 100,000 GPUs, and the rules look at those of a few hosts: one for each kind of host, and
the broken ones. Kept as objects, all of them would take more memory than everything else together. What
equal hosts have alike, such as bus ids, is kept once; identifiers of their own are one text for each host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar, overload

from msgspec.structs import astuple

from topocheck.snapshot import GpuId, NicId

__all__ = ["SEPARATOR", "Columns", "GpuList", "NicList", "PackedList"]

Item = TypeVar("Item", GpuId, NicId)
List = TypeVar("List", bound="PackedList[Any]")
Columns = tuple[tuple[Any, ...], ...]
"""The fields of a type, each with its values by entry; () without any entry."""

SEPARATOR = b"\xff"
"""Between identifiers. No text in UTF-8 holds it."""


class PackedList(Sequence[Item]):
    """A tuple in a tenth of its memory. Asking for an entry by its place keeps all unpacked."""

    __slots__ = ("_items", "_own", "alike")

    item: ClassVar[type[Any]]
    """Type of the entries."""
    own: ClassVar[tuple[str, ...]]
    """Their identifiers, which each host has of its own."""

    def __init__(self, alike: Columns, own: bytes) -> None:
        """`alike` has places in `own` for values of a host's own; these are parted by SEPARATOR."""
        self.alike = alike
        """Fields by entry, which equal hosts have alike; of identifiers where they stand in the own text."""
        self._own = own
        self._items: tuple[Item, ...] | None = None

    @classmethod
    def of(cls: type[List], items: Sequence[Any]) -> List:  # noqa: PYI019 - typing has no Self in Python 3.10
        """The list of these entries."""
        columns: list[tuple[Any, ...]] = list(zip(*map(astuple, items), strict=True))
        values: list[str] = []
        for number, field in enumerate(cls.item.__struct_fields__ if items else ()):
            if field in cls.own:
                known = [value for value in columns[number] if value is not None]
                places = iter(range(len(values), len(values) + len(known)))
                columns[number] = tuple([None if v is None else next(places) for v in columns[number]])
                values += known
        return cls(tuple(columns), SEPARATOR.join([value.encode() for value in values]))

    @property
    def identifiers(self) -> list[bytes]:
        """Values of the host's own, those of the first identifier in front."""
        return self._own.split(SEPARATOR)

    def __len__(self) -> int:
        return len(self.alike[0]) if self.alike else 0

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items or self._unpacked())

    @overload
    def __getitem__(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Item, ...]: ...

    def __getitem__(self, place: int | slice) -> Item | tuple[Item, ...]:
        if self._items is None:
            self._items = self._unpacked()
        return self._items[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _unpacked(self) -> tuple[Item, ...]:
        found = [value.decode() for value in self.identifiers]
        fields = self.item.__struct_fields__
        columns = [
            [None if place is None else found[place] for place in column] if field in self.own else column
            for field, column in zip(fields, self.alike, strict=False)
        ]
        return tuple([self.item(**dict(zip(fields, row, strict=True))) for row in zip(*columns, strict=True)])


class GpuList(PackedList[GpuId]):
    """GPUs."""

    __slots__ = ()
    item = GpuId
    own = ("uuid", "serial")

    @property
    def uuids(self) -> list[bytes]:
        """UUIDs of those that show one."""
        count = len(self) - self.alike[UUID].count(None) if self.alike else 0
        return self._own.split(SEPARATOR, count)[:count]


class NicList(PackedList[NicId]):
    """RDMA devices."""

    __slots__ = ()
    item = NicId
    own = ("guid", "card")


UUID = GpuId.__struct_fields__.index("uuid")
