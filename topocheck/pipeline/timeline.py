"""A simulated pipeline as a drawing: text for the terminal, SVG for the report.

One row a stage, time to the right, to scale. Forward and backward differ by sign and pattern, not by
colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from html import escape
from itertools import groupby
from math import gcd
from typing import NamedTuple

from topocheck.pipeline.schedule import Action, Pipeline, Run, Span

__all__ = ["MOST_DRAWN", "MOST_ROWS", "svg", "text"]

MOST_DRAWN = 200_000
"""Actions of a run that is worth drawing."""

MOST_ROWS = 32
"""Stages that are drawn."""

FORWARD, BACKWARD, IDLE, BOTH, PARTLY = ">", "<", ".", "x", ":"
MEANING = {
    FORWARD: "forward",
    BACKWARD: "backward",
    BOTH: "both in turn",
    PARTLY: "idle for more than half",
    IDLE: "idle",
}
"""Signs of the terminal. A column that is too short for one span shows what takes most of it."""

LEFT, TOP, ROW, GAP, FOOT = 76, 40, 28, 8, 56
"""Measures of the SVG, in user units."""
SAMPLES = 480
"""Columns into which a row is sampled whose spans are too short to be drawn one by one."""
NARROWEST = 3
"""Width of the narrowest span that is drawn for itself, in user units."""

STYLE = """\
#{name} text {{ fill: #1b1f24; font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }}
#{name} .lane {{ fill: none; stroke: #57606a; stroke-dasharray: 2 3; }}
#{name} .axis {{ stroke: #57606a; }}
#{name} .f {{ fill: #cfe3ff; stroke: #0b57c2; }}
#{name} .b {{ fill: #ffe0b8; stroke: #7d4e00; }}
#{name} .m {{ fill: #cfe3ff; stroke: #7d4e00; }}
#{name} .p {{ fill: #dcdfe6; stroke: none; }}
#{name} .h {{ fill: url(#{name}-hatch); }}
#{name} .stripe {{ stroke: #7d4e00; stroke-opacity: .45; }}
@media (prefers-color-scheme: dark) {{
#{name} text {{ fill: #e8ecf0; }}
#{name} .lane {{ stroke: #a3adb8; }}
#{name} .axis {{ stroke: #a3adb8; }}
#{name} .f {{ fill: #1f4478; stroke: #85b8ff; }}
#{name} .b {{ fill: #6b4313; stroke: #f3c24f; }}
#{name} .m {{ fill: #1f4478; stroke: #f3c24f; }}
#{name} .p {{ fill: #454d59; }}
#{name} .stripe {{ stroke: #f3c24f; }}
}}
"""


class Block(NamedTuple):
    """Something drawn in a row, in columns or user units."""

    start: int
    end: int
    sign: str
    label: str


def text(run: Run, spell: Callable[[Fraction], str], width: int = 80) -> Iterator[str]:
    """Lines of at most `width` columns; `spell` says a time of the run's unit in words."""
    rows = run.rows[:MOST_ROWS]
    left = len(f"stage {len(rows) - 1}") + 2
    columns = _even(run, max(width - left, 20))
    start, end = "0", spell(run.total)
    yield " " * left + start + end.rjust(columns - len(start))
    lines = [_line(row, run, columns) for row in rows]
    for stage, line in enumerate(lines):
        yield f"stage {stage}".ljust(left) + line
    signs = [f"{sign} {words}" for sign, words in MEANING.items() if any(sign in line for line in lines)]
    if any(map(str.isdigit, "".join(lines))):
        signs.append("number: microbatch" if run.pipeline.chunks == 1 else "number: microbatch.chunk")
    yield ", ".join(signs)
    more = len(run.rows) - MOST_ROWS
    if more > 0:
        yield f"... and {more} more stage{'s' * (more > 1)}"


def _even(run: Run, columns: int) -> int:
    """So many columns, or some fewer if all spans of one length then have one width."""
    step = gcd(*(edge for row in run.rows for _, start, end in row for edge in (start, end)))
    steps = run.end // step
    return columns - columns % steps if steps <= columns else columns


