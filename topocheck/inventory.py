"""Hosts as all the evidence together shows them.

Snapshots arrive as a stream and are let go. A host is its boot id; a name joins evidence that has
no boot id. GPUs of one host are tied by UUID, else by bus id, else by NVML index; what evidence does
not tie stays apart. Two sources that contradict each other are kept as conflicts: rules report them.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from topocheck.claims import ClaimColumns, enter, tied
from topocheck.condition import reduced
from topocheck.freshness import Admission, Stale
from topocheck.gpulist import GpuList, NicList
from topocheck.hardware import Shape
from topocheck.hostnames import HostNames
from topocheck.likeness import look
from topocheck.machine import Machine, renumbered
from topocheck.merge import (
    join_coverage,
    join_hosts,
    join_nics,
    labelled,
    merge_hardware,
    speaks_of_the_job_only,
)
from topocheck.networkfacts import Networks
from topocheck.registry import Conflict, Registry, numbering
from topocheck.snapshot import (
    At,
    FamilyDisagreement,
    GpuId,
    Hardware,
    Host,
    Identity,
    JobFact,
    Limits,
    NestedLaunch,
    RankClaim,
    Scope,
    Snapshot,
    Software,
)
from topocheck.wiring import wiring_of

if TYPE_CHECKING:  # it is made of inventories
    from topocheck.whereabouts import Whereabouts

__all__ = ["Conflict", "Inventory", "Machine"]

EMPTY = (b"{}", b"")

MOST_RAW = 256
"""Shapes that are recognised by the object that a decoder hands out again and again."""

NO_LIMITS = Limits()


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
        self.others = 0
        """Ranks of other worlds of the job, of which statements about the job may speak too."""
        self._shapes: dict[bytes, Shape] = {}
        self._by_raw: dict[int, tuple[msgspec.Raw, Shape]] = {}
        self._alike: dict[bytes, Shape] = {}
        """The first shape of each wiring."""
        self._networks = Networks()
        self._environments: dict[bytes, tuple[bytes, ...]] = {}
        self._equal: dict[Hashable, Any] = {}
        self._uuids = array("q")
        """Hashes of the UUIDs of all GPUs. Only where two are equal, the UUIDs themselves are looked at."""

    @property
    def shapes(self) -> Collection[Shape]:
        """All hardware shapes that were seen."""
        return self._shapes.values()

    @property
    def twice(self) -> list[tuple[str, int, int]]:
        """(UUID, machine, machine): one GPU on two hosts."""
        if len(set(self._uuids)) == len(self._uuids):
            return []
        seen: dict[str, int] = {}
        return [
            (gpu.uuid, seen[gpu.uuid], index)
            for index, machine in enumerate(self.machines)
            for gpu in machine.gpus
            if gpu.uuid is not None and seen.setdefault(gpu.uuid, index) != index
        ]

    @property
    def without_uuids(self) -> bool:
        """Some host has a GPU whose UUID is not shown."""
        return len(self._uuids) < sum([len(machine.gpus) for machine in self.machines])

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
            self._merge(index, snapshot)

    def arrange(self) -> None:
        """Put the hosts in an order that does not hang on the order of the input: by name, then boot id."""
        machines, order = self.machines, list(range(len(self.machines)))
        self._join_twins()
        # Each sort keeps the order of the one before: names of one length in order, short ones first, so
        # that node-9 stands before node-10.
        names = [machine.name for machine in machines]
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
        """A host seen for the first time: the common, fast path.

        What machines say of themselves they mostly say alike: of equal values the first is kept.
        """
        identity, one = snapshot.identity, self._equal.setdefault
        index, sources = len(self.machines), tuple([source.name for source in snapshot.sources])
        numbers, scopes, slices = numbering(identity.gpus), counted(identity.gpus), sliced(identity.gpus)
        machine = Machine(
            identity.host,
            GpuList(identity.gpus),
            self._shape(snapshot),
            one(snapshot.coverage, snapshot.coverage),
            one(snapshot.software, snapshot.software),
            faults=snapshot.faults,
            nics=NicList(identity.nics),
            sources=one(sources, sources),
            numbering=one(numbers, numbers),
            counted=one(scopes, scopes),
            sliced=one(slices, slices),
        )
        self.machines.append(machine)
        self._common(index, snapshot, None)
        self.note_uuids([gpu.uuid for gpu in identity.gpus if gpu.uuid is not None])
        return index

    def note_uuids(self, uuids: list[str]) -> None:
        """UUIDs first seen on a machine."""
        self._uuids.extend(map(hash, uuids))

    def _common(self, index: int, snapshot: Snapshot, ties: list[int] | None) -> None:
        """What is only added up, whether the host is new or known."""
        machine = self.machines[index]
        if snapshot.fabric:
            fabric = tuple([(fabric, ties) for fabric in snapshot.fabric])
            machine.fabric += self._equal.setdefault(fabric, fabric) if ties is None else fabric
        found = self._environments_of(snapshot)
        machine.environments += found
        machine.listed += found if snapshot.ranks else ()
        self._circumstances(machine, snapshot, ties)
        if snapshot.observed is not None:
            machine.observed += ((snapshot.observed, ties),)
        if snapshot.node_claim is not None and snapshot.node_claim not in machine.node_claims:
            machine.node_claims += (snapshot.node_claim,)
        if snapshot.ranks:
            self._claim(index, snapshot.ranks, ties)
        # Now, while all of it is at hand: to go through thousands of machines once more takes longer.
        seen = look(machine)
        machine.look = self._equal.setdefault(seen, seen)

    def _circumstances(self, machine: Machine, snapshot: Snapshot, ties: list[int] | None) -> None:
        """State, limits, means of RDMA, files and age of one view."""
        one = self._equal.setdefault
        state = reduced(snapshot.state, snapshot.ranks, self._networks.facts(snapshot.network), self._equal)
        if state is not None:
            machine.states += ((state, ties),)
        if snapshot.limits != NO_LIMITS:
            limits = one(snapshot.limits, snapshot.limits)
            if limits not in machine.limits:
                machine.limits += (limits,)
                alike = (
                    limits if limits.container is None else msgspec.structs.replace(limits, container=None)
                )
                machine.limits_alike += (one(alike, alike),)
        if snapshot.verbs is not None:
            verbs = one(snapshot.verbs, snapshot.verbs)
            machine.verbs += () if verbs in machine.verbs else (verbs,)
        machine.files += snapshot.files
        for name, facts in snapshot.plugins.items():
            found = one((name, bytes(facts)), (name, bytes(facts)))
            machine.plugins += () if found in machine.plugins else (found,)
        if snapshot.model is not None:
            machine.model += (one(snapshot.model, snapshot.model),)
        taken = snapshot.run, snapshot.taken_at
        if taken != (None, None):
            machine.taken += (one(taken, taken),)

    def _environments_of(self, snapshot: Snapshot) -> tuple[bytes, ...]:
        """Variables of one view; several where its ranks do not share all."""
        raw = bytes(snapshot.environment)
        if not snapshot.own_environments:
            return () if raw in EMPTY else self._environment(raw)
        shared = msgspec.json.decode(raw or b"{}", type=dict[str, str])
        encode = msgspec.json.Encoder(order="sorted").encode
        return tuple(self._environment(encode(shared | own))[0] for own in snapshot.own_environments)

    def _environment(self, raw: bytes) -> tuple[bytes, ...]:
        """These variables, one object over all machines; read once, so that rules need not doubt them."""
        if raw not in self._environments:
            msgspec.json.decode(raw, type=dict[str, str])
            self._environments[raw] = (raw,)
        return self._environments[raw]

    def _claim(self, index: int, claims: tuple[RankClaim, ...], ties: list[int] | None) -> None:
        machine = self.machines[index]
        machine.has_claims = True
        found = enter(self.claims, claims if ties is None else tuple(tied(claims, ties)), index)
        machine.node_ranks = tuple(dict.fromkeys(machine.node_ranks + found)) if machine.node_ranks else found

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
            shape.take_after(self._alike.setdefault(wiring_of(shape.hardware), shape))
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
        self.note_uuids([g.uuid for g in machine.gpus if g.uuid is not None and g.uuid not in uuids])
        self._merge_shape(machine, seen, ties, at)
        machine.coverage = join_coverage(machine.coverage, snapshot.coverage)
        machine.software = join_software(machine, snapshot.software, at)
        machine.faults += snapshot.faults
        machine.nics = NicList(join_nics(tuple(machine.nics), snapshot.identity.nics))
        machine.sources += tuple(s.name for s in snapshot.sources if s.name not in machine.sources)
        if seen is not None and machine.shape is not None:
            snapshot = renumbered(snapshot, seen, machine.shape)
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
        one_boot = None not in (machine.host.boot_id, identity.host.boot_id)
        registry = Registry(list(machine.gpus), list(machine.untied), before(machine), at, one_boot=one_boot)
        ties = registry.tie(identity.gpus)
        machine.twins |= registry.twins()
        machine.gpus, machine.untied = GpuList(registry.gpus), registry.still_untied()
        machine.numbering, machine.counted = numbering(registry.gpus), counted(registry.gpus)
        machine.sliced = sliced(registry.gpus)
        machine.conflicts += tuple(registry.conflicts)
        machine.two_uuids += tuple(registry.two_uuids)
        return ties


def counted(gpus: Sequence[GpuId]) -> tuple[tuple[Scope, int | None], ...]:
    """By whom each GPU was numbered, and its number there."""
    return tuple([(gpu.scope, gpu.nvml) for gpu in gpus])


def sliced(gpus: Sequence[GpuId]) -> tuple[int | None, ...]:
    """Number of MIG slices of each GPU, None where it is not known."""
    return tuple([None if gpu.mig is None else len(gpu.mig) for gpu in gpus])


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
