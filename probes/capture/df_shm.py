"""Shared memory: `df -h /dev/shm`, the mount of it, and what is said when it is too small.

The fact, in the vocabulary of LogFact:

| kind | value |
|---|---|
| `shm-failed` | `9637888 /dev/shm/nccl-Fx1`: bytes wanted, and the segment; `0` if neither is said |

Lines that NCCL's own log wrote (`NCCL WARN ...`) say it too; they are read here as well, for the log's
parser keeps them as warnings alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from topocheck.probes.capture.command_scope import scope_of
from topocheck.probes.capture.nccl_prefix import parse_records
from topocheck.probes.capture.prompt import Section, section_at, sections
from topocheck.probes.capture.reading import Reading, Text
from topocheck.snapshot import (
    SCHEMA,
    At,
    Coverage,
    FullSnapshot,
    Host,
    Identity,
    Limits,
    LogFact,
    Observed,
    Source,
)

__all__ = ["KIND", "KIND_FAILURE", "parse", "parse_size"]

KIND = "df /dev/shm"
KIND_FAILURE = "shared memory failure"

MOUNT = "/dev/shm"  # noqa: S108 - a name to look for, nothing is written there
DF = re.compile(
    r"\s*\S{1,100}\s+(?P<size>[0-9.]{1,16}[kKMGTP]?i?B?)\s+(?P<used>[0-9.]{1,16}[kKMGTP]?i?B?)\s+"
    r"(?P<free>[0-9.]{1,16}[kKMGTP]?i?B?)\s+[0-9]{1,3}%\s+/dev/shm\s*"
)
BLOCKS = re.compile(r"Filesystem\s+(?P<unit>1K|1024|1M|512|1G)-blocks\s")
MOUNTED = re.compile(
    r"\s*\S{1,100} (?:on )?/dev/shm (?:type )?tmpfs \(?(?:[\w=.:-]{1,60},){0,20}"
    r"size=(?P<size>[0-9]{1,15}[kmg]?)\b.*"
)
SIZE = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,3})?)(?P<suffix>[KMGTP]?)(?:iB|i|B)?", re.IGNORECASE)
SUFFIXES = "KMGTP"
MOST_MOUNTS = 200
"""Lines between a header and the row of /dev/shm."""
UNITS = {"1K": 1 << 10, "1024": 1 << 10, "1M": 1 << 20, "512": 512, "1G": 1 << 30}
POWERS_OF_TEN = re.compile(r"\bdf\s(?:.*\s)?(?:-[a-zA-Z]*H|--si)\b")

SEGMENT = re.compile(
    r"(?:Error while (?:creating|attaching to) shared memory segment (?P<path>/dev/shm/[\w.-]{1,80})"
    r" \(size (?P<size>[0-9]{1,18})\)"
    r"|Error: failed to extend (?P<extended>/dev/shm/[\w.-]{1,80}) to (?P<bytes>[0-9]{1,18}) bytes)"
)
"""NCCL's src/misc/shmutils.cc."""
OTHER = re.compile(
    r"insufficient shared memory \(shm\)|out of shared memory\. Please try to raise your shared memory limit"
    r"|unable to (?:open|allocate) shared memory (?:object|\(shm\))",
    re.IGNORECASE,
)
"""PyTorch's words."""


def parse(text: Text) -> list[Reading]:
    """Read sizes of /dev/shm and failures for want of it; [] if there is neither."""
    likely = [
        number
        for number, line in enumerate(text.lines, 1)
        if (MOUNT in line or "hared memory" in line) and len(line) < 4000
    ]
    if not likely:
        return []
    parts = sections(text)
    sizes: dict[tuple[Section, int, int | None], int] = {}
    for number in likely:
        section = section_at(parts, number)
        size, free = _size(text, section, number)
        if size is not None:
            sizes.setdefault((section, size, free), number)
    readings = [_sized(text, *stated, number) for stated, number in sizes.items()]
    return [*readings, *_failures(text, parts, likely)]


def parse_size(text: str, *, unit: int = 1, ten: bool = False) -> int | None:
    """Bytes of `64M`, or of a bare number of units; None for other text. `ten` is for powers of 1000."""
    match = SIZE.fullmatch(text)
    if match is None:
        return None
    suffix = match["suffix"].upper()
    factor = (1000 if ten else 1024) ** (SUFFIXES.index(suffix) + 1) if suffix else unit
    return int(float(match["number"]) * factor)


def _size(text: Text, section: Section, number: int) -> tuple[int | None, int | None]:
    """Size and free bytes of the file system, if this line states them."""
    line = text.lines[number - 1]
    row, mounted = DF.fullmatch(line), MOUNTED.fullmatch(line)
    if mounted:
        return parse_size(mounted["size"]), None
    if row is None:
        return None, None
    unit = _unit(text, section, number) if row["size"].isdigit() else 0
    ten = POWERS_OF_TEN.search(section.command or "") is not None
    size = parse_size(row["size"], unit=unit, ten=ten)
    return (size, parse_size(row["free"], unit=unit, ten=ten)) if size else (None, None)


def _unit(text: Text, section: Section, number: int) -> int:
    """Bytes of one block, by the header above; 0 without one, for then a bare number says nothing."""
    above = text.lines[max(section.start - 1, number - MOST_MOUNTS) : number - 1]
    header = next((match for line in reversed(above) if (match := BLOCKS.match(line.lstrip()))), None)
    return UNITS[header["unit"]] if header else 0


def _sized(text: Text, section: Section, size: int, free: int | None, number: int) -> Reading:
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        identity=Identity(host=Host(name=section.host)),
        limits=Limits(scope=scope_of(section), shm_bytes=size, shm_free_bytes=free),
    )
    return Reading(KIND, (snapshot,), frozenset({number}), 1 + (free is not None))


def _failures(text: Text, parts: tuple[Section, ...], likely: list[int]) -> Iterator[Reading]:
    """Failures by host: the one that NCCL's prefix names, else that of the prompt above."""
    hosts: dict[str | None, dict[str, LogFact]] = {}
    for number in likely:
        value = _failure(text.lines[number - 1])
        if value is None:
            continue
        record = next(iter(parse_records([text.lines[number - 1]])), None)
        host = (record.host if record else None) or section_at(parts, number).host
        pid = record.pid if record else None
        fact = LogFact(kind="shm-failed", value=value, pid=pid, at=At(source=text.source, line=number))
        hosts.setdefault(host, {}).setdefault(value.partition(" ")[0], fact)
    for host, facts in hosts.items():
        snapshot = FullSnapshot(
            schema=SCHEMA,
            sources=(Source(name=text.source, kind=KIND_FAILURE),),
            coverage=Coverage(observed="part"),
            identity=Identity(host=Host(name=host)),
            observed=Observed(facts=tuple(facts.values())),
        )
        lines = frozenset(fact.at.line for fact in facts.values() if fact.at and fact.at.line)
        yield Reading(KIND_FAILURE, (snapshot,), lines, len(facts))


def _failure(line: str) -> str | None:
    """Bytes and segment of a failure; None for a line that is none."""
    match = SEGMENT.search(line)
    if match:
        return f"{match['size'] or match['bytes']} {match['path'] or match['extended']}"
    return "0" if OTHER.search(line) else None
