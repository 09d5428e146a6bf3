"""Where the processes of a job meet: which addresses the evidence names, and whether all nodes reach them.

A loopback address is no fault by itself: a data replica inside one node meets there, and so does the
first node of a job whose other nodes are told its name (Kubeflow tells the master `localhost`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from topocheck.jobfacts import facts_of, number
from topocheck.kinds import with_strays
from topocheck.launchers.resolve import READS
from topocheck.placement import Node, Placement
from topocheck.rule import Evidence, read_at
from topocheck.snapshot import JobFact

__all__ = [
    "REPLICATED",
    "Address",
    "addresses",
    "is_loopback",
    "loopbacks",
    "machine_of",
    "masters",
    "undecided",
]

MASTER = "MASTER_ADDR"
VARIABLES = (MASTER, "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")
"""Addresses in the environment of engines that take RANK: torch's own, and torchrun's options."""
AGENT_STORE = "TORCHELASTIC_RUN_ID"
"""Set by torchrun's agents, whose store need not be on the node of rank 0."""
REPLICATED = ("vllm", "sglang", "tensorrt_llm")
"""Engines of which each data replica may be a world of its own, with a rendezvous of its own."""


@dataclass(frozen=True, slots=True)
class Address:
    """One address that the evidence names."""

    name: str
    """Subsystem or variable that it is of: master, dist-init, dp-master, gloo, MASTER_ADDR ..."""
    value: str
    """Host, with its port where it was shown."""
    evidence: Evidence
    """Where it was read."""
    host: str | None = None
    """Host whose process said it."""
    node: Node | None = None
    """Node in whose environment it is; None for a statement about the job."""
    size: int | None = None
    """Ranks that meet there, where that is shown."""
    nodes: int | None = None
    """Nodes of the launch that states it, where that is shown."""
    agents: bool = False
    """torchrun's agents started the process."""

    def __str__(self) -> str:
        where = self.host if self.node is None else self.node.name
        return f"{self.name}{f' on {where}' if where else ''} {self.value}"


def addresses(placement: Placement) -> Sequence[Address]:
    """All addresses, those of statements about the job first."""
    return placement.keep("rendezvous", lambda p: [*stated(p), *variables(p)])


def stated(placement: Placement) -> Iterator[Address]:
    """Addresses that commands, scripts and logs state. The world on the same line tells who meets there."""
    worlds = {place(fact): number(fact.value) for fact in facts_of(placement, "world")}
    nodes = {place(fact): number(fact.value) for fact in facts_of(placement, "nodes")}
    sizes = sizes_by_method(placement)
    for fact in facts_of(placement, "rendezvous"):
        size = next((size for method, size in sizes if method.endswith(f"//{fact.value}")), None)
        name = fact.name or "rendezvous"
        yield Address(
            name,
            fact.value,
            read_at(fact.at, f"{name}: {fact.value}"),
            fact.host,
            size=worlds.get(place(fact)) if size is None else size,
            nodes=nodes.get(place(fact)),
        )


def place(fact: JobFact) -> tuple[str, int | None] | None:
    """Source and line of a statement."""
    return None if fact.at is None else (fact.at.source, fact.at.line)


def sizes_by_method(placement: Placement) -> list[tuple[str, int | None]]:
    """Torch worlds that a log names by their init method, with their sizes."""
    known = [(comm.id, comm.size) for comm in placement.seen.communicators.values()]
    for snapshot in placement.inventory.unlabelled:
        known += [(comm.comm, comm.size) for comm in (snapshot.observed.comms if snapshot.observed else ())]
    return [(comm, size) for comm, size in known if "//" in comm]


def variables(placement: Placement) -> Iterator[Address]:
    """Addresses in the environments of the nodes, where the engine reads them.

    One that is the same for all is told of the first node that has it; what is loopback is each node's own.
    """
    if READS.get(placement.plan.engine, "rank") != "rank":
        return
    firsts = [alike[0] for alike in with_strays(placement)]
    raws = {id(raw): raw for node in firsts if node.machine for raw in node.machine.environments}
    told = {key: list(named_in(raw)) for key, raw in raws.items()}  # nodes share a few environments
    own = any(is_loopback(value) for named in told.values() for _, value, _ in named)
    met = set[int]()
    for node in placement.nodes if own else firsts:
        for raw in node.machine.environments if node.machine else ():
            again = id(raw) in met
            met.add(id(raw))
            for name, value, agents in told[id(raw)]:
                if again and not is_loopback(value):
                    continue
                evidence = Evidence(source="environment", fact=f"{name}={value} on {node}")
                yield Address(name, value, evidence, node=node, agents=agents)


