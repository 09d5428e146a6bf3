"""Answers of the rules -> the report: counts, outcome, exit code, sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from topocheck import __version__
from topocheck.ask import Gap
from topocheck.placement import Placement
from topocheck.plan import BASES, Basis, Plan, Policy
from topocheck.ranges import first
from topocheck.report import (
    SCHEMA,
    Counts,
    ExitReason,
    GapReport,
    InputReport,
    Outcome,
    Report,
    ReportedFinding,
    RuleReport,
)
from topocheck.rule import FAMILIES, Finding, Severity, severity_in
from topocheck.verify import RuleResult

__all__ = ["Gate", "Job", "absent_nodes", "build_report", "folded", "job_line", "plural"]

RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
MOST_ABOUT = 16
"""Nodes or ranks listed of one gap; its count is whole."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What shuts the gate."""

    fail_on: Literal["error", "warning"] = "error"
    """Findings at or above it shut the gate."""
    min_basis: Basis = "predicted"
    """How well placement must be known for a pass of a required rule to count."""
    exit_zero: bool = False
    """Report only: the exit code of a decided or undecided gate becomes 0."""


@dataclass(slots=True)
class _Gaps:
    """Gaps of all rules, each listed once."""

    found: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = field(default_factory=dict)

    def add(self, gap: Gap, rule: str) -> int:
        """Index of this gap in the report."""
        key = gap.need, gap.supply
        about, rules = self.found.setdefault(key, ({}, {}))
        about.update(dict.fromkeys(gap.about))
        rules[rule] = None
        return list(self.found).index(key)

    def reports(self, open_rules: Sequence[str]) -> tuple[list[GapReport], list[int]]:
        """Gaps that keep the gate shut first, and the new index of each."""
        reports = [
            GapReport(
                need=need,
                about=list(about)[:MOST_ABOUT],
                count=len(about),
                supply=supply,
                rules=list(rules),
                required=any(rule in open_rules for rule in rules),
            )
            for (need, supply), (about, rules) in self.found.items()
        ]
        order = sorted(
            range(len(reports)),
            key=lambda index: (not reports[index].required, "EV001" not in reports[index].rules),
        )
        places = {old: new for new, old in enumerate(order)}
        return [reports[index] for index in order], [places[index] for index in range(len(reports))]


@dataclass(frozen=True, slots=True)
class Job:
    """What is said of the job beside the answers of the rules."""

    policy: Policy
    phase: Basis
    line: str
    """The job in one line."""
    assumptions: Sequence[str]
    absent: Iterable[str]
    """Expected nodes of which nothing was seen; looked at only where that is why the gate stays shut."""
    notes: Sequence[str]
    """Facts about the evidence that accuse nobody."""


def build_report(
    placement: Placement,
    results: Sequence[RuleResult],
    inputs: list[InputReport],
    *,
    at: str,
    gate: Gate,
    notes: Sequence[str] = (),
) -> Report:
    """Fold the answers of all rules into one report. `at` is the `now` of the run, RFC 3339."""
    job = Job(
        policy=placement.plan.policy,
        phase=placement.phase,
        line=job_line(placement),
        assumptions=placement.assumptions,
        absent=absent_nodes(placement),
        notes=evidence_notes(placement),
    )
    return folded(job, results, inputs, at=at, gate=gate, notes=notes)


def folded(
    job: Job,
    results: Sequence[RuleResult],
    inputs: list[InputReport],
    *,
    at: str,
    gate: Gate,
    notes: Sequence[str] = (),
) -> Report:
    """The report of a job, whatever number of worlds it has."""
    gaps = _Gaps()
    rules = [rule_report(result, job.policy, gaps) for result in results]
    open_rules = [
        report.id
        for result, report in zip(results, rules, strict=True)
        if report.required and is_open(result, report, gate.min_basis)
    ]
    counts = count(rules, open_rules)
    broken = [f"{result.rule.id} ({result.reason})" for result in results if result.broke]
    verdict, code, reason = outcome(counts, open_rules, broken, gate)
    missing, places = gaps.reports(open_rules)
    rules = [replace(rule, gaps=sorted(places[index] for index in rule.gaps)) for rule in rules]
    absent = list(job.absent) if reason == "nodes_missing" else []
    return Report(
        schema=SCHEMA,
        tool=f"topocheck {__version__}",
        at=at,
        verdict=verdict,
        exit_code=0 if gate.exit_zero and reason != "internal_error" else code,
        exit_reason=reason,
        sentence=sentence(rules, counts, open_rules, broken, verdict, absent=absent),
        job=job.line,
        phase=job.phase,
        counts=counts,
        assumptions=list(job.assumptions),
        rules=sorted(rules, key=catalogue_order),
        gaps=missing,
        inputs=inputs,
        notes=[*notes, *job.notes],
    )


def rule_report(result: RuleResult, policy: Policy, gaps: _Gaps) -> RuleReport:
    """One rule for the report, the policy applied."""
    rule = result.rule
    findings = [reported(finding, result, policy) for finding in result.findings]
    findings.sort(key=lambda finding: RANK[finding.severity])
    return RuleReport(
        id=rule.id,
        name=rule.name,
        family=rule.title,
        severity=rule.severity,
        required=rule.required and not selected(rule.id, policy.optional),
        verdict=result.verdict,
        basis=result.basis,
        subjects=result.passed + result.failed + result.unknown,
        passed=result.passed,
        failed=result.failed,
        unknown=result.unknown,
        reason=result.reason,
        findings=findings,
        gaps=sorted({gaps.add(gap, rule.id) for gap in result.gaps}),
    )


