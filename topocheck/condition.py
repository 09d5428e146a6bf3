"""What changes by itself on a host, reduced to what rules ask of: thousands of hosts are mostly alike.

Memory that the job's own processes explain, counters and the digits of addresses are let go. What is left
is equal on most hosts and kept once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Raw, Struct, json
from msgspec.structs import replace

from topocheck.snapshot import Clock, Condition, Gid, GpuCondition, Netdev, RankClaim

__all__ = ["GidFacts", "NodeState", "PortFacts", "Strayed", "reduced"]

LITTLE_BYTES = 256 << 20
"""Memory in use without any process that a GPU shows while nothing runs on it."""
MAPPED = "0000:0000:0000:0000:0000:ffff:"
"""How a GID with an IPv4 address begins."""
DECODE_GIDS = json.Decoder(tuple[Gid, ...] | None).decode
WITHOUT_ADDRESSES = attrgetter(
    "name", "kind", "layer", "state", "mtu", "speed_gbps", "master", "members", "bus"
)


class GidFacts(NamedTuple):
    """One entry of a GID table without its digits."""

    place: int
    """Place in the table, what NCCL_IB_GID_INDEX counts."""
    type: str | None
    """`IB/RoCE v1` or `RoCE v2`; None where the driver does not say."""
    netdev: str | None
    """Network device whose address it is."""
    mapped: bool
    """It holds an IPv4 address."""
    link_local: bool
    """It is a link-local address, which no router passes on."""


class PortFacts(NamedTuple):
    """Subnet manager and addresses of one port."""

    nic: int
    """Ordinal of the RDMA device."""
    port: int
    """Port number, counted from 1."""
    sm_lid: int | None
    """Local id of the subnet manager; 0 is none, as always with Ethernet; None if not known."""
    gids: tuple[GidFacts, ...] | None
    """GID table of a port to which no subnet manager gave an id; None if it was not read."""
    cut: bool
    """More GIDs may be set than are listed."""


class Strayed(NamedTuple):
    """A rank whose process is on other GPUs than the one that it claims."""

    rank: int
    claimed: int
    """Ordinal of the GPU that it claims."""
    gpus: tuple[int, ...]
    """Ordinals of the GPUs that its process is on."""
    pid: int


class NodeState(Struct, frozen=True, kw_only=True, gc=False):
    """One view of what changes by itself on a host."""

    idle: tuple[int, ...]
    """Ordinals of GPUs on which nothing but processes of the job was seen."""
    strayed: tuple[Strayed, ...]
    """Ranks whose process is on other GPUs than the one that they claim."""
    matched: tuple[int, ...]
    """Ordinals of the GPUs that ranks claim whose process was found on a GPU, be it that one or not."""
    busy: tuple[GpuCondition, ...]
    """GPUs on which something else is, or on whose processes nobody looked. What the job's own processes hold
    is left out of the memory, which is None where that is not known."""
    ports: tuple[PortFacts, ...]
    """Ports of RDMA devices."""
    netdevs: tuple[Netdev, ...]
    """Network devices, their addresses left out."""
    addresses: tuple[tuple[str, ...] | None, ...]
    """Addresses of each of `netdevs`."""
    clock: Clock | None
    """The clock."""


def reduced(condition: Condition, claims: Sequence[RankClaim], kept: dict[Hashable, Any]) -> NodeState | None:
    """One view without what tells equal hosts apart; None if it says nothing. `kept` has equal parts once.

    Raises msgspec.ValidationError for a GID table of another form.
    """
    if not (condition.gpus or condition.nics or condition.netdevs or condition.clock):
        return None
    own = {claim.pid for claim in claims}
    idle = tuple([gpu.gpu for gpu in condition.gpus if is_idle(gpu, own)])
    # Everything here is done for every host: comprehensions in place of calls save a tenth of all gathering.
    ports = tuple(
        [
            (
                nic.nic,
                port.port,
                port.sm_lid,
                None if port.lid else table(port.gids),
                port.gids_cut,
            )
            for nic in condition.nics
            for port in nic.ports
        ]
    )
    seen = tuple(map(WITHOUT_ADDRESSES, condition.netdevs))
    strayed, matched = places(condition, claims)
    return NodeState(
        idle=kept.setdefault(idle, idle),
        strayed=strayed,
        matched=kept.setdefault(matched, matched),
        busy=() if len(idle) == len(condition.gpus) else others(condition, own),
        ports=kept.get(ports) or kept.setdefault(ports, tuple(map(named, ports))),
        netdevs=kept.get(seen) or kept.setdefault(seen, tuple(map(bare, condition.netdevs))),
        addresses=tuple([netdev.addresses for netdev in condition.netdevs]),
        clock=condition.clock,
    )


def table(gids: Sequence[Gid] | Raw | None) -> tuple[tuple[Any, ...], ...] | None:
    """A GID table without its digits; None if it was not read.

    Raises msgspec.ValidationError for one of another form.
    """
    listed = DECODE_GIDS(gids) if isinstance(gids, Raw) else gids
    if listed is None:
        return None
    return tuple(
        [(gid.index, gid.type, gid.netdev, gid.gid[:30] == MAPPED, gid.gid[:4] == "fe80") for gid in listed]
    )


def is_idle(gpu: GpuCondition, own: set[int | None]) -> bool:
    """Nothing is on it, or one process of the job with all the memory: the common case, and then quick."""
    processes, used = gpu.processes, gpu.memory_used_bytes
    if processes is not None and len(processes) == 1 and used is not None:
        (process,) = processes
        held = process.memory_bytes
        if process.pid in own and held is not None and used - held <= LITTLE_BYTES:
            return True
    return foreign(gpu, own) is None


def others(condition: Condition, own: set[int | None]) -> tuple[GpuCondition, ...]:
    """GPUs on which something else is."""
    found = [foreign(gpu, own) for gpu in condition.gpus]
    return tuple([gpu for gpu in found if gpu is not None])


def places(condition: Condition, claims: Sequence[RankClaim]) -> tuple[tuple[Strayed, ...], tuple[int, ...]]:
    """Ranks that are elsewhere than they claim, and the GPUs claimed by those whose process was found."""
    taken = {(process.pid, gpu.gpu) for gpu in condition.gpus for process in gpu.processes or ()}
    asked = [(claim.pid, claim.gpu) for claim in claims if claim.pid is not None and claim.gpu is not None]
    if taken.issuperset(asked):
        return (), tuple([gpu for _, gpu in asked])
    seats = {claim.pid: claim for claim in claims if claim.pid is not None and claim.gpu is not None}
    found: dict[int, list[int]] = {}
    for gpu in condition.gpus:
        for process in gpu.processes or ():
            if process.pid in seats:
                found.setdefault(process.pid, []).append(gpu.gpu)
    strayed = tuple(
        [
            Strayed(seats[pid].rank, seats[pid].gpu or 0, tuple(gpus), pid)
            for pid, gpus in found.items()
            if seats[pid].gpu not in gpus
        ]
    )
    return strayed, tuple([seats[pid].gpu or 0 for pid in found])


def foreign(gpu: GpuCondition, own: set[int | None]) -> GpuCondition | None:
    """What is on a GPU beside the job's own processes, memory that they do not hold too; None if nothing is.

    In a container other processes are not listed, and their memory is in use all the same.
    """
    if gpu.processes is None:
        return gpu
    others = tuple([process for process in gpu.processes if process.pid not in own])
    used, held = gpu.memory_used_bytes, [p.memory_bytes for p in gpu.processes if p.pid in own]
    if used is not None and used > LITTLE_BYTES:
        known = [size for size in held if size is not None]
        used = max(0, used - sum(known)) if len(known) == len(held) else None
    if not others and used is not None and used <= LITTLE_BYTES:
        return None
    return GpuCondition(
        gpu=gpu.gpu,
        memory_used_bytes=used,
        memory_reserved_bytes=gpu.memory_reserved_bytes,
        processes=others,
    )


def named(port: tuple[Any, ...]) -> PortFacts:
    """The fields of one port with their names."""
    nic, number, sm_lid, gids, cut = port
    return PortFacts(
        nic, number, sm_lid, None if gids is None else tuple(GidFacts(*gid) for gid in gids), cut
    )


def bare(netdev: Netdev) -> Netdev:
    """A network device without its addresses."""
    return replace(netdev, addresses=None)
