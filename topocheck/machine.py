"""One host as all the evidence together shows it."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, field, json
from msgspec.structs import replace

from topocheck.condition import NodeState
from topocheck.gpulist import GpuList, NicList
from topocheck.hardware import Shape
from topocheck.hostnames import names_of
from topocheck.networkfacts import read_network
from topocheck.registry import Conflict
from topocheck.snapshot import (
    Coverage,
    Fabric,
    Host,
    Limits,
    ModelFiles,
    NcclFile,
    NodeClaim,
    Observed,
    ProbeFault,
    Scope,
    Snapshot,
    Software,
    Verbs,
)

__all__ = ["Machine", "changed", "renumbered"]

NOTHING_KNOWN, NO_VERSIONS = Coverage(), Software()
NO_GPUS, NO_NICS = GpuList.of(()), NicList.of(())


class Machine(Struct, gc=False):
    """One host as all evidence shows it."""

    host: Host
    gpus: GpuList = NO_GPUS
    shape: Shape | None = None
    coverage: Coverage = NOTHING_KNOWN
    software: Software = NO_VERSIONS
    fabric: tuple[tuple[Fabric, list[int] | None], ...] = ()
    """Fabric as reported, with the map from the snapshot's GPU ordinals to this machine's."""
    environments: tuple[bytes, ...] = ()
    """Variables common to its ranks, encoded; equal bytes are one object over all machines."""
    listed: tuple[bytes, ...] = ()
    """Those of `environments` that views of its ranks show: what is not in one, some rank does not have."""
    observed: tuple[tuple[Observed, list[int] | None], ...] = ()
    """What the running job showed, with the map from the snapshot's GPU ordinals to this machine's."""
    states: tuple[tuple[NodeState, list[int] | None], ...] = ()
    """What changes by itself, by view, with the map from the snapshot's GPU ordinals to this machine's."""
    limits: tuple[Limits, ...] = ()
    """Limits, each with its scope; equal ones are one object over all machines."""
    limits_alike: tuple[Limits, ...] = ()
    """The same without the container's id, so that equal pods are alike; equal ones are one object."""
    verbs: tuple[Verbs, ...] = ()
    """Means of RDMA, each with its scope; equal ones are one object over all machines."""
    files: tuple[NcclFile, ...] = ()
    """Files that NCCL reads."""
    nics: NicList = NO_NICS
    """RDMA devices by name, with bus and GUID as far as any view shows them."""
    model: tuple[ModelFiles, ...] = ()
    """Files of the model; equal ones are one object over all machines."""
    plugins: tuple[tuple[str, bytes], ...] = ()
    """What probes of other packages found: name of the probe and its facts, encoded; equal ones once."""
    bears_run: bool = False
    """Some snapshot of it bears a run id."""
    bears_time: bool = False
    """Some snapshot of it says when it was taken."""
    faults: tuple[ProbeFault, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    sources: tuple[str, ...] = ()
    has_claims: bool = False
    node_ranks: tuple[int, ...] = ()
    """Distinct node ranks that its processes claim, in order."""
    node_claims: tuple[NodeClaim, ...] = ()
    """What launchers say of it as a node or pod, where that is no rank of a process."""
    numbering: tuple[int | None, ...] = ()
    """NVML index of each GPU as an unrestricted process counts; None where it is not shown."""
    counted: tuple[tuple[Scope, int | None], ...] = ()
    """By whom each GPU was numbered, and its number there."""
    sliced: tuple[int | None, ...] = ()
    """Number of MIG slices of each GPU, None where it is not known."""
    untied: tuple[tuple[int, int], ...] = ()
    """Pairs of ordinals that may be one GPU: two views name them by different means."""
    twins: dict[int, int] = field(default_factory=dict)
    """Ordinals that a later view showed to be the GPU of a lower ordinal, with that one."""
    two_uuids: tuple[Conflict, ...] = ()
    """One bus id with two UUIDs under one boot id."""
    look: tuple[Any, ...] = ()
    """What rules see of it (`topocheck.likeness`), one object for those that look alike; () is not said."""

    @property
    def name(self) -> str:
        """How people call it: name, else alias, else boot id."""
        host = self.host
        return host.name or (host.aliases[0] if host.aliases else None) or host.boot_id or "this node"

    @property
    def named_models(self) -> tuple[str | None, ...]:
        """Models that its GPUs are listed with, where its shape does not show them all; else ()."""
        models = self.shape.models if self.shape is not None else ()
        return () if models and None not in models else tuple([gpu.model for gpu in self.gpus])

    @property
    def nccl(self) -> str | None:
        """Version of NCCL that the job loaded, `2.27.5`, each where there are several; else the installed."""
        loaded = {
            seen.library.removeprefix("NCCL ").partition("+")[0] for seen, _ in self.observed if seen.library
        }
        return ", ".join(sorted(loaded)) or self.software.nccl

    @property
    def names(self) -> tuple[str, ...]:
        """Every name it goes by."""
        return names_of(self.host)

    def at_index(self, index: int) -> int | None:
        """Ordinal of the GPU with this NVML index as an unrestricted process counts; None if not shown."""
        if index in self.numbering:
            return self.numbering.index(index)
        unnumbered = not any(number is not None for number in self.numbering)
        return index if unnumbered and index < len(self.gpus) and self.coverage.gpus == "all" else None

    def gpu_name(self, ordinal: int) -> str:
        """Best known name of one of its GPUs: UUID, else bus id, else NVML index, else ordinal."""
        if ordinal >= len(self.gpus):
            return f"GPU {ordinal}"
        gpu = self.gpus[ordinal]
        return gpu.uuid or gpu.bus or f"GPU {ordinal if gpu.nvml is None else gpu.nvml}"


def changed(machine: Machine, **fields: Any) -> Machine:
    """Another machine with these fields; what rules see of it is to be looked at anew."""
    return replace(machine, look=(), **fields)


def renumbered(snapshot: Snapshot, seen: Shape, own: Shape) -> Snapshot:
    """A view whose hardware is `seen`, what it says of RDMA devices by the machine's own ordinals of them."""
    ordinals = {nic.name: ordinal for ordinal, nic in enumerate(own.hardware.nics)}
    places = [ordinals.get(nic.name) for nic in seen.hardware.nics]
    if places == list(range(len(places))):
        return snapshot
    network = read_network(snapshot.network)
    nics = tuple(
        replace(nic, nic=place)
        for nic in network.nics
        if 0 <= nic.nic < len(places) and (place := places[nic.nic]) is not None
    )
    return replace(snapshot, network=Raw(json.encode(replace(network, nics=nics))))
