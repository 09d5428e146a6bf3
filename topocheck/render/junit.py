"""The report as JUnit XML: one test suite, one test case a rule, `classname` its family.

The counters agree with the gate. A failure is a rule with a finding that shuts it, an error one that keeps
it from being decided: a required rule without an answer, and a rule that broke. Everything else without a
pass is skipped, with its reason as message: not applicable, optional and undecided, not asked, waived, known,
or a finding below what shuts the gate. Valid against the schemas of Ant (Windy Road's JUnit.xsd) and of
Jenkins (junit-10.xsd); what XML refuses is left out of every text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import msgspec
from junitparser import Error, Failure, JUnitXml, Skipped, SystemErr, SystemOut, TestCase, TestSuite

from topocheck.render.text import (
    asks,
    cite,
    count_findings,
    count_rules,
    fold,
    printable,
    shorten,
    waivers_to_mend,
)
from topocheck.report import Report, ReportedFinding, RuleReport, WaiverState

__all__ = ["FORMAT", "render"]

FORMAT = "junit"

_MOST_TEXT = 600
_MOST_ITEMS = 20
_MOST_EVIDENCE = 8
_TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})Z")
_BASES = ("predicted", "claimed", "observed")
_ORDER = ("properties", "testcase", "system-out", "system-err")


def render(report: Report) -> str:
    """The whole file, ending in a newline. The same report gives the same bytes."""
    suite = TestSuite("topocheck")
    for rule in report.rules:
        suite.add_testcase(_case(rule, report))
    for waiver in waivers_to_mend(report):
        suite.add_testcase(_waiver(waiver, report))
    suite.update_statistics()
    suite.time = 0.0
    suite.hostname = "localhost"
    made = _TIME.fullmatch(report.at)
    if made:
        suite.timestamp = made[1]
    for name, value in _properties(report):
        suite.add_property(_safe(name) or "unnamed", _safe(value))
    suite.append(SystemOut(_lines([report.sentence, report.job, *_counts(report)])))
    missing = (f"missing: {gap.need}; give {gap.supply}" for gap in report.gaps[:_MOST_ITEMS])
    suite.append(SystemErr(_lines(missing)))
    xml = JUnitXml()
    xml.add_testsuite(suite)
    return _text(xml)


def _text(xml: JUnitXml) -> str:
    """The document by Python's own writer: junitparser prefers lxml, which writes otherwise."""
    root = ET.fromstring(xml.tostring())  # noqa: S314  written a moment ago by junitparser itself
    root.attrib.clear()  # Ant's schema has none there
    for number, suite in enumerate(root):
        suite.set("id", str(number))
        suite.set("package", "topocheck")
        suite[:] = sorted(suite, key=lambda element: _ORDER.index(element.tag))
    ET.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _safe(text: str) -> str:
    """Text of others, on one line, not without end, and nothing that XML cannot carry."""
    return shorten(" ".join(printable(text).split()), _MOST_TEXT)


def _lines(texts: Iterator[str] | list[str]) -> str:
    """Lines of safe text."""
    return "\n".join(map(_safe, texts))


def _counts(report: Report) -> list[str]:
    """Rules and findings of each kind, in words."""
    return [f"rules: {count_rules(report.counts)}", f"findings: {count_findings(report.counts)}"]


def _properties(report: Report) -> Iterator[tuple[str, str]]:
    """What the whole run has beside its rules."""
    yield "schema", report.schema
    yield "tool", report.tool
    yield "at", report.at
    yield "verdict", report.verdict
    yield "exit_code", str(report.exit_code)
    yield "exit_reason", report.exit_reason
    yield "sentence", report.sentence
    yield "job", report.job
    yield "phase", report.phase
    for name, count in msgspec.structs.asdict(report.counts).items():
        yield f"counts.{name}", str(count)
    for one in report.inputs:
        yield f"input {one.name}", one.digest or "no digest"
    if report.baseline is not None:
        yield f"baseline {report.baseline.name}", report.baseline.digest


