"""NCCL's topology XML (`NCCL_TOPO_DUMP_FILE`, `NCCL_TOPO_FILE`), and RCCL's.

NCCL writes one `pci` element for a whole PCIe switch, where a kernel shows its upstream port and one
downstream port a branch (`ncclTopoGetXmlFromSys` in NCCL's src/graph/xml.cc climbs two path components
for each). The downstream ports are put back here, so that both trees give the same distances. A `cpu`
element is a NUMA node and stands for its root complexes.

NCCL lists only links that it can use, so a GPU without any has 0 active links by this text. A file
without `gpu` elements is a hint that a cloud ships for a machine type: it says what such a machine
should have, not what this one has, and its coverage is `part`.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

from topocheck.errors import CaptureError
from topocheck.probes.capture.nccl_xml import Machine, read_machine
from topocheck.probes.capture.prompt import section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import SCHEMA, FullSnapshot, Host, Identity, Source

__all__ = ["KIND", "parse"]

KIND = "NCCL topology XML"

ROOT = re.compile(r"\s*(?:<\?xml[^<>]*\?>\s*)?<(system|graphs)\s[^<>]*?version=")
ENTITIES = re.compile(r"<!(?:ENTITY|DOCTYPE\s+(?:system|graphs)\b)")
FIX = "give the file that NCCL wrote to NCCL_TOPO_DUMP_FILE"


def parse(text: Text) -> list[Reading]:
    """Read every topology of a text. Raises CaptureError for one that is cut, broken or a graph file."""
    documents = list(_documents(text))
    parts = sections(text) if documents else ()
    found = [_reading(text, start, end, section_at(parts, start).host) for start, end in documents]
    return [reading for reading in found if reading.snapshots or reading.notes]


def _documents(text: Text) -> Iterator[tuple[int, int]]:
    """First and last line of each document."""
    number = 0
    while number < len(text.lines):
        number += 1
        line = text.lines[number - 1]
        match = ROOT.match(line) if "<" in line and len(line) < 10_000_000 else None
        if match is None:
            continue
        if match[1] == "graphs":
            raise CaptureError(
                "is an NCCL graph file, not a topology", path=text.source, line=number, fix=FIX
            )
        end = next((n for n in range(number, len(text.lines) + 1) if "</system>" in text.lines[n - 1]), None)
        if end is None:
            raise CaptureError(
                "the XML ends before </system>", path=text.source, line=len(text.lines), fix=FIX
            )
        yield number, end
        number = end


def _reading(text: Text, start: int, end: int, name: str | None) -> Reading:
    """One document: a snapshot for each host in it that shows a GPU or a network device.

    `name` is the host whose prompt printed it; it names no one of several hosts.
    """

    def refuse(problem: str) -> CaptureError:
        return CaptureError(problem, path=text.source, line=start, fix=FIX)

    hosts: dict[str | None, list[ET.Element]] = {}
    for cpu in _element(text, start, end).findall("cpu"):
        hosts.setdefault(cpu.get("host_hash"), []).append(cpu)
    machines = {host: read_machine(cpus, refuse) for host, cpus in hosts.items()}
    return Reading(
        KIND,
        tuple(
            _snapshot(text, machine, Host(name=name) if len(machines) == 1 else _host_of(host_hash))
            for host_hash, machine in machines.items()
            if machine.facts
        ),
        frozenset(range(start, end + 1)),
        sum(machine.facts for machine in machines.values()),
        tuple(Note(start, kind, words) for machine in machines.values() for kind, words in machine.notes),
    )


def _host_of(host_hash: str | None) -> Host:
    """One of several hosts in a file: NCCL's hash of its name and boot id is the only name it has."""
    return Host(aliases=(f"host_hash {host_hash or 'missing'}"[:40],))


def _element(text: Text, start: int, end: int) -> ET.Element:
    """The parsed document. Entities are refused: NCCL writes none, and they can grow without bound."""
    lines = text.lines[start - 1 : end]
    above = text.lines[max(0, start - 20) : start - 1]
    for number, line in enumerate([*above, *lines], start - len(above)):
        if ENTITIES.search(line):
            raise CaptureError(
                "declares a document type or entities, which no NCCL file has",
                path=text.source,
                line=number,
                fix=FIX,
            )
    document = "\n".join(lines)
    document = document[: document.rindex("</system>") + len("</system>")]
    try:
        return ET.fromstring(document)  # noqa: S314 - entities are refused above
    except ET.ParseError as error:
        row, _ = error.position
        reason = str(error).partition(":")[0]
        raise CaptureError(
            f"is not well-formed XML ({reason})", path=text.source, line=start + row - 1, fix=FIX
        ) from error


def _snapshot(text: Text, machine: Machine, host: Host) -> FullSnapshot:
    return FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        coverage=machine.coverage,
        identity=Identity(host=host, gpus=machine.gpu_ids, nics=machine.nic_ids),
        hardware=machine.hardware,
    )
