"""Pictures of the pipeline's arithmetic: timeline of the bubble, shares of the stages, boundary times.

Every picture is bounded in size, has its numbers in a table beside it, and says that nothing was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil

import msgspec
from markupsafe import Markup

from topocheck.errors import UsageError
from topocheck.pipeline.schedule import Pipeline, run
from topocheck.pipeline.timeline import svg
from topocheck.render.words import say
from topocheck.report import BalancePart, BubblePart, CrossingPart, LackingPart, PipelineReport, StageShare

__all__ = ["Bar", "Bars", "PipelineView", "milliseconds", "pipeline_view", "size"]

MOST_BLOCKS = 768
"""Microbatches times stages that a timeline shows."""
MOST_STAGES = 32
"""Stages of a timeline and of the bars."""
MOST_CROSSINGS = 12
WIDTH, LEFT, RIGHT, ROW, TOP = 800, 240, 130, 32, 8
"""Measures of the bars, in user units."""
UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar with its words."""

    y: int
    label: str
    note: str
    """Second line of the label."""
    x: int
    width: int
    value: str
    kind: str
    """Class of the style sheet."""


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """Bars, ready to be written as SVG."""

    title: str
    width: int
    height: int
    bars: list[Bar]
    lines: list[tuple[int, str]]
    """Place and words of each line across all bars."""


