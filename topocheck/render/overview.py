"""Placement map of many nodes: one small cell a node, one SVG path for each status.

A run of equal neighbours is one dashed stroke, so a healthy cluster of 12,500 nodes takes a few
kilobytes and a handful of elements. Nodes of one NVLink domain, or below one switch, lie beside each other,
with a gap before the next ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from topocheck.render.marks import SEVERITIES, by_severity, worst_marks
from topocheck.render.residents import Quarter, quarter_of
from topocheck.render.text import printable, shorten
from topocheck.render.words import say
from topocheck.report import NodeReport, PlacementReport

__all__ = ["Overview", "StatusPath", "overview", "worst_nodes"]

_STATUSES = ("error", "warning", "info", "unseen", "clear")
_MARGIN = 150
_EDGE = 12
_SMALL = 10
_MOST_ROW_NAMES = 24


class StatusPath(msgspec.Struct, frozen=True):
    """All nodes of one status."""

    status: str
    count: int
    d: str
    """Lines through the middle of the cells; drawn as dashes they are the cells."""
    sign: str
    """What shows it without colour: a cross or stroke over the cell, a ring around a small one."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A map, ready to be written as SVG."""

    width: int
    height: int
    left: int
    """Where the first column begins."""
    edge: int
    """Where the first row begins."""
    columns: int
    grouped: bool
    """Nodes are grouped by NVLink domain or switch."""
    slots: str
    """Slot of each node in its order, counted row by row; empty where it is the node's own place."""
    statuses: str
    """Numbers of nodes by status, in words."""
    cell: int
    """Side of a cell; the gap to the next one is `gap`."""
    gap: int
    paths: list[StatusPath]
    small: bool
    """Cells are too small for a sign inside."""
    names: list[tuple[int, str]]
    """Height and first node of some rows."""


def overview(placement: PlacementReport) -> Overview:
    """The map of all nodes in their order, row by row."""
    statuses = _statuses(placement)
    cell, gap, columns = (14, 4, 40) if len(statuses) <= 1600 else (6, 2, 120)
    pitch = cell + gap
    slots = _slots([quarter_of(node) for node in placement.nodes], columns)
    rows = max(slots, default=-1) // columns + 1
    paths = list(_paths(dict(zip(slots, statuses, strict=True)), columns, cell, pitch))
    plain = slots == list(range(len(slots)))
    return Overview(
        width=_MARGIN + columns * pitch + _EDGE,
        height=rows * pitch + 2 * _EDGE,
        left=_MARGIN,
        edge=_EDGE,
        columns=columns,
        grouped=not plain,
        slots="" if plain else " ".join(map(str, slots)),
        statuses=", ".join(f"{path.count} {say(f'status_{path.status}')}" for path in paths),
        cell=cell,
        gap=gap,
        small=cell < _SMALL,
        paths=paths,
        names=list(_names(dict(zip(slots, placement.nodes, strict=True)), rows, columns, pitch)),
    )


def _slots(quarters: Sequence[Quarter | None], columns: int) -> list[int]:
    """Slot of each node: its own place, or beside the others of its NVLink domain or switch."""
    blocks: dict[Quarter | int, list[int]] = {}
    for place, quarter in enumerate(quarters):
        blocks.setdefault(place if quarter is None else quarter, []).append(place)
    if len(blocks) == len(quarters):
        return list(range(len(quarters)))
    slots, free = [0] * len(quarters), 0
    for block in blocks.values():
        # A block that does not fit in the rest of a row begins the next one.
        if len(block) > columns - free % columns and free % columns:
            free += columns - free % columns
        for place in block:
            slots[place] = free
            free += 1
        free += len(block) > 1 and free % columns > 0
    return slots


