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
from collections.abc import Iterator
from xml.etree import ElementTree

from topocheck.errors import CaptureError
from topocheck.probes.capture.nccl_xml import Machine, read_machines
from topocheck.probes.capture.prompt import section_at, sections
from topocheck.probes.capture.reading import Reading, Text
from topocheck.snapshot import SCHEMA, FullSnapshot, Host, Identity, Source

__all__ = ["KIND", "parse"]

KIND = "NCCL topology XML"

ROOT = re.compile(r"\s*(?:<\?xml[^<>]*\?>\s*)?<(system|graphs)\s[^<>]*?version=")
ENTITIES = re.compile(r"<!(?:ENTITY|DOCTYPE\s+(?:system|graphs)\b)")
FIX = "give the file that NCCL wrote to NCCL_TOPO_DUMP_FILE"


def parse(text: Text) -> list[Reading]:
    """Read every topology of a text. Raises CaptureError for one that is cut, broken or a graph file."""
    return [_reading(text, start, end) for start, end in _documents(text)]


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
            raise CaptureError("is an NCCL graph file, not a topology", path=text.source, line=number, fix=FIX)
        end = next((n for n in range(number, len(text.lines) + 1) if "</system>" in text.lines[n - 1]), None)
        if end is None:
            raise CaptureError("the XML ends before </system>", path=text.source, line=len(text.lines), fix=FIX)
        yield number, end
        number = end


def _reading(text: Text, start: int, end: int) -> Reading:
    root = _element(text, start, end)
    machines = read_machines(root, text.source, start)
    host = section_at(sections(text), start).host
    return Reading(
        KIND,
        tuple(_snapshot(text, machine, host, alone=len(machines) == 1) for machine in machines),
        frozenset(range(start, end + 1)),
        sum(machine.facts for machine in machines),
        tuple(note for machine in machines for note in machine.notes),
    )


def _element(text: Text, start: int, end: int) -> ElementTree.Element:
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
        return ElementTree.fromstring(document)  # noqa: S314 - entities are refused above
    except ElementTree.ParseError as error:
        line, _ = error.position
        reason = str(error).partition(":")[0]
        raise CaptureError(
            f"is not well-formed XML ({reason})", path=text.source, line=start + line - 1, fix=FIX
        ) from error


def _snapshot(text: Text, machine: Machine, host: str | None, *, alone: bool) -> FullSnapshot:
    """One host. Several hosts of one file are told apart by NCCL's host hash, the only name they have."""
    name = Host(name=host) if alone else Host(aliases=(f"host_hash {machine.host_hash}",))
    return FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        coverage=machine.coverage,
        identity=Identity(host=name, gpus=machine.gpu_ids, nics=machine.nic_ids),
        hardware=machine.hardware,
    )
