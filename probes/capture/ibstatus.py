"""`ibstatus`: a block for each port of each RDMA device, in the kernel's own words.

Device names are given by the system as it likes, so holes in their numbers prove nothing: a listing is
whole where its command is shown, asks for no device, and nothing was left out.
"""

from __future__ import annotations

import re

from topocheck.probes.capture.prompt import Section, section_at, sections
from topocheck.probes.capture.rdma_device import (
    LAYERS,
    Device,
    elisions,
    lists_all,
    parse_lid,
    parse_physical,
    parse_rate,
    parse_state,
    reading,
)
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import Source

__all__ = ["KIND", "parse"]

KIND = "ibstatus"

BLOCK = re.compile(r"\s*Infiniband device '(?P<name>[\w.:-]{1,64})' port (?P<port>[0-9]{1,3}) status:\s*")
PAIR = re.compile(
    r"\s*(?P<key>default gid|base lid|sm lid|state|phys state|rate|link_layer):\s*(?P<value>.*?)\s*"
)
NONE = re.compile(r"Fatal error:\s+device '\*': sys files not found.*")
"""What ibstatus says of a machine without RDMA devices."""
LAST = "link_layer"


def parse(text: Text) -> list[Reading]:
    """Read every listing, one Reading for each command."""
    likely = [
        number
        for number, line in enumerate(text.lines, 1)
        if len(line) < 400 and (BLOCK.fullmatch(line) or NONE.fullmatch(line))
    ]
    parts = sections(text) if likely else ()
    wanted = dict.fromkeys(section_at(parts, number) for number in likely)
    return [_listing(text, section) for section in wanted]


def _listing(text: Text, section: Section) -> Reading:
    devices: dict[str, Device] = {}
    lines: set[int] = set()
    notes: list[Note] = []
    number, none = section.start, False
    while number <= section.end:
        line = text.lines[number - 1]
        match = BLOCK.fullmatch(line) if len(line) < 400 else None
        if match:
            device = devices.setdefault(match["name"], Device(number, match["name"]))
            last = _block(text, section, number, device, int(match["port"]))
            lines |= set(range(number, last + 1))
            number = last
        elif NONE.fullmatch(line[:400]):
            none = True
            lines.add(number)
        number += 1
    left_out = elisions(text.lines, section)
    if left_out:
        notes.append(Note(left_out[0], "cut", "devices or ports were left out of the listing"))
    whole = lists_all(section, "ibstatus") and not left_out
    source = Source(name=text.source, kind=KIND)
    return reading(
        source, section, list(devices.values()), lines, whole=whole or (none and not devices), notes=notes
    )


def _block(text: Text, section: Section, start: int, device: Device, number: int) -> int:
    """Read the lines below a heading; the last one that belongs to it."""
    port, seen, last = device.port(number), "", start
    for line in range(start + 1, section.end + 1):
        match = PAIR.fullmatch(text.lines[line - 1][:400])
        if match is None:
            break
        key, value, last = match["key"], match["value"], line
        seen = key
        if key == "state":
            port.state = parse_state(value)
        elif key == "phys state":
            port.physical = parse_physical(value)
        elif key == "rate":
            port.rate = parse_rate(value)
        elif key == LAST:
            port.layer = value if value in LAYERS else None
        elif key == "base lid":
            port.lid = parse_lid(value)
        elif key == "sm lid":
            port.sm_lid = parse_lid(value)
    device.cut |= seen != LAST
    return last
