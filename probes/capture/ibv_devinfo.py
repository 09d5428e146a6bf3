"""`ibv_devinfo`, with or without -v: devices as a process can open them.

ibv_devinfo prints a device only after it opened it, so each one that is listed can be opened where it
ran; `No IB devices found` says that none can, whatever the machine has. In a container it lists those
that the container was given, which need not be all of the node's. A block that begins above the
text belongs to no device, and one that ends below it leaves what is missing unknown.
"""

from __future__ import annotations

import re

from topocheck.portreading import GidReading
from topocheck.probes.capture.command_scope import scope_of
from topocheck.probes.capture.prompt import Section, section_at, sections
from topocheck.probes.capture.rdma_device import (
    LAYERS,
    Device,
    DevicePort,
    elisions,
    lists_all,
    parse_gid,
    parse_guid,
    parse_lid,
    parse_physical,
    parse_state,
    reading,
)
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import SCHEMA, FullSnapshot, Host, Identity, Source, Verbs, VerbsDevice

__all__ = ["KIND", "parse"]

KIND = "ibv_devinfo"

BLOCK = re.compile(r"\s*hca_id:\s*(?P<name>[\w.:-]{1,64})\s*")
PORT = re.compile(r"\s*port:\s*(?P<port>[0-9]{1,3})\s*")
PAIR = re.compile(r"\s*(?P<key>[a-z][a-z_0-9]{1,40}):(?:\s+(?P<value>.*?))?\s*")
GID = re.compile(
    r"\s*GID\[\s*(?P<index>[0-9]{1,4})\]:\s*(?P<gid>[0-9a-fA-F:.]{2,45})"
    r"(?:, (?P<type>IB/RoCE v1|RoCE v[12]))?\s*"
)
FLAGS = re.compile(r"\s*(?:[A-Z][A-Z_0-9]{2,60}|Unknown flags: \S{1,40}|\w[\w ]{0,60}:)\s*")
"""Lines of -v: names of flags, and headings of their lists."""
NONE = re.compile(r"No IB devices found|Failed to get IB devices list:? ?.{0,100}")
PORT_KEYS = frozenset({"max_mtu", "active_mtu", "sm_lid", "port_lid", "port_lmc", "link_layer"})
NUMBER = re.compile(r"(?P<number>[0-9]{1,4}(?:\.[0-9]{1,2})?)(?:X| Gbps)? \([0-9]{1,4}\)")
KINDS = {"0x02c9": "rdma", "0x15b3": "rdma", "0x1d0f": "efa", "0x1175": "omni-path"}
"""Kind of device by vendor_id."""
ROCE_V1, ROCE_V2 = "IB/RoCE v1", "RoCE v2"
"""GID types in the kernel's words."""


def parse(text: Text) -> list[Reading]:
    """Read every listing, one Reading for each command."""
    likely = [
        number
        for number, line in enumerate(text.lines, 1)
        if ("hca_id:" in line and BLOCK.fullmatch(line[:400])) or NONE.fullmatch(line.strip()[:400])
    ]
    if not likely:
        return []
    parts = sections(text)
    listings: dict[Section, list[int]] = {}
    for number in likely:
        listings.setdefault(section_at(parts, number), []).append(number)
    found = [_listing(text, section, starts) for section, starts in listings.items()]
    return [each for each in found if each]


def _listing(text: Text, section: Section, starts: list[int]) -> Reading | None:
    source = Source(name=text.source, kind=KIND)
    blocks = [start for start in starts if BLOCK.fullmatch(text.lines[start - 1][:400])]
    if not blocks:
        return _none(source, section, starts[0]) if "ibv_dev" in (section.command or "") else None
    devices: list[Device] = []
    lines: set[int] = set()
    for start in blocks:
        match = BLOCK.fullmatch(text.lines[start - 1])
        if match:
            device = Device(start, match["name"])
            lines |= set(range(start, _block(text, section, device) + 1))
            devices.append(device)
    notes = [*_headless(text, section, blocks[0])]
    left_out = elisions(text.lines, section)
    if left_out:
        notes.append(Note(left_out[0], "cut", "devices were left out of the listing"))
    scope = scope_of(section)
    opened = tuple(VerbsDevice(name="", nic=device.name, openable=True) for device in devices)
    return reading(
        source,
        section,
        devices,
        lines,
        whole=lists_all(section, "ibv_devinfo") and not notes and scope != "container",
        notes=notes,
        verbs=Verbs(scope=scope, devices=opened),
    )


