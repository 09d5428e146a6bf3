"""`ibstat`: a block for each RDMA device, with its ports indented below.

`ibstat mlx5_0` asks for one device and lists only that one. The rate is a bare number of Gbit/s.
"""

from __future__ import annotations

import re

from topocheck.probes.capture.prompt import Section, section_at, sections
from topocheck.probes.capture.rdma_device import (
    LAYERS,
    Device,
    DevicePort,
    elisions,
    lists_all,
    parse_guid,
    parse_lid,
    parse_physical,
    parse_rate,
    parse_state,
    reading,
)
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import Source

__all__ = ["KIND", "parse"]

KIND = "ibstat"

BLOCK = re.compile(r"(?P<indent>\s*)CA '(?P<name>[\w.:-]{1,64})'\s*")
PORT = re.compile(r"\s*Port (?P<port>[0-9]{1,3}):\s*")
PAIR = re.compile(r"\s*(?P<key>[A-Z][A-Za-z ]{1,30}):(?:\s+(?P<value>.*?))?\s*")
MODEL = re.compile(r"MT[0-9]{3,6}")
LAST = "Link layer"


def parse(text: Text) -> list[Reading]:
    """Read every listing, one Reading for each command."""
    likely = [n for n, line in enumerate(text.lines, 1) if "CA '" in line and BLOCK.fullmatch(line[:400])]
    parts = sections(text) if likely else ()
    listings: dict[Section, list[int]] = {}
    for number in likely:
        listings.setdefault(section_at(parts, number), []).append(number)
    return [_listing(text, section, starts) for section, starts in listings.items()]


def _listing(text: Text, section: Section, starts: list[int]) -> Reading:
    devices: list[Device] = []
    lines: set[int] = set()
    for start in starts:
        match = BLOCK.fullmatch(text.lines[start - 1])
        if match:
            device = Device(start, match["name"])
            lines |= set(range(start, _block(text, section, device) + 1))
            devices.append(device)
    left_out = elisions(text.lines, section)
    notes = [Note(left_out[0], "cut", "devices were left out of the listing")] if left_out else []
    whole = lists_all(section, "ibstat") and not left_out
    return reading(Source(name=text.source, kind=KIND), section, devices, lines, whole=whole, notes=notes)


def _block(text: Text, section: Section, device: Device) -> int:
    """Read the lines below a heading; the last one that belongs to it."""
    port: DevicePort | None = None
    seen, last = "", device.line
    for number in range(device.line + 1, section.end + 1):
        line = text.lines[number - 1][:400]
        start, pair = PORT.fullmatch(line), PAIR.fullmatch(line)
        if start:
            port = device.port(int(start["port"]))
        elif pair is None:
            break
        elif port is None:
            _of_device(device, pair["key"], pair["value"] or "")
        else:
            _of_port(port, pair["key"], pair["value"] or "")
        last, seen = number, pair["key"] if pair else ""
    shown = sum(port.layer is not None or port.state is not None for port in device.ports.values())
    device.cut = seen != LAST or (device.wanted is not None and shown < device.wanted)
    return last


def _of_device(device: Device, key: str, value: str) -> None:
    if key == "CA type" and MODEL.fullmatch(value):
        device.model, device.kind = value, "rdma"
    elif key == "Firmware version":
        device.firmware = value or None
    elif key == "Node GUID":
        device.guid = parse_guid(value)
    elif key == "System image GUID":
        device.card = parse_guid(value)
    elif key == "Number of ports" and re.fullmatch("[0-9]{1,3}", value):
        device.wanted = int(value)


def _of_port(port: DevicePort, key: str, value: str) -> None:
    if key == "State":
        port.state = parse_state(value)
    elif key == "Physical state":
        port.physical = parse_physical(value)
    elif key == "Rate":
        port.rate = parse_rate(value)
    elif key == LAST:
        port.layer = value if value in LAYERS else None
    elif key == "Base lid":
        port.lid = parse_lid(value)
    elif key == "SM lid":
        port.sm_lid = parse_lid(value)
