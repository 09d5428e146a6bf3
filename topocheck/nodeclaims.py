"""Node ranks that launchers and engines' own command lines give to nodes and pods, and ranks that follow.

A launcher that numbers nodes or pods numbers no ranks. vLLM's mp executor and SGLang start their ranks
themselves, on each node those that their formula gives to its node rank (vllm/v1/executor/
multiproc_executor.py; srt/entrypoints/engine.py): there a node rank is a claim to ranks. Of what they print
or are told the node rank is their own; the index of a pod is what manifests hand on to it. Other engines
take the numbers of processes, which only the processes claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from topocheck.column import Column, blank
from topocheck.engines import ENGINES
from topocheck.inventory import Inventory, Machine
from topocheck.launchers import LAUNCHERS
from topocheck.launchers.resolve import READS
from topocheck.snapshot import At, JobFact, NodeClaim

__all__ = [
    "NODE_RANK",
    "Numbering",
    "follows",
    "formula_column",
    "in_force",
    "numberings",
    "spelled",
    "words",
]

IN_GROUPS = frozenset({"lws", "jobset", "indexed_job"})
"""Families whose index counts in a group of pods, a child job or a job, and may repeat in another one."""
NOT_NODES = frozenset({"script"})
"""RANK without LOCAL_RANK outside of a pod: it may count nodes or processes."""
DYNAMIC = frozenset({"torchrun", "kubeflow_trainer", "kubeflow_pytorchjob"})
"""Families whose node rank a dynamic rendezvous (c10d, etcd) does not look at."""
BACKEND, NODE_RANK, USE_RAY = "distributed-executor-backend", "node-rank", "use-ray"


@dataclass(slots=True)
class Numbering:
    """Nodes and pods as one source numbers them."""

    family: str
    """Launcher family, or the engine whose command line or log gives the node rank."""
    world: str = ""
    """What the index counts in: a group of pods, a child job. Empty for the only one, or if not known."""
    holders: dict[int, dict[int, NodeClaim]] = field(default_factory=dict)
    """Claims by node rank and machine."""

    @property
    def own(self) -> bool:
        """It is the engine's own node rank."""
        return self.family in ENGINES

    @property
    def alone(self) -> bool:
        """An index that two nodes have is a contradiction: they are not of two groups that nobody names."""
        return bool(self.world) or self.family not in IN_GROUPS

    @property
    def shared(self) -> bool:
        """Several pods lie on one host."""
        seen = [machine for machines in self.holders.values() for machine in machines]
        return len(set(seen)) < len(seen)

    @property
    def settled(self) -> dict[int, int]:
        """Machine by node rank; {} unless each node rank is on one machine and each machine has one."""
        if self.shared or any(len(machines) > 1 for machines in self.holders.values()):
            return {}
        return {rank: next(iter(machines)) for rank, machines in self.holders.items()}

    def __str__(self) -> str:
        if self.own:
            return f"{ENGINES[self.family].title}'s --node-rank"
        title = LAUNCHERS[self.family].title if self.family in LAUNCHERS else self.family
        return f"{title} {self.world}".rstrip()


def numberings(inventory: Inventory, engine: str) -> list[Numbering]:
    """All numberings of nodes that the evidence shows, in the order of their names."""
    found: dict[tuple[str, str], Numbering] = {}
    for machine, claim in (*claimed(inventory), *stated(inventory, engine)):
        family = claim.family or "launcher"
        if family in NOT_NODES:
            continue
        numbering = found.setdefault((family, claim.world), Numbering(family, claim.world))
        numbering.holders.setdefault(claim.node_rank, {}).setdefault(machine, claim)
    return [found[key] for key in sorted(found)]


def claimed(inventory: Inventory) -> Iterator[tuple[int, NodeClaim]]:
    """What launchers say, by machine."""
    for index, machine in enumerate(inventory.machines):
        for claim in machine.node_claims:
            yield index, claim


def stated(inventory: Inventory, engine: str) -> Iterator[tuple[int, NodeClaim]]:
    """Node ranks that an engine which goes by them was given on a host, by its log or command."""
    if READS.get(engine) != "nothing":
        return
    for fact in inventory.job:
        if (fact.kind, fact.engine) != ("node-rank", engine) or not fact.value.isdecimal():
            continue
        host = fact.host or fact.name
        index = inventory.names.named(host) if host and len(fact.value) < 10 else None
        if index is not None:
            yield index, NodeClaim(node_rank=int(fact.value), family=engine, at=fact.at)


