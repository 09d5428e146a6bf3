"""What Ray says of its cluster: `ray status`, and the resources that a driver prints when it connects.

`accelerator_type:GB200: 11.0` counts nodes with such GPUs, not GPUs; a `node:ADDRESS` resource is a node.
Ray lists nodes in an order of its own, which is not that of the ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line, parse_line
from topocheck.probes.capture.reading import Note, Reading, Text

__all__ = ["KIND", "parse"]

KIND = "ray status"
LAUNCHER = "ray"

BEGIN = re.compile(r"=+ Autoscaler status: .*")
PART = re.compile(
    r"(Active|Idle|Pending|Recent failures|Resources|Usage|Total Usage|Demands|Total Demands):?"
)
NODE = re.compile(r"\s*1 (?P<node>node_[0-9a-f]{8,64})")
GROUP = re.compile(r"\s*(?P<count>\d{1,6}) (?P<group>[A-Za-z][\w.-]{0,100})")
"""An autoscaler's node type, `2 worker_group`: nodes without their ids."""
GPUS = re.compile(r"\s*\d+(?:\.\d+)?/(?P<total>\d+(?:\.\d+)?) GPU")
MOST_LINES = 100_000

RESOURCES = re.compile(r"\{(?P<entries>[^{}]*'node:[^{}]*)\}?")
ENTRY = re.compile(r"'(?P<name>[^']{1,200})':\s*(?P<value>\d+(?:\.\d+)?)")
ADDRESS = re.compile(r"node:(?P<address>[\w.:-]{1,253})")
HEAD = "node:__internal_head__"


def parse(text: Text) -> list[Reading]:
    """Read every status and every dictionary of resources; [] if there is none."""
    evidence = JobEvidence(KIND, text.source)
    for number, line in enumerate(text.lines, 1):
        if BEGIN.search(line):
            status(evidence, text.lines, number)
        elif "'node:" in line and (match := RESOURCES.search(line)):
            resources(evidence, parse_line(line, number), match)
    return evidence.readings()


def status(evidence: JobEvidence, lines: Sequence[str], begin: int) -> None:
    """One `ray status`: nodes that are active or idle, and the GPUs of all of them together."""
    evidence.lines.add(begin)
    nodes: list[str] = []
    types, first = 0, begin
    for number, part, line in parts(lines, begin):
        match = NODE.fullmatch(line) if part in {"Active", "Idle"} else None
        group = GROUP.fullmatch(line) if part in {"Active", "Idle"} and match is None else None
        gpus = GPUS.fullmatch(line) if part in {"Usage", "Total Usage"} else None
        if match or group:
            first = first if nodes or types else number
            evidence.lines.add(number)
        if match:
            nodes.append(match["node"])
            evidence.fact(Line(number, ""), "cluster-node", "", match["node"])
        elif group:
            types += int(group["count"])
        elif gpus:
            whole(evidence, Line(number, ""), "cluster-gpus", gpus["total"])
    if nodes or types:
        evidence.fact(Line(first, ""), "cluster-nodes", len(nodes) + types, LAUNCHER)
    else:
        evidence.notes.append(Note(begin, "cut", "no node of this status is shown"))


def parts(lines: Sequence[str], begin: int) -> Iterator[tuple[int, str, str]]:
    """(line number, title of its part, line) until the next status or the next prompt-like line."""
    title = ""
    for number in range(begin + 1, min(len(lines), begin + MOST_LINES) + 1):
        line = lines[number - 1].rstrip()
        if BEGIN.search(line):
            return
        match = PART.fullmatch(line)
        if match:
            title = match[1]
        elif line and not line.startswith((" ", "-", "\t")) and line not in {"Node status", "Resources"}:
            title = ""
        yield number, title, line


def resources(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """A dictionary of resources: GPUs, and a key for each node."""
    found = {entry["name"]: entry["value"] for entry in ENTRY.finditer(match["entries"])}
    nodes = [name["address"] for key in found if key != HEAD and (name := ADDRESS.fullmatch(key))]
    if not match[0].endswith("}"):
        evidence.note(line, "cut", f"the resources are cut after {len(nodes)} nodes: not counted")
        return
    for node in nodes:
        evidence.fact(line, "cluster-node", "", node)
    if nodes:
        evidence.fact(line, "cluster-nodes", len(nodes), LAUNCHER)
    if "GPU" in found:
        whole(evidence, line, "cluster-gpus", found["GPU"])


def whole(evidence: JobEvidence, line: Line, kind: str, number: str) -> None:
    """A count that Ray prints as `44.0`. A share of a GPU is no count."""
    count, _, rest = number.partition(".")
    if rest.strip("0"):
        evidence.note(line, "ignored", f"{number} GPUs are no whole number")
    else:
        evidence.fact(line, kind, int(count), LAUNCHER)
