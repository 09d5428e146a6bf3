"""`topocheck waits`: why the stages of a measured pipeline wait, and what to do about it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from topocheck.cli.bubble import labelled, pretty, read_log
from topocheck.cli.streams import show
from topocheck.errors import InputError, UsageError
from topocheck.pipeline import schedule
from topocheck.pipeline.clocks import HostClock, align
from topocheck.pipeline.depth import DepthPoint, DepthReading, parse_point, read_depth, result_of, times_of
from topocheck.pipeline.duration import spell_duration
from topocheck.pipeline.findings import bubble_words, ms, percent
from topocheck.pipeline.measured import as_run
from topocheck.pipeline.schedule import MOST_STAGES
from topocheck.pipeline.states import Run
from topocheck.pipeline.timeline import MOST_DRAWN, text
from topocheck.pipeline.trace import Trace
from topocheck.pipeline.trace_files import read_traces
from topocheck.pipeline.waits import depth_alone, report
from topocheck.pipeline.waits_report import StageWaits, WaitFinding, WaitsReport
from topocheck.render.text import printable

__all__ = ["waits"]

WIDTH = 80
MOST_SHOWN = 32
"""Stages in the table, and lines of notes."""
RANKS = re.compile(r"[0-9]{1,9}(?:,[0-9]{1,9})*")
UNDECIDED = 3
"""Exit code where most of the waiting is unknown."""


@click.command()
@click.argument("traces", metavar="TRACE...", nargs=-1)
@click.option("--ranks", metavar="RANKS", help="Rank of each stage, first stage first: 0,4,8.")
@click.option("--from-plan", metavar="PLAN", help="Take the ranks of the stages from a plan.")
@click.option(
    "--clocks",
    multiple=True,
    metavar="FILE",
    help="Snapshots of the hosts, whose clocks are compared by them.",
)
@click.option(
    "--skip", type=click.IntRange(0, 1_000_000), default=0, metavar="N", help="Leave out N units of warm-up."
)
@click.option(
    "--bench",
    multiple=True,
    metavar="STAGES=FILE",
    help="Benchmark result with so many stages, or STAGES=TTFT,TPOT in ms; once for each depth.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def waits(  # noqa: PLR0917 - one parameter an option
    traces: tuple[str, ...],
    ranks: str | None,
    from_plan: str | None,
    clocks: tuple[str, ...],
    skip: int,
    bench: tuple[str, ...],
    as_json: bool,
) -> int:
    """Split each stage's time: computing, waiting for work, for an uneven stage, for a link, unknown.

    What is named comes with its evidence, what to do, and what that costs. TRACE is one of two
    kinds, plain or gzip, or a folder of them:

    Traces of the PyTorch profiler, one of each stage's rank, recorded with record_shapes=True
    (RANK=FILE for one that does not say its rank).

    Units that a program wrote down, one JSON object a line, or CSV with the same names:

    \b
      {"unit": 7, "stage": 1, "host": "gpu-02",
       "receive_start_ns": 10, "receive_end_ns": 14,
       "compute_start_ns": 15, "compute_end_ns": 35,
       "send_start_ns": 36, "send_end_ns": 40}

    At the first stage ready_ns says when the input was there. Further: iteration, pass (forward
    or backward), rank. _us, _ms or _s may stand for _ns. See topocheck schema unit.

    Times of two hosts are compared if transfers go both ways, or by --clocks; else what hangs on
    them is unknown. With --bench, a first token that comes later with each stage while the time
    per token stays is named as depth.

    Exit code 0; 3 if too much is unknown to name anything; 2 for input that cannot be used.
    """  # noqa: D301 - click keeps the lines after this character as they are
    depth = read_bench(bench)
    if not traces:
        if depth is None:
            raise UsageError("give the traces of the stages, or --bench once for each depth")
        return told(depth_alone(depth), None, as_json=as_json)
    chains = read_chains(ranks, from_plan)
    trace = read_traces(traces, chains)
    check_stages(trace, chains, from_plan)
    run = Run(trace, align(trace, read_clocks(clocks, trace)), skip)
    return told(report(run, traces, depth), None if as_json else as_run(run), as_json=as_json)


def read_bench(options: Sequence[str]) -> DepthReading | None:
    """Results by depth; None if none were given. Raises UsageError."""
    points: list[DepthPoint] = []
    for option in options:
        stages, rest = parse_point(option)
        points.append(times_of(stages, rest) or result_of(stages, read_log(rest), rest))
    return read_depth(points) if points else None


def read_chains(ranks: str | None, plan_path: str | None) -> list[tuple[int, ...]] | None:
    """Ranks of each pipeline, if the user or a plan says them. Raises UsageError."""
    if ranks is not None and plan_path is not None:
        raise UsageError("--ranks and --from-plan both say which rank is which stage: give one of them")
    if ranks is not None:
        found = tuple(map(int, ranks.split(","))) if RANKS.fullmatch(ranks) else ()
        if not found or len(set(found)) < len(found) or len(found) > MOST_STAGES:
            raise UsageError(f"--ranks must be different ranks such as 0,4,8, not {ranks[:60]!r}")
        return [found]
    if plan_path is None:
        return None
    from topocheck.declared import declare_all  # noqa: PLC0415 - only where a plan is given
    from topocheck.planfile import read_plan  # noqa: PLC0415

    worlds = declare_all(read_plan(plan_path))
    if len(worlds) > 1:
        raise UsageError(f"{plan_path} has {len(worlds)} worlds: give the ranks of one pipeline with --ranks")
    return [tuple(group) for group in worlds[0].layout.groups("pipeline")]


def check_stages(trace: Trace, chains: Sequence[Sequence[int]] | None, plan_path: str | None) -> None:
    """A plan and a file of units have the same number of stages. Raises InputError."""
    if chains is not None and len(trace.stages) != len(chains[0]):
        given, declared = len(trace.stages), len(chains[0])
        raise InputError(
            f"has {given} stage{'s' * (given > 1)}, and {plan_path or '--ranks'} has {declared}",
            path=trace.stages[0].source,
            fix="give the traces of all stages",
        )


def read_clocks(paths: Sequence[str], trace: Trace) -> dict[str, HostClock]:
    """Clocks of the trace's hosts out of snapshots, by the names of the trace. Raises UsageError."""
    found: dict[str, HostClock] = {}
    for path in paths:
        found |= dict(clocks_in(path))
    names = {stage.clock for stage in trace.stages}
    return {
        name: known
        for name in names
        if (known := found.get(name) or found.get(name.partition(".")[0])) is not None
    }


