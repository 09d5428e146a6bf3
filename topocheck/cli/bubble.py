"""`topocheck bubble`: how much of a pipeline's time its stages wait."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import click
import msgspec

from topocheck.cli.output import write_file
from topocheck.cli.streams import show
from topocheck.errors import UsageError
from topocheck.inputfile import read_bytes
from topocheck.pipeline.bubble import Bubble, assumptions, compare, describe, measure
from topocheck.pipeline.duration import parse_duration, spell_duration
from topocheck.pipeline.microbatches import InForce, Reading, parse_in_force
from topocheck.pipeline.schedule import (
    MOST_MICROBATCHES,
    MOST_STAGES,
    SCHEDULES,
    Pipeline,
    Schedule,
    held,
    run,
)
from topocheck.pipeline.sweep import Sweep, parse_sizes, percent, sweep, table
from topocheck.pipeline.timeline import MOST_DRAWN, svg, text
from topocheck.planfile import read_plan
from topocheck.render.text import printable

__all__ = ["bubble"]

WIDTH = 80
MOST_LOG_BYTES = 16_000_000
FACTOR = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,9})?")


Spell = Callable[[Fraction], str]
"""How a time is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Stages and microbatches to compute, and where each comes from."""

    stages: list[int]
    microbatches: list[int]
    sources: dict[str, str]
    notes: list[str]


@click.command()
@click.option("-p", "--stages", metavar="SIZES", help="Stages: 4, or 2,4,8 or 2..8 for a table.")
@click.option(
    "-m", "--microbatches", metavar="SIZES", help="Microbatches: 8, or 4,8,32 or 1..64 for a table."
)
@click.option("-t", "--time", metavar="TIME", help="Forward time of a microbatch in each stage: 5ms.")
@click.option("--times", metavar="TIMES", help="Forward times of uneven stages: 4,11,5; ms without a unit.")
@click.option("--schedule", type=click.Choice(SCHEDULES), default="forward", show_default=True)
@click.option(
    "--virtual", type=click.IntRange(1, 64), help="Virtual stages a stage  [default: 2 with interleaved]"
)
@click.option(
    "--backward", default="2", show_default=True, help="Backward time as a multiple of forward time."
)
@click.option("--from-plan", metavar="PLAN", help="Take the stages from a plan; - is standard input.")
@click.option("--from-log", metavar="FILE", help="Take sizes from a launch command or a start-up log.")
@click.option("--svg", "svg_path", metavar="PATH", help="Write the timeline as SVG; - is standard output.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def bubble(  # noqa: PLR0917 - one parameter an option
    stages: str | None,
    microbatches: str | None,
    time: str | None,
    times: str | None,
    schedule: Schedule,
    virtual: int | None,
    backward: str,
    from_plan: str | None,
    from_log: str | None,
    svg_path: str | None,
    as_json: bool,
) -> None:
    """Compute the bubble of a pipeline: how long its stages wait while it fills and drains.

    Forward only as in serving, or a schedule of training. Without a time, times are counted in slots.
    """
    if as_json and svg_path == "-":
        raise UsageError("--json and --svg both write to standard output: give --svg a file")
    if from_plan == from_log == "-":
        raise UsageError("standard input is either the plan or the log: give one of the two as a file")
    given = read_times(time, times)
    sizes = resolve(stages, microbatches, len(given) if times else None, from_plan, from_log)
    over = Sweep(
        stages=sizes.stages,
        microbatches=sizes.microbatches,
        schedule=schedule,
        chunks=virtual or (2 if schedule == "interleaved" else 1),
        backward=read_factor(backward),
        times=given if times else None,
    )
    if len(sizes.stages) * len(sizes.microbatches) == 1:
        show_one(over, sizes, given or (Fraction(1),), svg_path, timed=bool(given), as_json=as_json)
    elif svg_path is not None:
        raise UsageError("--svg draws one pipeline: give one number of stages and of microbatches")
    else:
        show_sweep(over, sizes, as_json=as_json)


def read_times(time: str | None, times: str | None) -> tuple[Fraction, ...]:
    """Forward times in ns: one for all stages, or one for each; none if none was given. Raises UsageError."""
    if time is not None and times is not None:
        raise UsageError("give --time for equal stages or --times for uneven ones, not both")
    if time is not None:
        return (parse_duration(time),)
    words = times.split(",", MOST_STAGES) if times is not None else []
    return tuple(map(parse_duration, words))


def read_factor(words: str) -> Fraction:
    """A plain number above zero. Raises UsageError."""
    if not FACTOR.fullmatch(words) or not Fraction(words):
        raise UsageError(f"--backward must be a number above zero such as 2 or 1.5, not {words[:40]!r}")
    return Fraction(words)


def resolve(
    stages: str | None,
    microbatches: str | None,
    times: int | None,
    plan_path: str | None,
    log_path: str | None,
) -> Sizes:
    """Sizes by options, else by the log, else by the plan. `times` counts uneven stages.

    Raises UsageError.
    """
    log = InForce() if log_path is None else parse_in_force(read_log(log_path), log_path)
    plan = None if plan_path is None else read_plan(plan_path).parallel.pipeline or 1
    found = {
        "stages": [
            (parse_sizes(stages, "--stages", MOST_STAGES), "--stages") if stages is not None else None,
            ([times], "--times") if times else None,
            said(log.stages, log_path),
            ([plan], f"{plan_path}: parallel.pipeline") if plan else None,
        ],
        "microbatches": [
            (parse_sizes(microbatches, "--microbatches", MOST_MICROBATCHES), "--microbatches")
            if microbatches is not None
            else None,
            said(log.microbatches, log_path),
        ],
    }
    (count, origin), *others = known(found["stages"], "stages", "-p 4")
    if times and count != [times]:
        raise UsageError(f"--times has {times} times, and --stages is {stages}: give one time for each stage")
    (batches, source), *rest = known(found["microbatches"], "microbatches", "-m 8")
    return Sizes(
        stages=count,
        microbatches=batches,
        sources={"stages": origin, "microbatches": source},
        notes=[
            *(f"{other} says {sizes[0]} stages" for sizes, other in others if sizes != count),
            *(f"{other} says {sizes[0]} microbatches" for sizes, other in rest if sizes != batches),
        ],
    )


def said(reading: Reading | None, path: str | None) -> tuple[list[int], str] | None:
    """What a log says, and where."""
    return None if reading is None else ([reading.value], f"{path}:{reading.line}: {reading.basis}")


def known(
    answers: Sequence[tuple[list[int], str] | None], what: str, option: str
) -> list[tuple[list[int], str]]:
    """The answers that there are, first the one that counts. Raises UsageError if there is none."""
    given = [answer for answer in answers if answer is not None]
    if not given:
        raise UsageError(f"the number of {what} is not known: give it, for instance {option}")
    return given


def read_log(path: str) -> str:
    """A launch command or a log; `-` is standard input. Raises InputError."""
    larger = "is larger than 16 MB: give its beginning: sizes stand at the start"
    return read_bytes(path, MOST_LOG_BYTES, larger).decode("utf-8", "replace")


def show_sweep(over: Sweep, sizes: Sizes, *, as_json: bool) -> None:
    """A table of idle parts, or JSON."""
    cells = sweep(over)
    pipeline = Pipeline(forward=(Fraction(1),), microbatches=1, backward=over.backward)
    said_once = list(assumptions(replace(pipeline, schedule=over.schedule, chunks=over.chunks)))
    if as_json:
        document = {
            "schema": "topocheck.bubble-sweep/1",
            "schedule": over.schedule,
            "virtual_stages": over.chunks,
            "backward_factor": None if over.schedule == "forward" else float(over.backward),
            "cells": cells,
            "sources": sizes.sources,
            "notes": sizes.notes,
            "assumptions": said_once,
        }
        return show(pretty(document), exact=True)
    head = f"idle part of the stages' time in %, {over.schedule}: p stages, m microbatches"
    lines = [head, *table(cells), "", *told(sizes, said_once)]
    return show("".join(f"{line}\n" for line in lines))


def show_one(
    over: Sweep,
    sizes: Sizes,
    times: tuple[Fraction, ...],
    svg_path: str | None,
    *,
    timed: bool,
    as_json: bool,
) -> None:
    """One pipeline: numbers and timeline, SVG, JSON."""
    pipeline = Pipeline(
        forward=over.times or times * sizes.stages[0],
        microbatches=sizes.microbatches[0],
        schedule=over.schedule,
        chunks=over.chunks,
        backward=over.backward,
    )
    found = measure(pipeline)
    compared = compare(found)
    spell = spell_duration if timed else spell_slots
    if svg_path is not None:
        if pipeline.actions > MOST_DRAWN:
            raise UsageError(
                f"{pipeline.actions:,} actions are too many to draw: {MOST_DRAWN:,} are the most"
            )
        drawing = svg(run(pipeline), spell, title=heading(pipeline, spell))
        if svg_path == "-":
            return show(drawing, exact=True)
        write_file(Path(svg_path), drawing)
    if as_json:
        document = describe(found, timed=timed, sources=sizes.sources, notes=sizes.notes, compared=compared)
        return show(pretty(document), exact=True)
    lines = [*words(found, compared, spell), "", *drawn(pipeline, spell), ""]
    return show("".join(f"{line}\n" for line in [*lines, *told(sizes, list(assumptions(pipeline)))]))


def pretty(document: object) -> str:
    """JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def heading(pipeline: Pipeline, spell: Spell) -> str:
    """`4 stages, 8 microbatches, 5 ms a stage, forward only`."""
    forward = pipeline.forward
    time = (
        f"{spell(forward[0])} a stage"
        if pipeline.even
        else f"{spell(min(forward))} to {spell(max(forward))} a stage"
    )
    name = {"forward": "forward only", "gpipe": "GPipe", "1f1b": "1F1B"}.get(pipeline.schedule)
    name = name or f"interleaved 1F1B, {pipeline.chunks} virtual stages in each"
    return (
        f"{plural(pipeline.stages, 'stage')}, {plural(pipeline.microbatches, 'microbatch')}, {time}, {name}"
    )


