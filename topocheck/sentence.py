"""The verdict in one sentence, unknowns counted: the last line of every run."""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.ranges import first
from topocheck.report import Counts, Outcome, ReportedFinding, RuleReport, WaiverState

__all__ = ["plural", "sentence"]

SEVERITIES = ("error", "warning", "info")
WAIVER_TROUBLE = ("expired", "unused")
"""States of a waiver that count as a warning."""


def plural(number: int, noun: str) -> str:
    """`2 warnings`, `1 warning`, empty for none."""
    return f"{number} {noun}{'' if number == 1 else 's'}" if number > 0 else ""


def sentence(
    verdict: Outcome,
    rules: Sequence[RuleReport],
    counts: Counts,
    *,
    open_rules: Sequence[str] = (),
    broken: Sequence[str] = (),
    absent: Sequence[str] = (),
    left_out: Sequence[str] = (),
    waivers: Sequence[WaiverState] = (),
) -> str:
    """The verdict in words; the word itself (pass, fail, unknown) goes before it.

    `open_rules` are required rules without an answer, `broken` rules that broke and how, `absent` nodes that
    never reported, `left_out` required rules that policy deselects.
    """
    if verdict == "fail":
        return failed(rules, counts, open_rules, waivers)
    if broken:
        return f"topocheck itself broke: {first(broken, 2)}: not the job's fault, and no pass"
    warned = f"; {plural(counts.warnings, 'warning')}" if counts.warnings else ""
    if verdict == "unknown":
        unasked = [rule for rule in open_rules if rule in left_out]
        lacking = [rule for rule in open_rules if rule not in left_out]
        silent = f"{first(absent, 4)} never reported" if absent else ""
        missing = silent or f"nothing{else_(counts)} is proven wrong"
        return f"{missing}, and {' and '.join(undecided(lacking, unasked))}{warned}{borne(rules, counts)}"
    predicted = any(rule.basis == "predicted" and rule.verdict == "pass" for rule in rules)
    proof = "predicted, not proven: " if predicted else ""
    none = "nothing else" if else_(counts) else "none"
    rest = f"; {plural(counts.unknown, 'optional rule')} without evidence" if counts.unknown else ""
    return (
        f"{proof}{plural(counts.passed, 'rule') or 'no rule'} hold, {none} is broken"
        f"{warned}{borne(rules, counts)}{deselected(counts, left_out)}{rest}"
    )


def failed(
    rules: Sequence[RuleReport], counts: Counts, open_rules: Sequence[str], waivers: Sequence[WaiverState]
) -> str:
    """The worst finding that counts, and how many more there are."""
    waiting = plural(len(open_rules), "required rule")
    unknown = f"; {waiting} undecided ({first(open_rules, 6)})" if open_rules else ""
    level, worst = worst_of(rules, waivers)
    others = plural(counts.errors - (level == "error"), "more error")
    warnings = plural(counts.warnings - (level == "warning"), "warning")
    more = ", ".join(part for part in (others, warnings) if part)
    return worst + (f"; {more}" if more else "") + unknown


def worst_of(rules: Sequence[RuleReport], waivers: Sequence[WaiverState]) -> tuple[str, str]:
    """Severity and words of the first of the worst findings, waivers last."""
    counting: list[tuple[RuleReport, ReportedFinding]] = [
        (rule, finding) for rule in rules for finding in rule.findings if finding.counts
    ]
    for level in SEVERITIES[:2]:
        for rule, finding in counting:
            if finding.severity == level:
                return level, f"{finding.message} [{rule.id}]"
    for waiver in waivers:
        if waiver.state in WAIVER_TROUBLE:
            return "warning", f"{waiver.note} [waiver of {waiver.rule}]"
    return "", "a finding shuts the gate"


def else_(counts: Counts) -> str:
    """The word that keeps a sentence true where findings are waived or known."""
    return " else" if counts.waived or counts.known else ""


def undecided(lacking: Sequence[str], unasked: Sequence[str]) -> list[str]:
    """Required rules without an answer, in words."""
    parts = []
    if lacking:
        lack = "lacks" if len(lacking) == 1 else "lack"
        parts.append(f"{plural(len(lacking), 'required rule')} {lack} evidence ({first(lacking, 8)})")
    if unasked:
        was, them = ("was", "it") if len(unasked) == 1 else ("were", "them")
        parts.append(
            f"{plural(len(unasked), 'required rule')} {was} not asked ({first(unasked, 8)}): policy "
            f"deselects {them} and does not make {them} optional"
        )
    return parts


def borne(rules: Sequence[RuleReport], counts: Counts) -> str:
    """Findings that do not count."""
    waived = [rule.id for rule in rules for finding in rule.findings if finding.waiver is not None]
    parts = []
    if counts.waived:
        parts.append(f"{plural(counts.waived, 'finding')} waived ({first(dict.fromkeys(waived), 4)})")
    if counts.known:
        parts.append(f"{plural(counts.known, 'finding')} known from the baseline")
    return f"; {', '.join(parts)}" if parts else ""


def deselected(counts: Counts, left_out: Sequence[str]) -> str:
    """Rules that were not asked, the required ones by name."""
    if not counts.deselected:
        return ""
    required = f", the required {first(left_out, 6)} among them" if left_out else ""
    return f"; {plural(counts.deselected, 'rule')} not asked{required}"
