"""The part of `State` that rules ask of, decoded as a stream passes: counters and rates are skipped."""

from __future__ import annotations

import msgspec

from topocheck.snapshot.record import Record
from topocheck.snapshot.state import Clock, Netdev, Process

__all__ = ["Condition", "GpuCondition", "NicCondition", "PortCondition"]


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


class PortCondition(Record, frozen=True, kw_only=True):
    """Subnet manager and addresses of one port."""

    port: int = 1
    """Port number, counted from 1."""
    lid: int | None = None
    """Local id that the subnet manager gave; 0 is none."""
    sm_lid: int | None = None
    """Local id of the subnet manager; 0 is none, as always with Ethernet."""
    gids: msgspec.Raw = msgspec.Raw(b"null")
    """GIDs that are set (`tuple[Gid, ...]`), decoded where they count; null if the table was not read."""
    gids_cut: bool = False
    """More GIDs may be set than are listed."""


class NicCondition(Record, frozen=True, kw_only=True):
    """Ports of one RDMA device."""

    nic: int
    """Ordinal in `identity.nics`."""
    ports: tuple[PortCondition, ...] = ()
    """Its ports."""


class Condition(Record, frozen=True, kw_only=True):
    """What `State` says of memory, ports, network devices and the clock."""

    gpus: tuple[GpuCondition, ...] = ()
    """By GPU; a GPU that was not asked is absent."""
    nics: tuple[NicCondition, ...] = ()
    """By RDMA device; one that was not asked is absent."""
    netdevs: tuple[Netdev, ...] = ()
    """Network devices of the namespace."""
    clock: Clock | None = None
    """The clock; None if not asked."""
