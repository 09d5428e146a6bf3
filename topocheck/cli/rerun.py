"""The run that gave a report, once more: the same question over the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from topocheck.answer import Declared
from topocheck.audit import Given, given_files
from topocheck.baseline import parse_baseline
from topocheck.checklist import Gate
from topocheck.cli.asked import declared_in
from topocheck.cli.launched import launched, read_nodes
from topocheck.cli.verify import check, expected, gate_of, kept_record, moment
from topocheck.errors import UsageError
from topocheck.freshness import Admission
from topocheck.gather.files import Argument
from topocheck.plan import BASES
from topocheck.policy import read_site
from topocheck.report import AuditReport, InputReport, NodeOrder, Report

__all__ = ["CannotRunError", "declaring_found", "run_again"]

Pairs = Sequence[tuple[InputReport, Given | None]]


class CannotRunError(Exception):
    """Why the run of a report cannot be repeated."""


def declaring_found(files: Sequence[InputReport], given: Sequence[Given]) -> list[Given]:
    """What was given, and files that declare and were not given but still lie under their names."""
    digests = {each.digest for each in given}
    paths = {each.path for each in given}
    lying = [
        one.name
        for one in files
        if one.digest and one.digest not in digests and one.name not in paths and Path(one.name).is_file()
    ]
    return [*given, *given_files(lying)]


def run_again(report: Report, pairs: Pairs, command: tuple[str, ...] | None) -> Report:
    """The report of the same question over the same inputs, wherever they lie now.

    Raises CannotRunError where the question is not known or cannot be asked again.
    """
    audit = report.audit
    if audit is None:
        raise CannotRunError("the report does not say what was asked")
    options = {each.name: each.value for each in audit.options}
    found = {one.kind: file for one, file in pairs[len(report.inputs) :] if file is not None}
    named = {one.kind: one.name for one, _ in pairs[len(report.inputs) :]}
    if "--since" in options and (
        "earlier look" not in found or found["earlier look"].path != named["earlier look"]
    ):
        raise CannotRunError(f"the earlier look is not at {options['--since']}")
    if "--record" in options and "record" not in found:
        raise CannotRunError("give the record too")
    try:
        now = moment(report.at)
        declared = declared_again(audit, options, found, named, command)
        expect = expected(
            declared.plan,
            options.get("--run"),
            options.get("--max-age"),
            recovered=options.get("--after-recovery") == "on",
        )
        return check(
            declared,
            [of_recorded(one, file) for one, file in pairs[: len(report.inputs)] if file is not None],
            gate_again(declared, options),
            at=now,
            whole=True,
            digests=True,
            admission=Admission(expect, now),
            since=options.get("--since"),
            fixes=has_orders(report),
        )
    except UsageError as error:
        raise CannotRunError(str(error)) from None


def declared_again(
    audit: AuditReport,
    options: Mapping[str, str],
    found: Mapping[str, Given],
    named: Mapping[str, str],
    command: tuple[str, ...] | None,
) -> Declared:
    """What was declared, read from where it lies now, under its names. Raises UsageError, CannotRunError."""
    nodes = options.get("--nodes")
    if audit.plan == "file":
        declared = declared_in(found["plan"].path) if "plan" in found else None
    elif audit.plan == "command":
        declared = None if command is None else Declared(*launched(command, nodes))
    else:
        declared = Declared(None, nodes=None if nodes is None else read_nodes(nodes))
    if declared is None:
        what = "the plan file" if audit.plan == "file" else "the launch command after --"
        raise CannotRunError(f"give {what} too")
    site, baseline, record = found.get("policy"), found.get("baseline"), found.get("record")
    return declared._replace(
        site=None if site is None else replace(read_site(site.path), name=named["policy"]),
        baseline=None
        if baseline is None
        else parse_baseline(Path(baseline.path).read_bytes(), named["baseline"]),
        record=None if record is None else kept_record(record.path, named["record"]),
        files=audit.files,
        options=audit.options,
    )


def gate_again(declared: Declared, options: Mapping[str, str]) -> Gate:
    """What shut the gate. Raises CannotRunError for values that no option takes."""
    fail_on: Any = options.get("--fail-on", "error")
    min_basis: Any = options.get("--min-basis")
    if fail_on not in ("error", "warning") or min_basis not in (None, *BASES):
        raise CannotRunError("topocheck has no such option as the report says was given")
    return gate_of(declared, fail_on, min_basis, exit_zero=options.get("--exit-zero") == "on")


def of_recorded(one: InputReport, file: Given) -> Argument:
    """The file under the name and the label that the report has of it."""
    return Argument(one.name, one.label or None, file.path)


def has_orders(report: Report) -> bool:
    """Whether the report was asked for what mends: only then is an order of nodes looked for."""
    findings = [finding for rule in report.rules for finding in rule.findings]
    return any(isinstance(remedy, NodeOrder) for finding in findings for remedy in finding.remedies)
