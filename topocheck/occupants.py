"""Who is on the GPUs of a host: the ranks that claim them, and what else is there.

On most hosts each GPU has one process, the rank that claims it, with all the memory that is in use. That
is seen of the whole host at once; otherwise each GPU is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from topocheck.snapshot import GpuCondition, RankClaim

__all__ = ["Occupants", "Strayed", "occupants"]

LITTLE_BYTES = 256 << 20
"""Memory in use without any process that a GPU shows while nothing runs on it."""


class Strayed(NamedTuple):
    """A rank whose process is on other GPUs than the one that it claims."""

    rank: int
    claimed: int
    """Ordinal of the GPU that it claims."""
    gpus: tuple[int, ...]
    """Ordinals of the GPUs that its process is on."""
    pid: int


class Occupants(NamedTuple):
    """Who is on the GPUs of one host."""

    idle: tuple[int, ...]
    """Ordinals of GPUs on which nothing but processes of the job was seen."""
    matched: tuple[int, ...]
    """Ordinals of the GPUs that ranks claim whose process was found on a GPU, be it that one or not."""
    strayed: tuple[Strayed, ...] = ()
    """Ranks whose process is on other GPUs than the one that they claim."""
    busy: tuple[GpuCondition, ...] = ()
    """GPUs on which something else is, or on whose processes nobody looked. What the job's own processes hold
    is left out of the memory, which is None where that is not known."""


def occupants(gpus: Sequence[GpuCondition], claims: Sequence[RankClaim]) -> Occupants:
    """Sort out who is on these GPUs, `claims` being all claims of ranks of the host in this view."""
    found = at_once(gpus, claims)
    if found is not None:
        return found
    own = {claim.pid for claim in claims}
    foreigners = [foreign(gpu, own) for gpu in gpus]
    strayed, matched = places(gpus, claims)
    return Occupants(
        idle=tuple([gpu.gpu for gpu, other in zip(gpus, foreigners, strict=True) if other is None]),
        matched=matched,
        strayed=strayed,
        busy=tuple([other for other in foreigners if other is not None]),
    )


def at_once(gpus: Sequence[GpuCondition], claims: Sequence[RankClaim]) -> Occupants | None:
    """The same where each GPU has one process, its rank, with all the memory in use; None anywhere else."""
    # For every host: comprehensions take half the time of a loop.
    seats = {claim.pid: claim.gpu for claim in claims}
    listed: Sequence[Any] = gpus  # what is not known, and several processes, are caught
    try:
        there = {
            process.pid: gpu.gpu
            for gpu in listed
            for (process,) in (gpu.processes,)
            if gpu.memory_used_bytes - process.memory_bytes <= LITTLE_BYTES
        }
    except (TypeError, ValueError):
        return None
    if not len(there) == len(claims) == len(gpus) or there != seats:
        return None
    return Occupants(tuple(there.values()), tuple([gpu for gpu in seats.values() if gpu is not None]))


def places(
    gpus: Sequence[GpuCondition], claims: Sequence[RankClaim]
) -> tuple[tuple[Strayed, ...], tuple[int, ...]]:
    """Ranks that are elsewhere than they claim, and the GPUs claimed by those whose process was found."""
    seats = {claim.pid: claim for claim in claims if claim.pid is not None and claim.gpu is not None}
    taken = {(process.pid, gpu.gpu) for gpu in gpus for process in gpu.processes or ()}
    asked = [(claim.pid, claim.gpu) for claim in claims if claim.pid is not None and claim.gpu is not None]
    if taken.issuperset(asked):
        return (), tuple([gpu for _, gpu in asked])
    found: dict[int, list[int]] = {}
    for gpu in gpus:
        for process in gpu.processes or ():
            if process.pid in seats:
                found.setdefault(process.pid, []).append(gpu.gpu)
    strayed = tuple(
        [
            Strayed(seats[pid].rank, seats[pid].gpu or 0, tuple(there), pid)
            for pid, there in found.items()
            if seats[pid].gpu not in there
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
