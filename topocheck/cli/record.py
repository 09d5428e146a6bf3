"""`topocheck record`: what a run was and what it gave, kept; and two of them compared."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from topocheck.cli.output import write_file
from topocheck.cli.runfiles import RunFiles, read_run
from topocheck.cli.streams import say, show
from topocheck.cli.verify import moment
from topocheck.errors import UsageError
from topocheck.pipeline.compare import Comparison, compare
from topocheck.record import NOT_MEASURED, Change, Missing, Record, fields
from topocheck.recorded import record_of
from topocheck.recordfile import read_record, to_yaml
from topocheck.render.text import printable

__all__ = ["compared", "record"]

WIDTH = 80


class RecordCommand(click.Command):
    """Takes `record compare A B` as a command of its own; evidence of that name is ./compare."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of the command that is meant."""
        if args[:1] != ["compare"]:
            return super().make_context(info_name, args, parent, **extra)
        here = click.Context(click.Group(info_name), parent, info_name)
        return compared.make_context("compare", args[1:], here, **extra)


@click.command(cls=RecordCommand)
@click.option("--plan", "plan_path", metavar="PLAN", help="Plan file.")
@click.option("--bench", metavar="FILE", help="Result of vllm bench serve or SGLang's bench_serving.")
@click.option("--bench-run", type=click.IntRange(1), metavar="N", help="Which run of a file with several.")
@click.option("--bench-log", metavar="FILE", help="What the benchmark printed: seed, warm-up, data set.")
@click.option("--bench-limits", metavar="LIMITS", help="Limits of goodput: ttft=500ms,tpot=50ms.")
@click.option(
    "--from-log",
    multiple=True,
    metavar="FILE",
    help="Launch command or start-up log: sizes, memory in force.",
)
@click.option(
    "--utilization",
    multiple=True,
    metavar="FILE",
    help="nvidia-smi --query-gpu, dcgmi dmon or dcgm-exporter.",
)
@click.option("--waits", metavar="FILE", help="Answer of topocheck waits --json: what dominates.")
@click.option("--trace", multiple=True, metavar="FILE", help="Trace as for topocheck waits: follow one unit.")
@click.option("--unit", metavar="ID", help="The unit of the trace to follow  [default: one in the middle]")
@click.option("--set", "stated", multiple=True, metavar="FIELD=VALUE", help="State what no file shows.")
@click.option("--before", metavar="RECORD", help="Record of the run before the change: adds the gain.")
@click.option("--allow-unknown", is_flag=True, help="With --before: take unknown conditions for equal.")
@click.option("-o", "--output", metavar="FILE", help="Write the record there  [default: standard output]")
@click.option("--json", "as_json", is_flag=True, help="As JSON instead of YAML.")
@click.option("--at", metavar="TIME", help="The `now` of the record, RFC 3339  [default: the clock]")
@click.argument("evidence", nargs=-1, metavar="[EVIDENCE...]")
def record(  # noqa: PLR0917 - one parameter an option
    plan_path: str | None,
    bench: str | None,
    bench_run: int | None,
    bench_log: str | None,
    bench_limits: str | None,
    from_log: tuple[str, ...],
    utilization: tuple[str, ...],
    waits: str | None,
    trace: tuple[str, ...],
    unit: str | None,
    stated: tuple[str, ...],
    before: str | None,
    allow_unknown: bool,
    output: str | None,
    as_json: bool,
    at: str | None,
    evidence: tuple[str, ...],
) -> None:
    """Record a run: model, cards, sizes, mapping, load, speed and utilisation, as YAML.

    EVIDENCE is as for verify. What nothing shows says `not measured`, and the record names what
    would fill it. `topocheck record compare A B` compares two records.
    """
    files = RunFiles(
        plan=plan_path,
        evidence=evidence,
        bench=bench,
        bench_run=bench_run,
        bench_log=bench_log,
        bench_limits=bench_limits,
        from_log=from_log,
        utilization=utilization,
        waits=waits,
        trace=trace,
        unit=unit,
        stated=stated,
    )
    found = record_of(read_run(files), moment(at))
    if before is not None:
        found = with_change(found, before, output, allow_unknown=allow_unknown)
    write(pretty(found) if as_json else to_yaml(found), output)
    say(told(found, output))


