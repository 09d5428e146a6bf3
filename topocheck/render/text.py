"""Words that every format shares: safe text, folded numbers, findings in their order."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from topocheck.report import (
    Counts,
    Evidence,
    GpuReport,
    PlacementReport,
    ProfileReport,
    RankReport,
    Report,
    ReportedFinding,
    RuleReport,
    WaiverState,
)

__all__ = [
    "BASIS",
    "VERDICT",
    "asks",
    "baseline_line",
    "basis_line",
    "broken_rules",
    "cite",
    "count_findings",
    "count_rules",
    "fold",
    "gpus_of",
    "layer_range",
    "mute_rules",
    "policy_line",
    "printable",
    "profile_line",
    "ranges",
    "shorten",
    "waivers_to_mend",
    "worst_first",
]

VERDICT = {
    "pass": "pass",
    "fail": "fail",
    "unknown": "unknown",
    "not-applicable": "not applicable",
    "error": "broke",
    "deselected": "deselected",
}
"""Verdict of a rule in words."""

BASIS = {
    "predicted": "predicted, not proven: no rank has shown where it lies",
    "claimed": "claimed: the ranks' own environment says where they lie",
    "observed": "observed: processes and logs show where the ranks lie",
}
"""What the placement rests on, by phase."""

_SEVERITIES = ("error", "warning", "info")
_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS and the like up to their end
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one C1 character
)
_NUMBERED = re.compile(r"(.*\S) (0|[1-9][0-9]{0,8})")
_MOST_NAMED = 24
"""Distinct names in one phrase; numbers of one name are folded and count once."""
_PLURAL = frozenset({"edge", "group", "GPU", "node", "rank", "replica", "stage"})


def printable(text: str) -> str:
    """Text of unknown origin made safe to show.

    Terminal escapes go as a whole. Controls, bidi controls, zero-width characters and everything
    else of the Unicode categories Cc and Cf go one by one; line breaks and tabs become a space and
    lone surrogates the replacement character. What is left cannot move a cursor or reverse a line.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, _ESCAPE.sub("", text)))