def _case(rule: RuleReport, report: Report) -> TestCase:
    """One rule."""
    case = TestCase(f"{_safe(rule.id)} {_safe(asks(rule))}", _safe(rule.family) or "topocheck", 0.0)
    shutting = [finding for finding in rule.findings if _shuts(finding, report)]
    if shutting:
        case.result = Failure(_safe(shutting[0].message), _safe(rule.id) or "rule")
        case.result[0].text = _lines(_told(rule.findings))
    elif _is_open(rule, report):
        case.result = Error(_safe(_why_open(rule)), _safe(rule.id) or "rule")
        case.result[0].text = _lines(_missing(rule, report))
    elif rule.verdict == "fail":
        case.result = Skipped(_safe(_why_borne(rule)))
    elif rule.verdict != "pass":
        case.result = Skipped(_safe(f"{rule.verdict}: {_reason(rule, report)}"))
    return case


def _waiver(waiver: WaiverState, report: Report) -> TestCase:
    """A waiver that is expired or unused, which counts as a warning."""
    case = TestCase(f"waiver of {_safe(waiver.rule)} is {waiver.state}", "Waivers", 0.0)
    words = _safe(waiver.note)
    case.result = Failure(words, "waiver") if "warning" in _shutting(report) else Skipped(words)
    return case


def _shutting(report: Report) -> tuple[str, ...]:
    """Severities that shut the gate."""
    warning = any(key.key == "fail_on" and key.value == "warning" for key in report.policy)
    return ("error", "warning") if warning else ("error",)


def _shuts(finding: ReportedFinding, report: Report) -> bool:
    """The finding is one of those that shut the gate."""
    return finding.counts and finding.severity in _shutting(report)


def _is_open(rule: RuleReport, report: Report) -> bool:
    """The rule keeps the gate undecided: it broke, or it is required and has no answer that suffices."""
    if rule.verdict == "error":
        return True
    least = next((key.value for key in report.policy if key.key == "min_basis"), "predicted")
    thin = rule.basis is not None and least in _BASES and _BASES.index(rule.basis) < _BASES.index(least)
    return rule.required and (rule.verdict in ("unknown", "deselected") or rule.unknown > 0 or thin)


def _why_open(rule: RuleReport) -> str:
    """Why the rule has no answer."""
    if rule.verdict == "error":
        return f"the rule broke, which says nothing about the job: {rule.reason}"
    if rule.verdict == "pass":
        return f"known as {rule.basis} only"
    return f"{rule.verdict}: {rule.reason or 'evidence is missing'}"


def _why_borne(rule: RuleReport) -> str:
    """Why what was found does not shut the gate."""
    finding = rule.findings[0] if rule.findings else None
    if finding is None:
        return "fail"
    if finding.waiver is not None:
        return f"waived by {finding.waiver.owner} until {finding.waiver.expires}: {finding.waiver.reason}"
    return f"{'known ' if finding.known else ''}{finding.severity}: {finding.message}"


def _reason(rule: RuleReport, report: Report) -> str:
    """Why a rule was not decided, or what it misses."""
    return rule.reason or "; ".join(_missing(rule, report)) or "nothing to ask"


def _missing(rule: RuleReport, report: Report) -> Iterator[str]:
    """Evidence that a rule misses, and what gives it."""
    for number in rule.gaps[:_MOST_ITEMS]:
        if 0 <= number < len(report.gaps):
            gap = report.gaps[number]
            yield f"missing: {gap.need} ({fold(gap.about, gap.count)}); give {gap.supply}"


def _told(findings: list[ReportedFinding]) -> Iterator[str]:
    """Findings with their evidence and fix, a line each."""
    for finding in findings[:_MOST_ITEMS]:
        state = "" if finding.counts else "waived " if finding.waiver else "known "
        yield f"{state}{finding.severity}: {finding.message}"
        yield f"about: {fold(finding.subjects, finding.count)}"
        for one in finding.evidence[:_MOST_EVIDENCE]:
            yield f"evidence: {cite(one)}: {one.fact}"
        if finding.fix:
            yield f"fix: {finding.fix}"
