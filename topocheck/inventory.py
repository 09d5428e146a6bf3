"""Hosts as all the evidence together shows them.

Snapshots arrive as a stream and are let go. A host is its boot id; a name joins evidence that has
no boot id. GPUs of one host are tied by UUID, else by bus id, else by NVML index; what evidence does
not tie stays apart. Two sources that contradict each other are kept as conflicts: rules report them.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any

import msgspec

from topocheck.claims import ClaimColumns
from topocheck.gpulist import GpuList
from topocheck.hardware import Shape
from topocheck.merge import agree, join_coverage, merge_hardware
from topocheck.snapshot import (
    At,
    Coverage,
    Fabric,
    GpuId,
    Hardware,
    Host,
    Identity,
    JobFact,
    Observed,
    ProbeFault,
    RankClaim,
    Snapshot,
    Software,
)

__all__ = ["Conflict", "Inventory", "Machine"]

EMPTY = (b"{}", b"")

MOST_WAITING = 512
"""Machines whose claims are entered at once."""
MOST_RAW = 256
"""Shapes that are recognised by the object that a decoder hands out again and again."""

NOTHING_KNOWN, NO_VERSIONS = Coverage(), Software()


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
    gpus: Sequence[GpuId] = ()
    shape: Shape | None = None
    coverage: Coverage = NOTHING_KNOWN
    software: Software = NO_VERSIONS
    fabric: tuple[tuple[Fabric, list[int] | None], ...] = ()
    """Fabric as reported, with the map from the snapshot's GPU ordinals to this machine's."""
    environments: tuple[bytes, ...] = ()
    """Variables common to its ranks, encoded; equal bytes are one object over all machines."""
    observed: tuple[tuple[Observed, list[int] | None], ...] = ()
    """What the running job showed, with the map from the snapshot's GPU ordinals to this machine's."""
    faults: tuple[ProbeFault, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    sources: tuple[str, ...] = ()
    has_claims: bool = False
    node_ranks: tuple[int, ...] = ()
    """Distinct node ranks that its processes claim, in order."""
    numbering: tuple[int | None, ...] = ()
    """NVML index of each GPU as an unrestricted process counts; None where it is not shown."""
    untied: tuple[tuple[int, int], ...] = ()
    """Pairs of ordinals that may be one GPU: two views name them by different means."""
    two_uuids: tuple[Conflict, ...] = ()
    """One bus id with two UUIDs under one boot id."""

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


class Inventory:
    """All hosts, built from a stream of snapshots."""

    def __init__(self) -> None:
        self.machines: list[Machine] = []
        self.unlabelled: list[Snapshot] = []
        """Snapshots of a host that the text does not name."""
        self.job: list[JobFact] = []
        """Statements about the whole job, whatever host they were found on."""
        self.two_boots: dict[tuple[str, int, int], None] = {}
        """(name, machine, machine): one host name with two boot ids."""
        self._shapes: dict[bytes, Shape] = {}
        self._by_raw: dict[int, tuple[msgspec.Raw, Shape]] = {}
        self._environments: dict[bytes, tuple[bytes, ...]] = {}
        self._equal: dict[Hashable, Any] = {}
        self._claims: dict[str, ClaimColumns] = {}
        self._waiting: list[tuple[int, tuple[RankClaim, ...]]] = []
        """Claims of machines that are not in the columns yet."""
        self._by_boot: dict[str, int] = {}
        self._by_name: dict[str, int] = {}
        self._uuids = array("q")
        """Hash of the UUID of each GPU in the order seen: 8 bytes in place of 90."""
        self._uuid_machines = array("l")
        self._twice: list[tuple[str, int, int]] | None = None

    @property
    def claims(self) -> dict[str, ClaimColumns]:
        """Claims by world name."""
        if self._waiting:
            self._enter_claims()
        return self._claims

    def _enter_claims(self) -> None:
        """Add waiting claims to the columns, many at once: alone each would cost as much as its decoding."""
        waiting, self._waiting = self._waiting, []
        claims = list(chain.from_iterable(own for _, own in waiting))
        machines = list(chain.from_iterable([index] * len(own) for index, own in waiting))
        worlds = [claim.world for claim in claims]
        for world in dict.fromkeys(worlds):
            columns = self._claims.setdefault(world, ClaimColumns())
            if worlds.count(world) == len(worlds):
                columns.extend(claims, machines)
            else:
                chosen = [name == world for name in worlds]
                columns.extend(list(compress(claims, chosen)), compress(machines, chosen))

    @property
    def twice(self) -> list[tuple[str, int, int]]:
        """(UUID, machine, machine): one GPU on two hosts."""
        if self._twice is None:
            unique = len(set(self._uuids)) == len(self._uuids)
            self._twice = [] if unique else self._find_twice()
        return self._twice

    def _find_twice(self) -> list[tuple[str, int, int]]:
        """UUIDs themselves, of those machines that have one in common."""
        counts = Counter(self._uuids)
        common = {known for known, count in counts.items() if count > 1}
        pairs = zip(self._uuids, self._uuid_machines, strict=True)
        found: list[tuple[str, int, int]] = []
        seen: dict[str, int] = {}
        for index in dict.fromkeys(index for known, index in pairs if known in common):
            uuids = [gpu.uuid for gpu in self.machines[index].gpus if gpu.uuid is not None]
            found += [(uuid, seen[uuid], index) for uuid in uuids if seen.setdefault(uuid, index) != index]
        return found

    def add(self, snapshot: Snapshot, label: str | None = None) -> None:
        """Take one snapshot. `label` is the name the user gave to a file that names no host.

        Raises msgspec.ValidationError for hardware or variables of another form, and OverflowError for
        numbers beyond 64 bits among the claims.
        """
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
        self._twice = None

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
            if other != index:
                self.two_boots[name, other, index] = None

    def _create(self, snapshot: Snapshot) -> int:
        """A host seen for the first time: the common, fast path.

        What machines say of themselves they mostly say alike: of equal values the first is kept.
        """
        identity, one = snapshot.identity, self._equal.setdefault
        index, sources = len(self.machines), tuple([source.name for source in snapshot.sources])
        numbers = numbering(identity.gpus)
        machine = Machine(
            identity.host,
            GpuList(identity.gpus),
            self._shape(snapshot),
            one(snapshot.coverage, snapshot.coverage),
            one(snapshot.software, snapshot.software),
            faults=snapshot.faults,
            sources=one(sources, sources),
            numbering=one(numbers, numbers),
        )
        self.machines.append(machine)
        self._common(index, snapshot, None)
        self._note_uuids(index, [gpu.uuid for gpu in identity.gpus if gpu.uuid is not None])
        return index

    def _note_uuids(self, index: int, uuids: list[str]) -> None:
        """UUIDs first seen on a machine."""
        self._uuids.extend([hash(uuid) for uuid in uuids])
        self._uuid_machines.extend([index] * len(uuids))

    def _common(self, index: int, snapshot: Snapshot, ties: list[int] | None) -> None:
        """What is only added up, whether the host is new or known."""
        machine = self.machines[index]
        if snapshot.fabric:
            fabric = tuple([(fabric, ties) for fabric in snapshot.fabric])
            machine.fabric += self._equal.setdefault(fabric, fabric) if ties is None else fabric
        environment = bytes(snapshot.environment)
        if environment not in EMPTY:
            machine.environments += self._environment(environment)
        if snapshot.observed is not None:
            machine.observed += ((snapshot.observed, ties),)
        if snapshot.ranks:
            self._claim(index, snapshot.ranks, ties)

    def _environment(self, raw: bytes) -> tuple[bytes, ...]:
        """These variables, one object over all machines; read once, so that rules need not doubt them."""
        if raw not in self._environments:
            msgspec.json.decode(raw, type=dict[str, str])
            self._environments[raw] = (raw,)
        return self._environments[raw]

    def _claim(self, index: int, claims: tuple[RankClaim, ...], ties: list[int] | None) -> None:
        machine = self.machines[index]
        machine.has_claims = True
        node_ranks = dict.fromkeys([*machine.node_ranks, *[claim.node_rank for claim in claims]])
        node_ranks.pop(None, None)
        machine.node_ranks = tuple(node_ranks)
        self._waiting.append((index, claims if ties is None else tuple(tied(claims, ties))))
        if len(self._waiting) >= MOST_WAITING:
            self._enter_claims()

    def _shape(self, snapshot: Snapshot) -> Shape | None:
        """The shape of a snapshot, None for none. Raises msgspec.ValidationError if it fits no identity."""
        shape = self._shape_of(snapshot.hardware)
        if shape is not None and shape.gpus > len(snapshot.identity.gpus):
            listed = len(snapshot.identity.gpus)
            raise msgspec.ValidationError(f"`hardware` lists {shape.gpus} GPUs and `identity` {listed}")
        return shape

    def _shape_of(self, hardware: msgspec.Raw) -> Shape | None:
        """The shape of these bytes, None for none. To hash them takes longer than to decode the rest."""
        known = self._by_raw.get(id(hardware))
        if known is not None and known[0] is hardware:
            return known[1]
        raw = bytes(hardware)
        if raw in EMPTY:
            return None
        shape = self._shapes.get(raw)
        if shape is None:
            shape = self._shapes[raw] = Shape(raw)
            if len(self._by_raw) < MOST_RAW:
                self._by_raw[id(hardware)] = hardware, shape
        return shape

    def _merge(self, index: int, snapshot: Snapshot) -> None:
        """A further view of a known host."""
        machine, seen = self.machines[index], self._shape(snapshot)
        at = At(source=snapshot.sources[0].name) if snapshot.sources else None
        uuids = {gpu.uuid for gpu in machine.gpus}
        ties = self._tie(machine, snapshot.identity, at)
        machine.host = join_hosts(machine.host, snapshot.identity.host)
        self._note_uuids(index, [g.uuid for g in machine.gpus if g.uuid is not None and g.uuid not in uuids])
        self._merge_shape(machine, seen, ties, at)
        machine.coverage = join_coverage(machine.coverage, snapshot.coverage)
        machine.software = join_software(machine, snapshot.software, at)
        machine.faults += snapshot.faults
        machine.sources += tuple(
            source.name for source in snapshot.sources if source.name not in machine.sources
        )
        self._common(index, snapshot, ties)

    def _merge_shape(self, machine: Machine, seen: Shape | None, ties: list[int], at: At | None) -> None:
        """What a further view shows of the hardware; the same seen again adds nothing."""
        if seen is None or (seen is machine.shape and ties == list(range(len(machine.gpus)))):
            return
        known = machine.shape.hardware if machine.shape else Hardware()
        merged, _, conflicts = merge_hardware(known, seen.hardware, ties, len(machine.gpus))
        machine.shape = self._shape_of(msgspec.Raw(msgspec.json.encode(merged)))
        places = before(machine), at
        machine.conflicts += tuple(Conflict(about, values, places) for about, values in conflicts)

    def _tie(self, machine: Machine, identity: Identity, at: At | None) -> list[int]:
        """Map the ordinals of one view to the machine's, adding GPUs that nothing ties."""
        ties, registry, earlier = [], list(machine.gpus), len(machine.gpus)
        one_boot = None not in (machine.host.boot_id, identity.host.boot_id)
        untied: list[tuple[int, int]] = []
        for gpu in identity.gpus:
            ordinal = find_gpu(registry, gpu)
            if ordinal is None:
                ordinal = len(registry)
                registry.append(gpu)
                untied += [(other, ordinal) for other in range(earlier) if may_be_one(registry[other], gpu)]
            else:
                contradict(machine, registry[ordinal], gpu, at, one_boot=one_boot)
                registry[ordinal] = join_gpu(registry[ordinal], gpu)
            ties.append(ordinal)
        pairs = [pair for pair in (*machine.untied, *untied) if may_be_one(*(registry[n] for n in pair))]
        machine.gpus, machine.untied = GpuList(registry), tuple(pairs)
        machine.numbering = numbering(registry)
        return ties


