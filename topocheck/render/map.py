"""Geometry of the placement map: nodes as boxes, GPUs as cells, wrong edges as lines.

Everything is computed here in whole user units; `templates/map.svg.j2` only writes it down. Nothing
depends on a browser measuring text, so the same report gives the same drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from topocheck.render.route import Arrow, Box, Cell, Link, Rect, arrow, link
from topocheck.render.text import printable, ranges, shorten
from topocheck.report import GpuReport, GroupReport, NodeReport, PlacementReport, RankReport

__all__ = ["PALETTE", "SEVERITIES", "Drawing", "Style", "draw", "marked_ranks"]

PALETTE = 8
"""Number of fill colours; tensor groups beyond it take them again from the first."""

SEVERITIES = ("error", "warning", "info")
"""Severities, worst first."""

_UNPLACED = "node not known"
_MOST_CELLS = 72
_MOST_LINKS = 48
_MOST_ARROWS = 96
_CROWD = 8
_TOP = 44


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


_FULL = Style(cell_width=58, cell_height=54, columns=4, across=66, below=58, full=True)
_COMPACT = Style(cell_width=36, cell_height=26, columns=5, across=44, below=44, full=False)
_GAP = 6
_PAD = 12
_HEAD = 42
_RUN = 18
_FOOT = 14


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """A map, ready to be written as SVG."""

    width: int
    top: int
    """Where it starts: space above the boxes is left out where no arrow needs it."""
    height: int
    boxes: list[Box]
    arrows: list[Arrow]
    links: list[Link]
    full: bool
    """Cells carry GPU and tensor group besides the rank."""
    groups: list[tuple[int, str]]
    """Legend of the fills: class number and ranks; empty if groups share a fill."""
    shared: bool
    """Some groups share a fill."""
    crowded: bool
    """So many wrong edges that they carry a sign only, without the rule."""
    left_out: list[str]
    """What the drawing does not show, in sentences."""


def draw(placement: PlacementReport, names: frozenset[str] | None = None) -> Drawing:
    """The map of these nodes, of all if `names` is None."""
    nodes = [node for node in placement.nodes if names is None or node.name in names]
    residents = _residents(placement, nodes, whole=names is None)
    style = _FULL if len(residents) <= 16 else _COMPACT
    marks = _worst_marks(placement.marks)
    columns = _columns(placement, residents, style)
    boxes = list(_boxes(residents, style, columns, marks))
    seats = {cell.rank: (box, cell) for box in boxes for cell in box.cells if cell.rank is not None}
    links, unlinked = _links(placement.marks, seats)
    legend = _legend(placement.ranks, seats)
    shared = len({fill for fill, _ in legend}) < len(legend)
    arrows, unbound = _arrows(placement.ranks, seats)
    top = 0 if any(one.y < _TOP for one in (*arrows, *links)) else _TOP - _PAD
    last = max((box.y + box.h for box in boxes), default=0)
    return Drawing(
        width=max((box.x + box.w for box in boxes), default=200) + _PAD,
        top=top,
        height=last + (style.below if links else _PAD) - top,
        boxes=boxes,
        arrows=arrows,
        links=links,
        full=style.full,
        groups=[] if shared else legend,
        shared=shared,
        crowded=len(links) > _CROWD,
        left_out=[*_hidden(residents), *unlinked, *unbound],
    )


def marked_ranks(marks: Iterable[GroupReport]) -> dict[int, str]:
    """Worst severity that the findings mark each rank with."""
    return {rank: severity for rank, (severity, _) in _worst_marks(marks).items()}


def _worst_marks(marks: Iterable[GroupReport]) -> dict[int, tuple[str, str]]:
    """Worst severity and its rule for each marked rank."""
    found: dict[int, tuple[str, str]] = {}
    for mark in sorted(marks, key=lambda mark: SEVERITIES.index(mark.severity)):
        for rank in mark.ranks:
            found.setdefault(rank, (mark.severity, mark.rule))
    return found


class Resident(msgspec.Struct, frozen=True):
    """One GPU of a node, or a rank whose GPU is not known, with the ranks that live there."""

    gpu: GpuReport | None
    ranks: list[int]
    report: RankReport | None
    """The first of these ranks, where the report lists it."""


class Residents(msgspec.Struct, frozen=True):
    """A node with everything that lives there; no node for ranks whose node is not known."""

    node: NodeReport | None
    cells: list[Resident]


def _residents(placement: PlacementReport, nodes: Sequence[NodeReport], *, whole: bool) -> list[Residents]:
    """GPUs and ranks by node, ranks without a node in a box of their own at the end."""
    names = {node.name for node in nodes}
    reports: dict[int, RankReport] = {}
    by_node: dict[str, list[RankReport]] = {}
    for rank in placement.ranks:
        if rank.node in names or rank.node is None:
            reports[rank.rank] = rank
            by_node.setdefault(rank.node or "", []).append(rank)
    found = [Residents(node, list(_cells(node, reports, by_node.get(node.name, [])))) for node in nodes]
    lost = by_node.get("", [])
    if whole and lost:
        found.append(Residents(None, [Resident(None, [rank.rank], rank) for rank in lost]))
    return found


def _cells(
    node: NodeReport, reports: Mapping[int, RankReport], ranks: Iterable[RankReport]
) -> Iterator[Resident]:
    """GPUs of the node in its order, then ranks of which only the node is known."""
    seated: set[int] = set()
    for gpu in node.gpus:
        seated.update(gpu.ranks)
        first = reports.get(gpu.ranks[0]) if gpu.ranks else None
        yield Resident(gpu, gpu.ranks, first)
    for rank in ranks:
        if rank.rank not in seated:
            yield Resident(None, [rank.rank], rank)


def _hidden(residents: Iterable[Residents]) -> Iterator[str]:
    """Says which boxes are cut."""
    for resident in residents:
        more = len(resident.cells) - _MOST_CELLS
        if more > 0:
            name = printable(resident.node.name) if resident.node else _UNPLACED
            yield f"{shorten(name, 60)}: {more} more cells are not drawn."


def _columns(placement: PlacementReport, residents: Sequence[Residents], style: Style) -> int:
    """Nodes in a row: whole pipelines where they fit, so that a row reads from first to last stage."""
    most = max(1, style.columns // (2 if _per_row(residents) > 4 else 1))
    ranks = placement.ranks
    chain = len({rank.node for rank in ranks if ranks and rank.replica == ranks[0].replica})
    if 1 < chain <= most and len(residents) > chain:
        return most // chain * chain
    return min(most, max(len(residents), 1))


def _per_row(residents: Iterable[Residents]) -> int:
    """Cells in a row of a box."""
    most = max((len(resident.cells[:_MOST_CELLS]) for resident in residents), default=1)
    return max(2, most if most <= 4 else 4 if most <= 8 else 8)


def _boxes(
    residents: Sequence[Residents], style: Style, columns: int, marks: Mapping[int, tuple[str, str]]
) -> Iterator[Box]:
    """Boxes in rows; all as wide as the widest, each row as high as its highest."""
    per_row = _per_row(residents)
    width = per_row * (style.cell_width + _GAP) - _GAP + 2 * _PAD
    y = _TOP
    for start in range(0, len(residents), columns):
        row = residents[start : start + columns]
        lines = max(-(-len(resident.cells[:_MOST_CELLS]) // per_row) for resident in row)
        height = _HEAD + max(lines, 1) * (_RUN + style.cell_height + _GAP) + _FOOT
        for column, resident in enumerate(row):
            frame = Rect(_PAD + column * (width + style.across), y, width, height)
            yield _box(resident, frame, start // columns, column, per_row, style, marks)
        y += height + style.below


def _box(
    resident: Residents,
    frame: Rect,
    row: int,
    column: int,
    per_row: int,
    style: Style,
    marks: Mapping[int, tuple[str, str]],
) -> Box:
    """One node with its cells."""
    node = resident.node
    cells = [
        _cell(one, _seat(number, frame, per_row, style), marks)
        for number, one in enumerate(resident.cells[:_MOST_CELLS])
    ]
    name = printable(node.name) if node else _UNPLACED
    return Box(
        x=frame.x,
        y=frame.y,
        w=frame.w,
        h=frame.h,
        row=row,
        column=column,
        name=shorten(name, (frame.w - 2 * _PAD) // 9),
        title=shorten(name, 200),
        note=shorten(_note(resident), (frame.w - 2 * _PAD) // 6),
        seen=node is not None and node.seen,
        cells=cells,
        runs=list(_runs(cells, resident.cells, per_row)),
    )


def _note(resident: Residents) -> str:
    """What is known of the node, in a few words."""
    node = resident.node
    if node is None:
        return f"{len(resident.cells)} ranks"
    number = len(node.gpus)
    words = [f"{number} GPU{'' if number == 1 else 's'}" if number else "GPUs not known"]
    if not node.seen:
        words.insert(0, "no evidence seen")
    if node.domain:
        words.append(f"domain {printable(node.domain)}")
    return ", ".join(words)


def _seat(number: int, frame: Rect, per_row: int, style: Style) -> Rect:
    """Where the cell of that number lies."""
    line, place = divmod(number, per_row)
    return Rect(
        frame.x + _PAD + place * (style.cell_width + _GAP),
        frame.y + _HEAD + line * (_RUN + style.cell_height + _GAP) + _RUN,
        style.cell_width,
        style.cell_height,
    )


def _cell(resident: Resident, seat: Rect, marks: Mapping[int, tuple[str, str]]) -> Cell:
    """One cell with its words."""
    gpu, report = resident.gpu, resident.report
    found = [marks[rank] for rank in resident.ranks if rank in marks]
    severity, rule = min(found, key=lambda mark: SEVERITIES.index(mark[0]), default=("", ""))
    number = None if gpu is None else gpu.ordinal if gpu.index is None else gpu.index
    ranks = resident.ranks
    return Cell(
        x=seat.x,
        y=seat.y,
        w=seat.w,
        h=seat.h,
        rank=ranks[0] if ranks else None,
        label=f"{ranks[0]}+{len(ranks) - 1}" if len(ranks) > 1 else str(ranks[0]) if ranks else "idle",
        gpu="GPU ?" if number is None else f"GPU {number}",
        group="" if report is None else f"TP {report.tensor_group}",
        fill=None if report is None else report.tensor_group % PALETTE,
        known=gpu is not None,
        severity=severity,
        title=_cell_title(resident, printable(rule)),
    )


def _cell_title(resident: Resident, rule: str) -> str:
    """What the pointer shows."""
    gpu, report = resident.gpu, resident.report
    words = [f"rank {ranges(resident.ranks)}" if resident.ranks else "no rank"]
    if report is not None:
        words.append(f"stage {report.stage}, TP group {report.tensor_group}, replica {report.replica}")
    words.append(printable(gpu.uuid or gpu.bus or f"GPU {gpu.ordinal}") if gpu else "GPU not known")
    if rule:
        words.append(f"marked by {rule}")
    return shorten(", ".join(words), 200)


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
            yield frame, f"stage {stage}" if frame.w > 110 else f"S{stage}"
        start = number


def _links(
    marks: Sequence[GroupReport], seats: Mapping[int, tuple[Box, Cell]]
) -> tuple[list[Link], list[str]]:
    """Lines of wrong edges, and of wrong groups from node to node."""
    drawn: list[Link] = []
    left_out = 0
    for mark in sorted(marks, key=lambda mark: SEVERITIES.index(mark.severity)):
        for near, far in _ends(mark, seats):
            if len(drawn) < _MOST_LINKS:
                label = shorten(printable(mark.rule), 8)
                drawn.append(link(seats[near], seats[far], mark.severity, label, len(drawn)))
            else:
                left_out += 1
    hidden = f"{left_out} more wrong edges have no line; their GPUs are marked."
    return drawn, [hidden] if left_out else []


def _ends(mark: GroupReport, seats: Mapping[int, tuple[Box, Cell]]) -> Iterator[tuple[int, int]]:
    """Pairs of ranks to join: the ends of an edge, or where a group goes from one node to the next."""
    ranks = [rank for rank in mark.ranks if rank in seats]
    if mark.kind == "edge":
        yield from zip(ranks, ranks[1:], strict=False)
    if mark.kind == "group":
        ordered = sorted(ranks, key=lambda rank: (seats[rank][0].row, seats[rank][0].column, rank))
        for near, far in zip(ordered, ordered[1:], strict=False):
            if seats[near][0] is not seats[far][0]:
                yield near, far


def _arrows(
    ranks: Sequence[RankReport], seats: Mapping[int, tuple[Box, Cell]]
) -> tuple[list[Arrow], list[str]]:
    """One arrow for each pair of nodes between which a stage hands over to the next."""
    found: dict[tuple[Rect, Rect], dict[tuple[int, int], int]] = {}
    boxes: dict[Rect, Box] = {}
    for near, far in _hand_overs(ranks, seats):
        ends = (seats[near.rank][0], seats[far.rank][0])
        if ends[0] is not ends[1]:
            boxes.update({box.frame: box for box in ends})
            stages = found.setdefault((ends[0].frame, ends[1].frame), {})
            stages[near.stage, far.stage] = stages.get((near.stage, far.stage), 0) + 1
    drawn = [
        arrow(boxes[near], boxes[far], stages, both=(far, near) in found)
        for (near, far), stages in list(found.items())[:_MOST_ARROWS]
    ]
    more = len(found) - len(drawn)
    return drawn, [f"{more} more stage boundaries have no arrow."] if more > 0 else []


def _hand_overs(
    ranks: Sequence[RankReport], seats: Mapping[int, tuple[Box, Cell]]
) -> Iterator[tuple[RankReport, RankReport]]:
    """Ranks that hand over: the k-th of a stage to the k-th of the next one of its replica."""
    stages: dict[tuple[int, int], list[RankReport]] = {}
    for rank in ranks:
        if rank.rank in seats:
            stages.setdefault((rank.replica, rank.stage), []).append(rank)
    for replica, stage in sorted(stages):
        yield from zip(stages[replica, stage], stages.get((replica, stage + 1), ()), strict=False)


def _legend(ranks: Iterable[RankReport], seats: Mapping[int, tuple[Box, Cell]]) -> list[tuple[int, str]]:
    """Fill and ranks of each tensor group."""
    groups: dict[int, list[int]] = {}
    for rank in ranks:
        if rank.rank in seats:
            groups.setdefault(rank.tensor_group, []).append(rank.rank)
    return [
        (group % PALETTE, f"TP group {group}: ranks {ranges(found)}")
        for group, found in sorted(groups.items())
    ]