def reported(finding: Finding, result: RuleResult, policy: Policy) -> ReportedFinding:
    """One finding for the report, with the severity that policy gives it."""
    return ReportedFinding(
        message=finding.message,
        severity=severity_in(policy, result.rule, finding),
        subjects=list(finding.subjects),
        count=finding.count or len(finding.subjects),
        evidence=list(finding.evidence),
        fix=finding.fix,
        cause=finding.cause,
    )


def selected(rule: str, keys: Sequence[str]) -> bool:
    """A rule is named by its id or by a prefix of it."""
    return any(rule.startswith(key) for key in keys)


def is_open(result: RuleResult, report: RuleReport, min_basis: Basis) -> bool:
    """A required rule is undecided about some subject, or its pass rests on too little."""
    if report.verdict in ("unknown", "error") or result.undecided:
        return True
    return report.basis is not None and BASES.index(report.basis) < BASES.index(min_basis)


def count(rules: Sequence[RuleReport], open_rules: Sequence[str]) -> Counts:
    """How many of each."""
    verdicts = [rule.verdict for rule in rules]
    severities = [f.severity for rule in rules for f in rule.findings if f.waiver is None]
    return Counts(
        passed=verdicts.count("pass"),
        failed=verdicts.count("fail"),
        unknown=verdicts.count("unknown"),
        not_applicable=verdicts.count("not-applicable"),
        error=verdicts.count("error"),
        errors=severities.count("error"),
        warnings=severities.count("warning"),
        infos=severities.count("info"),
        waived=sum(f.waiver is not None for rule in rules for f in rule.findings),
        required_unknown=len(open_rules),
    )


def outcome(
    counts: Counts, open_rules: Sequence[str], broken: Sequence[str], gate: Gate
) -> tuple[Outcome, int, ExitReason]:
    """Verdict, exit code and reason; the first that matches wins."""
    shut = counts.errors + (counts.warnings if gate.fail_on == "warning" else 0)
    if shut:
        return "fail", 1, "findings"
    if broken:
        return "unknown", 3, "internal_error"
    if open_rules:
        return "unknown", 3, "nodes_missing" if "EV001" in open_rules else "evidence_missing"
    return "pass", 0, "passed"


def absent_nodes(placement: Placement) -> Iterator[str]:
    """Expected nodes of which nothing was seen."""
    return (node.name for node in placement.nodes[: placement.expected] if node.machine is None)


def sentence(
    rules: Sequence[RuleReport],
    counts: Counts,
    open_rules: Sequence[str],
    broken: Sequence[str],
    verdict: Outcome,
    *,
    absent: Sequence[str],
) -> str:
    """The verdict in one sentence, unknowns counted; the word itself (pass, fail, unknown) goes before it."""
    waiting = plural(len(open_rules), "required rule")
    unknown = f"; {waiting} undecided ({first(open_rules, 6)})" if open_rules else ""
    worst = next(
        ((rule, f) for level in RANK for rule in rules for f in rule.findings if f.severity == level), None
    )
    if verdict == "fail" and worst:
        others = plural(counts.errors - (worst[1].severity == "error"), "more error")
        warnings = plural(counts.warnings - (worst[1].severity == "warning"), "warning")
        more = ", ".join(part for part in (others, warnings) if part)
        return f"{worst[1].message} [{worst[0].id}]" + (f"; {more}" if more else "") + unknown
    if broken:
        return f"topocheck itself broke in {first(broken, 2)}: not the job's fault, and no pass"
    warned = f"; {plural(counts.warnings, 'warning')}" if counts.warnings else ""
    if verdict == "unknown":
        missing = f"{first(absent, 4)} never reported" if absent else "nothing is proven wrong"
        lack = "lacks" if len(open_rules) == 1 else "lack"
        return f"{missing}, and {waiting} {lack} evidence ({first(open_rules, 8)}){warned}"
    predicted = any(rule.basis == "predicted" and rule.verdict == "pass" for rule in rules)
    proof = "predicted, not proven: " if predicted else ""
    rest = plural(counts.unknown, "optional rule") if counts.unknown else ""
    undecided = f"; {rest} without evidence" if rest else ""
    return f"{proof}{plural(counts.passed, 'rule')} hold, none is broken{warned}{undecided}"


def plural(number: int, noun: str) -> str:
    """`2 warnings`, `1 warning`, empty for none."""
    return f"{number} {noun}{'' if number == 1 else 's'}" if number > 0 else ""


def catalogue_order(rule: RuleReport) -> tuple[int, str]:
    """Families in the order of the catalogue, ids in order inside."""
    titles = list(FAMILIES.values())
    return titles.index(rule.family) if rule.family in titles else len(titles), rule.id


def job_line(placement: Placement) -> str:
    """The job in one line."""
    plan: Plan = placement.plan
    sizes = " x ".join(f"{name} {size}" for name, size in reversed(placement.layout.axes) if size > 1)
    nodes = placement.expected
    return (
        f"{placement.facts.engine.title}{' ' + plan.engine_version if plan.engine_version else ''}, "
        f"{sizes or 'one rank'}: {placement.world} ranks on {nodes} node{'s' if nodes != 1 else ''}"
    )


def evidence_notes(placement: Placement) -> list[str]:
    """Facts about the evidence that accuse nobody."""
    notes = []
    if placement.unused:
        notes.append(f"seen and not used by the job: {first(placement.unused)}")
    unlabelled = len(placement.inventory.unlabelled)
    if unlabelled:
        notes.append(
            f"{plural(unlabelled, 'capture')} of a host that is not named: evidence about some node, which "
            "accuses none"
        )
    loose = sum(seen.edge.comm is None for seen in placement.seen.edges) + placement.seen.unlabelled_edges
    if loose:
        notes.append(f"{plural(loose, 'connection')} in the logs belong to no known communicator")
    return notes
