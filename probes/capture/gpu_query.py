"""`nvidia-smi --query-gpu=... --format=csv`: a table whose header, or command, names its columns.

Columns may come in any order; without a header (`noheader`) only the command line tells them. The
queries of processes look alike and list processes, not GPUs: a table with a `pid` is not read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.capture.gpu_block import read_uuid
from topocheck.probes.capture.prompt import Section, extent, section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.probes.capture.text import stated
from topocheck.snapshot import (
    SCHEMA,
    Coverage,
    FullSnapshot,
    GpuId,
    GpuShape,
    GpuState,
    Hardware,
    Host,
    Identity,
    Software,
    Source,
    State,
)

__all__ = ["KIND", "parse"]

KIND = "nvidia-smi --query-gpu"

SPELLINGS = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
}
"""Older names of the same columns."""

HEADING = re.compile(r"[a-z][a-z0-9_.]{1,60}(?: \[[A-Za-z%/]{1,8}\])?")
QUERY = re.compile(r"--query-gpu[= ]\s*['\"]?([a-z0-9_.,]+)")
NUMBER = re.compile(r"[0-9]{1,4}")
MEMORY = re.compile(r"([0-9]{1,9})(?: MiB)?")


@dataclass(frozen=True, slots=True)
class _Table:
    """One query as far as it is there."""

    section: Section
    columns: tuple[str, ...]
    rows: tuple[tuple[int, dict[str, str]], ...]
    """Line and values by column; absent values are left out."""
    lines: frozenset[int]
    broken: int | None
    """Line that should have been a row and is none."""


def parse(text: Text) -> list[Reading]:
    """Read every query of GPUs, one Reading each."""
    return [_reading(text, table) for table in _tables(text) if table.rows]


def _tables(text: Text) -> Iterator[_Table]:
    likely = [
        number
        for number, line in enumerate(text.lines, 1)
        if len(line) < 2000 and ("uuid" in line or "bus_id" in line or "index" in line)
    ]
    starts = [
        number
        for number in likely
        if "--query-gpu" in text.lines[number - 1] or _columns(text.lines[number - 1]) is not None
    ]
    if not starts:
        return
    parts = sections(text)
    for number in starts:
        section = section_at(parts, number)
        columns = _columns(text.lines[number - 1])
        if columns is None:
            match = QUERY.search(section.command or "")
            headless = match is not None and "noheader" in (section.command or "")
            columns = _known(match[1].split(",")) if match and headless else None
        if columns is not None:
            yield _table(text, number, section, columns)


def _columns(line: str) -> tuple[str, ...] | None:
    """Columns of a header line; None if it is none."""
    fields = [field.strip() for field in line.split(",")]
    if not all(HEADING.fullmatch(field) for field in fields):
        return None
    return _known([field.partition(" ")[0] for field in fields])


def _known(names: Sequence[str]) -> tuple[str, ...] | None:
    """Column names in today's spelling, if they tell GPUs apart and list no processes."""
    columns = tuple(SPELLINGS.get(name, name) for name in names)
    identified = "uuid" in columns or "pci.bus_id" in columns or {"index", "name"} <= set(columns)
    return columns if identified and "pid" not in columns and len(set(columns)) == len(columns) else None


def _table(text: Text, start: int, section: Section, columns: tuple[str, ...]) -> _Table:
    """Rows below a header until a line that is none."""
    rows: list[tuple[int, dict[str, str]]] = []
    broken = None
    for number in range(start + 1, section.end + 1):
        line = text.lines[number - 1]
        if not line.strip() or _columns(line) is not None:
            break
        values = _row(line, columns)
        if values is None:
            broken = number
            break
        rows.append((number, values))
    return _Table(section, columns, tuple(rows), frozenset({start, *(line for line, _ in rows)}), broken)


def _row(line: str, columns: tuple[str, ...]) -> dict[str, str] | None:
    """Values by column; None if the line has another number of fields or an identity that is none."""
    fields = line.split(",")
    if len(fields) != len(columns):
        return None
    values = {name: value for name, field in zip(columns, fields, strict=True) if (value := stated(field))}
    fits = (
        ("index" not in values or NUMBER.fullmatch(values["index"]))
        and ("uuid" not in values or read_uuid(values["uuid"]))
        and ("pci.bus_id" not in values or parse_bus(values["pci.bus_id"]))
        and values.keys() & {"index", "uuid", "pci.bus_id"}
    )
    return values if fits else None


def _reading(text: Text, table: _Table) -> Reading:
    notes = []
    if table.broken is not None:
        words = f"this line is no row of the {len(table.columns)} columns {', '.join(table.columns)}"
        notes.append(Note(table.broken, "cut", words))
    drivers = {values["driver_version"] for _, values in table.rows if "driver_version" in values}
    if len(drivers) > 1:
        notes.append(
            Note(table.rows[0][0], "contradictory", f"several drivers: {', '.join(sorted(drivers))}")
        )
    rows = [values for _, values in table.rows]
    used = [_memory(values, "memory.used") for values in rows]
    whole = table.section.command is None or table.section.lists_all("nvidia-smi")
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        coverage=Coverage(gpus=extent(whole and table.broken is None)),
        identity=Identity(host=Host(name=table.section.host), gpus=tuple(map(_gpu, rows))),
        hardware=Hardware(
            gpus=tuple(
                GpuShape(model=values.get("name"), memory_bytes=_memory(values, "memory.total"))
                for values in rows
            )
        ),
        software=Software(driver=drivers.pop() if len(drivers) == 1 else None),
        state=State(
            gpus=tuple(
                GpuState(gpu=n, memory_used_bytes=size) for n, size in enumerate(used) if size is not None
            )
        ),
    )
    return Reading(KIND, (snapshot,), table.lines, sum(map(len, rows)), tuple(notes))


def _gpu(values: dict[str, str]) -> GpuId:
    index, uuid, bus = (values.get(name) for name in ("index", "uuid", "pci.bus_id"))
    return GpuId(
        uuid=read_uuid(uuid) if uuid else None,
        bus=parse_bus(bus) if bus else None,
        nvml=int(index) if index else None,
        model=values.get("name"),
        serial=values.get("serial"),
    )


def _memory(values: dict[str, str], column: str) -> int | None:
    """A size in bytes; nvidia-smi prints MiB, with `nounits` without saying so in the row."""
    match = MEMORY.fullmatch(values.get(column, ""))
    return int(match[1]) << 20 if match else None
