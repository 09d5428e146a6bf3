"""What became of each waiver: it covers something, or it is in the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from topocheck.plan import Waiver
from topocheck.policy import Terms
from topocheck.ranges import first
from topocheck.report import RuleReport, WaiverState
from topocheck.rule import DatedWaiver
from topocheck.sentence import plural
from topocheck.verify import RuleResult

__all__ = ["waiver_states"]

State = Literal["used", "unused", "expired", "undecided"]
REST = "it covers nothing any more"
RENEW = "mend what it covers, or agree on a new day with its owner"
REMOVE = "remove it, so that a new fault of this kind is not borne unseen"


def waiver_states(
    terms: Terms, rules: Sequence[RuleReport], results: Sequence[RuleResult]
) -> list[WaiverState]:
    """All waivers in the order in which they are written."""
    reports = {rule.id: rule for rule in rules}
    covered: dict[DatedWaiver, int] = {}
    for result in results:
        for finding in result.findings:
            if finding.waiver is not None:
                covered[finding.waiver] = covered.get(finding.waiver, 0) + (finding.count or 1)
    return [
        state_of(dated, reports[dated.waiver.rule], covered.get(dated, 0), met=dated in terms.met)
        for dated in terms.waivers
    ]


def state_of(dated: DatedWaiver, rule: RuleReport, covered: int, *, met: bool) -> WaiverState:
    """One waiver; `met` if something lies within its scope, `covered` by it or not."""
    waiver = dated.waiver
    state, note, fix = became(dated, rule, covered, met=met)
    return WaiverState(
        rule=waiver.rule,
        scope=scope_of(waiver),
        reason=waiver.reason,
        owner=waiver.owner,
        expires=waiver.expires,
        source=dated.source,
        state=state,
        subjects=covered,
        note=note,
        fix=fix,
    )


def became(dated: DatedWaiver, rule: RuleReport, covered: int, *, met: bool) -> tuple[State, str, str]:
    """State of a waiver, what follows, and what to change."""
    waiver = dated.waiver
    about = f"the waiver of {waiver.rule} for {scope_of(waiver)} ({waiver.owner})"
    if dated.expired:
        again = f"what it covered counts again ({plural(covered, 'subject')})" if covered else REST
        return "expired", f"{about} expired on {waiver.expires}: {again}", RENEW if covered else REMOVE
    if covered:
        return "used", f"covers {plural(covered, 'subject')} until {waiver.expires}", ""
    if met:
        return "used", "another waiver covers the same, or it holds in some orders of the nodes only", ""
    if rule.verdict in ("unknown", "error", "deselected") or rule.unknown:
        why = "was not asked" if rule.verdict == "deselected" else "is undecided"
        return "undecided", f"{waiver.rule} {why}: whether it is needed is not known", ""
    return "unused", f"{about} covers nothing: {why_unused(rule)}", REMOVE


def why_unused(rule: RuleReport) -> str:
    """Why a waiver covers nothing."""
    if not rule.findings:
        return f"{rule.id} finds nothing"
    subjects = [subject for finding in rule.findings for subject in finding.subjects]
    return f"{rule.id} finds nothing there, but about {first(subjects, 3)}"


def scope_of(waiver: Waiver) -> str:
    """What it is for, in one line."""
    parts = []
    if waiver.world is not None:
        parts.append(f"world {waiver.world}")
    if waiver.nodes:
        parts.append(f"nodes {first(waiver.nodes, 6)}")
    if waiver.ranks:
        parts.append(f"ranks {first(waiver.ranks, 6)}")
    if waiver.group is not None:
        parts.append(f"group {waiver.group}")
    return ", ".join(parts) or "everything"
