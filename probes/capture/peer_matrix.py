"""Peer access between the GPUs of a node: `nvidia-smi topo -p2p` and CUDA's p2pBandwidthLatencyTest.

The five tables of `nvidia-smi topo -p2p` look alike; only the command above tells r (read) and w
(write), which are peer access, from n (NVLink), a (atomics) and p (PCIe), which are capabilities beyond
it. OK in any of them shows that the pair can reach each other. A refusal counts only in a table known
to be r or w: without NVLink, `-p2p n` says NS for a pair that has peer access over PCIe.

CUDA numbers devices in its own order, so its listing gives no NVML index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from topocheck.errors import CaptureError
from topocheck.probes.capture.bus import make_bus
from topocheck.probes.capture.grid import Grid, read_grids
from topocheck.probes.capture.prompt import Section, extent, section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import (
    SCHEMA,
    Coverage,
    FullSnapshot,
    GpuId,
    GpuShape,
    Hardware,
    Host,
    Identity,
    PeerAccess,
    Source,
)

__all__ = ["KIND", "parse"]

KIND = "nvidia-smi topo -p2p"
KIND_CUDA = "CUDA peer access test"

STATUSES = re.compile(r"X|OK|CNS|GNS|TNS|NS|DR|U")
"""NVML's P2P states as nvidia-smi prints them; DR is disabled by a registry key."""

CAPABILITY = re.compile(r"-p2p[ =]+([rwnap])\b")

DEVICE = re.compile(
    r"\s*Device: ([0-9]{1,3}), (\S.{0,100}?), pciBusID: ([0-9a-f]{1,2}), pciDeviceID: ([0-9a-f]{1,2}),"
    r" pciDomainID: ?([0-9a-f]{1,8})\s*"
)
ACCESS = re.compile(r"\s*Device=([0-9]{1,3}) (CAN|CANNOT) Access Peer Device=([0-9]{1,3})\s*")
ARROW = re.compile(
    r"[>\s]*Peer access from (\S.{0,100}?) \(GPU([0-9]{1,3})\) -> (\S.{0,100}?) \(GPU([0-9]{1,3})\)"
    r" : (Yes|No)\s*"
)
CORNER = re.compile(r"\s*D\\D((?:\s+[0-9]{1,3})+)\s*")
CONNECTED = re.compile(r"\s*([0-9]{1,3})((?:\s+[01])+)\s*")

REFUSED = "NS"
"""CUDA says that there is no peer access, not why."""


def parse(text: Text) -> list[Reading]:
    """Read all tables and listings of peer access. Raises CaptureError for a table that does not align."""
    grids = list(read_grids(text, STATUSES, affinities=False))
    listings = list(_listings(text))
    parts = sections(text) if grids or listings else ()
    readings = [_of_grid(text, grid, section_at(parts, grid.line)) for grid in grids]
    return readings + [_of_listing(text, found, section_at(parts, min(found.lines))) for found in listings]


def _of_grid(text: Text, grid: Grid, section: Section) -> Reading:
    match = CAPABILITY.search(section.command or "")
    access = match is not None and match[1] in "rw"
    peers, left_out = [], 0
    for a, row in enumerate(grid.columns):
        for b in range(len(grid.columns)):
            status = grid.cell(row, b)
            if a == b or status is None:
                continue
            if status == "OK" or access:
                peers.append(PeerAccess(a=a, b=b, status="DISABLED" if status == "DR" else status))
            else:
                left_out += 1
    notes = list(grid.notes)
    if left_out:
        table = (
            f"this is the table -p2p {match[1]}"
            if match
            else "the text does not show which -p2p table this is"
        )
        words = f"{left_out} refusals were not taken: {table}, and only -p2p r and w are peer access"
        notes.append(Note(grid.line, "ignored", words))
    gpus = tuple(GpuId(nvml=int(name[3:]) if name[3:].isdigit() else None) for name in grid.columns)
    snapshot = _snapshot(text, KIND, section, gpus, peers, whole=not grid.missing and not grid.gaps)
    return Reading(KIND, (snapshot,), frozenset(grid.lines), len(peers), tuple(notes))


def _snapshot(
    text: Text, kind: str, section: Section, gpus: tuple[GpuId, ...], peers: list[PeerAccess], *, whole: bool
) -> FullSnapshot:
    return FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=kind),),
        coverage=Coverage(gpus=extent(whole)),
        identity=Identity(host=Host(name=section.host), gpus=gpus),
        hardware=Hardware(gpus=tuple(GpuShape(model=gpu.model) for gpu in gpus), peers=tuple(peers)),
    )