def clocks_in(path: str) -> Iterator[tuple[str, HostClock]]:
    """Clock of each host of a file of snapshots, by all its names, the short ones too. Raises InputError."""
    from topocheck.gather.stream import open_stream, read_snapshots  # noqa: PLC0415 - only where given

    try:
        with Path(path).open("rb") as raw:
            for snapshot in read_snapshots(open_stream(raw, raw.peek(4), path), path):
                host = snapshot.identity.host
                for name in filter(None, (host.name, *host.aliases)):
                    clock = HostClock(host.boot_id, snapshot.state.clock)
                    yield name, clock
                    yield name.partition(".")[0], clock
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read ({reason})", path=path) from None


def told(found: WaitsReport, drawn: schedule.Run | None, *, as_json: bool) -> int:
    """Show the report; gives the exit code."""
    if as_json:
        show(pretty(found), exact=True)
    else:
        show("".join(f"{line}\n" for line in words(found, drawn)))
    return UNDECIDED if found.status == "unknown" else 0


def words(found: WaitsReport, drawn: schedule.Run | None) -> Iterator[str]:
    """The report for people, at most 80 columns."""
    yield from textwrap.wrap(printable(capital(found.sentence)) + ".", WIDTH)
    if found.stages:
        yield ""
        yield from table(found.stages)
    if found.bubble is not None:
        yield ""
        yield from labelled("bubble", bubble_words(found.bubble))
    for finding in found.findings:
        yield ""
        yield from finding_words(finding)
    if drawn is not None and sum(map(len, drawn.rows)) <= MOST_DRAWN:
        yield ""
        for line in text(drawn, spell_duration, WIDTH):
            yield from textwrap.wrap(line, WIDTH) if len(line) > WIDTH else [line]
    rest = [*remarks(found)]
    if rest:
        yield ""
    for label, remark in rest[:MOST_SHOWN]:
        yield from labelled(label, remark)
    if len(rest) > MOST_SHOWN:
        yield f"  ... and {len(rest) - MOST_SHOWN} more; --json has them all"


def table(stages: Sequence[StageWaits]) -> Iterator[str]:
    """Where the time of each stage went, in percent."""
    yield "stage    a unit  computing     work  uneven stage     link  unknown  of"
    for stage in stages[:MOST_SHOWN]:
        cells = (
            f"{stage.stage:<5}",
            f"{ms(stage.unit_ns):>9}",
            f"{percent(stage.computing):>9}",
            f"{percent(stage.work):>7}",
            f"{percent(stage.neighbour):>12}",
            f"{percent(stage.boundary):>7}",
            f"{percent(stage.unknown):>7}",
            ms(stage.window_ns),
        )
        yield "  ".join(cells)
    more = len(stages) - MOST_SHOWN
    if more > 0:
        yield f"... and {more} more stage{'s' * (more > 1)}; --json has them all"


def finding_words(finding: WaitFinding) -> Iterator[str]:
    """One finding: what, why, what to do, at which cost."""
    share = f", {percent(finding.share)} of the stages' time" if finding.share is not None else ""
    yield from textwrap.wrap(f"{NAMES[finding.kind]}: {finding.sentence}{share}", WIDTH)
    for number, fact in enumerate(finding.evidence):
        yield from labelled("" if number else "evidence", fact)
    yield from labelled("do", finding.action)
    yield from labelled("cost", finding.cost)
    yield from labelled("no cure", finding.no_cure)


NAMES = {"work": "work", "neighbour": "uneven stage", "boundary": "link", "depth": "depth"}
"""What a kind of waiting is called in the table."""


def remarks(found: WaitsReport) -> Iterator[tuple[str, str]]:
    """What is unknown, how clocks were brought together, and what was left out."""
    for gap in found.gaps:
        yield "unknown", gap
    for clock in found.clocks[1:]:
        if clock.shift_ns is not None and clock.error_ns is not None:
            shift = f"{clock.shift_ns / 1e6:+.3f} ms, within {clock.error_ns / 1e6:.3f} ms, by {clock.basis}"
            yield "clock", f"{clock.name}: {shift}"
    for note in found.notes:
        yield "note", note


def capital(sentence: str) -> str:
    """With its first letter large."""
    return sentence[:1].upper() + sentence[1:]
