"""The bubble over several numbers of stages and microbatches, as a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from topocheck.errors import UsageError
from topocheck.pipeline.bubble import Bubble, closed_total, measure
from topocheck.pipeline.schedule import MOST_ACTIONS, Pipeline, Schedule

__all__ = ["MOST_CELLS", "Cell", "Sweep", "parse_sizes", "percent", "sweep", "table"]

MOST_CELLS = 10_000
"""Cells of a sweep."""
COLUMNS = 9
"""Columns of a table beside each other."""
SIZES = re.compile(r"([0-9]{1,10})(?:\.\.([0-9]{1,10}))?")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One combination."""

    stages: int
    microbatches: int
    idle: float | None
    """Idle part of the stages' time; None where the schedule does not take these sizes."""
    method: str | None
    """How it was found: closed form, or simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is swept over."""

    stages: Sequence[int]
    microbatches: Sequence[int]
    schedule: Schedule = "forward"
    chunks: int = 1
    backward: Fraction = Fraction(2)
    times: tuple[Fraction, ...] | None = None
    """Times of the stages where they are uneven; then there is one number of stages."""


def parse_sizes(words: str, what: str, most: int) -> list[int]:
    """Numbers from 1 to `most` in `2,4,8` or `1..64`, each once, in their order. Raises UsageError."""
    sizes: dict[int, None] = {}
    for word in words.split(","):
        match = SIZES.fullmatch(word.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= most:
            raise UsageError(
                f"{what} must be numbers from 1 to {most:,}, such as 4 or 2,4,8 or 1..64, "
                f"not {word.strip()[:40]!r}"
            )
        if last - first + 1 + len(sizes) > MOST_CELLS:
            raise UsageError(f"{what}: {MOST_CELLS:,} numbers are the most in one sweep")
        sizes |= dict.fromkeys(range(first, last + 1))
    return list(sizes)


def sweep(over: Sweep) -> list[Cell]:
    """All cells, a row of microbatches after the other. Raises UsageError if that is too much work."""
    cells, work = len(over.stages) * len(over.microbatches), sum(over.stages) * len(over.microbatches)
    if cells > MOST_CELLS or work > MOST_ACTIONS:
        raise UsageError(
            f"a sweep over {len(over.stages):,} numbers of stages and {len(over.microbatches):,} of "
            "microbatches is too much: sweep over less"
        )
    pairs = [(stages, count) for count in over.microbatches for stages in over.stages]
    pipelines = [_pipeline(over, *pair) for pair in pairs]
    simulated = sum(one.actions for one in pipelines if one is not None and closed_total(one) is None)
    if simulated > MOST_ACTIONS:
        raise UsageError(
            f"the sweep would simulate {simulated:,} actions, more than {MOST_ACTIONS:,}: sweep over less"
        )
    if not any(pipelines):
        raise UsageError(f"no combination is one that the {over.schedule} schedule takes")
    found = (None if one is None else measure(one) for one in pipelines)
    return [_cell(stages, count, one) for (stages, count), one in zip(pairs, found, strict=True)]


def _pipeline(over: Sweep, stages: int, microbatches: int) -> Pipeline | None:
    """One combination; None where interleaved 1F1B has no order for it."""
    if over.schedule == "interleaved" and microbatches % max(1, microbatches // stages):
        return None
    return Pipeline(
        forward=over.times or (Fraction(1),) * stages,
        microbatches=microbatches,
        schedule=over.schedule,
        chunks=over.chunks,
        backward=over.backward,
    )


def _cell(stages: int, microbatches: int, found: Bubble | None) -> Cell:
    return Cell(
        stages=stages,
        microbatches=microbatches,
        idle=None if found is None else float(found.idle),
        method=None if found is None else found.method,
    )


def table(cells: Iterable[Cell]) -> Iterator[str]:
    """Idle parts: a row for each number of microbatches, a column for each number of stages."""
    idle = {(cell.microbatches, cell.stages): cell.idle for cell in cells}
    rows, stages = list(dict.fromkeys(row for row, _ in idle)), list(dict.fromkeys(p for _, p in idle))
    for start in range(0, len(stages), COLUMNS):
        if start:
            yield ""
        part = stages[start : start + COLUMNS]
        yield "  ".join(["m".rjust(7), *(f"p={size}".rjust(6) for size in part)])
        for row in rows:
            words = [percent(idle[row, size]).removesuffix(" %").rjust(6) for size in part]
            yield "  ".join([str(row).rjust(7), *words])


def percent(part: Fraction | float | None) -> str:
    """`42.9 %`; a dash is not defined. What is not quite nothing or all is not rounded to it."""
    if part is None:
        return "-"
    if 0 < part < Fraction(1, 1000):
        return "<0.1 %"
    return ">99.9 %" if Fraction(999, 1000) < part < 1 else f"{float(part) * 100:.1f} %"
