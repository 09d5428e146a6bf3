"""The NVLink domain of Kubernetes nodes, by the label `nvidia.com/gpu.clique`.

The label is the cluster UUID, a dot and the clique id, and only the whole of it is a domain: racks share
clique ids. NVIDIA's GPU feature discovery sets it only where the fabric of all GPUs of the node is
completed, its status is success and its UUID is not zero; a node without the label is not known to have
or to lack a fabric.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from topocheck.probes.capture.fabric_words import parse_cluster_uuid
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import SCHEMA, At, Fabric, FullSnapshot, Host, Identity, Source

__all__ = ["DESCRIBED", "KIND", "NODE", "named_below", "parse"]

KIND = "nvidia.com/gpu.clique"

DOMAIN = r"(?P<uuid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\.(?P<clique>[0-9]{1,10})"
CELL = re.compile(DOMAIN)
LABEL = re.compile(r"[\"']?nvidia\.com/gpu\.clique[\"']?\s*[=:]\s*[\"']?" + DOMAIN + r"(?![\w.-])")
NODE = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
DESCRIBED = re.compile(r"Name:\s+(?P<name>[a-z0-9][a-z0-9.-]{0,252})\s*")
METADATA = re.compile(r"\s*[\"']?name[\"']?\s*:\s*[\"']?(?P<name>[a-z0-9][a-z0-9.-]{0,252})[\"']?,?\s*")
COLUMN = re.compile(r"\S*clique\S*", re.IGNORECASE)

FAR = 400
"""Lines between a label and the name of its node in YAML or JSON."""


@dataclass(frozen=True, slots=True)
class Label:
    """One label and the node that bears it."""

    line: int
    node: str | None
    uuid: str
    clique: int


def parse(text: Text) -> list[Reading]:
    """Read all labels as one Reading, a snapshot for each node; [] if there is none."""
    labels = [*_columns(text), *_labels(text)]
    if not labels:
        return []
    nodes: dict[str | None, Label] = {}
    notes = []
    for label in sorted(labels, key=lambda label: label.line):
        known = nodes.setdefault(label.node, label)
        if (known.uuid, known.clique) != (label.uuid, label.clique) and label.node:
            words = f"{label.node} is in another clique here than in line {known.line}"
            notes.append(Note(label.line, "contradictory", words))
    if None in nodes:
        notes.append(Note(nodes[None].line, "cut", "the node that bears this label is not shown"))
    source = Source(name=text.source, kind=KIND)
    snapshots = tuple(_snapshot(source, label) for label in nodes.values())
    lines = frozenset(label.line for label in labels)
    return [Reading(KIND, snapshots, lines, len(nodes), tuple(notes))]


def _columns(text: Text) -> Iterator[Label]:
    """Tables with a column for the label: `-o custom-columns=...`, or `-L nvidia.com/gpu.clique`."""
    inside = False
    for number, line in enumerate(text.lines, 1):
        words = line.split() if len(line) < 2000 else []
        if not words:
            inside = False
        elif words[0].isupper() and any(COLUMN.fullmatch(word) for word in words):
            inside = True
        elif inside and NODE.fullmatch(words[0]):
            found = next((match for word in words[1:] if (match := CELL.fullmatch(word))), None)
            if found:
                yield _label(number, words[0], found)


def _labels(text: Text) -> Iterator[Label]:
    """The label's own text: `kubectl get nodes --show-labels`, `kubectl describe node`, YAML, JSON."""
    described: str | None = None
    for number, line in enumerate(text.lines, 1):
        name = DESCRIBED.fullmatch(line) if line.startswith("Name:") else None
        described = name["name"] if name else described
        found = LABEL.search(line) if "gpu.clique" in line and len(line) < 100_000 else None
        if found is None:
            continue
        first = line.split(maxsplit=1)[0]
        inline = first if NODE.fullmatch(first) and not line[0].isspace() and found.start() > 0 else None
        # YAML and JSON below a `kubectl describe` are not of the node that it described.
        outside = described if "=" in found[0] else named_below(text, number)
        yield _label(number, inline or outside, found)


def named_below(text: Text, number: int) -> str | None:
    """The `name` of the metadata that the label at this line belongs to: keys stand in alphabetical order.

    It is less indented than the label; a line that is less indented still ends the metadata.
    """
    depth = _indent(text.lines[number - 1])
    if depth == 0:
        return None
    for line in text.lines[number : number + FAR]:
        if line.strip() and _indent(line) < depth:
            match = METADATA.fullmatch(line)
            if match:
                return match["name"]
            if _indent(line) < depth - 8 or line.strip() in {"---", "spec:", "status:"}:
                return None
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _label(number: int, node: str | None, found: re.Match[str]) -> Label:
    return Label(number, node, parse_cluster_uuid(found["uuid"]) or "", int(found["clique"]))


def _snapshot(source: Source, label: Label) -> FullSnapshot:
    fabric = Fabric(
        cluster_uuid=label.uuid,
        clique=label.clique,
        state="Completed",
        status="Success",
        at=At(source=source.name, line=label.line),
    )
    return FullSnapshot(
        schema=SCHEMA, sources=(source,), identity=Identity(host=Host(name=label.node)), fabric=(fabric,)
    )