class PipelineView(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows of one pipeline."""

    world: str | None
    report: PipelineReport
    idle: str
    """The bubble in words; empty where it is not computed."""
    timeline: Markup | None
    cut: str
    """What of the timeline is not drawn."""
    shares: Bars | None
    shares_words: str
    stages: list[StageShare]
    times: list[Bars]
    crossings: list[CrossingPart]
    lacking: list[LackingPart]


def pipeline_view(report: PipelineReport, world: str | None, place: int) -> PipelineView:
    """The pictures of one pipeline; `place` keeps their ids apart from those of others."""
    bubble, balance = report.bubble, report.balance
    drawing, cut = (None, "") if bubble is None else _timeline(report.stages, bubble, place)
    return PipelineView(
        world=world,
        report=report,
        idle="" if bubble is None else _idle(report.stages, bubble),
        timeline=drawing,
        cut=cut,
        shares=None if balance is None else _shares(balance),
        shares_words="" if balance is None else _shares_words(balance),
        stages=[] if balance is None else balance.stages[:MOST_STAGES],
        times=list(_times(report.boundaries[:MOST_CROSSINGS])),
        crossings=report.boundaries[:MOST_CROSSINGS],
        lacking=report.lacking,
    )


def _idle(stages: int, bubble: BubblePart) -> str:
    """The bubble in one sentence, with the limit of the policy."""
    words = say("bubble_idle", stages=stages, count=bubble.microbatches, idle=f"{bubble.idle:.1%}")
    if bubble.virtual_stages > 1:
        words += f" {say('bubble_virtual', count=bubble.virtual_stages)}"
    if bubble.limit is not None:
        held = "bubble_within" if bubble.idle <= bubble.limit else "bubble_beyond"
        words += f" {say(held, limit=f'{bubble.limit:.1%}')}"
    return words


def _timeline(stages: int, bubble: BubblePart, place: int) -> tuple[Markup | None, str]:
    """The timeline of as many microbatches as there is room for, and what is not drawn."""
    if stages > MOST_BLOCKS:  # also of a report that somebody else wrote: no time is lost over it
        return None, say("timeline_none", stages=stages)
    shown = _drawn_microbatches(stages, bubble)
    try:
        pipeline = Pipeline(
            forward=(Fraction(1),) * stages,
            microbatches=shown,
            schedule=bubble.schedule,
            chunks=bubble.virtual_stages,
        )
    except UsageError:
        return None, ""
    if pipeline.actions > 4 * MOST_BLOCKS:
        return None, say("timeline_none", stages=stages)
    title = say("timeline_title", stages=stages, count=shown)
    drawing = svg(run(pipeline), _slots, title=title, name=f"timeline{place}", styled=False)
    cut = say("timeline_cut", shown=shown, total=bubble.microbatches) if shown < bubble.microbatches else ""
    return Markup(drawing), cut  # noqa: S704  made here of numbers and words of ours


def _drawn_microbatches(stages: int, bubble: BubblePart) -> int:
    """Microbatches that are drawn: all, or a number that the schedule takes and that has room."""
    each = stages * bubble.virtual_stages * (2 if bubble.schedule == "interleaved" else 1)
    room = max(1, MOST_BLOCKS // each)
    if bubble.microbatches <= room:
        return bubble.microbatches
    return max(stages, room - room % stages) if bubble.schedule == "interleaved" else room


def _slots(time: Fraction) -> str:
    """`7 slots`."""
    return say("slots", count=1 if time == 1 else 2, number=f"{float(time):.6g}")


def _shares_words(balance: BalancePart) -> str:
    """The balance in one sentence."""
    heaviest = max(balance.stages, key=lambda stage: stage.reads_bytes)
    even = balance.imbalance <= balance.limit
    limit = f"{balance.limit:.1%}"
    words = say(
        "shares_within" if even else "shares_beyond",
        stage=heaviest.stage,
        imbalance=f"{balance.imbalance:.1%}",
        limit=limit,
    )
    if even and balance.holds_imbalance > balance.limit:
        words += f" {say('shares_held', imbalance=f'{balance.holds_imbalance:.1%}', limit=limit)}"
    return f"{words} {say('shares_better', line=balance.override)}" if balance.override else words


def _shares(balance: BalancePart) -> Bars:
    """What a rank of each stage reads with every token; the mean is the line."""
    stages = balance.stages[:MOST_STAGES]
    most = max([stage.reads_bytes for stage in balance.stages] + [1])
    mean = sum(stage.reads_bytes for stage in balance.stages) / max(1, len(balance.stages))
    room = WIDTH - LEFT - RIGHT
    bars = [
        Bar(
            y=TOP + ROW * row,
            label=say("stage_n", number=stage.stage),
            note=say("stage_holds", count=stage.layers, more="".join(f" + {end}" for end in stage.ends)),
            x=LEFT,
            width=max(1, round(room * stage.reads_bytes / most)),
            value=size(stage.reads_bytes),
            kind="most" if stage.reads_bytes == most else "share",
        )
        for row, stage in enumerate(stages)
    ]
    lines = [(LEFT + round(room * mean / most), say("mean"))]
    return _bars(say("shares_title"), bars, lines)


def _bars(title: str, bars: list[Bar], lines: list[tuple[int, str]]) -> Bars:
    """The picture around some bars."""
    height = TOP + ROW * len(bars) + (22 if lines else TOP)
    return Bars(title=title, width=WIDTH, height=height, bars=bars, lines=lines)


def _times(crossings: Sequence[CrossingPart]) -> Iterator[Bars]:
    """Bounds of the time of each kind of microbatch over each boundary; the limit is the line."""
    for phase in ("prefill", "decode"):
        found = [
            (crossing, transfer)
            for crossing in crossings
            for transfer in crossing.transfers
            if transfer.phase == phase
        ]
        if not found:
            continue
        limit = next((one.limit_ms for _, one in found if one.limit_ms is not None), None)
        most = max([one.time_ms[1] for _, one in found] + ([limit] if limit is not None else [])) or 1.0
        scale = (WIDTH - LEFT - RIGHT) / most
        bars = [
            Bar(
                y=TOP + ROW * row,
                label=crossing.about,
                note=crossing.link,
                x=LEFT + round(scale * one.time_ms[0]),
                width=max(2, ceil(scale * (one.time_ms[1] - one.time_ms[0]))),
                value=milliseconds(one.time_ms),
                kind="most" if limit is not None and one.time_ms[1] > limit else "share",
            )
            for row, (crossing, one) in enumerate(found)
        ]
        lines = [] if limit is None else [(LEFT + round(scale * limit), say("limit_ms", limit=f"{limit:g}"))]
        yield _bars(say(f"times_{phase}"), bars, lines)


def size(count: int) -> str:
    """Bytes in the largest unit of which they have one."""
    unit, each = next((pair for pair in UNITS if count >= pair[1]), UNITS[-1])
    return f"{count / each:.4g} {unit}"


def milliseconds(time: tuple[float, float]) -> str:
    """Bounds of a time."""
    low, high = time
    return say("ms_bounds", low=f"{low:.3g}", high=f"{high:.3g}")
