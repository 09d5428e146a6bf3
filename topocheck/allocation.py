"""Which GPUs the scheduler or the container runtime gave to the job on a node, by the node's environment.

SLURM_JOB_GPUS and SLURM_STEP_GPUS hold the node's own numbers, not those that a task's cgroup leaves it:
Slurm counts device files, so that they are the N of /dev/nvidiaN (`File` in gres.conf, also with AutoDetect).
NVIDIA_VISIBLE_DEVICES is what a container was given, and counts only where it lists UUIDs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from topocheck.launchers.variables import number_of
from topocheck.placement import Node
from topocheck.snapshot import GpuId

__all__ = ["BY_INDEX", "Given", "given_on", "numbered", "usable"]

LISTS = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS")
COUNT = "SLURM_GPUS_ON_NODE"
CONTAINER = "NVIDIA_VISIBLE_DEVICES"
BY_INDEX = "NVML index"
"""How a GPU is known whose minor number is not shown: the two orders differ on some machines."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a node's environment says that the job was given on it."""

    numbers: frozenset[int] = frozenset()
    """Device numbers; empty if none are listed."""
    uuids: frozenset[str] = frozenset()
    """UUIDs; empty if none are listed."""
    count: int | None = None
    """How many GPUs."""
    words: tuple[str, ...] = ()
    """The variables that say so."""


def given_on(node: Node) -> Given:
    """What the variables of all processes of the node say together."""
    return given_by(tuple(node.machine.environments) if node.machine else ())


@lru_cache(maxsize=1024)
def given_by(environments: tuple[bytes, ...]) -> Given:
    """The same from encoded environments: the nodes of a job share a few."""
    numbers: set[int] = set()
    uuids: set[str] = set()
    counts: set[int] = set()
    words: dict[str, None] = {}
    for raw in environments:
        known = msgspec.json.decode(raw, type=dict[str, str])
        found = {name: numbers_of(known.get(name, "")) for name in LISTS}
        found = {name: listed for name, listed in found.items() if listed}
        numbers.update(*found.values())
        shown = [*found]
        here = number_of(known.get(COUNT, ""))
        if here is not None:
            counts.add(here)
            shown.append(COUNT)
        mine = [part.strip() for part in known.get(CONTAINER, "").split(",")]
        if mine and all(part.startswith("GPU-") for part in mine):
            uuids.update(mine)
            shown.append(CONTAINER)
        words.update(dict.fromkeys(f"{name}={known[name]}" for name in shown))
    count = len(numbers) or len(uuids) or max(counts, default=None)
    return Given(frozenset(numbers), frozenset(uuids), count, tuple(words))


def numbers_of(text: str) -> list[int]:
    """`0,2` or `0-3` as numbers; [] if it is no such list."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = number_of(first), number_of(last if dash else first)
        if ends[0] is None or ends[1] is None or not ends[0] <= ends[1] < 1024:
            return []
        found += range(ends[0], ends[1] + 1)
    return found


def numbered(gpu: GpuId) -> tuple[str, int | None]:
    """(what it is, the node's number of a GPU): its minor number, else its NVML index as the host counts."""
    if gpu.minor is not None:
        return "minor number", gpu.minor
    return BY_INDEX, gpu.nvml if gpu.scope == "host" else None


def usable(gpus: Iterable[GpuId]) -> bool:
    """Slurm counts whole GPUs on this node: with MIG it counts slices."""
    return not any(gpu.mig for gpu in gpus)
