"""Shapes of the placement map and the curves between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

__all__ = ["Arrow", "Box", "Cell", "Link", "Rect", "arrow", "link"]


class Rect(NamedTuple):
    """A rectangle in user units, y down."""

    x: int
    y: int
    w: int
    h: int


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU."""

    x: int
    y: int
    w: int
    h: int
    ranks: list[int]
    """Ranks that drive it."""
    label: str
    gpu: str
    group: str
    fill: int | None
    """Class number of the tensor group; None if the group is not known."""
    known: bool
    """The GPU itself is known, not only that the rank is on this node."""
    severity: str
    """Worst mark, else empty."""
    title: str


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    x: int
    y: int
    w: int
    h: int
    row: int
    column: int
    name: str
    title: str
    note: str
    seen: bool
    cells: list[Cell]
    runs: list[tuple[Rect, str]]
    """Frame and label of each run of neighbouring cells of one stage."""

    @property
    def frame(self) -> Rect:
        """Where it lies; no two boxes share it."""
        return Rect(self.x, self.y, self.w, self.h)


class Arrow(msgspec.Struct, frozen=True, kw_only=True):
    """Stage boundary from one node to another."""

    d: str
    x: int
    y: int
    label: str
    title: str


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """Wrong edge from one GPU to another, with its sign."""

    d: str
    x: int
    y: int
    severity: str
    label: str


def link(near: tuple[Box, Cell], far: tuple[Box, Cell], severity: str, label: str, number: int) -> Link:
    """Curve between two cells; its sign lies where the curve is farthest from them.

    `number` spreads the curves of one row so that their signs do not cover each other.
    """
    (box, cell), (other, peer) = near, far
    ax, bx = cell.x + cell.w // 2, peer.x + peer.w // 2
    ay, by = cell.y + cell.h, peer.y + peer.h
    if box is other:
        middle = box.y + box.h
    elif box.row == other.row:
        middle = max(box.y + box.h, other.y + other.h) + 20 + number % 3 * 12
    else:
        ay, by = (ay, peer.y) if box.row < other.row else (cell.y, by)
        middle = (ay + by) // 2 + (number % 5 - 2) * 9
    # With both control points at one height, the middle of the curve lies at 3/4 of that height and
    # 1/8 of each end; solved for the control points.
    level = (8 * middle - ay - by) // 6
    return Link(
        d=f"M{ax} {ay}C{ax} {level} {bx} {level} {bx} {by}",
        x=(ax + bx) // 2,
        y=middle,
        severity=severity,
        label=label,
    )


def arrow(near: Box, far: Box, stages: Mapping[tuple[int, int], int], *, both: bool) -> Arrow:
    """Arrow from node to node.

    `stages` counts hand-overs by (from stage, to stage). With `both`, another arrow runs the other
    way, and each keeps to its own side.
    """
    pairs = sorted(stages)
    label = f"S{pairs[0][0]}→S{pairs[0][1]}" + (f" +{len(pairs) - 1}" if len(pairs) > 1 else "")
    d, x, y = _course(near, far, both=both)
    words = ", ".join(f"stage {a} to {b}: {stages[a, b]} ranks" for a, b in pairs[:8])
    return Arrow(d=d, x=x, y=y, label=label, title=f"{near.title} to {far.title}, {words}")


def _course(near: Box, far: Box, *, both: bool) -> tuple[str, int, int]:
    """Path and place of the label, which lies nearer to where the arrow starts."""
    forth = (far.row, far.column) > (near.row, near.column)
    if near.row == far.row and abs(near.column - far.column) == 1:
        y = near.y + 24 + (36 if both and not forth else 0)
        start, end = (near.x + near.w + 2, far.x - 5) if forth else (near.x - 2, far.x + far.w + 5)
        return f"M{start} {y}H{end}", (start + end) // 2, y - 6
    shift = 14 if forth else -14
    a, b = near.x + near.w // 2 + shift, far.x + far.w // 2 + shift
    if near.row == far.row:
        start, end, level = near.y - 2, near.y - 5, near.y - 38
    elif near.row < far.row:
        start, end = near.y + near.h + 2, far.y - 5
        level = (start + end) // 2
    else:
        start, end = near.y - 2, far.y + far.h + 5
        level = (start + end) // 2
    # The point at a quarter of the curve, where the four ends weigh 27, 27, 9 and 1 of 64.
    x, y = (54 * a + 10 * b) // 64, (27 * start + 36 * level + end) // 64
    return f"M{a} {start}C{a} {level} {b} {level} {b} {end}", x, y + 4
