"""A declared plan for people: sizes, what was assumed, a line a rank, groups."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise

from topocheck.declaration import DeclaredRank, DeclaredStage, DeclaredWorld
from topocheck.declared import Declared, crowded, describe, ranks_of

__all__ = ["words"]

WIDTH = 80
MOST_CLASHES = 3
"""GPUs with several ranks that are named."""

Table = list[list[str]]
"""Cells by row, the head first."""


def words(one: Declared, most: int | None) -> Iterator[str]:
    """One world: heading, assumptions, its first `most` ranks, groups. Raises LayoutError for its layers."""
    world = describe(one)
    ranks = ranks_of(one, world.stages, most)
    yield from heading(one, world)
    for line in world.assumptions:
        yield from labelled("assumed", line)
    if world.unplaced is not None:
        yield from labelled("unknown", f"which node a rank is on: {world.unplaced}")
    yield from clashes(one)
    yield ""
    yield from rank_lines(world, ranks)
    left = world.world - len(ranks)
    if left:
        yield f"... and {left} more rank{'s' * (left > 1)}; --all shows {'them' if left > 1 else 'it'}"
    yield ""
    yield from group_lines(world.groups, one.nodes)


def heading(one: Declared, world: DeclaredWorld) -> Iterator[str]:
    """Engine, ranks, nodes, sizes, the rule of the layers."""
    version = f" {world.engine_version}" if world.engine_version else ""
    nodes = len(world.nodes)
    name = f"World {one.name}: " if one.name else ""
    yield (
        f"{name}{one.engine.title}{version}{':' if not name else ','} {world.world} "
        f"rank{'s' * (world.world > 1)} on {nodes} node{'s' * (nodes > 1)}"
    )
    sizes = [f"{axis} {size}" for axis, size in reversed(world.sizes.items()) if size > 1]
    yield from labelled("sizes", " x ".join(sizes) or "one rank")
    if world.layer_rule is not None:
        yield from labelled("layers", world.layer_rule)


def labelled(label: str, text: str) -> list[str]:
    """A line with its label; what does not fit goes on under it."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"  {label:9}", subsequent_indent=" " * 11, break_on_hyphens=False
    )


def clashes(one: Declared) -> Iterator[str]:
    """GPUs that several ranks would drive."""
    found = crowded(one)
    for node, gpu, ranks in found[:MOST_CLASHES]:
        who = members(ranks).replace(" ", ", ")
        yield from labelled("clash", f"ranks {who} drive one GPU: GPU {gpu} of {one.names[node]}")
    if len(found) > MOST_CLASHES:
        yield from labelled("clash", f"and {len(found) - MOST_CLASHES} more GPUs with several ranks")


def rank_lines(world: DeclaredWorld, ranks: Sequence[DeclaredRank]) -> Iterator[str]:
    """One line a rank; what its stage holds stands there if it fits, else in a table of stages in front."""
    short = [layers(stage) for stage in world.stages]
    full = [holding(stage) for stage in world.stages]
    table = rank_table(world, ranks, short)
    if width_of(table) + longest(full) - longest(short) <= WIDTH:
        table = rank_table(world, ranks, full)
    else:
        yield from aligned(stage_table(world.stages))
        yield ""
    yield from aligned(table)


def rank_table(world: DeclaredWorld, ranks: Sequence[DeclaredRank], held: Sequence[str]) -> Table:
    """Rank, coordinates, stage, what it holds, node, local rank, GPU; axes of one rank are left out."""
    every = dict.fromkeys((*reversed(world.sizes), *ranks[0].coordinates))
    axes = [axis for axis in every if axis != "pp" and is_wide(world, axis)]
    shown = any(held)
    kind = "modules" if world.layer_rule is None else "layers"
    head = ["rank", *axes, "stage", *([kind] if shown else []), "node", "local", "GPU"]
    table = [head]
    for rank in ranks:
        at = rank.coordinates
        stage = at.get("pp", 0)
        local, gpu = rank.local_rank, rank.gpu_index
        cells = [str(rank.rank), *[str(at.get(axis, "-")) for axis in axes], str(stage)]
        cells += [held[stage] or "-"] if shown else []
        cells += [rank.node or "-", "-" if local is None else str(local), "-" if gpu is None else str(gpu)]
        table.append(cells)
    return table


