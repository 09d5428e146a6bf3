"""What is declared and what is gathered, answered: the plan in force, the rules, the report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from topocheck.baseline import Baseline
from topocheck.checklist import Gate, build_report
from topocheck.claims import claimed_size, united
from topocheck.errors import UsageError
from topocheck.freshness import oldest_and_newest
from topocheck.inputfile import digest_of
from topocheck.inventory import Inventory
from topocheck.origin import Origin
from topocheck.placed import placement_report
from topocheck.placement import Placement, place
from topocheck.plan import Plan
from topocheck.planfile import derive
from topocheck.policy import Site, chosen, merged, terms_of
from topocheck.report import AuditReport, InputReport, OptionReport, Report
from topocheck.rulebook import in_force
from topocheck.sourcecode import source_digest
from topocheck.verify import RuleResult, run_rules

if TYPE_CHECKING:  # what reads start-up logs and records is of no use without any
    from topocheck.keptrecord import KeptRecord
    from topocheck.pipeline.memorylog import StartUp
    from topocheck.pipeline.microbatches import InForce

__all__ = ["Declared", "answer", "plan_of"]

REPLICATED = ("vllm", "sglang")
"""Engines whose data replicas may be worlds of their own."""


class Declared(NamedTuple):
    """What the user declares beside the evidence."""

    plan: Plan | None
    """None where the evidence itself is to show it."""
    world: int | None = None
    """Ranks that the launcher of a command starts."""
    said: Sequence[str] = ()
    """Where each value of a command's plan comes from."""
    nodes: int | Sequence[str] | None = None
    """Nodes, where the evidence does not say them."""
    site: Site | None = None
    """A policy file, which wins over the plan's policy."""
    baseline: Baseline | None = None
    """An earlier report whose findings do not count."""
    record: KeptRecord | None = None
    """An acceptance record of the run, for what plan and evidence do not show."""
    files: Sequence[InputReport] = ()
    """Files that declare, for the report."""
    options: Sequence[OptionReport] = ()
    """Options that were given, for the report."""


def answer(
    declared: Declared,
    inventory: Inventory,
    inputs: list[InputReport],
    gate: Gate,
    *,
    at: str,
    whole: bool,
    fixes: bool = False,
    logs: Sequence[tuple[str, InForce, StartUp]] = (),
    notes: Sequence[str] = (),
) -> Report:
    """Place, run the rules, report. `whole` adds the placement table, `fixes` the order of nodes that mends.

    `logs` are start-up logs for the record of the run, `notes` what a reader of it has to know.

    Raises as `place` and `evident` do, and UsageError for a policy that names no rule or leaves none, and for
    the baseline of another job.
    """
    plan, origin = plan_of(declared, inventory)
    plan = msgspec.structs.replace(plan, policy=merged(plan.policy, declared.site))
    asked = audit_report(declared, plan) if whole else None
    known = in_force()
    terms = terms_of(plan, known, at=at, site=declared.site, baseline=declared.baseline)
    rules = chosen(plan.policy, known)
    if plan.worlds != 1 or (plan.engine in REPLICATED and (plan.parallel.data or 1) > 1):
        # Imported only where there may be several worlds: most jobs have one.
        from topocheck.worldreport import of_worlds, worlds_report  # noqa: PLC0415

        judgement, origin = of_worlds(plan, inventory, rules, origin, terms)
        if judgement is not None:
            if declared.record is not None:
                raise UsageError(
                    f"--record {declared.record.name}: a record is of one world, and the job has several"
                )
            report = worlds_report(judgement, inputs, at=at, gate=gate, whole=whole, terms=terms)
            return of_one_job(finished(report, asked, inventory), declared.baseline)
    inventory.claims = united(inventory.claims)
    placement = place(plan, inventory, origin)
    results = run_rules(rules, placement, terms)
    if fixes:
        # Imported only where it is asked for: most jobs are as they should be.
        from topocheck.nodeorder import add_order  # noqa: PLC0415

        add_order(placement, results, rules)
    report = build_report(placement, results, inputs, at=at, gate=gate, terms=terms)
    if whole:
        report = shown(report, placement, results, inventory, logs=logs, notes=notes, kept=declared.record)
    return of_one_job(finished(report, asked, inventory), declared.baseline)


def finished(report: Report, asked: AuditReport | None, inventory: Inventory) -> Report:
    """The report with what was asked, and from when the evidence is."""
    distinct = set(chain.from_iterable([machine.taken for machine in inventory.machines]))
    oldest, newest = oldest_and_newest(at for _, at in distinct) or (None, None)
    return msgspec.structs.replace(report, audit=asked, evidence_from=oldest, evidence_to=newest)


def audit_report(declared: Declared, plan: Plan) -> AuditReport:
    """What was asked: the plan in force by its digest, and what declares it."""
    return AuditReport(
        plan="evidence" if declared.plan is None else "command" if declared.said else "file",
        plan_digest=digest_of(msgspec.json.encode(plan, order="deterministic")),
        files=list(declared.files),
        options=list(declared.options),
        build=source_digest(),
    )


def shown(
    report: Report,
    placement: Placement,
    results: Sequence[RuleResult],
    inventory: Inventory,
    *,
    logs: Sequence[tuple[str, InForce, StartUp]],
    notes: Sequence[str],
    kept: KeptRecord | None,
) -> Report:
    """The report with what files show beside the checklist: where each rank lies, and the run as a record."""
    # Imported only where it is asked for: a terminal shows none of it.
    from topocheck.pipelined import pipeline_report  # noqa: PLC0415
    from topocheck.recorded import Given, record_of  # noqa: PLC0415

    table = placement_report(placement, results)
    given = Given(inventory=inventory, placement=placement, report=table, logs=logs, notes=notes)
    record = record_of(given, report.at)
    if kept is not None:
        from topocheck.keptrecord import completed  # noqa: PLC0415

        record = completed(record, kept)
    return msgspec.structs.replace(
        report,
        placement=table,
        pipeline=pipeline_report(placement),
        record=record,
    )


def of_one_job(report: Report, baseline: Baseline | None) -> Report:
    """The report, if its baseline is of the same job: another's ranks and groups have the same names.

    Raises UsageError.
    """
    if baseline is not None and baseline.job != report.job:
        raise UsageError(
            f"{baseline.name} is the report of another job ({baseline.job[:200]}), and this one is "
            f"{report.job[:200]}: write a baseline of this job with --json FILE"
        )
    return report


def plan_of(declared: Declared, inventory: Inventory) -> tuple[Plan, Origin]:
    """The plan in force and where it comes from: what was declared, else what the evidence shows."""
    if declared.plan is None:
        # Imported only where it is needed: what reads launch commands takes longer than a small job.
        from topocheck.evident import evident  # noqa: PLC0415

        return evident(inventory, declared.nodes)
    plan = derive(declared.plan, declared.world or claimed_size(inventory.claims))
    return plan, Origin(said=tuple(declared.said))