def plural(number: int, noun: str) -> str:
    """`1 stage`, `8 microbatches`."""
    return f"{number} {noun}" + ("" if number == 1 else "es" if noun.endswith("ch") else "s")


def words(found: Bubble, compared: Sequence[Bubble], spell: Spell) -> Iterator[str]:
    """The numbers, a line each."""
    pipeline = found.pipeline
    yield from textwrap.wrap(heading(pipeline, spell), WIDTH)
    if found.first is not None and found.interval is not None:
        yield from labelled("first result", f"after {spell(found.first)}: one forward pass")
        pace = "" if pipeline.even else ", the slowest stage's time, whatever the input"
        yield from labelled("then every", f"{spell(found.interval)}{pace}")
    yield from labelled(
        "all done", f"after {spell(found.total)} ({found.method}); {spell(found.serial)} one after the other"
    )
    if found.slots is not None and found.busy_slots is not None:
        yield from labelled(
            "slots", f"{found.slots}: {found.busy_slots} busy, {found.slots - found.busy_slots} idle"
        )
    yield from labelled("occupancy", percent(found.occupancy))
    yield from labelled("idle", percent(found.idle) + left(found))
    if compared:
        yield ""
        yield from beside(compared, spell)


def left(found: Bubble) -> str:
    """What of the idle part is not fill and drain."""
    if found.pipeline.even:
        return ", fill and drain"
    return f", of which {percent(found.imbalance)} stays with ever more microbatches: the stages are uneven"