def _none(source: Source, section: Section, number: int) -> Reading:
    """No device can be opened where the command ran; the machine may have some."""
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(source,),
        identity=Identity(host=Host(name=section.host)),
        verbs=Verbs(scope=scope_of(section), devices=()),
    )
    return Reading(KIND, (snapshot,), frozenset({number}), 1)


def _headless(text: Text, section: Section, first: int) -> list[Note]:
    """A note if lines of a port stand above the first device."""
    for number in range(section.start, first):
        match = PAIR.fullmatch(text.lines[number - 1][:400])
        if match and match["key"] in PORT_KEYS:
            return [Note(number, "cut", "a block begins above the text: its lines belong to no device")]
    return []


def _block(text: Text, section: Section, device: Device) -> int:
    """Read the lines below a heading; the last one that belongs to it."""
    port: DevicePort | None = None
    speed: dict[str, float] = {}
    last = device.line
    for number in range(device.line + 1, section.end + 1):
        line = text.lines[number - 1][:400]
        start, gid, pair = PORT.fullmatch(line), GID.fullmatch(line), PAIR.fullmatch(line)
        if BLOCK.fullmatch(line) or not (start or gid or pair or FLAGS.fullmatch(line)):
            break
        last = number
        if start:
            port, speed = device.port(int(start["port"])), {}
        elif gid and port:
            _take_gid(port, gid)
        elif pair and port:
            _of_port(port, speed, pair["key"], pair["value"] or "")
        elif pair:
            _of_device(device, pair["key"], pair["value"] or "")
    complete = [port for port in device.ports.values() if port.layer is not None or port.lid is not None]
    device.cut = device.wanted is None or len(complete) < device.wanted
    for each in device.ports.values():
        each.gids_cut = each.gids is not None and device.cut
    return last


def _of_device(device: Device, key: str, value: str) -> None:
    if key == "fw_ver":
        device.firmware = value or None
    elif key == "node_guid":
        device.guid = parse_guid(value)
    elif key == "sys_image_guid":
        device.card = parse_guid(value)
    elif key == "vendor_id":
        device.kind = KINDS.get(value)
    elif key == "vendor_part_id" and device.kind == "rdma" and re.fullmatch("[0-9]{4,6}", value):
        device.model = f"MT{value}"  # the kernel's hca_type is made of the same number
    elif key == "board_id":
        device.board = value or None
    elif key == "phys_port_cnt" and re.fullmatch("[0-9]{1,3}", value):
        device.wanted = int(value)


def _of_port(port: DevicePort, speed: dict[str, float], key: str, value: str) -> None:
    """One line of a port. Its rate is that of a lane times the lanes, which -v alone prints."""
    if key == "state":
        port.state = parse_state(value)
    elif key == "phys_state":
        port.physical = parse_physical(value)
    elif key == "link_layer":
        port.layer = value if value in LAYERS else None
    elif key == "port_lid":
        port.lid = parse_lid(value)
    elif key == "sm_lid":
        port.sm_lid = parse_lid(value)
    elif key in {"active_width", "active_speed"} and (match := NUMBER.fullmatch(value)):
        speed[key] = float(match["number"])
        if len(speed) == 2:
            port.rate = (speed["active_width"] * speed["active_speed"], None)


def _take_gid(port: DevicePort, match: re.Match[str]) -> None:
    """An entry of the GID table, of which -v prints all that are set."""
    gid, kind = parse_gid(match["gid"]), match["type"]
    if gid:
        named = None if kind is None else ROCE_V2 if kind == ROCE_V2 else ROCE_V1
        port.add_gid(GidReading(index=int(match["index"]), digits=gid, type=named))
