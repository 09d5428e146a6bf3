"""The GPUs of one host, kept as bytes until somebody asks.

A cluster has 100,000 GPUs, and the rules look at those of a few hosts: one for each kind of host, and
the broken ones. Kept as objects, all of them would take more memory than everything else together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import msgspec

from topocheck.snapshot import GpuId

__all__ = ["GpuList"]

PACK = msgspec.msgpack.Encoder().encode
UNPACK = msgspec.msgpack.Decoder(tuple[GpuId, ...]).decode


class GpuList(Sequence[GpuId]):
    """A tuple of `GpuId` in a tenth of its memory. Asking for an entry by its place keeps all unpacked."""

    __slots__ = ("_count", "_gpus", "_packed")

    def __init__(self, gpus: Sequence[GpuId] = ()) -> None:
        self._count = len(gpus)
        self._packed = PACK(gpus)
        self._gpus: tuple[GpuId, ...] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[GpuId]:
        return iter(self._gpus or UNPACK(self._packed))

    @overload
    def __getitem__(self, place: int) -> GpuId: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[GpuId, ...]: ...

    def __getitem__(self, place: int | slice) -> GpuId | tuple[GpuId, ...]:
        if self._gpus is None:
            self._gpus = UNPACK(self._packed)
        return self._gpus[place]
