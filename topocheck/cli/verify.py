"""`topocheck verify`: the checklist over a plan and evidence."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click

from topocheck.answer import Declared, answer
from topocheck.baseline import read_baseline
from topocheck.checklist import Gate
from topocheck.cli.asked import declared_in, given_options, with_files
from topocheck.cli.launched import TakesCommand, launched, read_nodes
from topocheck.cli.leaving import keep
from topocheck.cli.output import colour_wanted, one_each, output_options, write_outputs
from topocheck.errors import UsageError
from topocheck.freshness import Admission
from topocheck.gather.files import Argument, arguments, gather, split_label
from topocheck.inventory import Inventory
from topocheck.plan import BASES, Basis, Expect, Plan, Policy
from topocheck.policy import merged, read_site
from topocheck.report import InputReport, Report

if TYPE_CHECKING:
    from topocheck.keptrecord import KeptRecord

__all__ = ["check", "verify"]

EVERYTHING = Admission()
AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400}
"""Seconds of the units of --max-age."""


@click.command(cls=TakesCommand)
@click.option("--plan", "plan_path", metavar="PLAN", help="Plan file; - is standard input.")
@output_options
@click.option(
    "--html-identities",
    is_flag=True,
    help="The UUID of every GPU in the HTML file, also where it has more than 512 ranks.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning"]),
    default="error",
    show_default=True,
    help="Findings at or above it shut the gate.",
)
@click.option(
    "--min-basis",
    type=click.Choice(BASES),
    default=None,
    help="How well placement must be known for a pass to count  [default: predicted]",
)
@click.option("--run", metavar="ID", help="Evidence of another run does not count (EV003).")
@click.option("--max-age", metavar="DURATION", help="Older evidence does not count (EV003): 90s, 10m, 2h.")
@click.option("--policy", metavar="FILE", help="Policy and waivers; wins over the plan's.")
@click.option(
    "--baseline",
    metavar="REPORT",
    help="JSON report of an earlier run: what it found already shows and does not count.",
)
@click.option(
    "--since",
    metavar="EARLIER",
    help="Report of --json, snapshots or a folder of an earlier look: what moved since is an error (OBS005). "
    "It compares the job; --baseline compares findings.",
)
@click.option(
    "--record",
    metavar="RECORD",
    help="Record of topocheck record: what was measured, in the HTML and JSON files.",
)
@click.option(
    "--after-recovery",
    is_flag=True,
    help="All evidence is of after a restart: does the job work again (OBS007)?",
)
@click.option(
    "--write-fixes",
    "fixes",
    metavar="DIR",
    help="Write what mends the findings: hostfile, rankfile, env.sh, exclude.txt.",
)
@click.option("--exit-zero", is_flag=True, help="Report only: exit 0 whatever the verdict.")
@click.option("--at", metavar="TIME", help="The `now` of the run, RFC 3339  [default: the clock]")
@click.option("--color/--no-color", "colour", default=None, help="Colour  [default: if stdout is a terminal]")
@click.option("-v", "--verbose", is_flag=True, help="Every rule, and the Rank -> Stage -> node -> GPU table.")
@click.option("--nodes", metavar="N|NAMES", help="Nodes, where neither evidence nor COMMAND says them.")
@click.argument("evidence", nargs=-1, metavar="EVIDENCE... [-- COMMAND...]")
@click.pass_context
def verify(  # noqa: PLR0917 - one parameter an option
    context: click.Context,
    /,
    plan_path: str | None,
    fail_on: Literal["error", "warning"],
    min_basis: Basis | None,
    run: str | None,
    max_age: str | None,
    policy: str | None,
    baseline: str | None,
    since: str | None,
    record: str | None,
    after_recovery: bool,
    fixes: str | None,
    exit_zero: bool,
    at: str | None,
    colour: bool | None,
    verbose: bool,
    nodes: str | None,
    evidence: tuple[str, ...],
    html_identities: bool,
    **outputs: str | None,
) -> int:
    """Verify evidence against a plan: snapshots, captured text, folders, -, or LABEL=FILE.

    Without --plan a launch COMMAND after -- declares the plan, else the sizes that the evidence itself shows
    are used; the report says where each comes from.
    """
    wanted = one_each(outputs)
    shown_in(wanted, identities=html_identities, record=record is not None)
    read_once(plan_path, policy, record, evidence)
    mend = mender(fixes)
    declared = all_declared(context, plan_path, nodes, policy, baseline)._replace(record=kept_record(record))
    declared = with_files(declared, since) if wanted else declared
    expect, now = expected(declared.plan, run, max_age, recovered=after_recovery), moment(at)
    report = check(
        declared,
        list(evidence),
        gate_of(declared, fail_on, min_basis, exit_zero=exit_zero),
        at=now,
        whole=bool(wanted) or verbose,
        digests=bool(wanted),
        admission=Admission(expect, now),
        since=since,
        fixes=fixes is not None,
    )
    mend(report)
    write_outputs(report, wanted, colour=colour_wanted(colour), verbose=verbose, uuids=html_identities)
    return report.exit_code


def shown_in(wanted: Collection[str], *, identities: bool, record: bool) -> None:
    """Raise UsageError for what none of the files that are wanted would show."""
    if identities and "html" not in wanted:
        raise UsageError("--html-identities is for the HTML file: give --html PATH too")
    if record and "html" not in wanted and "json" not in wanted:
        raise UsageError("--record is for the files that show it: give --html PATH or --json PATH too")


def read_once(plan: str | None, policy: str | None, record: str | None, evidence: Sequence[str]) -> None:
    """Raise UsageError if standard input is to be read twice."""
    files = (("the plan", plan), ("the policy", policy), ("the record", record))
    streams = [what for what, path in files if path == "-"]
    streams += ["evidence"] * any(split_label(name)[1] == "-" for name in evidence)
    if len(streams) > 1:
        raise UsageError(
            f"standard input is either {' or '.join(streams[:2])}: give one of the two as a file"
        )


def mender(folder: str | None) -> Callable[[Report], None]:
    """Writes what mends a report into the folder, if one is given. Raises UsageError if it cannot be used."""
    if folder is None:
        return lambda _: None
    # Imported only where it is asked for.
    from topocheck.cli.fixes import check_folder, write_fixes  # noqa: PLC0415

    check_folder(folder)
    return partial(write_fixes, name=folder)


def all_declared(
    context: click.Context, plan: str | None, nodes: str | None, policy: str | None, baseline: str | None
) -> Declared:
    """All that files and options declare. Raises UsageError."""
    return declared_by(plan, context.obj, nodes)._replace(
        site=None if policy is None else read_site(policy),
        baseline=None if baseline is None else read_baseline(baseline),
        options=given_options(context),
    )


def kept_record(path: str | None, name: str | None = None) -> KeptRecord | None:
    """The acceptance record of the run, if one is given. Raises InputError."""
    if path is None:
        return None
    # Imported only where it is asked for: it brings in the reader of YAML.
    from topocheck.keptrecord import read_kept_record  # noqa: PLC0415

    return read_kept_record(path, name)


def gate_of(
    declared: Declared,
    fail_on: Literal["error", "warning"],
    min_basis: Basis | None,
    *,
    exit_zero: bool,
) -> Gate:
    """What shuts the gate: an option goes before the policy in force."""
    own = merged(Policy() if declared.plan is None else declared.plan.policy, declared.site)
    return Gate(fail_on, min_basis or own.min_basis or "predicted", exit_zero)


def declared_by(path: str | None, command: tuple[str, ...] | None, nodes: str | None) -> Declared:
    """The plan of a file or of a launch command. Raises UsageError for both, and for nodes beside a file."""
    if path is not None and command is not None:
        raise UsageError("give either --plan or -- and a launch command, not both")
    if path is not None and nodes is not None:
        raise UsageError("--nodes is for a job without a plan file: in the file, write `nodes:`")
    if path is not None:
        return declared_in(path)
    if command is not None:
        plan, world, said = launched(command, nodes)
        return Declared(plan, world, said)
    return Declared(None, nodes=None if nodes is None else read_nodes(nodes))


def expected(plan: Plan | None, run: str | None, max_age: str | None, *, recovered: bool = False) -> Expect:
    """What the evidence must be to count: options go before the plan's own words."""
    asked = Expect() if plan is None else plan.expect
    age = asked.max_age_s if max_age is None else seconds_of(max_age)
    run = asked.run if run is None else run
    return Expect(run=run, max_age_s=age, recovered=recovered or asked.recovered)


