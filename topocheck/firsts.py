"""The first machine of each sort, of which the others are copies, and the first of all equal values.

Thousands of machines say the same but for their names, numbers and addresses. What those of one sort share
is put together for the first of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import msgspec

from topocheck.condition import NodeState, reduced
from topocheck.gpulist import GpuList
from topocheck.hardware import Shape
from topocheck.likeness import OWN, USUAL_LIMITS, look, state_key
from topocheck.machine import Machine
from topocheck.networkfacts import NetworkFacts, facts_of, read_network
from topocheck.recognised import Recognised
from topocheck.registry import numbering
from topocheck.snapshot import GpuId, Limits, Snapshot, Source

__all__ = ["EMPTY", "Firsts"]

Value = TypeVar("Value", bound=Hashable)

EMPTY = (b"{}", b"")

MOST_FIRSTS = 1024
"""Machines that are remembered as the first of their sort."""

NO_LIMITS = Limits()


class Firsts:
    """What machines have in common: of equal values one object is kept over all of them."""

    def __init__(self) -> None:
        self._equal: dict[Any, Any] = {}
        self._environments: Recognised[tuple[bytes, ...]] = Recognised(read_environment)
        self._networks: Recognised[NetworkFacts] = Recognised(self._read_network)
        self._sources: dict[tuple[Source, ...], tuple[str, ...]] = {}
        self._firsts: dict[Hashable, Machine] = {}

    def one(self, value: Value) -> Value:
        """The first of all values equal to this one."""
        found: Value = self._equal.setdefault(value, value)
        return found

    def machine(self, snapshot: Snapshot, shape: Shape | None) -> Machine:
        """A machine as its first view shows it, but for RDMA devices and ranks.

        Raises msgspec.ValidationError for a part of another form.
        """
        gpus = packed_gpus(snapshot)
        state = self._state(snapshot)
        sort = self._sort(snapshot, shape, gpus, state)
        known = self._firsts.get(sort)
        machine = copied(known) if known is not None else self._first(snapshot, shape, gpus, state)
        machine.host, machine.gpus = snapshot.identity.host, gpus
        machine.states = () if state is None else ((state, None),)
        machine.sources = self._names_of(snapshot.sources)
        if snapshot.limits.container is not None:
            machine.limits = (self.one(snapshot.limits),)
        if known is None and sort is not None and machine.look != OWN and len(self._firsts) < MOST_FIRSTS:
            self._firsts[sort] = copied(machine)
        return machine

    def _sort(
        self, snapshot: Snapshot, shape: Shape | None, gpus: GpuList, state: NodeState | None
    ) -> Hashable:
        """All that a machine shares with others; None where it shows something that few of them do."""
        if (
            snapshot.own_environments
            or snapshot.faults
            or snapshot.observed
            or snapshot.files
            or snapshot.plugins
            or snapshot.node_claim
            or (state is not None and (state.busy or state.strayed))
        ):
            return None
        return (
            id(shape),
            id(gpus.alike),
            id(self._environments(snapshot.environment)),
            snapshot.coverage,
            snapshot.software,
            snapshot.fabric,
            without_container(snapshot.limits),
            snapshot.verbs,
            snapshot.model,
            bool(snapshot.ranks),
            borne(snapshot),
            None if state is None else state_key(state, None, USUAL_LIMITS),
        )

    def _first(
        self, snapshot: Snapshot, shape: Shape | None, gpus: GpuList, state: NodeState | None
    ) -> Machine:
        """The first machine of its sort."""
        one = self.one
        machine = Machine(
            snapshot.identity.host,
            gpus,
            shape,
            one(snapshot.coverage),
            one(snapshot.software),
            faults=snapshot.faults,
            has_claims=bool(snapshot.ranks),
        )
        self.number(machine)
        self._add(machine, snapshot, state, None)
        return machine

    def _names_of(self, sources: tuple[Source, ...]) -> tuple[str, ...]:
        """Names of these sources."""
        if sources not in self._sources:
            self._sources[sources] = self.one(tuple([source.name for source in sources]))
        return self._sources[sources]

    def number(self, machine: Machine) -> None:
        """Say how the GPUs of a machine are numbered and sliced, by what it lists."""
        gpus = tuple(machine.gpus)
        machine.numbering = self.one(numbering(gpus))
        machine.counted = self.one(tuple([(gpu.scope, gpu.nvml) for gpu in gpus]))
        machine.sliced = self.one(tuple([None if gpu.mig is None else len(gpu.mig) for gpu in gpus]))

    def join(self, machine: Machine, snapshot: Snapshot, ties: list[int]) -> None:
        """Add to a known machine what a further view shows; `ties` are its ordinals of the view's GPUs."""
        machine.has_claims = machine.has_claims or bool(snapshot.ranks)
        self._add(machine, snapshot, self._state(snapshot), ties)

    def _state(self, snapshot: Snapshot) -> NodeState | None:
        """What changes by itself, reduced to what rules ask of."""
        return reduced(snapshot.state, snapshot.ranks, self._networks(snapshot.network), self._equal)

    def _read_network(self, raw: bytes) -> NetworkFacts:
        """What rules see of a network."""
        return facts_of(read_network(raw), self._equal)

    def _add(
        self, machine: Machine, snapshot: Snapshot, state: NodeState | None, ties: list[int] | None
    ) -> None:
        """What is only added up, whether the host is new or known."""
        if state is not None:
            machine.states += ((state, ties),)
        if snapshot.fabric:
            fabric = tuple([(fabric, ties) for fabric in snapshot.fabric])
            machine.fabric += self.one(fabric) if ties is None else fabric
        found = self._environments_of(snapshot)
        machine.environments += found
        machine.listed += found if snapshot.ranks else ()
        if snapshot.observed is not None:
            machine.observed += ((snapshot.observed, ties),)
        if snapshot.node_claim is not None and snapshot.node_claim not in machine.node_claims:
            machine.node_claims += (snapshot.node_claim,)
        self._add_means(machine, snapshot)
        machine.look = self.one(look(machine))

    def _add_means(self, machine: Machine, snapshot: Snapshot) -> None:
        """Limits, means of RDMA, files."""
        limits = self.one(snapshot.limits)
        if limits != NO_LIMITS and limits not in machine.limits:
            machine.limits += (limits,)
            machine.limits_alike += (self.one(without_container(limits)),)
        if snapshot.verbs is not None and snapshot.verbs not in machine.verbs:
            machine.verbs += (self.one(snapshot.verbs),)
        machine.files += snapshot.files
        run, time = borne(snapshot)
        machine.bears_run |= run
        machine.bears_time |= time
        for name, facts in snapshot.plugins.items():
            found = self.one((name, bytes(facts)))
            machine.plugins += () if found in machine.plugins else (found,)
        if snapshot.model is not None:
            machine.model += (self.one(snapshot.model),)

    def _environments_of(self, snapshot: Snapshot) -> tuple[bytes, ...]:
        """Variables of one view; several where its ranks do not share all."""
        if not snapshot.own_environments:
            return self._environments(snapshot.environment)
        shared = msgspec.json.decode(bytes(snapshot.environment) or b"{}", type=dict[str, str])
        encode = msgspec.json.Encoder(order="sorted").encode
        own = [msgspec.Raw(encode(shared | each)) for each in snapshot.own_environments]
        return tuple([(self._environments(each) or (b"{}",))[0] for each in own])


def copied(machine: Machine) -> Machine:
    """Another machine with the same fields, none of which is changed in place."""
    return msgspec.structs.replace(machine)


def packed_gpus(snapshot: Snapshot) -> GpuList:
    """The GPUs of a snapshot, packed if they are not yet."""
    gpus: Sequence[GpuId] = snapshot.identity.gpus
    return gpus if isinstance(gpus, GpuList) else GpuList.of(gpus)


def without_container(limits: Limits) -> Limits:
    """Limits without the container's id, which every pod has of its own."""
    return limits if limits.container is None else msgspec.structs.replace(limits, container=None)


def borne(snapshot: Snapshot) -> tuple[bool, bool]:
    """Whether it bears a run id, and a time."""
    return snapshot.run is not None, snapshot.taken_at is not None


def read_environment(raw: bytes) -> tuple[bytes, ...]:
    """These variables, one object over all machines; read once, so that rules need not doubt them."""
    msgspec.json.decode(raw or b"{}", type=dict[str, str])
    return () if raw in EMPTY else (raw,)
