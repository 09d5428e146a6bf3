"""Switches between the nodes as one networkx graph, and how many of them lie on the way from node to node.

What describes a network names its switches: Slurm's topology, labels of Kubernetes nodes, ibnetdiscover.
Several may describe the same one; the names of one say nothing about those of another, so distances are
taken from the one that places most nodes of the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from topocheck.hostnames import short_name
from topocheck.kinds import with_strays
from topocheck.placement import Node, Placement
from topocheck.rule import Evidence, read_at
from topocheck.snapshot import JobFact

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["SUPPLY", "FabricGraph", "fabric_of"]

SUPPLY = (
    "one of: scontrol show topology, kubectl get nodes --show-labels (with labels of the network's tiers), "
    "ibnetdiscover, given as a file"
)
"""What supplies the places of nodes in the network."""
PREFERRED = ("infiniband", "slurm", "topograph")
"""Where several place equally many nodes: cables as they were found before what people wrote down."""
BY_VARIABLE = "slurm-variables"


class FabricGraph:
    """The switches that one description names, and the nodes on them.

    A way leads through switches alone: a node with a port on each of two switches joins them for no one.
    """

    def __init__(self, system: str, places: Mapping[int, Sequence[str]], links: Sequence[JobFact]) -> None:
        """`places` are the switches that each node, by its index, hangs on."""
        self.system = system
        self.places = {index: tuple(dict.fromkeys(switches)) for index, switches in places.items()}
        self.sources: dict[str, JobFact] = {}
        """Where each switch with nodes was read."""
        self._links = links
        self._graph: nx.Graph[str] | None = None
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], int | None] = {}
        self._reach: dict[tuple[str, ...], dict[str, int]] = {}
        self._beside: dict[str, list[str]] = {}

    @property
    def graph(self) -> nx.Graph[str]:
        """Switches and their links."""
        if self._graph is None:
            import networkx as nx  # noqa: PLC0415 - only where somebody asks for a distance

            self._graph = nx.Graph()
            self._graph.add_nodes_from(switch for place in self.places.values() for switch in place)
            for fact in self._links:
                self._graph.add_edges_from((fact.name, other) for other in fact.value.split())
        return self._graph

    def hops(self, a: Node, b: Node) -> int | None:
        """Switches on the shortest way: 1 below one leaf, 3 by a spine. None where it is not shown."""
        if a.index == b.index:
            return 0
        ends = self.places.get(a.index), self.places.get(b.index)
        if ends[0] is None or ends[1] is None:
            return None
        key = (ends[0], ends[1]) if ends[0] <= ends[1] else (ends[1], ends[0])
        if key not in self._known:
            self._known[key] = self._between(*key)
        return self._known[key]

    def _between(self, a: tuple[str, ...], b: tuple[str, ...]) -> int | None:
        """Shortest way between two sets of switches, both ends counted."""
        if a not in self._reach:
            self._reach[a] = self._from(a)
        reach = self._reach[a]
        return min((reach[end] for end in b if end in reach), default=None)

    def _from(self, start: tuple[str, ...]) -> dict[str, int]:
        """Switches on the way to each other one, from these on: layer by layer over plain lists."""
        if not self._beside:
            self._beside = {switch: list(others) for switch, others in self.graph.adjacency()}
        found, layer, depth = dict.fromkeys(start, 1), list(start), 1
        while layer:
            depth += 1
            around = dict.fromkeys(other for switch in layer for other in self._beside[switch])
            layer = [switch for switch in around if switch not in found]
            found.update(dict.fromkeys(layer, depth))
        return found

    def spell(self, node: Node) -> str:
        """Switches of a node without who names them: `leaf3`."""
        return ", ".join(switch.partition("/")[2] for switch in self.places.get(node.index, ()))

    def evidence(self, node: Node) -> Evidence:
        """Where it was read on which switches a node hangs."""
        switches = self.places[node.index]
        fact = self.sources.get(switches[0])
        words = f"{node} is on {self.spell(node)}"
        return Evidence(source="SLURM_TOPOLOGY_ADDR", fact=words) if fact is None else read_at(fact.at, words)


class Address(msgspec.Struct):
    """Variables by which Slurm tells a task the switches above its node."""

    address: str | None = msgspec.field(default=None, name="SLURM_TOPOLOGY_ADDR")
    pattern: str | None = msgspec.field(default=None, name="SLURM_TOPOLOGY_ADDR_PATTERN")


def fabric_of(placement: Placement) -> FabricGraph | None:
    """The description that places most nodes of the job; None if nothing places any."""
    return placement.keep("fabric graph", describe)


def describe(placement: Placement) -> FabricGraph | None:
    """Read all descriptions and take one."""
    links = [fact for fact in placement.inventory.job if fact.kind == "switch-links"]
    by_system: dict[str, list[JobFact]] = {}
    for fact in placement.inventory.job:
        if fact.kind == "switch-nodes":
            by_system.setdefault(fact.name.partition("/")[0], []).append(fact)
    found = [from_facts(placement, system, facts, links) for system, facts in by_system.items()]
    found += from_variables(placement)
    ranked = sorted(found, key=lambda graph: (-len(graph.places), preference(graph.system), graph.system))
    return next((graph for graph in ranked if graph.places), None)


def preference(system: str) -> int:
    """Place among the preferred ones; those that are not come after them."""
    return PREFERRED.index(system) if system in PREFERRED else len(PREFERRED)


def from_facts(
    placement: Placement, system: str, facts: Sequence[JobFact], links: Sequence[JobFact]
) -> FabricGraph:
    """Places of the job's nodes in one description; a name that is cut at its first dot counts if unique."""
    exact = placement.keep("nodes by all names", names_of_nodes)
    places: dict[int, list[str]] = {}
    sources: dict[str, JobFact] = {}
    for fact in facts:
        for host in fact.value.split():
            index = exact.get(host)
            if index is None:
                index = exact.get(short_name(host))
            if index is not None:
                places.setdefault(index, []).append(fact.name)
                sources.setdefault(fact.name, fact)
    graph = FabricGraph(system, places, [fact for fact in links if fact.name.startswith(f"{system}/")])
    graph.sources = sources
    return graph


