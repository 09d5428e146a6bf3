"""Hosts as all the evidence together shows them.

Snapshots arrive as a stream and are let go. A host is its boot id; a name joins evidence that has
no boot id. GPUs of one host are tied by UUID, else by bus id, else by NVML index; what evidence does
not tie stays apart. Two sources that contradict each other are kept as conflicts: rules report them.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from topocheck.claims import ClaimColumns, enter, tied
from topocheck.firsts import EMPTY, Firsts
from topocheck.freshness import Admission, Stale
from topocheck.gpulist import GpuList, NicList
from topocheck.hardware import Shape
from topocheck.hostnames import HostNames
from topocheck.machine import Machine, renumbered
from topocheck.merge import (
    join_coverage,
    join_hosts,
    join_nics,
    labelled,
    merge_hardware,
    speaks_of_the_job_only,
)
from topocheck.recognised import Recognised
from topocheck.registry import Conflict, Registry
from topocheck.snapshot import (
    At,
    FamilyDisagreement,
    Hardware,
    Host,
    Identity,
    JobFact,
    NestedLaunch,
    NicId,
    RankClaim,
    Snapshot,
    Software,
)
from topocheck.wiring import wiring_of

if TYPE_CHECKING:  # it is made of inventories
    from topocheck.whereabouts import Whereabouts

__all__ = ["Conflict", "Inventory", "Machine"]


class Inventory:
    """All hosts, built from a stream of snapshots."""

    def __init__(self) -> None:
        self.machines: list[Machine] = []
        self.unlabelled: list[Snapshot] = []
        """Snapshots of a host that the text does not name."""
        self.job: list[JobFact] = []
        """Statements about the whole job, whatever host they were found on."""
        self.launches: list[tuple[str, FamilyDisagreement | NestedLaunch]] = []
        """Launchers that do not fit each other, with the host whose process saw it."""
        self.claims: dict[str, ClaimColumns] = {}
        """Claims by world name."""
        self.names = HostNames()
        """Which machine is which host."""
        self.admission = Admission()
        """What evidence must be to count."""
        self.stale: list[Stale] = []
        """Snapshots of another run, or too old: they count as absent."""
        self.earlier: Whereabouts | None = None
        """Where everything stood before, if the user gave that (OBS005)."""
        self.taken: set[str] = set()
        """When the snapshots that count were taken."""
        self.others = 0
        """Ranks of other worlds of the job, of which statements about the job may speak too."""
        self._shapes: Recognised[Shape | None] = Recognised(self._read_shape)
        self._alike: dict[bytes, Shape] = {}
        """The first shape of each wiring."""
        self._firsts = Firsts()
        self._uuids = array("q")
        """Hashes of the UUIDs of all GPUs. Only where two are equal, the UUIDs themselves are looked at."""

    @property
    def shapes(self) -> Collection[Shape]:
        """All hardware shapes that were seen."""
        return [shape for shape in self._shapes.values.values() if shape is not None]

    @property
    def twice(self) -> list[tuple[str, int, int]]:
        """(UUID, machine, machine): one GPU on two hosts."""
        if len(set(self._uuids)) == len(self._uuids):
            return []
        seen: dict[bytes, int] = {}
        return [
            (uuid.decode(), seen[uuid], index)
            for index, machine in enumerate(self.machines)
            for uuid in machine.gpus.uuids
            if seen.setdefault(uuid, index) != index
        ]

    @property
    def without_uuids(self) -> bool:
        """Some host has a GPU whose UUID is not shown."""
        return len(self._uuids) < sum([len(machine.counted) for machine in self.machines])

    def add(self, snapshot: Snapshot, label: str | None = None) -> None:
        """Take one snapshot. `label` is the name the user gave to a file that names no host.

        Raises msgspec.ValidationError for hardware, variables or network of another form.
        """
        if not self.admission.open and (stale := self.admission.stale(snapshot)):
            self.stale.append(stale)
            return
        host = snapshot.identity.host
        self.job += snapshot.job
        if speaks_of_the_job_only(snapshot):
            return
        if label is not None:
            host = labelled(host, label)
            snapshot = msgspec.structs.replace(
                snapshot, identity=msgspec.structs.replace(snapshot.identity, host=host)
            )
        if snapshot.disagreements or snapshot.nested:
            name = Machine(host).name
            self.launches += [(name, odd) for odd in snapshot.disagreements]
            self.launches += [(name, launch) for launch in snapshot.nested]
        if host.boot_id is None and host.name is None and not host.aliases:
            self.unlabelled.append(snapshot)
            return
        index = self.names.find(host)
        if snapshot.taken_at is not None:
            self.taken.add(snapshot.taken_at)
        if index is None:
            index = self._create(snapshot)
        else:
            self._merge(index, snapshot)
        self.names.register(index, self.machines[index].host)

    def settle_unlabelled(self, name: str | None = None) -> None:
        """Give text without a host to the only node of the job.

        `name` is what the plan calls it; without one, several hosts leave open which of them it is.
        """
        if not self.unlabelled or (name is None and len(self.machines) > 1):
            return
        waiting, self.unlabelled = self.unlabelled, []
        host = Host(name=name)
        index = self.names.find(host) if name is not None else 0 if self.machines else None
        if index is None:
            index = len(self.machines)
            self.machines.append(Machine(host))
            self.names.register(index, host)
        for snapshot in waiting:
            if snapshot.taken_at is not None:
                self.taken.add(snapshot.taken_at)
            self._merge(index, snapshot)

    def arrange(self) -> None:
        """Put the hosts in an order that does not hang on the order of the input: by name, then boot id."""
        machines, order = self.machines, list(range(len(self.machines)))
        self._join_twins()
        # Each sort keeps the order of the one before: names of one length in order, short ones first, so
        # that node-9 stands before node-10.
        names = [machine.name for machine in machines]
        if len(set(names)) < len(names):
            order.sort(key=[machine.host.boot_id or "" for machine in machines].__getitem__)
        order.sort(key=names.__getitem__)
        order.sort(key=list(map(len, names)).__getitem__)
        if order == list(range(len(order))):
            return
        new = [0] * len(order)
        for place, index in enumerate(order):
            new[index] = place
        self.machines = [machines[index] for index in order]
        for columns in self.claims.values():
            columns.machine = [new[index] for index in columns.machine]
        self.names.renumber(new)

    def _join_twins(self) -> None:
        """Give what was said of one GPU under two ordinals to the lower one."""
        twins = {
            (index, b): a for index, machine in enumerate(self.machines) for b, a in machine.twins.items()
        }
        if not twins:
            return
        for columns in self.claims.values():
            seats = zip(columns.machine, columns.gpu, strict=True)
            columns.gpu = [twins.get(seat, seat[1]) for seat in seats]
        for index, machine in enumerate(self.machines):
            whole = range(len(machine.gpus))
            machine.observed = tuple(
                (seen, [twins.get((index, gpu), gpu) for gpu in (ties or whole)])
                for seen, ties in machine.observed
            )
            machine.twins, machine.look = {}, ()

    def _create(self, snapshot: Snapshot) -> int:
        """A host seen for the first time: the common, fast path."""
        identity, index = snapshot.identity, len(self.machines)
        machine = self._firsts.machine(snapshot, self._shape(snapshot))
        nics: Sequence[NicId] = identity.nics
        machine.nics = nics if isinstance(nics, NicList) else NicList.of(nics)
        self.machines.append(machine)
        if snapshot.ranks:
            machine.node_ranks = enter(self.claims, snapshot.ranks, index)
        self.note_uuids(machine.gpus.uuids)
        return index

    def note_uuids(self, uuids: list[bytes]) -> None:
        """UUIDs first seen on a machine."""
        self._uuids.extend(map(hash, uuids))

    def _claim(self, index: int, claims: tuple[RankClaim, ...], ties: list[int]) -> None:
        """Add the claims of a further view of a known host."""
        machine = self.machines[index]
        found = enter(self.claims, tuple(tied(claims, ties)), index)
        machine.node_ranks = tuple(dict.fromkeys(machine.node_ranks + found))

    def _shape(self, snapshot: Snapshot) -> Shape | None:
        """The shape of a snapshot, None for none. Raises msgspec.ValidationError if it fits no identity."""
        shape = self._shapes(snapshot.hardware)
        if shape is not None and shape.gpus > len(snapshot.identity.gpus):
            listed = len(snapshot.identity.gpus)
            raise msgspec.ValidationError(f"`hardware` lists {shape.gpus} GPUs and `identity` {listed}")
        return shape

    def _read_shape(self, raw: bytes) -> Shape | None:
        """The shape of these bytes, None for none."""
        if raw in EMPTY:
            return None
        shape = Shape(raw)
        shape.take_after(self._alike.setdefault(wiring_of(shape.hardware), shape))
        return shape

    def _merge(self, index: int, snapshot: Snapshot) -> None:
        """A further view of a known host."""
        machine, seen = self.machines[index], self._shape(snapshot)
        at = At(source=snapshot.sources[0].name) if snapshot.sources else None
        uuids = set(machine.gpus.uuids)
        ties = self._tie(machine, snapshot.identity, at)
        machine.host = join_hosts(machine.host, snapshot.identity.host)
        self.note_uuids([uuid for uuid in machine.gpus.uuids if uuid not in uuids])
        self._merge_shape(machine, seen, ties, at)
        machine.coverage = join_coverage(machine.coverage, snapshot.coverage)
        machine.software = join_software(machine, snapshot.software, at)
        machine.faults += snapshot.faults
        machine.nics = NicList.of(join_nics(tuple(machine.nics), snapshot.identity.nics))
        machine.sources += tuple(s.name for s in snapshot.sources if s.name not in machine.sources)
        if seen is not None and machine.shape is not None:
            snapshot = renumbered(snapshot, seen, machine.shape)
        self._firsts.join(machine, snapshot, ties)
        if snapshot.ranks:
            self._claim(index, snapshot.ranks, ties)

    def _merge_shape(self, machine: Machine, seen: Shape | None, ties: list[int], at: At | None) -> None:
        """What a further view shows of the hardware; the same seen again adds nothing."""
        if seen is None or (seen is machine.shape and ties == list(range(len(machine.gpus)))):
            return
        known = machine.shape.hardware if machine.shape else Hardware()
        merged, _, conflicts = merge_hardware(known, seen.hardware, ties, len(machine.gpus))
        machine.shape = self._shapes(msgspec.Raw(msgspec.json.encode(merged)))
        places = before(machine), at
        machine.conflicts += tuple(Conflict(about, values, places) for about, values in conflicts)

    def _tie(self, machine: Machine, identity: Identity, at: At | None) -> list[int]:
        """Map the ordinals of one view to the machine's, adding GPUs that nothing ties."""
        one_boot = None not in (machine.host.boot_id, identity.host.boot_id)
        registry = Registry(list(machine.gpus), list(machine.untied), before(machine), at, one_boot=one_boot)
        ties = registry.tie(identity.gpus)
        machine.twins = machine.twins | registry.twins()
        machine.gpus, machine.untied = GpuList.of(registry.gpus), registry.still_untied()
        self._firsts.number(machine)
        machine.conflicts += tuple(registry.conflicts)
        machine.two_uuids += tuple(registry.two_uuids)
        return ties


def before(machine: Machine) -> At | None:
    """The views of a machine that came before the one that is read."""
    return At(source=", ".join(machine.sources)) if machine.sources else None


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