def named_in(raw: bytes) -> Iterator[tuple[str, str, bool]]:
    """Addresses in one environment, and whether torchrun's agents made it."""
    known = msgspec.json.decode(raw, type=dict[str, str])
    for name in VARIABLES:
        if known.get(name):
            yield name, known[name], AGENT_STORE in known


def loopbacks(placement: Placement) -> list[Address]:
    """Loopback addresses at which processes of several nodes have to meet."""
    return [a for a in addresses(placement) if is_loopback(a.value) and crosses(placement, a)]


def undecided(placement: Placement) -> list[Address]:
    """Loopback addresses of which it is not shown whether one node or several meet there."""
    return [a for a in addresses(placement) if is_loopback(a.value) and crosses(placement, a) is None]


def crosses(placement: Placement, address: Address) -> bool | None:
    """Ranks of several nodes meet at this loopback address; None if that is not shown."""
    if address.node is not None:
        return told_elsewhere(placement, address)
    if address.nodes == 1:
        return False
    if address.name == "dp-master":
        return data_crosses(placement)
    share = -(-placement.world // placement.expected)
    if address.size is not None:
        return address.size > share
    replica = placement.world // placement.layout.size("data")
    alone = placement.plan.engine in REPLICATED and placement.layout.size("data") > 1 and replica <= share
    return None if alone else True


def data_crosses(placement: Placement) -> bool:
    """A data group joins nodes, or may do so."""
    column = placement.placed
    return any(
        None in (places := {column.node[rank] for rank in ranks}) or len(places) > 1
        for ranks in placement.layout.groups("data")
        if len(ranks) > 1
    )


def told_elsewhere(placement: Placement, address: Address) -> bool | None:
    """A node other than the first has a loopback address; None where the first one is not known.

    The first node may call itself localhost as long as the others are told its name.
    """
    tellers, loops = placement.keep(f"told {address.name}", lambda p: tellers_of(p, address.name))
    head = first_node(placement)
    if head is None:
        return True if len(loops) > 1 else None
    if address.node is not head:
        return True
    return bool(loops - {head}) if tellers - {head} else None


def tellers_of(placement: Placement, name: str) -> tuple[set[Node | None], set[Node | None]]:
    """Nodes whose environment has this variable, and those of them where it is loopback."""
    same = [other for other in addresses(placement) if other.name == name and other.node is not None]
    return {other.node for other in same}, {other.node for other in same if is_loopback(other.value)}


def first_node(placement: Placement) -> Node | None:
    """Node of rank 0 by claim or observation, else the node with node rank 0."""
    column = placement.placed
    if column.basis != "predicted" and column.node[0] is not None:
        return placement.nodes[column.node[0]]
    ranked = [node for node in placement.nodes if node.machine and node.machine.node_ranks == (0,)]
    return ranked[0] if len(ranked) == 1 else None


def masters(placement: Placement) -> list[Address]:
    """MASTER_ADDR of each node that has one."""
    return [address for address in addresses(placement) if address.name == MASTER]


def machine_of(placement: Placement, address: Address) -> Node | None:
    """The node that an address names, by a name of it that no other has; None if nothing ties them."""
    if is_loopback(address.value):
        return address.node
    machine = placement.inventory.names.only(host_of(address.value))
    place = None if machine is None else placement.node_of.get(machine)
    return None if place is None else placement.nodes[place]


def host_of(address: str) -> str:
    """Host part of `tcp://host:port`, `[::1]:29500`, `host`."""
    rest = address.rpartition("//")[2]
    if rest.startswith("["):
        return rest[1:].partition("]")[0]
    return rest if rest.count(":") > 1 else rest.partition(":")[0]


@lru_cache(maxsize=4096)
def is_loopback(address: str) -> bool:
    """localhost, 127.0.0.0/8 or ::1, with or without scheme and port."""
    host = host_of(address).lower()
    if host in ("localhost", "localhost.localdomain", "ip6-localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
