"""Units of work that a program wrote down itself: a JSON object a line, or CSV with a header.

One line says what one stage did with one unit:

    {"unit": 7, "stage": 1, "host": "gpu-02", "receive_start_ns": 10, "receive_end_ns": 14,
     "compute_start_ns": 15, "compute_end_ns": 35, "send_start_ns": 36, "send_end_ns": 40}

Times end in `_ns`, `_us`, `_ms` or `_s`, all of a file in the same. What is not known is left out.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Annotated, Literal, cast

import msgspec

from topocheck.errors import InputError
from topocheck.pipeline.trace import MOST_STAGE_UNITS, Key, StageTrace, Trace, Unit, assembled

__all__ = ["UnitLine", "UnitTraces", "is_units"]

MOST_LINE_BYTES = PIECE_BYTES = 1 << 20
MOST_STAGES = 1024
FACTORS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds in each unit of time."""
SUFFIX = re.compile(r"\bcompute_start_(ns|us|ms|s)\b")
LATEST_NS = 1 << 63


class UnitLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One line: what one stage did with one unit of work.

    In CSV the fields are the columns, and an empty cell is not known. `_us`, `_ms` or `_s` may stand in place
    of `_ns`, in the whole file.
    """

    unit: str | int
    """Id of the unit of work, the same in all stages: an iteration or a microbatch."""
    stage: int
    """Pipeline stage, from 0."""
    iteration: str | int | None = None
    """Iteration, where the ids of its microbatches come again in the next one."""
    direction: Annotated[Literal["forward", "backward"], msgspec.Meta(description="Which pass it is.")] = (
        msgspec.field(default="forward", name="pass")
    )
    """Which pass it is, under the name `pass`, which no attribute can have."""
    host: str | None = None
    """Machine whose clock gave the times; lines of a file that name none are taken as of one machine."""
    rank: int | None = None
    """Global rank; of a stage of several ranks the lowest counts."""
    ready_ns: int | float | None = None
    """When the input was there to be worked on: at the first stage it shows waiting for work."""
    receive_start_ns: int | float | None = None
    """When the stage began to receive, or to wait for it."""
    receive_end_ns: int | float | None = None
    """When the input was received."""
    compute_start_ns: int | float
    """When the stage began to compute."""
    compute_end_ns: int | float
    """When the stage had computed."""
    send_start_ns: int | float | None = None
    """When the stage began to send."""
    send_end_ns: int | float | None = None
    """When the output was sent."""


TIMES = tuple(name for name in UnitLine.__struct_fields__ if name.endswith("_ns"))


def is_units(head: bytes) -> bool:
    """The first bytes of a file are those of a file of units."""
    text = head.decode("utf-8-sig", "replace").lstrip()
    first = text.partition("\n")[0]
    return SUFFIX.search(first) is not None and '"traceEvents"' not in first


def _line_type(suffix: str) -> type[UnitLine]:
    """UnitLine as a file of this unit of time writes it: the same attributes under other names."""
    if suffix == "ns":
        return UnitLine
    names = {name: f"{name[:-2]}{suffix}" for name in TIMES} | {"direction": "pass"}
    fields = [
        (one.name, one.type) if one.required else (one.name, one.type, one.default)
        for one in msgspec.structs.fields(UnitLine)
    ]
    made = msgspec.defstruct(
        "UnitLine", fields, rename=names, forbid_unknown_fields=True, frozen=True, kw_only=True, gc=False
    )
    return cast("type[UnitLine]", made)


@dataclass(slots=True)
class _Stage:
    """One stage while it is read."""

    clock: str
    host: str | None
    rank: int | None
    source: str
    units: dict[Key, Unit] = field(default_factory=dict)
    left: int = 0
    """Units beyond those that are kept."""
    others: set[int] = field(default_factory=set)
    """Further ranks of this stage."""

    @property
    def full(self) -> bool:
        """No further unit is kept."""
        return len(self.units) >= MOST_STAGE_UNITS

    def is_of(self, clock: str, rank: int | None) -> bool:
        """A line of this clock and rank belongs to it."""
        return clock == self.clock and rank == self.rank


class UnitTraces:
    """Files of units, one after the other, to be put together."""

    def __init__(self) -> None:
        self._stages: dict[int, _Stage] = {}
        self._unnamed: dict[str, None] = {}

    def read(self, stream: IO[bytes], path: str) -> None:
        """Take one file. Raises InputError with the line of what is wrong."""
        lines = _lines(stream, path)
        first = next(lines, b"")
        text = first.decode("utf-8-sig", "replace").strip()
        suffix = SUFFIX.search(text)
        if suffix is None:
            raise InputError("names no compute_start_ns", path=path, line=1, fix="see topocheck schema unit")
        kind, factor = _line_type(suffix[1]), FACTORS[suffix[1]]
        units = (
            _json_lines(chain([first], lines), kind, path)
            if text.startswith("{")
            else _csv_lines(text, lines, kind, path)
        )
        for number, line in units:
            stage = self._stages.get(line.stage)
            # Most lines of a long file: they are checked and counted, and no more.
            if stage is not None and stage.full and stage.is_of(line.host or path, line.rank):
                stage.left += 1
            else:
                self._take(line, number, path, factor)

    def _take(self, line: UnitLine, number: int, path: str, factor: int) -> None:
        stage = self._stage(line, number, path)
        if line.rank != stage.rank and line.rank is not None:
            stage.others.add(line.rank)
            if stage.rank is None or line.rank > stage.rank:
                return
            stage.others.add(stage.rank)
            stage.rank, stage.units = line.rank, {}
        if stage.full:
            stage.left += 1
            return
        unit = _unit(line, number, path, factor)
        before = stage.units.setdefault(unit.key, unit)
        if before is not unit:
            raise InputError(
                f"unit {unit.unit[:40]!r} of stage {unit.stage} stands here and in line {before.line}",
                path=path,
                line=number,
                fix="give each unit an id of its own, or the iteration beside it",
            )

    def _stage(self, line: UnitLine, number: int, path: str) -> _Stage:
        """Where a line belongs. Raises InputError for a stage that lies on two hosts."""
        host = line.host or None
        clock = host or path
        if host is None:
            self._unnamed[path] = None
        stage = self._stages.get(line.stage)
        if stage is None:
            if not 0 <= line.stage < MOST_STAGES:
                raise InputError(
                    f"stage {line.stage} is not a number from 0 to {MOST_STAGES - 1}", path=path, line=number
                )
            stage = self._stages[line.stage] = _Stage(clock, host, line.rank, path)
        if stage.clock != clock and line.rank in {None, stage.rank}:
            raise InputError(
                f"stage {line.stage} has times of {clock[:80]} here and of {stage.clock[:80]} before",
                path=path,
                line=number,
                fix="a stage's times are of one rank on one host: name the rank of each line",
            )
        return stage

    def finish(self) -> Trace:
        """Everything that was read. Raises InputError where stages are missing or times cannot be."""
        last = max(self._stages, default=0)
        stages = [
            StageTrace(
                stage=number,
                clock=stage.clock,
                host=stage.host,
                rank=stage.rank,
                source=stage.source,
                units=tuple(sorted(_ended(stage.units.values(), last), key=_start)),
            )
            for number, stage in self._stages.items()
        ]
        return assembled("units", stages, tolerance_ns=0, notes=[*self._notes()])

    def _notes(self) -> Iterator[str]:
        for path in self._unnamed:
            yield f"{path}: lines that name no host are taken as of one machine and one clock"
        for number, stage in sorted(self._stages.items()):
            if stage.left:
                yield f"stage {number}: the first {MOST_STAGE_UNITS:,} units count, {stage.left:,} do not"
            if stage.others - {stage.rank}:
                ranks = len(stage.others | {stage.rank})
                yield f"stage {number}: rank {stage.rank} stands for its {ranks} ranks"


def _start(unit: Unit) -> tuple[int, int]:
    return unit.compute_start_ns, unit.compute_end_ns


def _ended(units: Iterable[Unit], last: int) -> Iterator[Unit]:
    """Units of which none receives from a stage after the last, or sends there."""
    for unit in units:
        if unit.stage < last or (unit.receive_from != last + 1 and unit.send_to != last + 1):
            yield unit
        elif unit.backward:
            yield msgspec.structs.replace(unit, receive_from=None)
        else:
            yield msgspec.structs.replace(unit, send_to=None)


def _unit(line: UnitLine, number: int, path: str, factor: int) -> Unit:
    """One line as a unit. Raises InputError for times that are none."""
    times: dict[str, int | None] = {}
    for name in TIMES:
        value = getattr(line, name)
        times[name] = None if value is None else _whole(value, factor, name, number, path)
    stage, backward = line.stage, line.direction == "backward"
    before, after = (stage - 1 if stage else None), stage + 1
    if before is None and not backward and times["ready_ns"] is None:
        times["ready_ns"] = times["receive_end_ns"]
    return Unit(
        unit=str(line.unit) if line.iteration is None else f"{line.iteration}/{line.unit}",
        stage=stage,
        backward=backward,
        receive_from=after if backward else before,
        send_to=before if backward else after,
        line=number,
        **times,  # type: ignore[arg-type]  # compute_start_ns and compute_end_ns are never None
    )


def _whole(value: float, factor: int, name: str, number: int, path: str) -> int:
    """Whole nanoseconds."""
    if not math.isfinite(value) or abs(value) * factor >= LATEST_NS:
        raise InputError(f"{name[:-3]} is no time: {value}", path=path, line=number)
    return value * factor if isinstance(value, int) else round(value * factor)


def _lines(stream: IO[bytes], path: str) -> Iterator[bytes]:
    """Lines with their ends, none longer than it can be."""
    rest, number = b"", 0
    while piece := stream.read(PIECE_BYTES):
        *whole, rest = (rest + piece).splitlines(keepends=True)
        if rest.endswith(b"\n"):
            whole.append(rest)
            rest = b""
        yield from whole
        number += len(whole)
        if len(rest) > MOST_LINE_BYTES:
            raise InputError("is longer than 1 MB", path=path, line=number + 1, fix="give one unit a line")
    if rest:
        yield rest


def _json_lines(lines: Iterator[bytes], kind: type[UnitLine], path: str) -> Iterator[tuple[int, UnitLine]]:
    decode = msgspec.json.Decoder(kind).decode
    for number, line in enumerate(lines, 1):
        try:
            unit = decode(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
        except msgspec.ValidationError as error:
            raise InputError(_words(error), path=path, line=number, fix="see topocheck schema unit") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if not line.strip():
                continue
            raise _broken(line, path, number) from None
        yield number, unit


def _broken(line: bytes, path: str, number: int) -> InputError:
    """A line that is no JSON; the last one may be half written."""
    if not line.endswith(b"\n"):
        return InputError(
            "ends in the middle of this line",
            path=path,
            line=number,
            fix="the program was still writing, or was killed: let it end, or cut this line",
        )
    return InputError(
        "is no JSON object", path=path, line=number, fix="one unit a line, see topocheck schema unit"
    )


def _csv_lines(
    header: str, lines: Iterator[bytes], kind: type[UnitLine], path: str
) -> Iterator[tuple[int, UnitLine]]:
    columns = [name.strip() for name in next(csv.reader([header]))]
    text = (line.decode("utf-8", "replace") for line in lines)
    number = 1
    try:
        for number, cells in enumerate(csv.reader(text, strict=True), 2):
            if not cells:
                continue
            if len(cells) != len(columns):
                raise InputError(
                    f"has {len(cells)} cells and the header has {len(columns)}",
                    path=path,
                    line=number,
                    fix="the last line may be half written: cut it" if len(cells) < len(columns) else "",
                )
            row = {name: cell.strip() for name, cell in zip(columns, cells, strict=True) if cell.strip()}
            yield number, _row(row, kind, path, number)
    except csv.Error as error:
        raise InputError(f"is no CSV: {error}", path=path, line=number + 1) from None


def _row(row: dict[str, str], kind: type[UnitLine], path: str, number: int) -> UnitLine:
    try:
        return msgspec.convert(row, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(_words(error), path=path, line=number, fix="see topocheck schema unit") from None


def _words(error: msgspec.ValidationError) -> str:
    """What is wrong with a line, as the house writes it."""
    words = str(error).replace("Object missing", "missing").replace("Object contains", "has")
    return words.replace("Expected", "expected").replace(" - at `$.", " for `")[:200]
