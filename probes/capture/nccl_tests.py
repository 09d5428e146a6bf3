"""The header of nccl-tests: which rank runs in which process on which host and GPU.

Since 2.13 or so a line is `#  Rank  0 Group  0 Pid   4157 on     tray-04 device  0 [0008:06:00] NAME`;
older ones lack the group, print only the bus number (`[0x07]`) or lack the process as well
(src/common.cu, src/util.cu). Rank 0 prints all lines after `# Using devices`, so the list is whole if
its ranks are. `device` is the CUDA index, not NVML's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.capture.nccl_prefix import without_tags
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import (
    SCHEMA,
    At,
    Coverage,
    FullSnapshot,
    GpuId,
    Host,
    Identity,
    RankClaim,
    Software,
    Source,
)

__all__ = ["KIND", "parse"]

KIND = "nccl-tests header"

RANK = re.compile(
    r"#\s+Rank\s+(?P<rank>\d{1,9})(?:\s+Group\s+\d{1,9})?(?:\s+Pid\s+(?P<pid>\d{1,9}))?\s+on\s+"
    r"(?P<host>\S{1,253})\s+device\s+(?P<device>\d{1,3})\s+\[(?P<bus>[0-9A-Fa-fx:.]{1,16})\](?:\s+(?P<model>\S.*))?$"
)

VERSION = re.compile(r"# nccl-tests version \S+ nccl-headers=\d+ nccl-library=(?P<code>\d{4,6})\b")


@dataclass(frozen=True, slots=True)
class Line:
    """One rank of the header."""

    number: int
    rank: int
    pid: int | None
    host: str
    device: int
    bus: str | None
    model: str | None


@dataclass(slots=True)
class Block:
    """One header: its lines in order, and how the text goes on."""

    version: str | None = None
    lines: list[Line] = field(default_factory=list)
    opened: bool = False
    """`# Using devices` stands before it."""
    closed: bool = False
    """Another line stands after it, so its end is not the end of the text."""

    @property
    def whole(self) -> bool:
        """Every rank from 0 on has one line, and nothing is cut before or after."""
        ranks = sorted(line.rank for line in self.lines)
        return self.opened and self.closed and ranks == list(range(len(ranks)))


def parse(text: Text) -> list[Reading]:
    """Read each nccl-tests header of a text; [] if there is none."""
    return [block_reading(text, block) for block in blocks(text)]


def blocks(text: Text) -> Iterator[Block]:
    """The headers of a text; a rank that comes again begins the next. Other output may lie between."""
    block = Block()
    for number, line in enumerate(text.lines, 1):
        rest = without_tags(line)[0] if "#" in line else line
        found = parse_line(number, rest)
        if found:
            if any(found.rank == known.rank for known in block.lines):
                yield block
                block = Block(version=block.version)
            block.lines.append(found)
        elif rest.startswith("# Using devices"):
            if block.lines:
                yield block
            block = Block(version=block.version, opened=True)
        elif VERSION.match(rest):
            block.version = parse_version(rest)
        block.closed = not found and (block.closed or bool(rest.strip()))
    if block.lines:
        yield block


def parse_line(number: int, line: str) -> Line | None:
    """One rank; a bus number without domain and device is no address."""
    match = RANK.match(line.rstrip())
    if not match:
        return None
    bus = parse_bus(match["bus"]) if ":" in match["bus"] else None
    pid = int(match["pid"]) if match["pid"] else None
    return Line(number, int(match["rank"]), pid, match["host"], int(match["device"]), bus, match["model"])


def parse_version(line: str) -> str | None:
    """NCCL_VERSION_CODE as `2.29.7`: up to 2.8 the parts have one digit, two and two since (nccl.h)."""
    match = VERSION.match(line)
    if not match:
        return None
    number = int(match["code"])
    major, rest = divmod(number, 1000 if number < 10000 else 10000)
    minor, patch = divmod(rest, 100)
    return f"{major}.{minor}.{patch}"


def block_reading(text: Text, block: Block) -> Reading:
    """One header as evidence: a claim for each rank, and the GPUs of each host in the order seen."""
    hosts = list(dict.fromkeys(line.host for line in block.lines))
    notes: tuple[Note, ...] = ()
    if not block.whole:
        seen = f"{len(block.lines)} ranks up to {max(line.rank for line in block.lines)}"
        notes = (Note(block.lines[-1].number, "cut", f"the list of ranks is not shown to be whole: {seen}"),)
    return Reading(
        kind=KIND,
        snapshots=tuple(host_snapshot(text, block, host) for host in hosts),
        lines=frozenset(line.number for line in block.lines),
        facts=len(block.lines),
        notes=notes,
    )


def host_snapshot(text: Text, block: Block, host: str) -> FullSnapshot:
    """The ranks and GPUs of one host. The library is known where rank 0 runs: it prints the header."""
    lines = [line for line in block.lines if line.host == host]
    gpus: dict[str | int, GpuId] = {}
    for line in lines:
        gpus.setdefault(line.bus or line.device, GpuId(bus=line.bus, model=line.model))
    ordinals = {key: place for place, key in enumerate(gpus)}
    claims = tuple(
        RankClaim(
            rank=line.rank,
            size=len(block.lines) if block.whole else None,
            gpu=ordinals[line.bus or line.device],
            pid=line.pid,
            family="nccl-tests",
            at=At(source=text.source, line=line.number),
        )
        for line in lines
    )
    first = any(line.rank == 0 for line in lines)
    return FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        coverage=Coverage(gpus="part", ranks="all" if block.whole else "part"),
        identity=Identity(host=Host(name=host), gpus=tuple(gpus.values())),
        ranks=claims,
        software=Software(nccl=block.version if first else None),
    )
