"""Geometry of the placement map: nodes as boxes, GPUs as cells, wrong edges as lines.

Everything is computed here in whole user units; `templates/map.svg.j2` only writes it down. Nothing
depends on a browser measuring text, so the same report gives the same drawing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from topocheck.render.boxes import (
    COMPACT,
    FRAME_FOOT,
    FULL,
    MOST_CELLS,
    PAD,
    PALETTE,
    TOP,
    Style,
    boxes_of,
    by_quarter,
    frames_of,
    per_row,
)
from topocheck.render.crossing import crossings_of, devices_of, in_short, in_words
from topocheck.render.marks import by_severity, worst_marks
from topocheck.render.residents import Residents, name_of, settle
from topocheck.render.route import Arrow, Box, Cell, Link, Rect, apart, arrow, link
from topocheck.render.text import printable, ranges, shorten
from topocheck.render.words import say
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
    frames: list[tuple[Rect, str]]
    """Frames of the NVLink domains that several nodes are in, or of the switches that they hang on."""
    legends: dict[str, list[tuple[int | None, str]]]
    """Legend by what the fills may show, tensor group, stage or replica: class number and words."""
    crowded: bool
    """So many wrong edges that they carry a sign only, without the rule."""
    left_out: list[str]
    """What the drawing does not show, in sentences."""


def draw(placement: PlacementReport, names: frozenset[str] | None = None) -> Drawing:
    """The map of these nodes, of all if `names` is None."""
    nodes = [node for node in placement.nodes if names is None or node.name in names]
    residents = by_quarter(settle(placement, nodes, whole=names is None))
    style = FULL if len(residents) <= 16 else COMPACT
    marks = worst_marks(placement.marks)
    columns = _columns(placement, residents, style)
    boxes = list(boxes_of(residents, style, columns, marks, placement.shapes))
    frames = list(frames_of(residents, boxes))
    seats = {rank: (box, cell) for box in boxes for cell in box.cells for rank in cell.ranks}
    links, unlinked = _links(placement.marks, seats)
    arrows, unbound = _arrows(placement, seats, full=style.full)
    crowded = len(links) > _CROWD
    top = 0 if any(one.y < TOP for one in arrows) else TOP - PAD
    last = max((box.y + box.h for box in boxes), default=TOP) + (FRAME_FOOT if frames else 0)
    return Drawing(
        width=max((box.x + box.w for box in boxes), default=200) + PAD,
        top=top,
        height=last + (style.below if links else PAD) - top,
        boxes=boxes,
        arrows=arrows,
        links=list(apart(links, _taken(arrows, boxes), (18, 18) if crowded else (68, 20))),
        frames=frames,
        full=style.full,
        legends=_legends(placement.ranks, seats),
        crowded=crowded,
        left_out=[*_hidden(residents), *unlinked, *unbound],
    )


def _hidden(residents: Iterable[Residents]) -> Iterator[str]:
    """Says which boxes are cut."""
    for resident in residents:
        more = len(resident.cells) - MOST_CELLS
        if more > 0:
            yield say("cells_hidden", name=shorten(name_of(resident), 60), count=more)


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
    return drawn, [say("edges_hidden", count=left_out)] if left_out else []


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
    placement: PlacementReport, seats: Mapping[int, tuple[Box, Cell]], *, full: bool
) -> tuple[list[Arrow], list[str]]:
    """One arrow for each pair of nodes between which a stage hands over to the next."""
    found: dict[tuple[Rect, Rect], list[tuple[RankReport, RankReport]]] = {}
    boxes: dict[Rect, Box] = {}
    for near, far in _hand_overs(placement.ranks, seats):
        ends = (seats[near.rank][0], seats[far.rank][0])
        if ends[0] is not ends[1]:
            boxes.update({box.frame: box for box in ends})
            found.setdefault((ends[0].frame, ends[1].frame), []).append((near, far))
    devices = devices_of(placement, seats)
    drawn = []
    for (near_end, far_end), pairs in list(found.items())[:_MOST_ARROWS]:
        stages = Counter((near.stage, far.stage) for near, far in pairs)
        crossings = crossings_of(pairs, devices)
        both = (far_end, near_end) in found
        shown = in_short(crossings) if full else []
        drawn.append(arrow(boxes[near_end], boxes[far_end], stages, shown, in_words(crossings), both=both))
    more = len(found) - len(drawn)
    return drawn, [say("arrows_hidden", count=more)] if more > 0 else []


def _taken(arrows: Iterable[Arrow], boxes: Iterable[Box]) -> Iterator[Rect]:
    """Where signs of edges may not lie: labels of arrows and signs of GPUs."""
    for one in arrows:
        width = 6 * max(map(len, (one.label, *one.nics)))
        yield Rect(one.x - width // 2, one.y - 10, width, 12)
        if one.nics:
            yield Rect(one.x - width // 2, one.y + 10, width, 12 * len(one.nics))
    for box in boxes:
        yield from (Rect(cell.x + cell.w - 10, cell.y - 6, 16, 16) for cell in box.cells if cell.severity)


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


def _legends(
    ranks: Iterable[RankReport], seats: Mapping[int, tuple[Box, Cell]]
) -> dict[str, list[tuple[int | None, str]]]:
    """What the fills mean, by what they show; where more groups than fills are drawn, only that."""
    groups: dict[str, dict[int, list[int]]] = {"tensor": {}, "stage": {}, "replica": {}}
    for rank in ranks:
        if rank.rank in seats:
            groups["tensor"].setdefault(rank.tensor_group, []).append(rank.rank)
            groups["stage"].setdefault(rank.stage, []).append(rank.rank)
            groups["replica"].setdefault(rank.replica, []).append(rank.rank)
    return {way: list(_legend(way, found)) for way, found in groups.items()}


def _legend(way: str, groups: Mapping[int, Sequence[int]]) -> Iterator[tuple[int | None, str]]:
    """Fill and words of each group."""
    if len({group % PALETTE for group in groups}) < len(groups):
        yield None, say("repeats", what=say(f"by_{way}"), count=PALETTE)
        return
    for group, found in sorted(groups.items()):
        yield group % PALETTE, say(f"legend_{way}", number=group, ranks=ranges(found))