def numbering(gpus: Sequence[GpuId]) -> tuple[int | None, ...]:
    """NVML indexes that mean the same to every unrestricted process of the host."""
    return tuple([None if gpu.scope == "task" else gpu.nvml for gpu in gpus])


def before(machine: Machine) -> At | None:
    """The views of a machine that came before the one that is read."""
    return At(source=", ".join(machine.sources)) if machine.sources else None


def contradict(machine: Machine, known: GpuId, seen: GpuId, at: At | None, *, one_boot: bool) -> None:
    """Keep what two views of one GPU say differently; two UUIDs at one bus id of one boot apart."""
    for name, title in (("uuid", "UUID"), ("bus", "bus id"), ("model", "model")):
        old, new = getattr(known, name), getattr(seen, name)
        if None in (old, new) or agree(name, old, new):
            continue
        about = f"{title} of GPU {known.nvml if known.nvml is not None else known.bus}"
        conflict = Conflict(about, (old, new), (before(machine), at))
        if name == "uuid" and one_boot and known.bus is not None and known.bus == seen.bus:
            machine.two_uuids += (conflict,)
        else:
            machine.conflicts += (conflict,)


def join_gpu(known: GpuId, seen: GpuId) -> GpuId:
    """Both views of one GPU. An index that only a task counts by gives way to the host's."""
    fields = {
        name: getattr(seen, name)
        for name in ("uuid", "bus", "model", "serial")
        if getattr(known, name) is None and getattr(seen, name) is not None
    }
    if seen.nvml is not None and (known.nvml is None or (known.scope == "task" != seen.scope)):
        fields |= {"nvml": seen.nvml, "scope": seen.scope}
    return msgspec.structs.replace(known, **fields) if fields else known


def may_be_one(known: GpuId, seen: GpuId) -> bool:
    """Nothing tells the two apart: what names the one does not name the other."""
    both = [(getattr(known, name), getattr(seen, name)) for name in ("uuid", "bus")]
    if "task" not in (known.scope, seen.scope):
        both.append((known.nvml, seen.nvml))
    return not any(None not in pair and pair[0] != pair[1] for pair in both)


def tied(claims: Iterable[RankClaim], ties: list[int]) -> Iterator[RankClaim]:
    """Claims with the machine's GPU ordinals in place of the snapshot's."""
    for claim in claims:
        gpu = None if claim.gpu is None else ties[claim.gpu]
        yield claim if gpu == claim.gpu else msgspec.structs.replace(claim, gpu=gpu)


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
            machine.conflicts += (Conflict(f"{name} version", (old, new), (before(machine), at)),)
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
