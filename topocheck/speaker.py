"""Who made a statement about the job: a node of it, a host, or a file that is of no known host."""

from __future__ import annotations

from topocheck.hostnames import short_name
from topocheck.machine import Machine
from topocheck.placement import Node, Placement
from topocheck.snapshot import JobFact

__all__ = ["node_named", "speaker"]


def node_named(placement: Placement, host: str) -> Node | None:
    """The node that a host is, by its evidence, else by the only name of the plan with its first label."""
    index = placement.inventory.names.named(host)
    if index is not None:
        place = placement.node_of.get(index)
        return None if place is None else placement.nodes[place]
    alike = placement.keep("nodes by first label", lambda asked: by_label(asked.nodes))
    found = alike.get(short_name(host), [])
    return found[0] if len(found) == 1 else None


def by_label(nodes: tuple[Node, ...]) -> dict[str, list[Node]]:
    """Nodes by the first labels of their names."""
    found: dict[str, list[Node]] = {}
    for node in nodes:
        found.setdefault(short_name(node.name), []).append(node)
    return found


def speaker(placement: Placement, fact: JobFact) -> str | None:
    """Who said it: a node, else a host, else a file that is of no known host; None where it may be several.

    A file and the host that it names are one.
    """
    host = fact.host
    if host is None:
        source = fact.at.source if fact.at else ""
        machines = placement.inventory.machines
        told = placement.keep("machines by source", lambda _: by_source(machines)).get(source, ())
        if len(told) != 1:
            return None if told else source
        place = placement.node_of.get(told[0])
        return machines[told[0]].name if place is None else placement.nodes[place].name
    node = node_named(placement, host)
    return host if node is None else node.name


def by_source(machines: list[Machine]) -> dict[str, list[int]]:
    """Hosts that each file was read about."""
    found: dict[str, list[int]] = {}
    for index, machine in enumerate(machines):
        for source in machine.sources:
            found.setdefault(source, []).append(index)
    return found