def write(text: str, output: str | None) -> None:
    """To a file, whole or not at all, or to standard output."""
    if output is None or output == "-":
        show(text, exact=True)
    else:
        write_file(Path(output), text)


def pretty(document: object) -> str:
    """JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def with_change(found: Record, before: str, output: str | None, *, allow_unknown: bool) -> Record:
    """The record with what its change gained. Raises UsageError for a run that does not compare."""
    earlier = read_record(before)
    result = compare(earlier, found, (before, output or "this run"), allow_unknown=allow_unknown)
    if not result.comparable:
        raise UsageError(result.verdict)
    digest = hashlib.sha256(to_yaml(earlier).encode()).hexdigest()
    change = Change(
        before=f"{before}, sha256:{digest}",
        changed=tuple(result.changed),
        measured_gain=NOT_MEASURED if result.measured_gain is None else result.measured_gain,
        predicted_gain=NOT_MEASURED if result.predicted_gain is None else result.predicted_gain,
        verdict=result.verdict,
    )
    missing = tuple(one for one in found.missing if one.field != "change")
    missing += tuple(
        Missing(field=path, supply=f"--bench FILE, and sizes of both runs: {result.prediction}")
        for path, value in fields(change, "change").items()
        if value == NOT_MEASURED
    )
    return msgspec.structs.replace(found, change=change, missing=missing)


def told(found: Record, output: str | None) -> str:
    """The record in one sentence."""
    lacking = [one.field for one in found.missing]
    some = f" ({', '.join(lacking[:5])}{' ...' if len(lacking) > 5 else ''})" if lacking else ""
    place = f" in {output}" if output not in (None, "-") else ""
    return f"recorded{place}: {len(lacking) or 'no'} field{'s' * (len(lacking) != 1)} not measured{some}"


@click.command("compare")
@click.option("--allow-unknown", is_flag=True, help="Take conditions that are not known for equal.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.argument("before")
@click.argument("after")
def compared(before: str, after: str, allow_unknown: bool, as_json: bool) -> int:
    """Compare the records BEFORE and AFTER one change: what was gained, and what was predicted.

    Unlike loads, cards, drivers, seeds and warm-ups are refused (exit 2); where a record does not
    know them the runs are not comparable (exit 3).
    """
    if before == after == "-":
        raise UsageError("- is given twice: standard input can be read once")
    first, second = read_record(before), read_record(after)
    found = compare(first, second, (before, after), allow_unknown=allow_unknown)
    if as_json:
        show(pretty(found), exact=True)
    elif found.comparable:
        show("".join(f"{line}\n" for line in words(found)))
    say(found.verdict)
    return 0 if found.comparable else 3


def words(found: Comparison) -> Iterator[str]:
    """Both runs for people: what changed, the figures beside each other, what to know."""
    yield from labelled("before", found.before)
    yield from labelled("after", found.after)
    for change in found.changed or ["nothing that is recorded"]:
        yield from labelled("changed", change)
    yield ""
    yield from table(found)
    yield ""
    yield from labelled("bubble", found.prediction)
    for note in found.notes:
        yield from labelled("note", note)


def table(found: Comparison) -> Iterator[str]:
    """Figures in rows."""
    rows = [("", "before", "after", "times")]
    for gain in found.gains:
        ratio = "-" if gain.ratio is None else f"{gain.ratio:.2f}"
        rows.append((gain.figure, f"{gain.before:.6g}", f"{gain.after:.6g}", ratio))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(aligned(row, widths)).rstrip()


def aligned(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Names to the left, numbers to the right."""
    for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if place else cell.ljust(width)


def labelled(label: str, said: str) -> list[str]:
    """A line with its label; what does not fit goes on under it."""
    return textwrap.wrap(
        printable(said),
        WIDTH,
        initial_indent=f"  {label:9}",
        subsequent_indent=" " * 11,
        break_on_hyphens=False,
    )
