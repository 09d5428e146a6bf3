"""Shapes of the placement map and the curves between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from topocheck.render.words import say

__all__ = ["Arrow", "Box", "Cell", "Curve", "Link", "Rect", "apart", "arrow", "link"]

_PLACES = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82, 0.1, 0.9)
"""Places along a curve where its sign may lie, the best first."""


class Rect(NamedTuple):
    """A rectangle in user units, y down."""

    x: int
    y: int
    w: int
    h: int

    def overlaps(self, other: Rect) -> bool:
        """Whether the two share any space."""
        return (
            self.x < other.x + other.w
            and other.x < self.x + self.w
            and self.y < other.y + other.h
            and other.y < self.y + self.h
        )


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
    replica: str
    fills: tuple[int, int, int] | None
    """Class numbers of tensor group, stage and replica; None if they are not known."""
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
    links: str
    """What joins its GPUs; empty where there are not two."""
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
    nics: list[str]
    """What the devices at its ends come to, in short lines."""


class Curve(NamedTuple):
    """A cubic curve whose control points lie on one level."""

    ax: int
    ay: int
    level: int
    bx: int
    by: int

    @property
    def d(self) -> str:
        """As SVG writes it."""
        return f"M{self.ax} {self.ay}C{self.ax} {self.level} {self.bx} {self.level} {self.bx} {self.by}"

    def at(self, t: float) -> tuple[int, int]:
        """The point at a part of the way, 0 to 1."""
        u = 1 - t
        near, far = u * u * (u + 3 * t), t * t * (t + 3 * u)
        y = u**3 * self.ay + 3 * u * t * self.level + t**3 * self.by
        return round(near * self.ax + far * self.bx), round(y)


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """Wrong edge from one GPU to another, with its sign."""

    d: str
    x: int
    y: int
    severity: str
    label: str
    curve: Curve


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
    curve = Curve(ax, ay, (8 * middle - ay - by) // 6, bx, by)
    x, y = curve.at(0.5)
    return Link(d=curve.d, x=x, y=y, severity=severity, label=label, curve=curve)


def apart(links: Iterable[Link], taken: Iterable[Rect], size: tuple[int, int]) -> Iterator[Link]:
    """The same links, each sign at the place of its curve nearest to the middle that nothing covers yet."""
    found = list(taken)
    width, height = size
    for one in links:
        places = [one.curve.at(t) for t in _PLACES]
        frames = [Rect(x - width // 2, y - height // 2, width, height) for x, y in places]
        free = (number for number, frame in enumerate(frames) if not any(map(frame.overlaps, found)))
        chosen = next(free, 0)
        found.append(frames[chosen])
        yield msgspec.structs.replace(one, x=places[chosen][0], y=places[chosen][1])


def arrow(
    near: Box,
    far: Box,
    stages: Mapping[tuple[int, int], int],
    nics: Sequence[str],
    tips: Sequence[str],
    *,
    both: bool,
) -> Arrow:
    """Arrow from node to node.

    `stages` counts hand-overs by (from stage, to stage); `nics` and `tips` are what the devices of the ends
    come to, shown and told. With `both`, another arrow runs the other way, and each keeps to its own side.
    """
    pairs = sorted(stages)
    label = say("arrow", near=pairs[0][0], far=pairs[0][1]) + (
        f" +{len(pairs) - 1}" if len(pairs) > 1 else ""
    )
    d, x, y = _course(near, far, both=both)
    told = [say("arrow_stages", near=a, far=b, count=stages[a, b]) for a, b in pairs[:8]]
    title = say("arrow_tip", near=near.title, far=far.title, stages=", ".join([*told, *tips]))
    return Arrow(d=d, x=x, y=y, label=label, title=title, nics=list(nics))


def _course(near: Box, far: Box, *, both: bool) -> tuple[str, int, int]:
    """Path and place of the label, which lies nearer to where the arrow starts."""
    forth = (far.row, far.column) > (near.row, near.column)
    if near.row == far.row and abs(near.column - far.column) == 1:
        y = near.y + 24 + (62 if both and not forth else 0)
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