@dataclass(slots=True)
class _Listing:
    """What CUDA's test printed in one section. Device numbers are CUDA's."""

    lines: set[int] = field(default_factory=set)
    models: dict[int, str] = field(default_factory=dict)
    places: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """Domain, bus and device as printed."""
    said: dict[tuple[int, int], dict[bool, int]] = field(default_factory=dict)
    """Access of the first device to the second as stated, with the line that states it first."""
    squares: list[tuple[int, int]] = field(default_factory=list)
    """Columns and rows of each connectivity matrix."""

    def say(self, a: int, b: int, access: bool, line: int) -> None:
        """One statement, of a line of text or a cell of the matrix."""
        self.lines.add(line)
        if a != b:
            self.said.setdefault((a, b), {}).setdefault(access, line)


def _listings(text: Text) -> Iterator[_Listing]:
    """One listing for each section that has any."""
    hits = [
        number
        for number, line in enumerate(text.lines, 1)
        if "evice" in line or "Peer" in line or "D\\D" in line
    ]
    parts = sections(text) if hits else ()
    found: dict[int, _Listing] = {}
    for number in hits:
        listing = found.setdefault(section_at(parts, number).start, _Listing())
        _read_line(text, number, listing)
    return (listing for listing in found.values() if listing.lines)


def _read_line(text: Text, number: int, listing: _Listing) -> None:
    line = text.lines[number - 1]
    if len(line) > 400:
        return
    if match := DEVICE.fullmatch(line):
        device = int(match[1])
        listing.models[device] = match[2]
        listing.places[device] = match[5], match[3], match[4]
        listing.lines.add(number)
    elif match := ACCESS.fullmatch(line):
        listing.say(int(match[1]), int(match[3]), match[2] == "CAN", number)
    elif match := ARROW.fullmatch(line):
        a, b = int(match[2]), int(match[4])
        listing.models |= {a: match[1], b: match[3]}
        listing.say(a, b, match[5] == "Yes", number)
    elif (match := CORNER.fullmatch(line)) and "Connectivity" in text.lines[number - 2]:
        _read_square(text, number, [int(name) for name in match[1].split()], listing)


def _read_square(text: Text, header: int, columns: list[int], listing: _Listing) -> None:
    """The `P2P Connectivity Matrix`, from the line with its column numbers."""
    rows = set()
    for number, line in enumerate(text.lines[header : header + len(columns)], header + 1):
        match = CONNECTED.fullmatch(line) if len(line) < 4000 else None
        if match is None:
            break
        row, cells = int(match[1]), match[2].split()
        if row not in columns or len(cells) != len(columns) or cells[columns.index(row)] != "1":
            raise CaptureError(
                f"row {row} of the connectivity matrix does not fit its {len(columns)} columns",
                path=text.source,
                line=number,
                fix="give the output as the tool printed it",
            )
        rows.add(row)
        for column, cell in zip(columns, cells, strict=True):
            listing.say(row, column, cell == "1", number)
    listing.squares.append((len(columns), len(rows)))


def _of_listing(text: Text, listing: _Listing, section: Section) -> Reading:
    devices = sorted({*listing.models, *(device for pair in listing.said for device in pair)})
    ordinals = {device: ordinal for ordinal, device in enumerate(devices)}
    buses, notes = _buses(listing)
    peers = []
    for (a, b), answers in sorted(listing.said.items()):
        if len(answers) > 1:
            lines = sorted(answers.values())
            words = f"device {a} can and cannot access device {b}: lines {lines[0]} and {lines[1]}"
            notes.append(Note(lines[1], "contradictory", words))
        else:
            status = "OK" if True in answers else REFUSED
            peers.append(PeerAccess(a=ordinals[a], b=ordinals[b], status=status))
    gpus = tuple(GpuId(bus=buses.get(device), model=listing.models.get(device)) for device in devices)
    whole = (len(devices), len(devices)) in listing.squares
    snapshot = _snapshot(text, KIND_CUDA, section, gpus, peers, whole=whole)
    return Reading(KIND_CUDA, (snapshot,), frozenset(listing.lines), len(peers) + len(buses), tuple(notes))


def _buses(listing: _Listing) -> tuple[dict[int, str], list[Note]]:
    """PCI addresses of the devices, where the number base is certain.

    NVIDIA's sample prints hexadecimal (`%x`); programs derived from it print decimal, and the text
    looks the same until a letter appears. An address that the two bases read differently is left out.
    """
    letters = any(re.search("[a-f]", part) for place in listing.places.values() for part in place)
    buses: dict[int, str] = {}
    unsure = []
    for device, place in sorted(listing.places.items()):
        bus = make_bus(*(int(part, 16) for part in place))
        if bus and (letters or bus == make_bus(*(int(part) for part in place))):
            buses[device] = bus
        else:
            unsure.append(device)
    if not unsure:
        return buses, []
    names = ", ".join(map(str, unsure))
    words = f"bus ids of devices {names} may be decimal or hexadecimal and were not taken"
    return buses, [Note(min(listing.lines), "ignored", words)]