def _line(row: tuple[Span, ...], run: Run, columns: int) -> str:
    """One stage in `columns` characters."""
    blocks = _blocks(row, run, columns)
    if any(block.end == block.start for block in blocks):
        return _sampled(row, run, columns)
    line, at = "", 0
    for block in blocks:
        line += IDLE * (block.start - at) + _boxed(block)
        at = block.end
    return line + IDLE * (columns - at)


def _boxed(block: Block) -> str:
    """A span as `[0>>>]`; without brackets or number where there is no room for them."""
    room = block.end - block.start
    if room >= len(block.label) + 2:
        return f"[{block.label.ljust(room - 2, block.sign)}]"
    return block.label.ljust(room, block.sign) if room > len(block.label) else block.sign * room


def _blocks(row: tuple[Span, ...], run: Run, columns: int) -> list[Block]:
    """Spans rounded to whole columns, each edge for itself so that neighbours stay neighbours."""

    def column(tick: int) -> int:
        return (2 * tick * columns + run.end) // (2 * run.end)

    return [
        Block(
            column(start),
            column(end),
            BACKWARD if action.backward else FORWARD,
            label_of(action, run.pipeline),
        )
        for action, start, end in row
    ]


def label_of(action: Action, pipeline: Pipeline) -> str:
    """Microbatch, and the chunk where a stage has several."""
    if pipeline.chunks == 1:
        return str(action.microbatch)
    return f"{action.microbatch}.{action.stage // pipeline.stages}"


def _sampled(row: tuple[Span, ...], run: Run, columns: int) -> str:
    """One sign a column, by what the stage does in that time."""
    taken = [[0, 0] for _ in range(columns)]
    for action, start, end in row:
        for column in range(start * columns // run.end, (end * columns - 1) // run.end + 1):
            left, right = max(start * columns, column * run.end), min(end * columns, (column + 1) * run.end)
            taken[column][action.backward] += right - left
    return "".join(_sign(forward, backward, run.end) for forward, backward in taken)


def _sign(forward: int, backward: int, whole: int) -> str:
    """Sign of a column of which so much is taken."""
    busy = forward + backward
    if 2 * busy < whole:
        return PARTLY if busy else IDLE
    if 4 * min(forward, backward) > busy:
        return BOTH
    return BACKWARD if backward > forward else FORWARD


def svg(
    run: Run,
    spell: Callable[[Fraction], str],
    *,
    title: str,
    name: str = "timeline",
    width: int = 960,
    styled: bool = True,
) -> str:
    """The drawing as one SVG element that loads nothing; `name` keeps its ids apart from others of a page.

    Without `styled` its look is the page's: elements have classes below `.timeline`, and no style.
    """
    rows = run.rows[:MOST_ROWS]
    inner = width - LEFT - 16
    height = TOP + len(rows) * (ROW + GAP) + FOOT
    look = f'style="max-width:{width}px;width:100%;color-scheme:light dark"'
    look = look if styled else f'class="timeline" width="{width}" height="{height}"'
    frame = f'viewBox="0 0 {width} {height}" {look}'
    pattern = f'id="{name}-hatch" width="6" height="6" patternUnits="userSpaceOnUse"'
    stripe = '<path class="stripe" d="M0 0V6"/>'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{name}" role="img" {frame}',
        f'aria-labelledby="{name}-title {name}-desc">',
        f'<title id="{name}-title">{escape(title)}</title>',
        f'<desc id="{name}-desc">{escape(_described(run, spell))}</desc>',
        *([f"<style>{STYLE.format(name=name)}</style>"] if styled else []),
        f'<defs><pattern {pattern} patternTransform="rotate(45)">{stripe}</pattern></defs>',
        *_axis(run, spell, inner, TOP + len(rows) * (ROW + GAP)),
    ]
    hatch = "" if styled else f' fill="url(#{name}-hatch)"'
    shown: list[Block] = []
    for stage, row in enumerate(rows):
        y = TOP + stage * (ROW + GAP)
        parts.append(f'<text x="{LEFT - 10}" y="{y + 19}" text-anchor="end">stage {stage}</text>')
        parts.append(f'<rect class="lane" x="{LEFT}" y="{y}" width="{inner}" height="{ROW}"/>')
        blocks = list(_drawn(row, run, inner))
        parts += [_bar(block, y, hatch) for block in blocks]
        shown += blocks
    return "\n".join([*parts, *_key(shown, height - 16, hatch), "</svg>"]) + "\n"