def seconds_of(words: str) -> int:
    """Seconds of `90s`, `10m`, `2h`, `1d`. Raises UsageError."""
    number, unit = words[:-1].strip(), words[-1:]
    if not number.isdecimal() or unit not in AGES or len(number) > 9 or not int(number):
        raise UsageError(f"--max-age {words}: expected a time such as 90s, 10m, 2h or 1d")
    return int(number) * AGES[unit]


def moment(at: str | None) -> str:
    """The `now` of a run, RFC 3339 in UTC."""
    if at is None:
        return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        given = datetime.fromisoformat(at.replace("Z", "+00:00"))
        moved = given.astimezone(timezone.utc)
    except (ValueError, OverflowError):  # OverflowError: the zone leads out of the calendar
        raise UsageError(f"--at {at}: expected a time such as 2026-01-31T12:00:00Z") from None
    if given.tzinfo is None:
        raise UsageError(f"--at {at}: the time zone is missing: add Z or +02:00")
    return moved.strftime("%Y-%m-%dT%H:%M:%SZ")


def started(inputs: Sequence[InputReport], files: Sequence[Argument]) -> tuple[list[Any], list[str]]:
    """What start-up logs among the inputs say for the record, and notes; `files` say where they lie."""
    # Imported only where files are written.
    from topocheck.gather.startlogs import start_logs  # noqa: PLC0415

    logs, notes = start_logs(inputs, {file.name: file.path for file in files if file.path is not None})
    return list(logs), notes


def check(
    declared: Declared,
    evidence: Sequence[str | Argument],
    gate: Gate,
    *,
    at: str,
    whole: bool,
    digests: bool,
    admission: Admission = EVERYTHING,
    since: str | None = None,
    fixes: bool = False,
) -> Report:
    """Gather, place, run the rules, report. `whole` adds the placement table, `fixes` that and what mends."""
    gc.disable()  # evidence is frozen and has no cycles: collecting it again and again only costs
    inventory = Inventory()
    try:
        inventory.admission = admission
        if since is not None:
            # Imported only where it is asked for: it brings in what reads launch commands.
            from topocheck.gather.earlier import read_whereabouts  # noqa: PLC0415

            inventory.earlier = read_whereabouts(since)
        files = arguments([name for name in evidence if isinstance(name, str)])
        files += [file for file in evidence if isinstance(file, Argument)]
        inputs = gather(files, inventory, digests=digests)
        logs, notes = started(inputs, files) if digests else ([], [])
        return answer(
            declared,
            inventory,
            inputs,
            gate,
            at=at,
            whole=whole or fixes,
            fixes=fixes,
            logs=logs,
            notes=notes,
        )
    finally:
        keep(inventory)
        gc.enable()