def names_of_nodes(placement: Placement) -> dict[str, int | None]:
    """Nodes by every name and its first label; None for one that several bear."""
    found: dict[str, int | None] = {}
    for node in placement.nodes:
        names = (node.name, *(node.machine.names if node.machine is not None else ()))
        for name in {spelled for full in names for spelled in (full, short_name(full))}:
            found[name] = node.index if found.get(name, node.index) == node.index else None
    return found


def from_variables(placement: Placement) -> list[FabricGraph]:
    """What Slurm told the tasks themselves: `spine.leaf0.n1` by the pattern `switch.switch.node`."""
    places: dict[int, list[str]] = {}
    links: dict[str, dict[str, None]] = {}
    for alike in with_strays(placement):  # nodes of one kind have the same variables
        machine = alike[0].machine
        for path in filter(None, map(path_of, machine.environments if machine is not None else ())):
            places.update({node.index: [f"{BY_VARIABLE}/{path[-1]}"] for node in alike})
            for upper, lower in pairwise(path):
                links.setdefault(f"{BY_VARIABLE}/{upper}", {})[f"{BY_VARIABLE}/{lower}"] = None
    facts = [JobFact(kind="switch-links", name=name, value=" ".join(below)) for name, below in links.items()]
    return [FabricGraph(BY_VARIABLE, places, facts)] if places else []


def path_of(raw: bytes) -> Sequence[str]:
    """Switches above a node, widest first; none where names with dots or lists of switches leave it open."""
    if b"SLURM_TOPOLOGY_ADDR_PATTERN" not in raw:
        return ()
    told: Any = msgspec.json.decode(raw, type=Address)
    names, kinds = (told.address or "").split("."), (told.pattern or "").split(".")
    told_apart = len(names) == len(kinds) and "[" not in "".join(names)
    return names[:-1] if told_apart and set(kinds[:-1]) == {"switch"} and kinds[-1] == "node" else ()
