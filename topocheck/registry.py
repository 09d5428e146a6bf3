"""The GPUs of one host as several views of it name them.

A view names a GPU by UUID, bus id or NVML index, or by several of these. Two views are tied by UUID,
else by bus id, else by an index that means the same in both. What nothing ties stays apart, and is
kept as a pair that may be one GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from topocheck.merge import agree
from topocheck.snapshot import At, GpuId

__all__ = ["Conflict", "Registry", "numbering"]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two sources that say different things about one fact of one host."""

    about: str
    """The fact: `UUID of GPU 3`."""
    values: tuple[str, str]
    """What each says."""
    places: tuple[At | None, At | None]
    """Where each says it."""


@dataclass(slots=True)
class Registry:
    """GPUs of one host while a further view of it is read."""

    gpus: list[GpuId]
    untied: list[tuple[int, int]]
    """Pairs of ordinals that may be one GPU."""
    before: At | None
    """The views that came before."""
    at: At | None
    """The view that is read."""
    one_boot: bool
    """Both show the same boot id."""
    conflicts: list[Conflict] = field(default_factory=list)
    two_uuids: list[Conflict] = field(default_factory=list)
    """One bus id with two UUIDs under one boot id."""

    def tie(self, view: Sequence[GpuId]) -> list[int]:
        """Ordinal here of each GPU of the view; those that nothing ties are added."""
        earlier, ties = len(self.gpus), []
        for gpu in view:
            ordinal = find_gpu(self.gpus, gpu)
            if ordinal is None:
                ordinal = len(self.gpus)
                self.gpus.append(gpu)
                self.untied += [(n, ordinal) for n in range(earlier) if may_be_one(self.gpus[n], gpu)]
            else:
                self._contradict(self.gpus[ordinal], gpu)
                self.gpus[ordinal] = join_gpu(self.gpus[ordinal], gpu)
            ties.append(ordinal)
        return ties

    def still_untied(self) -> tuple[tuple[int, int], ...]:
        """Pairs that the views so far neither tell apart nor tie."""
        pairs = [(a, b) for a, b in self.untied if may_be_one(self.gpus[a], self.gpus[b])]
        return tuple((a, b) for a, b in pairs if not is_one(self.gpus[a], self.gpus[b]))

    def twins(self) -> dict[int, int]:
        """Ordinals that a later view showed to be the GPU of an earlier one, with that one."""
        return {b: a for a, b in self.untied if is_one(self.gpus[a], self.gpus[b])}

    def _contradict(self, known: GpuId, seen: GpuId) -> None:
        """Keep what the views say differently; two UUIDs at one bus id of one boot apart."""
        for name, title in (("uuid", "UUID"), ("bus", "bus id"), ("model", "model")):
            old, new = getattr(known, name), getattr(seen, name)
            if None in (old, new) or agree(name, old, new):
                continue
            about = f"{title} of GPU {known.bus if known.nvml is None else known.nvml}"
            conflict = Conflict(about, (old, new), (self.before, self.at))
            boots = name == "uuid" and self.one_boot and known.bus is not None and known.bus == seen.bus
            (self.two_uuids if boots else self.conflicts).append(conflict)


def numbering(gpus: Sequence[GpuId]) -> tuple[int | None, ...]:
    """NVML indexes that mean the same to every unrestricted process of the host."""
    return tuple([None if gpu.scope == "task" else gpu.nvml for gpu in gpus])


def join_gpu(known: GpuId, seen: GpuId) -> GpuId:
    """Both views of one GPU. An index that only a task counts by gives way to the host's."""
    fields = {
        name: getattr(seen, name)
        for name in ("uuid", "bus", "model", "serial", "module", "minor", "platform", "hive")
        if getattr(known, name) is None and getattr(seen, name) is not None
    }
    if not known.mig and seen.mig is not None:
        fields["mig"] = seen.mig  # a view without rights to the slices lists none
    own = known.nvml is None or (known.scope == "task" and seen.scope != "task")
    if own and seen.nvml is not None:
        fields |= {"nvml": seen.nvml, "scope": seen.scope}
    return msgspec.structs.replace(known, **fields) if fields else known


def is_one(known: GpuId, seen: GpuId) -> bool:
    """Something that names both is equal, and nothing speaks against it."""
    return find_gpu([known], seen) is not None and not disagree(known, seen)


def may_be_one(known: GpuId, seen: GpuId) -> bool:
    """Nothing tells the two apart: what names the one does not name the other."""
    return not disagree(known, seen) and not (
        "task" not in (known.scope, seen.scope)
        and None not in (known.nvml, seen.nvml)
        and known.nvml != seen.nvml
    )


def find_gpu(registry: list[GpuId], gpu: GpuId) -> int | None:
    """Ordinal of the registered GPU that this is: by UUID, else bus id, else NVML index.

    The index ties only where neither UUID nor bus id speaks against it, and never a task's own
    numbering, which starts at 0 in each task.
    """
    for name in ("uuid", "bus"):
        value = getattr(gpu, name)
        if value is not None:
            for ordinal, known in enumerate(registry):
                if getattr(known, name) == value:
                    return ordinal
    if gpu.nvml is None or gpu.scope == "task":
        return None
    for ordinal, known in enumerate(registry):
        if known.nvml == gpu.nvml and known.scope != "task" and not disagree(known, gpu):
            return ordinal
    return None


def disagree(known: GpuId, seen: GpuId) -> bool:
    """Both have an identity of the same kind and it differs, in views that may number differently."""
    return any(
        getattr(known, name) is not None and getattr(seen, name) not in (None, getattr(known, name))
        for name in ("uuid", "bus")
    )
