"""Geometry of the placement map: nodes as boxes, GPUs as cells, wrong edges as lines.

Everything is computed here in whole user units; `templates/map.svg.j2` only writes it down. Nothing
depends on a browser measuring text, so the same report gives the same drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from topocheck.render.boxes import (
    COMPACT,
    FULL,
    MOST_CELLS,
    PAD,
    PALETTE,
    TOP,
    Style,
    boxes_of,
    per_row,
)
from topocheck.render.marks import by_severity, worst_marks
from topocheck.render.residents import Residents, name_of, settle
from topocheck.render.route import Arrow, Box, Cell, Link, Rect, arrow, link
from topocheck.render.text import printable, ranges, shorten
from topocheck.report import GroupReport, PlacementReport, RankReport

__all__ = ["Drawing", "draw"]

_MOST_LINKS = 48
_MOST_ARROWS = 96
_CROWD = 8


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
    residents = settle(placement, nodes, whole=names is None)
    style = FULL if len(residents) <= 16 else COMPACT
    marks = worst_marks(placement.marks)
    columns = _columns(placement, residents, style)
    boxes = list(boxes_of(residents, style, columns, marks))
    seats = {rank: (box, cell) for box in boxes for cell in box.cells for rank in cell.ranks}
    links, unlinked = _links(placement.marks, seats)
    legend = _legend(placement.ranks, seats)
    shared = len({fill for fill, _ in legend}) < len(legend)
    arrows, unbound = _arrows(placement.ranks, seats)
    top = 0 if any(one.y < TOP for one in arrows) else TOP - PAD
    last = max((box.y + box.h for box in boxes), default=TOP)
    return Drawing(
        width=max((box.x + box.w for box in boxes), default=200) + PAD,
        top=top,
        height=last + (style.below if links else PAD) - top,
        boxes=boxes,
        arrows=arrows,
        links=links,
        full=style.full,
        groups=[] if shared else legend,
        shared=shared,
        crowded=len(links) > _CROWD,
        left_out=[*_hidden(residents), *unlinked, *unbound],
    )


def _hidden(residents: Iterable[Residents]) -> Iterator[str]:
    """Says which boxes are cut."""
    for resident in residents:
        more = len(resident.cells) - MOST_CELLS
        if more > 0:
            yield f"{shorten(name_of(resident), 60)}: {more} more cells are not drawn."


def _columns(placement: PlacementReport, residents: Sequence[Residents], style: Style) -> int:
    """Nodes in a row: whole pipelines where they fit, so that a row reads from first to last stage."""
    most = max(1, style.columns // (2 if per_row(residents) > 4 else 1))
    ranks = placement.ranks
    chain = len({rank.node for rank in ranks if ranks and rank.replica == ranks[0].replica})
    if 1 < chain <= most and len(residents) > chain:
        return most // chain * chain
    return min(most, max(len(residents), 1))


def _links(
    marks: Sequence[GroupReport], seats: Mapping[int, tuple[Box, Cell]]
) -> tuple[list[Link], list[str]]:
    """Lines of wrong edges, and of wrong groups from node to node."""
    drawn: list[Link] = []
    left_out = 0
    for mark in by_severity(marks):
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
        yield from pairwise(ranks)
    if mark.kind == "group":
        ordered = sorted(ranks, key=lambda rank: (seats[rank][0].row, seats[rank][0].column, rank))
        for near, far in pairwise(ordered):
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
