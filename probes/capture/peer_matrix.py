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
    r"[>\s]*Peer access from (\S.{0,100}?) \(GPU([0-9]{1,3})\) -> (\S.{0,100}?) \(GPU([0-9]{1,3})\) : (Yes|No)\s*"
)
CORNER = re.compile(r"\s*D\\D((?:\s+[0-9]{1,3})+)\s*")
CONNECTED = re.compile(r"\s*([0-9]{1,3})((?:\s+[01])+)\s*")

REFUSED = "NS"
"""CUDA says that there is no peer access, not why."""


def parse(text: Text) -> list[Reading]:
    """Read all tables and listings of peer access. Raises CaptureError for a table that does not align."""
    grids = [grid for grid in read_grids(text, STATUSES) if not grid.tail]
    listings = list(_listings(text))
    parts = sections(text) if grids or listings else ()
    readings = [_of_grid(text, grid, section_at(parts, grid.line)) for grid in grids]
    return readings + [_of_listing(text, found, section_at(parts, min(found.lines))) for found in listings]


def _of_grid(text: Text, grid: Grid, section: Section) -> Reading:
    match = CAPABILITY.search(section.command or "")
    access = match is not None and match[1] in "rw"
    peers, left_out = [], 0
    for a, row in enumerate(grid.columns):
        for b, column in enumerate(grid.columns):
            status = grid.cell(row, b)
            if a == b or status is None:
                continue
            if status == "OK" or access:
                peers.append(PeerAccess(a=a, b=b, status="DISABLED" if status == "DR" else status))
            else:
                left_out += 1
    notes = list(grid.notes)
    if left_out:
        table = f"this is the table -p2p {match[1]}" if match else "the text does not show which -p2p table this is"
        words = f"{left_out} refusals were not taken: {table}, and only -p2p r and w are peer access"
        notes.append(Note(grid.line, "ignored", words))
    gpus = tuple(GpuId(nvml=int(name[3:])) for name in grid.columns)
    whole = not grid.missing and not grid.gaps
    snapshot = _snapshot(text, KIND, section.host, Hardware(gpus=(GpuShape(),) * len(gpus), peers=tuple(peers)), gpus)
    return Reading(KIND, (_covered(snapshot, whole),), frozenset(grid.lines), len(peers), tuple(notes))
