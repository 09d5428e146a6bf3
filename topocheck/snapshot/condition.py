"""The part of `State` that rules ask of, decoded as a stream passes: counters and rates are skipped."""

from __future__ import annotations

import msgspec

from topocheck.snapshot.record import Record
from topocheck.snapshot.state import Clock, Process

__all__ = ["Condition", "GpuCondition"]


class GpuCondition(Record, frozen=True, kw_only=True):
    """Who uses one GPU."""

    gpu: int
    """Ordinal in `identity.gpus`."""
    memory_used_bytes: int | None = None
    """Memory in use without the driver's reserve."""
    memory_reserved_bytes: int | None = None
    """The driver's reserve; None with drivers before 510, which count it as used."""
    processes: tuple[Process, ...] | None = None
    """Processes on it; None where nobody looked."""


class Condition(Record, frozen=True, kw_only=True):
    """What `State` says of memory, addresses and the clock."""

    gpus: tuple[GpuCondition, ...] = ()
    """By GPU; a GPU that was not asked is absent."""
    addresses: msgspec.Raw = msgspec.Raw(b"[]")
    """Addresses of each of `network.netdevs` (`tuple[tuple[str, ...] | None, ...]`); [] is none known."""
    clock: Clock | None = None
    """The clock; None if not asked."""