def in_force(inventory: Inventory, engine: str, nodes: int) -> Numbering | None:
    """The one numbering that tells the places of nodes: the engine's own, else the only one that there is.

    None where several numberings are at odds, a number is given twice or lies beyond the nodes, and where
    torchrun's agents find their order themselves.
    """
    found = numberings(inventory, engine)
    chosen = [one for one in found if one.own] or found
    if len(chosen) != 1 or not chosen[0].settled or max(chosen[0].settled) >= nodes:
        return None
    numbering = chosen[0]
    machines = [inventory.machines[index] for index in numbering.settled.values()]
    dynamic = numbering.family in DYNAMIC and any(
        value not in ("", "static") for value in values_of(machines, "PET_RDZV_BACKEND")
    )
    return None if dynamic else numbering


def values_of(machines: Sequence[Machine], name: str) -> set[str]:
    """Values of a variable in the environments of these machines."""
    raws = {raw for machine in machines for raw in machine.environments}
    known = (msgspec.json.decode(raw, type=dict[str, str]) for raw in raws)
    return {variables[name] for variables in known if name in variables}


def follows(engine: str, job: Sequence[JobFact]) -> bool:
    """The engine places its ranks by node ranks: SGLang without Ray, vLLM where its mp executor is shown.

    Under Ray, and with vLLM's data replicas that have no --node-rank, other rules hold.
    """
    options: dict[str, set[str]] = {}
    for fact in job:
        if fact.kind == "option":
            options.setdefault(spelled(fact.name), set()).add(fact.value.strip("'\""))
    if engine == "sglang":
        return not options.get(USE_RAY, set()) - {"False", "false"}
    if engine != "vllm":
        return False
    told = any(
        fact.engine == engine and (fact.kind == NODE_RANK or (fact.kind, spelled(fact.name)) == UNRESOLVED)
        for fact in job
    )
    backends = options.get(BACKEND, set())
    return backends == {"mp"} or (told and not backends)


UNRESOLVED = ("unresolved", NODE_RANK)
"""A command that takes its node rank from a variable, as manifests do: $LWS_WORKER_INDEX."""


def spelled(name: str) -> str:
    """An option's name without the dashes in front."""
    return name.rpartition(" ")[2].lstrip("-").replace("_", "-")


def formula_column(predicted: Column, numbering: Numbering, inventory: Inventory, title: str) -> Column:
    """Ranks on the machines whose node ranks the engine's formula gives them to. `node` holds machines.

    The GPU is the one of the formula's index among those that the node's variables leave visible; where
    that list has no plain indexes it is not known.
    """
    column = blank("claimed", len(predicted.node))
    holders = numbering.settled
    at = {
        rank: source_of(title, numbering, rank, numbering.holders[rank][machine])
        for rank, machine in holders.items()
    }
    count = max((gpu or 0 for gpu in predicted.gpu), default=0) + 1
    lists: dict[tuple[bytes, ...], list[int | None]] = {}  # nodes share a few environments
    devices: dict[int, list[int | None]] = {}
    for number in holders.values():
        host = inventory.machines[number]
        if host.environments not in lists:
            lists[host.environments] = visible(host, count)
        indexes = lists[host.environments]
        devices[number] = [None if index is None else host.at_index(index) for index in indexes]
    for rank, (place, gpu) in enumerate(zip(predicted.node, predicted.gpu, strict=True)):
        machine = None if place is None else holders.get(place)
        if machine is None or place is None:
            continue
        column.node[rank], column.at[rank] = machine, at[place]
        column.gpu[rank] = None if gpu is None else devices[machine][gpu]
    return column


def source_of(title: str, numbering: Numbering, rank: int, claim: NodeClaim) -> At:
    """Where the place of a rank comes from: a formula and a claim, and no process's own word."""
    where = claim.at
    line = f", {where.source}" + (f":{where.line}" if where.line else "") if where else ""
    return At(source=f"{title}'s formula, node rank {rank} by {numbering}{line}")


def visible(machine: Machine, count: int) -> list[int | None]:
    """NVML indexes of the first `count` devices of a process here; None where that is not shown."""
    values = values_of([machine], "CUDA_VISIBLE_DEVICES")
    if not values:
        return list(range(count))
    parts = [part.strip() for part in values.pop().split(",")] if len(values) == 1 else []
    plain = all(part.isdecimal() and len(part) < 6 for part in parts)
    return [*(int(part) for part in parts if plain), *[None] * count][:count]


def words(title: str, numbering: Numbering, given: Mapping[str, JobFact]) -> str:
    """What a placement by node ranks rests on."""
    options = "".join(f", {name} {fact.value}" for name, fact in given.items())
    return f"ranks by {title}'s formula from the node rank that each node claims ({numbering}){options}"
