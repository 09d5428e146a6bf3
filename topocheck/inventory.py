"""Hosts as all the evidence together shows them.

Snapshots arrive as a stream and are let go. A host is its boot id; a name joins evidence that has
no boot id. GPUs of one host are tied by UUID, else by bus id, else by NVML index; what evidence does
not tie stays apart. Two sources that contradict each other are kept as conflicts: rules report them.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import msgspec

from topocheck.hardware import Shape
from topocheck.merge import join_coverage, merge_hardware
from topocheck.snapshot import (
    At,
    Coverage,
    Fabric,
    GpuId,
    Hardware,
    Host,
    JobFact,
    NicId,
    Observed,
    ProbeFault,
    Snapshot,
    Software,
)

__all__ = ["ClaimColumns", "Conflict", "Inventory", "Machine"]

UNKNOWN = -1
"""In the integer columns: not claimed."""

EMPTY = (b"{}", b"")


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
class Machine:
    """One host as all evidence shows it."""

    host: Host
    gpus: tuple[GpuId, ...] = ()
    nics: tuple[NicId, ...] = ()
    shape: Shape | None = None
    coverage: Coverage = field(default_factory=Coverage)
    software: Software = field(default_factory=Software)
    fabric: list[tuple[Fabric, list[int] | None]] = field(default_factory=list)
    """Fabric as reported, with the map from the snapshot's GPU ordinals to this machine's."""
    environments: list[bytes] = field(default_factory=list)
    """Variables common to its ranks, encoded; equal bytes are one object over all machines."""
    observed: list[tuple[Observed, list[int] | None]] = field(default_factory=list)
    """What the running job showed, with the map from the snapshot's GPU ordinals to this machine's."""
    faults: tuple[ProbeFault, ...] = ()
    conflicts: list[Conflict] = field(default_factory=list)
    sources: tuple[str, ...] = ()
    has_claims: bool = False
    node_ranks: tuple[int, ...] = ()
    """Distinct node ranks that its processes claim, in order."""

    @property
    def name(self) -> str:
        """How people call it: name, else alias, else boot id."""
        host = self.host
        return host.name or (host.aliases[0] if host.aliases else None) or host.boot_id or "unnamed host"

    @property
    def names(self) -> tuple[str, ...]:
        """Every name it goes by."""
        return (*((self.host.name,) if self.host.name else ()), *self.host.aliases)

    def at_index(self, index: int) -> int | None:
        """Ordinal of the GPU with this NVML index as an unrestricted process counts; None if not shown."""
        for ordinal, gpu in enumerate(self.gpus):
            if gpu.nvml == index and gpu.scope != "task":
                return ordinal
        unnumbered = all(gpu.nvml is None for gpu in self.gpus)
        return index if unnumbered and index < len(self.gpus) and self.coverage.gpus == "all" else None

    def gpu_name(self, ordinal: int) -> str:
        """Best known name of one of its GPUs: UUID, else bus id, else NVML index, else ordinal."""
        if ordinal >= len(self.gpus):
            return f"GPU {ordinal}"
        gpu = self.gpus[ordinal]
        return gpu.uuid or gpu.bus or f"GPU {ordinal if gpu.nvml is None else gpu.nvml}"


@dataclass(slots=True)
class ClaimColumns:
    """Claims of all processes of one world, as parallel columns; -1 is not claimed."""

    rank: array[int] = field(default_factory=lambda: array("l"))
    machine: array[int] = field(default_factory=lambda: array("l"))
    gpu: array[int] = field(default_factory=lambda: array("l"))
    local_rank: array[int] = field(default_factory=lambda: array("l"))
    pid: array[int] = field(default_factory=lambda: array("l"))
    sizes: dict[int, int] = field(default_factory=dict)
    """World sizes claimed, each with the first rank that claims it."""
    at: dict[int, At] = field(default_factory=dict)
    """Place of a claim, by its index in the columns, where it has one of its own."""

    def __len__(self) -> int:
        return len(self.rank)


class Inventory:
    """All hosts, built from a stream of snapshots."""

    def __init__(self) -> None:
        self.machines: list[Machine] = []
        self.unlabelled: list[Snapshot] = []
        """Snapshots of a host that the text does not name."""
        self.job: list[JobFact] = []
        """Statements about the whole job, whatever host they were found on."""
        self.claims: dict[str, ClaimColumns] = {}
        """Claims by world name."""
        self.twice: list[tuple[str, int, int]] = []
        """(UUID, machine, machine): one GPU on two hosts."""
        self.two_boots: list[tuple[str, int, int]] = []
        """(name, machine, machine): one host name with two boot ids."""
        self._shapes: dict[bytes, Shape] = {}
        self._environments: dict[bytes, bytes] = {}
        self._by_boot: dict[str, int] = {}
        self._by_name: dict[str, int] = {}
        self._by_uuid: dict[str, int] = {}

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Distinct hardware shapes, in the order seen."""
        return tuple(self._shapes.values())

    def add(self, snapshot: Snapshot, label: str | None = None) -> None:
        """Take one snapshot. `label` is the name the user gave to a file that names no host."""
        host = snapshot.identity.host
        self.job += snapshot.job
        if label is not None:
            host = labelled(host, label)
            snapshot = msgspec.structs.replace(
                snapshot, identity=msgspec.structs.replace(snapshot.identity, host=host)
            )
        if host.boot_id is None and host.name is None and not host.aliases:
            self.unlabelled.append(snapshot)
            return
        index = self._find(host)
        if index is None:
            index = self._create(snapshot)
        else:
            self._merge(index, snapshot)
        self._register(index)

    def settle_unlabelled(self) -> None:
        """Give text without a host to the only node of the job, unless several hosts were seen."""
        if not self.unlabelled or len(self.machines) > 1:
            return
        waiting, self.unlabelled = self.unlabelled, []
        if not self.machines:
            self.machines.append(Machine(Host()))
        for snapshot in waiting:
            self._merge(0, snapshot)

    def _find(self, host: Host) -> int | None:
        """Index of the machine that this host is; None if it is a new one."""
        if host.boot_id is not None and host.boot_id in self._by_boot:
            return self._by_boot[host.boot_id]
        for name in (host.name, *host.aliases):
            index = self._by_name.get(name) if name else None
            if index is not None:
                known = self.machines[index].host.boot_id
                if host.boot_id is None or known is None:
                    return index
        return None

    def _register(self, index: int) -> None:
        machine = self.machines[index]
        if machine.host.boot_id is not None:
            self._by_boot[machine.host.boot_id] = index
        for name in machine.names:
            other = self._by_name.setdefault(name, index)
            if other != index and (name, other, index) not in self.two_boots:
                self.two_boots.append((name, other, index))

    def _create(self, snapshot: Snapshot) -> int:
        """A host seen for the first time: the common, fast path."""
        identity = snapshot.identity
        index = len(self.machines)
        raw = bytes(snapshot.hardware)
        machine = Machine(
            identity.host,
            identity.gpus,
            identity.nics,
            None if raw in EMPTY else self._shape(raw),
            snapshot.coverage,
            snapshot.software,
            faults=snapshot.faults,
            sources=tuple(source.name for source in snapshot.sources),
        )
        self.machines.append(machine)
        self._common(index, snapshot, None)
        uuids = self._by_uuid
        for gpu in identity.gpus:
            if gpu.uuid is not None and uuids.setdefault(gpu.uuid, index) != index:
                self.twice.append((gpu.uuid, uuids[gpu.uuid], index))
        return index

    def _common(self, index: int, snapshot: Snapshot, ties: list[int] | None) -> None:
        """What is only added up, whether the host is new or known."""
        machine = self.machines[index]
        machine.fabric += [(fabric, ties) for fabric in snapshot.fabric]
        environment = bytes(snapshot.environment)
        if environment not in EMPTY:
            machine.environments.append(self._environments.setdefault(environment, environment))
        if snapshot.observed is not None:
            machine.observed.append((snapshot.observed, ties))
        if snapshot.ranks:
            self._claim(index, snapshot, ties)

    def _claim(self, index: int, snapshot: Snapshot, ties: list[int] | None) -> None:
        machine = self.machines[index]
        machine.has_claims = True
        node_ranks = dict.fromkeys(machine.node_ranks)
        for claim in snapshot.ranks:
            columns = self.claims.get(claim.world)
            if columns is None:
                columns = self.claims[claim.world] = ClaimColumns()
            gpu = UNKNOWN if claim.gpu is None else claim.gpu if ties is None else ties[claim.gpu]
            if claim.at is not None:
                columns.at[len(columns)] = claim.at
            columns.rank.append(claim.rank)
            columns.machine.append(index)
            columns.gpu.append(gpu)
            columns.local_rank.append(UNKNOWN if claim.local_rank is None else claim.local_rank)
            columns.pid.append(UNKNOWN if claim.pid is None else claim.pid)
            if claim.size is not None:
                columns.sizes.setdefault(claim.size, claim.rank)
            if claim.node_rank is not None:
                node_ranks[claim.node_rank] = None
        machine.node_ranks = tuple(node_ranks)

    def _shape(self, raw: bytes) -> Shape:
        shape = self._shapes.get(raw)
        if shape is None:
            shape = self._shapes[raw] = Shape(raw)
        return shape

    def _merge(self, index: int, snapshot: Snapshot) -> None:
        """A further view of a known host."""
        machine = self.machines[index]
        machine.host = join_hosts(machine.host, snapshot.identity.host)
        at = At(source=snapshot.sources[0].name) if snapshot.sources else None
        ties = self._tie(machine, snapshot.identity.gpus, at)
        hardware = msgspec.json.decode(snapshot.hardware, type=Hardware)
        if hardware != Hardware():
            known = machine.shape.hardware if machine.shape else Hardware()
            merged, nics, conflicts = merge_hardware(known, hardware, ties, len(machine.gpus))
            machine.shape = self._shape(msgspec.json.encode(merged))
            machine.conflicts += [Conflict(about, values, (None, at)) for about, values in conflicts]
            machine.nics = tuple(NicId(name=nic.name) for nic in nics) if not machine.nics else machine.nics
        machine.coverage = join_coverage(machine.coverage, snapshot.coverage)
        machine.software = join_software(machine, snapshot.software, at)
        machine.faults += snapshot.faults
        machine.sources += tuple(
            source.name for source in snapshot.sources if source.name not in machine.sources
        )
        self._common(index, snapshot, ties)

    def _tie(self, machine: Machine, gpus: tuple[GpuId, ...], at: At | None) -> list[int]:
        """Map the ordinals of one view to the machine's, adding GPUs that nothing ties."""
        ties, registry = [], list(machine.gpus)
        for gpu in gpus:
            ordinal = find_gpu(registry, gpu)
            if ordinal is None:
                ordinal = len(registry)
                registry.append(gpu)
            else:
                registry[ordinal] = self._join_gpu(machine, registry[ordinal], gpu, at)
            ties.append(ordinal)
        machine.gpus = tuple(registry)
        return ties

    def _join_gpu(self, machine: Machine, known: GpuId, seen: GpuId, at: At | None) -> GpuId:
        for name, title in (("uuid", "UUID"), ("bus", "bus id"), ("model", "model")):
            old, new = getattr(known, name), getattr(seen, name)
            if old is not None and new is not None and old != new:
                about = f"{title} of GPU {known.nvml if known.nvml is not None else known.bus}"
                machine.conflicts.append(Conflict(about, (old, new), (None, at)))
        fields = {
            name: getattr(seen, name)
            for name in ("uuid", "bus", "nvml", "model", "serial")
            if getattr(known, name) is None and getattr(seen, name) is not None
        }
        return msgspec.structs.replace(known, **fields) if fields else known


def labelled(host: Host, label: str) -> Host:
    """The host under the name that the user gave to its file."""
    if host.name is None:
        return msgspec.structs.replace(host, name=label)
    if label in (host.name, *host.aliases):
        return host
    return msgspec.structs.replace(host, aliases=(label, *host.aliases))


def join_hosts(known: Host, seen: Host) -> Host:
    """Two views of one host."""
    names = dict.fromkeys(
        name for name in (known.name, seen.name, *known.aliases, *seen.aliases) if name is not None
    )
    first, *others = names or (None,)
    return Host(
        name=first,
        boot_id=known.boot_id or seen.boot_id,
        machine_id=known.machine_id or seen.machine_id,
        aliases=tuple(name for name in others if name is not None),
    )


def join_software(machine: Machine, seen: Software, at: At | None) -> Software:
    """Versions of both views; a version that differs is a conflict."""
    known, fields = machine.software, {}
    for name in Software.__struct_fields__:
        old, new = getattr(known, name), getattr(seen, name)
        if old is None:
            fields[name] = new
        elif new is not None and new != old:
            machine.conflicts.append(Conflict(f"{name} version", (old, new), (None, at)))
    return msgspec.structs.replace(known, **fields)


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
