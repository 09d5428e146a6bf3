"""Answers of the rules -> the report: counts, outcome, exit code, sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any, Literal

from msgspec.structs import replace

from topocheck import __version__
from topocheck.ask import Gap
from topocheck.placement import Placement
from topocheck.plan import BASES, Basis, Plan, Policy
from topocheck.policy import NO_TERMS, Terms, names
from topocheck.profilereport import profile_reports
from topocheck.ranges import first
from topocheck.report import (
    SCHEMA,
    Counts,
    Evidence,
    ExitReason,
    GapReport,
    InputReport,
    Outcome,
    PolicyKey,
    Report,
    ReportedFinding,
    RuleReport,
    WaiverReport,
    WaiverState,
)
from topocheck.rule import FAMILIES, DatedWaiver, Finding, Rule, Severity, severity_in
from topocheck.sentence import WAIVER_TROUBLE, plural, sentence
from topocheck.verify import RuleResult
from topocheck.waiverstate import waiver_states

__all__ = ["Gate", "Job", "absent_nodes", "build_report", "folded", "job_line"]

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

    found: dict[tuple[str, str], tuple[dict[tuple[str, ...], None], dict[str, None]]] = field(
        default_factory=dict
    )
    """What each is about, as its gaps say it, and the rules that miss it; by need and supply."""

    def add(self, gap: Gap, rule: str) -> int:
        """Index of this gap in the report."""
        key = gap.need, gap.supply
        about, rules = self.found.setdefault(key, ({}, {}))
        about[gap.about] = None
        rules[rule] = None
        return list(self.found).index(key)

    def reports(self, open_rules: Sequence[str]) -> tuple[list[GapReport], list[int]]:
        """Gaps that keep the gate shut first, and the new index of each."""

        @cache  # many gaps are about the same nodes: all of them
        def each_once(lists: tuple[tuple[str, ...], ...]) -> list[str]:
            return list(dict.fromkeys(chain.from_iterable(lists)))

        reports = [
            GapReport(
                need=need,
                about=names[:MOST_ABOUT],
                count=len(names),
                supply=supply,
                rules=list(rules),
                required=any(rule in open_rules for rule in rules),
            )
            for (need, supply), (about, rules) in self.found.items()
            for names in [each_once(tuple(about))]
        ]
        order = sorted(
            range(len(reports)),
            key=lambda index: (not reports[index].required, "EV001" not in reports[index].rules),
        )
        places = {old: new for new, old in enumerate(order)}
        return [reports[index] for index in order], [places[index] for index in range(len(reports))]

    def placed(
        self, open_rules: Sequence[str], rules: Sequence[RuleReport]
    ) -> tuple[list[GapReport], list[RuleReport]]:
        """The same, and the rules with their gaps by the new indexes."""
        missing, places = self.reports(open_rules)
        return missing, [replace(rule, gaps=sorted(places[index] for index in rule.gaps)) for rule in rules]


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
    terms: Terms = NO_TERMS,
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
    report = folded(job, results, inputs, at=at, gate=gate, terms=terms)
    return replace(report, profiles=profile_reports([placement]))


def folded(
    job: Job,
    results: Sequence[RuleResult],
    inputs: list[InputReport],
    *,
    at: str,
    gate: Gate,
    terms: Terms = NO_TERMS,
) -> Report:
    """The report of a job, whatever number of worlds it has."""
    gaps = _Gaps()
    rules = [rule_report(result, job.policy, gaps) for result in results]
    rules += [left_out_report(rule, why, job.policy) for rule, why in terms.left_out]
    lacking = open_of(results, rules, gate.min_basis)
    unasked = [report.id for report in rules[len(results) :] if report.required]
    waivers = waiver_states(terms, rules, results)
    counts = count(rules, len(lacking) + len(unasked), waivers)
    broken = [result.breakage for result in results if result.broke]
    verdict, code, reason = outcome(counts, lacking, unasked, broken, gate)
    missing, rules = gaps.placed(lacking, rules)
    said = sentence(
        verdict,
        rules,
        counts,
        open_rules=[*lacking, *unasked],
        broken=broken,
        absent=list(job.absent) if reason == "nodes_missing" else [],
        left_out=[rule.id for rule, _ in terms.left_out if rule.required],
        waivers=waivers,
    )
    return Report(
        schema=SCHEMA,
        tool=f"topocheck {__version__}",
        at=at,
        verdict=verdict,
        exit_code=0 if gate.exit_zero and reason != "internal_error" else code,
        exit_reason=reason,
        sentence=said,
        job=job.line,
        phase=job.phase,
        counts=counts,
        assumptions=list(job.assumptions),
        rules=sorted(rules, key=catalogue_order),
        gaps=missing,
        inputs=inputs,
        notes=list(job.notes),
        policy=policy_keys(gate, terms),
        waivers=waivers,
        baseline=terms.baseline.report(rules) if terms.baseline is not None else None,
    )


def policy_keys(gate: Gate, terms: Terms) -> list[PolicyKey]:
    """What shuts the gate, then every key that was given."""
    given = {key.key: key for key in terms.keys}
    own = given.pop("min_basis", None)
    if own is None or own.value != gate.min_basis:
        source = "default" if gate.min_basis == "predicted" else "option"
        own = PolicyKey(key="min_basis", value=gate.min_basis, source=source)
    fail_on = PolicyKey(
        key="fail_on", value=gate.fail_on, source="default" if gate.fail_on == "error" else "option"
    )
    return [fail_on, own, *given.values()]


def left_out_report(rule: Rule[Any], why: str, policy: Policy) -> RuleReport:
    """A rule that policy leaves out: it has no answer."""
    return RuleReport(
        id=rule.id,
        name=rule.name,
        family=rule.title,
        severity=rule.severity,
        required=rule.required and not names(policy.optional, rule.id),
        package=rule.package,
        verdict="deselected",
        basis=None,
        subjects=0,
        passed=0,
        failed=0,
        unknown=0,
        reason=why,
        findings=[],
        gaps=[],
    )


def rule_report(result: RuleResult, policy: Policy, gaps: _Gaps) -> RuleReport:
    """One rule for the report, the policy applied."""
    rule = result.rule
    findings = [reported(finding, result, policy) for finding in result.findings]
    findings.sort(key=lambda finding: (not finding.counts, RANK[finding.severity]))
    return RuleReport(
        id=rule.id,
        name=rule.name,
        family=rule.title,
        severity=rule.severity,
        required=rule.required and not names(policy.optional, rule.id),
        package=rule.package,
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
    over = finding.waiver if finding.waiver is not None and finding.waiver.expired else None
    in_force = finding.waiver if over is None else None
    return ReportedFinding(
        message=finding.message,
        severity=severity_in(policy, result.rule, finding),
        subjects=list(finding.subjects),
        count=finding.count or len(finding.subjects),
        evidence=[*finding.evidence, *([expiry(over)] if over is not None else [])],
        fix=finding.fix,
        cause=finding.cause,
        remedies=list(finding.remedies),
        waiver=None if in_force is None else why_waived(in_force),
        known=finding.known,
    )


def why_waived(dated: DatedWaiver) -> WaiverReport:
    """What a reader of a finding needs to know of its waiver."""
    waiver = dated.waiver
    return WaiverReport(reason=waiver.reason, owner=waiver.owner, expires=waiver.expires)


def expiry(dated: DatedWaiver) -> Evidence:
    """Why a finding counts again."""
    waiver = dated.waiver
    return Evidence(
        source=dated.source, fact=f"waived by {waiver.owner} until {waiver.expires}, which is over"
    )


def open_of(results: Sequence[RuleResult], rules: Sequence[RuleReport], min_basis: Basis) -> list[str]:
    """Required rules that were asked and lack an answer; `rules` starts with those of `results`."""
    return [
        report.id
        for result, report in zip(results, rules, strict=False)
        if report.required and is_open(result, report, min_basis)
    ]


def is_open(result: RuleResult, report: RuleReport, min_basis: Basis) -> bool:
    """A required rule is undecided about some subject, or its pass rests on too little."""
    if report.verdict in ("unknown", "error") or result.undecided:
        return True
    return report.basis is not None and BASES.index(report.basis) < BASES.index(min_basis)


def count(rules: Sequence[RuleReport], undecided: int, waivers: Sequence[WaiverState]) -> Counts:
    """How many of each."""
    verdicts = [rule.verdict for rule in rules]
    findings = [finding for rule in rules for finding in rule.findings]
    severities = [finding.severity for finding in findings if finding.counts]
    return Counts(
        passed=verdicts.count("pass"),
        failed=verdicts.count("fail"),
        unknown=verdicts.count("unknown"),
        not_applicable=verdicts.count("not-applicable"),
        error=verdicts.count("error"),
        errors=severities.count("error"),
        warnings=severities.count("warning") + sum(each.state in WAIVER_TROUBLE for each in waivers),
        infos=severities.count("info"),
        waived=sum(finding.waiver is not None for finding in findings),
        required_unknown=undecided,
        known=sum(finding.known and finding.waiver is None for finding in findings),
        deselected=verdicts.count("deselected"),
    )


def outcome(
    counts: Counts, lacking: Sequence[str], unasked: Sequence[str], broken: Sequence[str], gate: Gate
) -> tuple[Outcome, int, ExitReason]:
    """Verdict, exit code and reason; the first that matches wins."""
    shut = counts.errors + (counts.warnings if gate.fail_on == "warning" else 0)
    if shut:
        return "fail", 1, "findings"
    if broken:
        return "unknown", 3, "internal_error"
    if lacking:
        if "EV001" in lacking:
            return "unknown", 3, "nodes_missing"
        return "unknown", 3, "stale_evidence" if "EV003" in lacking else "evidence_missing"
    if unasked:
        return "unknown", 3, "rules_deselected"
    return "pass", 0, "passed"


def absent_nodes(placement: Placement) -> Iterator[str]:
    """Expected nodes of which nothing was seen."""
    return (node.name for node in placement.nodes[: placement.expected] if node.machine is None)


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