def longest(texts: Sequence[str]) -> int:
    """Columns of a column of texts."""
    return max(map(len, texts), default=0)


def is_wide(world: DeclaredWorld, axis: str) -> bool:
    """An axis or a kind of group has more than one rank."""
    return world.sizes.get(axis, 1) > 1 or any(len(group) > 1 for group in world.groups.get(axis, ())[:1])


def stage_table(stages: Sequence[DeclaredStage]) -> Table:
    """Stage, layers, modules."""
    rows = [
        [str(stage.stage), layers(stage) or "-", modules_of(stage) if stage.modules is not None else "-"]
        for stage in stages
    ]
    return [["stage", "layers", "modules"], *rows]


def holding(stage: DeclaredStage) -> str:
    """What a stage holds: `0..23 + embedding`; empty if nothing is known."""
    parts = [layers(stage), modules_of(stage)]
    return " + ".join(part for part in parts if part)


def layers(stage: DeclaredStage) -> str:
    """Layers, both ends included: `0..15`, `0..3, 8..11`; empty if they are not known."""
    if stage.layers is None:
        return ""
    ranges = [(first, end) for first, end in stage.layers if end > first]
    return ", ".join(f"{first}..{end - 1}" for first, end in ranges) or "none"


def modules_of(stage: DeclaredStage) -> str:
    """Modules in words: `final norm, head`."""
    return ", ".join(stage.modules or ()).replace("_", " ")


def group_lines(groups: dict[str, list[list[int]]], nodes: Sequence[int]) -> Iterator[str]:
    """Kinds of group that have more than one rank: size, number, nodes of the widest, the first ones."""
    table: Table = [["group", "size", "groups", "nodes", "ranks"]]
    for kind, found in groups.items():
        if len(found[0]) > 1:
            span = str(max(len({nodes[rank] for rank in group}) for group in found)) if nodes else "-"
            table.append([kind, str(len(found[0])), str(len(found)), span, ""])
    room = WIDTH - width_of(table) + len("ranks")
    for cells in table[1:]:
        cells[-1] = first_groups(groups[cells[0]], room)
    yield from aligned(table) if len(table) > 1 else ["every group has one rank"]


def first_groups(groups: Sequence[Sequence[int]], room: int) -> str:
    """As many groups as fit, at least the first: `0..3 | 4..7 | ...`."""
    text = members(groups[0])
    for place, group in enumerate(groups[1:], 1):
        longer = f"{text} | {members(group)}"
        if len(longer) + (6 if place < len(groups) - 1 else 0) > room:
            return f"{text} | ..."
        text = longer
    return text


def members(ranks: Sequence[int]) -> str:
    """`0..3` for neighbours, `0 8 16` for a few, `0 8 .. 504` for many that are evenly spaced."""
    steps = {there - here for here, there in pairwise(ranks)}
    if steps == {1} and len(ranks) > 2:
        return f"{ranks[0]}..{ranks[-1]}"
    if len(ranks) <= 4:
        return " ".join(map(str, ranks))
    if len(steps) == 1:
        return f"{ranks[0]} {ranks[1]} .. {ranks[-1]}"
    return f"{ranks[0]} {ranks[1]} {ranks[2]} ... {ranks[-1]}"


def width_of(table: Table) -> int:
    """Columns that a table takes."""
    widths = [longest(column) for column in zip(*table, strict=True)]
    return sum(widths) + 2 * (len(widths) - 1)


def aligned(table: Table) -> Iterator[str]:
    """Lines with their cells under each other; columns of numbers to the right."""
    columns = list(zip(*table, strict=True))
    numbers = [all(cell.isdecimal() or cell == "-" for cell in set(column[1:])) for column in columns]
    form = "  ".join(
        f"{{:{'>' if right else '<'}{longest(column)}}}"
        for column, right in zip(columns, numbers, strict=True)
    ).format
    for cells in table:
        yield form(*cells).rstrip()