def worst_nodes(placement: PlacementReport, most: int) -> frozenset[str]:
    """Nodes of the worst marks, whole marks while there is room; at least the first one's."""
    homes = _homes(placement)
    chosen: dict[str, None] = {}
    for mark in by_severity(placement.marks):
        names = dict.fromkeys(homes[rank] for rank in mark.ranks if rank in homes)
        if len({**chosen, **names}) <= most or not chosen:
            chosen.update(dict.fromkeys(list(names)[:most]))
    return frozenset(chosen)


def _homes(placement: PlacementReport) -> dict[int, str]:
    """Node of each marked rank, from its own line or from the node's GPUs."""
    marked = {rank for mark in placement.marks for rank in mark.ranks}
    if not marked:
        return {}
    homes = {
        rank: node.name
        for node in placement.nodes
        for gpu in node.gpus
        for rank in gpu.ranks
        if rank in marked
    }
    homes.update({one.rank: one.node for one in placement.ranks if one.node and one.rank in marked})
    return homes


def _statuses(placement: PlacementReport) -> list[str]:
    """Status of each node."""
    homes = _homes(placement)
    worst: dict[str, str] = {}
    for rank, (severity, _) in worst_marks(placement.marks).items():
        if rank in homes:
            name = homes[rank]
            worst[name] = min(severity, worst.get(name, severity), key=SEVERITIES.index)
    return [worst.get(node.name, "clear" if node.seen else "unseen") for node in placement.nodes]


def _paths(slots: Mapping[int, str], columns: int, cell: int, pitch: int) -> Iterator[StatusPath]:
    """One path for each status that occurs; the worst is drawn last, on top."""
    lines: Mapping[str, list[str]] = {status: [] for status in _STATUSES}
    for status, slot, length in _runs(slots, columns):
        row, first = divmod(slot, columns)
        x, y = _MARGIN + first * pitch, _EDGE + row * pitch + pitch // 2
        lines[status].append(f"M{x} {y}h{length * pitch - (pitch - cell)}")
    signs: Mapping[str, list[str]] = {"error": [], "warning": []}
    for slot, status in slots.items():
        if status in signs:
            row, column = divmod(slot, columns)
            signs[status].append(
                _sign(_MARGIN + column * pitch, _EDGE + row * pitch + pitch // 2, cell, status)
            )
    counts = Counter(slots.values())
    for status in reversed(_STATUSES):
        if lines[status]:
            yield StatusPath(status, counts[status], "".join(lines[status]), "".join(signs.get(status, ())))


def _runs(slots: Mapping[int, str], columns: int) -> Iterator[tuple[str, int, int]]:
    """Status, first slot and length of each run of equal neighbours in a row."""
    first = before = -1
    for slot in sorted(slots):
        follows = slot == before + 1 and slot % columns and slots[slot] == slots[before]
        if before >= 0 and not follows:
            yield slots[before], first, before - first + 1
        if before < 0 or not follows:
            first = slot
        before = slot
    if before >= 0:
        yield slots[before], first, before - first + 1


def _sign(x: int, y: int, cell: int, status: str) -> str:
    """Cross over a cell with an error, stroke over one with a warning; ring or square around a small one."""
    half = cell // 2
    if cell < _SMALL:
        ring = f"M{x + half - 8} {y}a8 8 0 1 0 16 0a8 8 0 1 0 -16 0"
        return ring if status == "error" else f"M{x + half - 7} {y - 7}h14v14h-14z"
    stroke = f"M{x} {y + half}l{cell} {-cell}"
    return f"{stroke}M{x} {y - half}l{cell} {cell}" if status == "error" else stroke


def _names(nodes: Mapping[int, NodeReport], rows: int, columns: int, pitch: int) -> Iterator[tuple[int, str]]:
    """First node of every so many rows."""
    step = -(-max(rows, 1) // _MOST_ROW_NAMES)
    for row in range(0, rows, max(step, 1, -(-13 // pitch))):
        if row * columns in nodes:
            name = shorten(printable(nodes[row * columns].name), 20)
            yield _EDGE + row * pitch + pitch // 2 + 4, name
