"""What changes by itself on a host, reduced to what rules ask of: thousands of hosts are mostly alike.

Memory that the job's own processes explain and counters are let go, addresses stay as bytes. What is left
is equal on most hosts and kept once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, ValidationError, json

from topocheck.networkfacts import NetworkFacts, PortFacts
from topocheck.snapshot import Clock, Condition, GpuCondition, Netdev, RankClaim

__all__ = ["NodeState", "Strayed", "reduced"]

LITTLE_BYTES = 256 << 20
"""Memory in use without any process that a GPU shows while nothing runs on it."""
NONE_KNOWN = b"[]"
"""Addresses in a state that tells none."""
decode_addresses = json.Decoder(tuple[tuple[str, ...] | None, ...]).decode


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
    """Network devices."""
    encoded_addresses: bytes
    """Addresses of each of `netdevs` in JSON, a tenth of what they take decoded; `[]` is none known."""
    clock: Clock | None
    """The clock."""

    @property
    def addresses(self) -> tuple[tuple[str, ...] | None, ...]:
        """Addresses of each of `netdevs`, decoded each time that somebody asks; None where not known."""
        return decode_addresses(self.encoded_addresses) or (None,) * len(self.netdevs)


def reduced(
    condition: Condition, claims: Sequence[RankClaim], network: NetworkFacts, kept: dict[Hashable, Any]
) -> NodeState | None:
    """One view without what tells equal hosts apart; None if it says nothing. `kept` has equal parts once.

    Raises msgspec.ValidationError for addresses of another form than `network` asks for.
    """
    addresses = read_addresses(condition, len(network.netdevs))
    if not (condition.gpus or network.ports or network.netdevs or condition.clock):
        return None
    own = {claim.pid for claim in claims}
    idle = tuple([gpu.gpu for gpu in condition.gpus if is_idle(gpu, own)])
    strayed, matched = places(condition, claims)
    return NodeState(
        idle=kept.setdefault(idle, idle),
        strayed=strayed,
        matched=kept.setdefault(matched, matched),
        busy=() if len(idle) == len(condition.gpus) else others(condition, own),
        ports=network.ports,
        netdevs=network.netdevs,
        encoded_addresses=addresses,
        clock=condition.clock,
    )


def read_addresses(condition: Condition, netdevs: int) -> bytes:
    """Addresses as they stand in the snapshot, read once, so that nobody need doubt them later.

    Raises msgspec.ValidationError if they are of another form, or of another number of network devices.
    """
    raw = bytes(condition.addresses)
    if raw != NONE_KNOWN and (listed := len(decode_addresses(raw))) not in (0, netdevs):
        raise ValidationError(f"`state.addresses` lists {listed} and `network.netdevs` {netdevs}")
    return raw


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
