"""`show_gids`: the GID tables of all ports, an entry a line.

The columns are parted by tabs, several in a row, or by blanks in a copy; the IPv4 column is empty for
addresses that have none. A row is known by what its cells look like, so an empty cell shifts nothing.
The tool lists all entries that are set: below its header, and up to the next prompt, a table is whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from topocheck.portreading import GidReading
from topocheck.probes.capture.prompt import Section, section_at, sections
from topocheck.probes.capture.rdma_device import Device, elisions, lists_all, parse_gid, reading
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import Source

__all__ = ["KIND", "parse"]

KIND = "show_gids"

HEADER = re.compile(r"\s*DEV\s+PORT\s+INDEX\s+GID\s+IPv4\s+VER(?:\s+DEV)?\s*")
RULER = re.compile(r"\s*-{2,}(?:\s+-{2,}){4,6}\s*")
ROW = re.compile(
    r"\s*(?P<name>[\w.:-]{1,64})\s+(?P<port>[0-9]{1,3})\s+(?P<index>[0-9]{1,4})\s+"
    r"(?P<gid>[0-9a-f]{4}(?::[0-9a-f]{4}){7})(?:\s+(?P<address>[0-9]{1,3}(?:\.[0-9]{1,3}){3}))?"
    r"\s+(?P<version>v[12])(?:\s+(?P<netdev>[A-Za-z][\w.:@-]{0,63}))?\s*"
)
COUNT = re.compile(r"\s*n_gids_found=(?P<count>[0-9]{1,6})\s*")
BEGINNING = re.compile(r"\s*[\w.:-]{1,64}\s+[0-9]{1,3}\s+[0-9]{1,4}\s+[0-9a-f]{4}:[0-9a-f:]{0,40}\b.*")
"""A row that does not end as one."""

TYPES = {"v1": "IB/RoCE v1", "v2": "RoCE v2"}
"""GID types in the kernel's words."""


def parse(text: Text) -> list[Reading]:
    """Read every table, one Reading for each command."""
    likely = [n for n, line in enumerate(text.lines, 1) if ":" in line and ROW.fullmatch(line[:400])]
    parts = sections(text) if likely else ()
    tables: dict[Section, list[int]] = {}
    for number in likely:
        tables.setdefault(section_at(parts, number), []).append(number)
    return [_table(text, section, rows) for section, rows in tables.items()]


def _table(text: Text, section: Section, rows: list[int]) -> Reading:
    devices: dict[str, Device] = {}
    notes: list[Note] = []
    seen: dict[tuple[str, int, int], str] = {}
    for number in rows:
        match = ROW.fullmatch(text.lines[number - 1])
        gid = parse_gid(match["gid"]) if match else None
        if match is None or gid is None:
            continue
        device = devices.setdefault(match["name"], Device(number, match["name"]))
        port, index = device.port(int(match["port"])), int(match["index"])
        other = seen.setdefault((device.name, port.number, index), f"{gid} {match['version']}")
        if other != f"{gid} {match['version']}":
            words = f"index {index} of {device.name} is there twice with different entries"
            notes.append(Note(number, "contradictory", words))
        netdev = (match["netdev"] or "").rstrip(".") or None  # a sentence's full stop, copied along
        entry = GidReading(index=index, digits=gid, type=TYPES[match["version"]], netdev=netdev)
        port.add_gid(entry)
    notes += _cuts(text, section, rows)
    whole = not any(note.kind == "cut" for note in notes)
    for device in devices.values():
        for port in device.ports.values():
            port.gids_cut = not whole
    source = Source(name=text.source, kind=KIND)
    found = reading(source, section, list(devices.values()), rows, whole=False, notes=notes)
    return Reading(KIND, found.snapshots, found.lines, len(seen), found.notes)


def _cuts(text: Text, section: Section, rows: list[int]) -> Iterator[Note]:
    """Why entries may be missing."""
    lines = text.lines[section.start - 1 : section.end]
    headed = any(HEADER.fullmatch(line[:400]) for line in lines)
    if not headed and not lists_all(section, "show_gids"):
        yield Note(rows[0], "cut", "the header of this table is not shown: entries may be missing")
    left_out = elisions(text.lines, section)
    if left_out:
        yield Note(left_out[0], "cut", "entries were left out of the table")
    counts = [int(match["count"]) for line in lines if (match := COUNT.fullmatch(line[:400]))]
    if counts and counts[-1] != len(rows):
        yield Note(rows[-1], "cut", f"{len(rows)} entries are shown and {counts[-1]} were found")
    taken = set(rows)
    for number in range(rows[0], section.end + 1):
        line = text.lines[number - 1][:400]
        if number not in taken and BEGINNING.fullmatch(line) and not ROW.fullmatch(line):
            yield Note(number, "cut", "this row is cut")
            return