def beside(compared: Sequence[Bubble], spell: Spell) -> Iterator[str]:
    """Schedules of training under each other."""
    yield f"  {'schedule':24}{'idle':>8}  {'all done':>12}  held by stage 0"
    for one in compared:
        pipeline = one.pipeline
        name = pipeline.schedule + (f", {pipeline.chunks} virtual" if pipeline.chunks > 1 else "")
        kept = f"{float(held(pipeline, 0)):g} microbatches"
        yield f"  {name:24}{percent(one.idle):>8}  {spell(one.total):>12}  {kept}"


def drawn(pipeline: Pipeline, spell: Spell) -> Iterator[str]:
    """The timeline, unless it is too long."""
    if pipeline.actions > MOST_DRAWN:
        yield f"no timeline: {pipeline.actions:,} actions are too many to draw"
    else:
        yield from text(run(pipeline), spell, WIDTH)


def told(sizes: Sizes, assumed: Sequence[str]) -> Iterator[str]:
    """Where the sizes come from, what disagrees, and what is assumed."""
    for what, source in sizes.sources.items():
        if not source.startswith("--"):
            yield from labelled(what, f"by {source}")
    for note in sizes.notes:
        yield from labelled("disagrees", note)
    for number, assumption in enumerate(assumed):
        yield from labelled("" if number else "assumed", assumption)


def labelled(label: str, said: str) -> list[str]:
    """A line with its label; what does not fit goes on under it."""
    return textwrap.wrap(
        printable(said),
        WIDTH,
        initial_indent=f"  {label:14}",
        subsequent_indent=" " * 16,
        break_on_hyphens=False,
    )


def spell_slots(time: Fraction) -> str:
    """Slots as `7 slots`."""
    return f"{float(time):.6g} slot{'' if time == 1 else 's'}"