def _shown(character: str) -> str:
    """One character as it may be shown."""
    if character.isprintable():
        return character
    category = unicodedata.category(character)
    if character in "\t\n\v\f\r\x85" or category in {"Zl", "Zp", "Zs"}:
        return " "
    return "\ufffd" if category in {"Cs", "Co"} else ""


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters; what is cut shows as three dots."""
    return text if len(text) <= limit else text[: max(limit - 3, 0)] + "..."[:limit]


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in order, neighbours folded: `0..3, 8`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(_run(first, last) for first, last in runs)


def _run(first: int, last: int) -> str:
    """One run of neighbours; two neighbours read better apart."""
    if first == last:
        return str(first)
    return f"{first}, {last}" if last == first + 1 else f"{first}..{last}"


def fold(subjects: Sequence[str], count: int) -> str:
    """Subjects as one phrase, numbered ones folded: `ranks 0..3, 8; node-a GPU 2; and 5 more`."""
    numbers: dict[str, list[int]] = {}
    for subject in subjects:
        match = _NUMBERED.fullmatch(subject)
        if match:
            numbers.setdefault(match[1], []).append(int(match[2]))
        else:
            numbers.setdefault(subject, [])
    parts = [_named(name, found) for name, found in list(numbers.items())[:_MOST_NAMED]]
    shown = sum(max(1, len(found)) for found in list(numbers.values())[:_MOST_NAMED])
    if count > shown:
        parts.append(f"and {count - shown} more" if parts else f"{count} subjects")
    return "; ".join(parts)


def _named(name: str, numbers: list[int]) -> str:
    """A name with its numbers, in the plural where the word has one."""
    plural = "s" if len(set(numbers)) > 1 and name.rsplit(maxsplit=1)[-1] in _PLURAL else ""
    return f"{name}{plural} {ranges(numbers)}" if numbers else name


def worst_first(report: Report) -> list[tuple[RuleReport, ReportedFinding]]:
    """All findings: those that count before the others, then by severity, then in catalogue order."""
    found = [(rule, finding) for rule in report.rules for finding in rule.findings]
    return sorted(found, key=lambda item: (not item[1].counts, _SEVERITIES.index(item[1].severity)))


def profile_line(profile: ProfileReport) -> str:
    """A profile on one line: what it is, for which nodes, why, and what it decides."""
    nodes = fold(profile.nodes, profile.count)
    decides = "; ".join(profile.decides) or "nothing beyond what the policy says"
    chosen = "by the plan" if profile.chosen == "plan" else f"by evidence, {profile.why}"
    return f"{profile.name} ({profile.title}) on {nodes}, chosen {chosen}: {decides}"


def policy_line(report: Report) -> str:
    """Keys of the policy that are not the default, by where they come from; empty if there are none."""
    by_source: dict[str, list[str]] = {}
    for key in report.policy:
        if key.source != "default":
            by_source.setdefault(key.source, []).append(f"{key.key} {key.value or 'none'}")
    return "; ".join(f"{', '.join(keys)} ({source})" for source, keys in by_source.items())


def baseline_line(report: Report) -> str:
    """What the baseline comes to; empty without one."""
    baseline = report.baseline
    if baseline is None:
        return ""
    gone = sum(len(one.subjects) for one in baseline.gone if one.decided)
    unclear = sum(len(one.subjects) for one in baseline.gone if not one.decided)
    parts = [f"{report.counts.known} findings known", f"{gone} subjects gone"]
    parts += [f"{unclear} not looked at again"] if unclear else []
    parts += [f"{baseline.unlisted} that it does not list count"] if baseline.unlisted else []
    return f"{baseline.name} of {baseline.at}: {', '.join(parts)}"


def waivers_to_mend(report: Report) -> list[WaiverState]:
    """Waivers that are in the way: expired or unused."""
    return [waiver for waiver in report.waivers if waiver.state in ("expired", "unused")]


def asks(rule: RuleReport) -> str:
    """What a rule asks, with the package that adds it."""
    return f"{rule.name} (package {rule.package})" if rule.package else rule.name


def broken_rules(report: Report) -> list[RuleReport]:
    """Rules that broke: topocheck's own trouble, not the job's."""
    return [rule for rule in report.rules if rule.verdict == "error"]


def mute_rules(report: Report) -> list[RuleReport]:
    """Undecided rules for which no missing evidence is listed; their reason must be shown itself."""
    return [rule for rule in report.rules if rule.verdict == "unknown" and not rule.gaps]


def cite(evidence: Evidence) -> str:
    """Where a fact was read: `topo.txt:12`."""
    return evidence.source if evidence.line is None else f"{evidence.source}:{evidence.line}"


def gpus_of(placement: PlacementReport, ranks: Iterable[RankReport]) -> dict[int, GpuReport]:
    """GPU that each of these ranks drives, as its node lists it; those not listed are left out."""
    wanted = {rank.rank for rank in ranks}
    return {
        rank: gpu for node in placement.nodes for gpu in node.gpus for rank in gpu.ranks if rank in wanted
    }


def layer_range(layers: Sequence[int] | None) -> str:
    """Layers of a stage, both ends included: `0..15`; empty if they were not declared."""
    if layers is None:
        return ""
    first, end = layers
    return "none" if first >= end else ranges(range(first, end))


def basis_line(report: Report) -> str:
    """What the verdict rests on, in words."""
    return BASIS[report.phase]


def count_rules(counts: Counts) -> str:
    """Rules of each kind; every kind is named so that zero is seen to be zero, save what policy brings."""
    required = f" ({counts.required_unknown} required)" if counts.required_unknown else ""
    deselected = f", {counts.deselected} deselected" if counts.deselected else ""
    return (
        f"{counts.passed} passed, {counts.failed} failed, {counts.unknown} unknown{required}, "
        f"{counts.not_applicable} not applicable, {counts.error} broke{deselected}"
    )


def count_findings(counts: Counts) -> str:
    """Findings of each kind."""
    numbers = ((counts.errors, "error"), (counts.warnings, "warning"), (counts.infos, "info"))
    words = [f"{number} {word}{'' if number == 1 else 's'}" for number, word in numbers]
    known = [f"{counts.known} known"] if counts.known else []
    return ", ".join([*words, f"{counts.waived} waived", *known])
