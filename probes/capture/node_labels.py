"""Where Kubernetes nodes stand in the network, by their labels: tiers of switches, widest first.

    fabric.topograph.run/tier-N                        topograph 1.0; tier 0 is nearest
    network.topology.nvidia.com/{core,spine,leaf}      topograph to 0.5; at first {datacenter,spine,block}
    topology.k8s.aws/network-node-layer-N              EKS; layer 1 is widest
    cloud.google.com/gce-topology-{block,subblock}     GKE; its third, the host, is the node itself
    oci.oraclecloud.com/rdma.{hpc_island,network_block,local_block}_id
                                                       OKE; also host.{network_block,rack}_id

Zones and regions are no tiers of a network. A name is unique only below the tiers above it, so the whole
path names a switch. nvidia.com/gpu.clique is an NVLink domain and read apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from topocheck.probes.capture.kube_clique import DESCRIBED, NODE, named_below
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.probes.capture.switches import Switches

__all__ = ["KIND", "parse"]

KIND = "kubernetes node labels"

OCI = "oci.oraclecloud.com/"
TIERS: dict[str, tuple[str, ...]] = {
    "topograph": tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(9, -1, -1)),
    "topograph-0.5": tuple(f"network.topology.nvidia.com/{tier}" for tier in ("core", "spine", "leaf")),
    "topograph-0.1": tuple(
        f"network.topology.nvidia.com/{tier}" for tier in ("datacenter", "spine", "block")
    ),
    "aws": tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in range(1, 10)),
    "gke": ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
    "oci": tuple(f"{OCI}rdma.{tier}_id" for tier in ("hpc_island", "network_block", "local_block")),
    "oci-host": (f"{OCI}host.network_block_id", f"{OCI}host.rack_id"),
}
"""Labels by who sets them, widest tier first. Of several on one node the first is taken that has a tier."""
WANTED = frozenset(label for tiers in TIERS.values() for label in tiers)
NEAREST = {system: tiers[-1] for system, tiers in TIERS.items()} | {"aws": ""}
"""The tier without which the others do not place a node; AWS has as many as there are."""
PAIR = re.compile(
    r"[\"']?(?P<key>[a-z0-9.-]{1,100}/[\w.-]{1,63})[\"']?\s*[=:]\s*[\"']?(?P<value>[\w.:-]{1,200})[\"']?"
)
MOST_LINE = 200_000


def parse(text: Text) -> list[Reading]:
    """Read the tiers of all nodes; [] if there are none."""
    nodes: dict[str, dict[str, tuple[str, int]]] = {}
    notes = []
    for line, node, key, value in labels(text):
        if node is None:
            notes.append(Note(line, "cut", "the node that bears this label is not shown"))
            continue
        known = nodes.setdefault(node, {}).setdefault(key, (value, line))
        if known[0] != value:
            notes.append(Note(line, "contradictory", f"{node} has another {key} in line {known[1]}"))
    readings = []
    for system in TIERS:
        switches = Switches(KIND, text.source, system)
        state(switches, {node: found for node, found in nodes.items() if system_of(found) == system})
        readings += switches.readings()
    if not readings and notes:
        lines = frozenset(note.line for note in notes if note.line)
        readings = [Reading(KIND, (), lines, 0, tuple(notes))]
    elif notes:
        one = readings[0]
        readings[0] = Reading(one.kind, one.snapshots, one.lines, one.facts, (*one.notes, *notes))
    return readings


def system_of(found: Mapping[str, tuple[str, int]]) -> str | None:
    """Whose labels place a node: those that name the tier nearest to it."""
    complete = (system for system, nearest in NEAREST.items() if nearest in found)
    layers = any(label in found for label in TIERS["aws"])
    return next(complete, "aws" if layers else None)


def state(switches: Switches, nodes: Mapping[str, Mapping[str, tuple[str, int]]]) -> None:
    """Tiers of one system: hosts by the whole path, and each path below the shorter one."""
    held: dict[tuple[str, ...], tuple[int, list[str]]] = {}
    below: dict[tuple[str, ...], tuple[int, dict[str, None]]] = {}
    for node, found in nodes.items():
        shown = [found[label] for label in TIERS[switches.system] if label in found]
        path, line = tuple(value for value, _ in shown), shown[-1][1]
        held.setdefault(path, (line, []))[1].append(node)
        for depth in range(1, len(path)):
            below.setdefault(path[:depth], (line, {}))[1]["/".join(path[: depth + 1])] = None
        switches.lines.update(line for _, line in shown)
    for path, (line, hosts) in held.items():
        switches.hold(line, "/".join(path), hosts)
    for path, (line, names) in below.items():
        switches.join(line, "/".join(path), names)


def labels(text: Text) -> Iterator[tuple[int, str | None, str, str]]:
    """(line, node, label, value): `--show-labels`, `kubectl describe node`, YAML, JSON."""
    described: str | None = None
    for number, line in enumerate(text.lines, 1):
        name = DESCRIBED.fullmatch(line) if line.startswith("Name:") else None
        described = name["name"] if name else described
        if "/" not in line or len(line) > MOST_LINE:
            continue
        found = [pair for pair in PAIR.finditer(line) if pair["key"] in WANTED]
        if not found:
            continue
        first = line.split(maxsplit=1)[0]
        inline = first if NODE.fullmatch(first) and not line[0].isspace() and found[0].start() > 0 else None
        by_equals = "=" in line[found[0].end("key") : found[0].start("value")]
        # YAML and JSON below a `kubectl describe` are not of the node that it described.
        node = inline or (described if by_equals else named_below(text, number))
        for pair in found:
            yield number, node, pair["key"], pair["value"]