def _described(run: Run, spell: Callable[[Fraction], str]) -> str:
    """The drawing in words."""
    pipeline = run.pipeline
    busy = sum(end - start for row in run.rows for _, start, end in row)
    idle = 1 - Fraction(busy, run.end * pipeline.stages)
    shown = f"; the first {MOST_ROWS} stages are drawn" if pipeline.stages > MOST_ROWS else ""
    return (
        f"One row a stage, time to the right. {pipeline.stages} stages work on {pipeline.microbatches} "
        f"microbatches ({pipeline.schedule}) and end after {spell(run.total)}; they are idle for "
        f"{float(idle):.1%} of that time{shown}."
    )


def _axis(run: Run, spell: Callable[[Fraction], str], inner: int, bottom: int) -> Iterator[str]:
    """Quarters of the whole time."""
    for quarter in range(5):
        x = LEFT + inner * quarter // 4
        anchor = ("start", "middle", "middle", "middle", "end")[quarter]
        words = spell(run.total * quarter / 4) if quarter else "0"
        yield f'<path class="axis" d="M{x} {TOP - 10}V{bottom - GAP + 4}"/>'
        yield f'<text x="{x}" y="{TOP - 16}" text-anchor="{anchor}">{escape(words)}</text>'


def _drawn(row: tuple[Span, ...], run: Run, inner: int) -> Iterator[Block]:
    """Spans one by one, or sampled into runs of one kind where they are too short."""
    blocks = _blocks(row, run, inner)
    if min(block.end - block.start for block in blocks) >= NARROWEST:
        yield from blocks
        return
    at = 0
    for sign, group in groupby(_sampled(row, run, SAMPLES)):
        end = at + len(list(group))
        if sign != IDLE:
            yield Block(at * inner // SAMPLES, end * inner // SAMPLES, sign, "")
        at = end


def _bar(block: Block, y: int, hatch: str) -> str:
    """One block with its letter and number, if there is room."""
    x, room = LEFT + block.start, block.end - block.start
    bar = _patch(block.sign, f'x="{x}" y="{y}" width="{room}" height="{ROW}"', hatch)
    label = ("B" if block.sign == BACKWARD else "F") + block.label
    if block.label and room >= 8 * len(label) + 2:
        bar += f'<text x="{x + room // 2}" y="{y + 19}" text-anchor="middle">{label}</text>'
    return bar


def _patch(sign: str, box: str, fill: str) -> str:
    """A rectangle as its sign is drawn: backward hatched, both halfway, idle dots. `fill` is for hatching."""
    kind = {FORWARD: "f", BACKWARD: "b", BOTH: "m", PARTLY: "p", IDLE: "lane"}[sign]
    hatch = f'<rect class="h"{fill} {box}/>' if sign in {BACKWARD, BOTH} else ""
    return f'<rect class="{kind}" {box}/>{hatch}'


def _key(blocks: Iterable[Block], y: int, hatch: str) -> Iterator[str]:
    """What the patches mean, of those that are drawn."""
    drawn = {block.sign for block in blocks} | {IDLE}
    words = MEANING | {FORWARD: "F: forward", BACKWARD: "B: backward, hatched", IDLE: "dotted: idle"}
    x = LEFT
    for sign in (sign for sign in MEANING if sign in drawn):
        yield _patch(sign, f'x="{x}" y="{y - 11}" width="22" height="14"', hatch)
        yield f'<text x="{x + 30}" y="{y}">{words[sign]}</text>'
        x += 60 + 7 * len(words[sign])
