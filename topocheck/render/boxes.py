"""Boxes of the placement map: nodes in rows, GPUs in them, frames around the cells of one stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from topocheck.render.marks import SEVERITIES
from topocheck.render.packed import number_of
from topocheck.render.residents import (
    Quarter,
    Resident,
    Residents,
    label_of,
    links_of,
    name_of,
    note_of,
    quarter_of,
    title_of,
    words_of,
)
from topocheck.render.route import Box, Cell, Rect
from topocheck.render.text import printable, shorten
from topocheck.render.words import say
from topocheck.report import RankReport, ShapeReport

__all__ = [
    "COMPACT",
    "FRAME_FOOT",
    "FULL",
    "MOST_CELLS",
    "PAD",
    "PALETTE",
    "TOP",
    "Style",
    "boxes_of",
    "by_quarter",
    "frames_of",
    "per_row",
]

PALETTE = 8
"""Number of fill colours; groups beyond it take them again from the first."""

MOST_CELLS = 72
"""Cells of a node that are drawn."""

TOP = 44
"""Height of the first row; arrows over a row pass above it."""

PAD = 12
"""Space inside a box and around the drawing."""

FRAME_FOOT = 20
"""Space under the boxes of a domain, where its name stands."""

_GAP = 6
_HEAD = 56
_RUN = 18
_FOOT = 14


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """Measures of one way to draw."""

    cell_width: int
    cell_height: int
    columns: int
    """Nodes beside each other, at most."""
    across: int
    """Space between boxes in a row; arrows and their labels lie there."""
    below: int
    """Space between rows; wrong edges dip into it."""
    full: bool
    """Cells carry GPU and tensor group besides the rank."""


FULL = Style(cell_width=58, cell_height=54, columns=4, across=66, below=58, full=True)
COMPACT = Style(cell_width=36, cell_height=26, columns=5, across=44, below=44, full=False)


def per_row(residents: Iterable[Residents]) -> int:
    """Cells in a row of a box."""
    most = max((len(resident.cells[:MOST_CELLS]) for resident in residents), default=1)
    return max(2, most if most <= 4 else 4 if most <= 8 else 8)


def rows_of(residents: Sequence[Residents], columns: int) -> Iterator[Sequence[Residents]]:
    """Rows of so many boxes; what several nodes lie in begins a row of its own."""
    shared = shared_quarters(residents)
    row: list[Residents] = []
    for one in residents:
        changes = bool(row) and _shared(row[-1], shared) != _shared(one, shared)
        if changes or len(row) == columns:
            yield row
            row = []
        row.append(one)
    if row:
        yield row


def shared_quarters(residents: Iterable[Residents]) -> list[Quarter]:
    """What several of these nodes lie in, in the order in which it comes."""
    counts = Counter(quarter_of(one.node) for one in residents)
    return [quarter for quarter, count in counts.items() if quarter is not None and count > 1]


def _shared(resident: Residents, shared: Sequence[Quarter]) -> Quarter | None:
    """What a node and others lie in."""
    quarter = quarter_of(resident.node)
    return quarter if quarter in shared else None


def by_quarter(residents: Sequence[Residents]) -> list[Residents]:
    """Nodes of one domain, or below one switch, beside each other, else in their order."""
    places: dict[Quarter | None, int] = {
        quarter: number for number, quarter in enumerate(shared_quarters(residents))
    }
    return sorted(residents, key=lambda one: places.get(quarter_of(one.node), len(places)))


def frames_of(residents: Sequence[Residents], boxes: Sequence[Box]) -> Iterator[tuple[Rect, str]]:
    """A frame around the boxes of each shared domain or switch, with its name."""
    for quarter in shared_quarters(residents):
        pairs = zip(residents, boxes, strict=True)
        own = [box for one, box in pairs if quarter_of(one.node) == quarter]
        x, y = min(box.x for box in own) - 8, min(box.y for box in own) - 8
        right, end = max(box.x + box.w for box in own) + 8, max(box.y + box.h for box in own) + FRAME_FOOT
        room = (right - x - 2 * PAD) // 6
        yield Rect(x, y, right - x, end - y), shorten(words_of(quarter), room)


def boxes_of(
    residents: Sequence[Residents],
    style: Style,
    columns: int,
    marks: Mapping[int, tuple[str, str]],
    shapes: Sequence[ShapeReport],
) -> Iterator[Box]:
    """Boxes in rows; all as wide as the widest, each row as high as its highest."""
    across = per_row(residents)
    width = across * (style.cell_width + _GAP) - _GAP + 2 * PAD
    y = TOP
    for number, row in enumerate(rows_of(residents, columns)):
        lines = max(-(-len(resident.cells[:MOST_CELLS]) // across) for resident in row)
        height = _HEAD + max(lines, 1) * (_RUN + style.cell_height + _GAP) + _FOOT
        for column, resident in enumerate(row):
            frame = Rect(PAD + column * (width + style.across), y, width, height)
            yield _box(
                resident,
                frame,
                row=number,
                column=column,
                per_row=across,
                style=style,
                marks=marks,
                shapes=shapes,
            )
        y += height + style.below


def _box(
    resident: Residents,
    frame: Rect,
    *,
    row: int,
    column: int,
    per_row: int,
    style: Style,
    marks: Mapping[int, tuple[str, str]],
    shapes: Sequence[ShapeReport],
) -> Box:
    """One node with its cells."""
    node = resident.node
    cells = [
        _cell(one, _seat(number, frame, per_row, style), marks)
        for number, one in enumerate(resident.cells[:MOST_CELLS])
    ]
    name = name_of(resident)
    return Box(
        x=frame.x,
        y=frame.y,
        w=frame.w,
        h=frame.h,
        row=row,
        column=column,
        name=shorten(name, (frame.w - 2 * PAD) // 9),
        title=shorten(name, 200),
        note=shorten(note_of(resident), (frame.w - 2 * PAD) // 6),
        links=shorten(links_of(resident, shapes), (frame.w - 2 * PAD) // 6),
        seen=node is not None and node.seen,
        cells=cells,
        runs=list(_runs(cells, resident.cells, per_row)),
    )


def _seat(number: int, frame: Rect, per_row: int, style: Style) -> Rect:
    """Where the cell of that number lies."""
    line, place = divmod(number, per_row)
    return Rect(
        frame.x + PAD + place * (style.cell_width + _GAP),
        frame.y + _HEAD + line * (_RUN + style.cell_height + _GAP) + _RUN,
        style.cell_width,
        style.cell_height,
    )


def _cell(resident: Resident, seat: Rect, marks: Mapping[int, tuple[str, str]]) -> Cell:
    """One cell with its words."""
    gpu, report = resident.gpu, resident.report
    found = [marks[rank] for rank in resident.ranks if rank in marks]
    severity, rule = min(found, key=lambda mark: SEVERITIES.index(mark[0]), default=("", ""))
    return Cell(
        x=seat.x,
        y=seat.y,
        w=seat.w,
        h=seat.h,
        ranks=resident.ranks,
        label=label_of(resident.ranks),
        gpu=say("cell_gpu_unknown") if gpu is None else say("cell_gpu", number=number_of(gpu)),
        group="" if report is None else say("cell_tensor", number=report.tensor_group),
        replica="" if report is None else say("cell_replica", number=report.replica),
        fills=None if report is None else fills_of(report),
        known=gpu is not None,
        severity=severity,
        title=title_of(resident, printable(rule)),
    )


def fills_of(rank: RankReport) -> tuple[int, int, int]:
    """Class numbers of its tensor group, stage and replica."""
    return rank.tensor_group % PALETTE, rank.stage % PALETTE, rank.replica % PALETTE


def _runs(cells: Sequence[Cell], residents: Sequence[Resident], per_row: int) -> Iterator[tuple[Rect, str]]:
    """Frames around neighbouring cells of one stage, with its label."""
    start = 0
    stages = [one.report.stage if one.report else None for one in residents[: len(cells)]]
    for number in range(1, len(cells) + 1):
        ends = number == len(cells) or number % per_row == 0 or stages[number] != stages[start]
        if not ends:
            continue
        stage = stages[start]
        if stage is not None:
            first, last = cells[start], cells[number - 1]
            frame = Rect(first.x - 3, first.y - _RUN + 2, last.x + last.w - first.x + 6, first.h + _RUN + 1)
            yield frame, say("run_wide" if frame.w > 110 else "run_narrow", number=stage)
        start = number
