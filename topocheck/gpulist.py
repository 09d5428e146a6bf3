"""The GPUs and the RDMA devices of one host, kept as bytes until somebody asks.

A cluster has 100,000 GPUs, and the rules look at those of a few hosts: one for each kind of host, and
the broken ones. Kept as objects, all of them would take more memory than everything else together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar, overload

import msgspec

from topocheck.snapshot import GpuId, NicId

__all__ = ["GpuList", "NicList"]

Item = TypeVar("Item")
PACK = msgspec.msgpack.Encoder().encode


class PackedList(Sequence[Item]):
    """A tuple in a tenth of its memory. Asking for an entry by its place keeps all unpacked."""

    __slots__ = ("_count", "_items", "_packed")

    unpacker: ClassVar[msgspec.msgpack.Decoder[Any]]

    def __init__(self, items: Sequence[Item] = ()) -> None:
        self._count = len(items)
        self._packed = PACK(items)
        self._items: tuple[Item, ...] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items or self.unpacker.decode(self._packed))

    @overload
    def __getitem__(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Item, ...]: ...

    def __getitem__(self, place: int | slice) -> Item | tuple[Item, ...]:
        if self._items is None:
            self._items = tuple(self.unpacker.decode(self._packed))
        return self._items[place]


class GpuList(PackedList[GpuId]):
    """GPUs."""

    __slots__ = ()
    unpacker = msgspec.msgpack.Decoder(tuple[GpuId, ...])


class NicList(PackedList[NicId]):
    """RDMA devices."""

    __slots__ = ()
    unpacker = msgspec.msgpack.Decoder(tuple[NicId, ...])
