"""`topocheck verify`: the checklist over a plan and evidence."""

from __future__ import annotations

import gc
from datetime import datetime, timezone
from typing import Literal

import click
import msgspec

from topocheck.checklist import Gate, build_report
from topocheck.cli.output import colour_wanted, one_each, write_outputs
from topocheck.errors import UsageError
from topocheck.gather.files import arguments, gather, split_label
from topocheck.inventory import Inventory
from topocheck.placed import placement_report
from topocheck.placement import place
from topocheck.plan import BASES, Basis, Plan
from topocheck.planfile import derive, read_plan
from topocheck.report import Report
from topocheck.rules import RULES
from topocheck.verify import run_rules

__all__ = ["check", "verify"]


@click.command()
@click.option("--plan", "plan_path", metavar="PLAN", help="Plan file; - is standard input.")
@click.option("--json", "json_path", metavar="PATH", help="Write the report as JSON; - is standard output.")
@click.option("--html", "html_path", metavar="PATH", help="Write the report as one HTML file.")
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
@click.option("--exit-zero", is_flag=True, help="Report only: exit 0 whatever the verdict.")
@click.option("--at", metavar="TIME", help="The `now` of the run, RFC 3339  [default: the clock]")
@click.option("--color/--no-color", "colour", default=None, help="Colour  [default: if stdout is a terminal]")
@click.option("-v", "--verbose", is_flag=True, help="Every rule, and the Rank -> Stage -> node -> GPU table.")
@click.argument("evidence", nargs=-1, metavar="EVIDENCE...")
def verify(  # noqa: PLR0917 - one parameter an option
    plan_path: str | None,
    json_path: str | None,
    html_path: str | None,
    fail_on: Literal["error", "warning"],
    min_basis: Basis | None,
    exit_zero: bool,
    at: str | None,
    colour: bool | None,
    verbose: bool,
    evidence: tuple[str, ...],
) -> int:
    """Verify evidence against a plan: snapshots, captured text, folders, -, or LABEL=FILE."""
    wanted = one_each({"json": json_path, "html": html_path})
    if plan_path == "-" and any(split_label(name)[1] == "-" for name in evidence):
        raise UsageError("standard input is either the plan or evidence: give one of the two as a file")
    plan = needed_plan(plan_path)
    gate = Gate(fail_on, min_basis or plan.policy.min_basis or "predicted", exit_zero)
    report = check(
        plan, list(evidence), gate, at=moment(at), whole=bool(wanted) or verbose, digests=bool(wanted)
    )
    write_outputs(report, wanted, colour=colour_wanted(colour), verbose=verbose)
    return report.exit_code


def needed_plan(path: str | None) -> Plan:
    """The plan. Raises UsageError without one."""
    if path is None:
        raise UsageError(
            "verify needs a plan: give --plan FILE with three lines (engine: vllm; parallel: {tensor: 4, "
            "pipeline: 2}; nodes: 2)"
        )
    return read_plan(path)


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


def check(plan: Plan, evidence: list[str], gate: Gate, *, at: str, whole: bool, digests: bool) -> Report:
    """Gather, place, run the rules, report. `whole` adds the placement table."""
    gc.disable()  # evidence is frozen and has no cycles: collecting it again and again only costs
    try:
        inventory = Inventory()
        inputs = gather(arguments(evidence), inventory, digests=digests)
        plan = derive(plan, claimed_world(inventory))
        placement = place(plan, inventory)
        results = run_rules(RULES, placement)
        report = build_report(placement, results, inputs, at=at, gate=gate)
        if whole:
            report = msgspec.structs.replace(report, placement=placement_report(placement, results))
    finally:
        gc.enable()
    return report


def claimed_world(inventory: Inventory) -> int | None:
    """World size that all processes claim; None if none does or they differ."""
    claims = inventory.claims.get("")
    return next(iter(claims.sizes)) if claims is not None and len(claims.sizes) == 1 else None
