"""The report in GitHub-flavoured Markdown, short enough for a ticket, a comment or the summary of a CI job.

Names, facts and commands stand in code spans, sentences as escaped text. In a sentence too a word that a
forge would turn into a link, a notification or a picture (`@name`, `#12`, `https:`, `:tada:`) is a code span.
There is no table of foreign text and no HTML: nothing that a host name holds can end an item or begin one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from topocheck.render.text import (
    VERDICT,
    asks,
    baseline_line,
    basis_line,
    broken_rules,
    cite,
    count_findings,
    count_rules,
    fold,
    mute_rules,
    policy_line,
    printable,
    shorten,
    waivers_to_mend,
    worst_first,
)
from topocheck.report import GapReport, InputReport, Report, ReportedFinding, RuleReport

__all__ = ["FORMAT", "render"]

FORMAT = "markdown"

_MARKS = {"pass": "✅", "fail": "❌", "unknown": "❔"}
_MOST_BYTES = 60_000
_MOST_TEXT = 300
_MOST_NAME = 100
_MOST_ITEMS = 20
_MOST_EVIDENCE = 3
_MOST_INPUTS = 32
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~&$^{}]")
_REFERENCE = re.compile(
    r"""@ | \$                   # @name, a@b.c, $snippet, $formula$
    | [\#!~%&^]\w               # #12, !12, ~label, %milestone, &epic
    | \bGH-\d                   # GH-12
    | ://? | \bmailto: | \bxmpp: | www\.
    | :[\w+-]+:                 # :tada:
    | \b[0-9a-f]{40}\b          # a commit
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TICKS = re.compile("`+")


def render(report: Report) -> str:
    """The report as Markdown, ending in a newline; a comment on GitHub takes it, whatever is in it."""
    lines: list[str] = []
    left = _MOST_BYTES
    for line in _lines(report):
        left -= len(line.encode()) + 1
        if left < 0:
            lines += ["", "Cut here: the JSON and the HTML report have the rest."]
            break
        lines.append(line)
    return "\n".join(lines) + "\n"


def _prose(text: str, limit: int = _MOST_TEXT) -> str:
    """A sentence with the words of others, as inert text on one line."""
    return " ".join(map(_word, shorten(printable(text), limit).split()))


def _word(word: str) -> str:
    """One word of it."""
    if _REFERENCE.search(word):
        return _code(word, len(word))
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", word)


def _code(text: str, limit: int = _MOST_NAME) -> str:
    """A name, fact or command as a code span; its fence is longer than any in the text."""
    said = " ".join(shorten(printable(text), limit).split()) or " "
    fence = "`" * (max(map(len, _TICKS.findall(said)), default=0) + 1)
    pad = " " if said[0] == "`" or said[-1] == "`" else ""
    return f"{fence}{pad}{said}{pad}{fence}"


def _lines(report: Report) -> Iterator[str]:
    """All lines, what matters most first."""
    word = VERDICT[report.verdict].upper()
    yield f"## {_MARKS[report.verdict]} {word}: {_prose(report.sentence, 2 * _MOST_TEXT)}"
    yield ""
    yield f"- Job: {_prose(report.job)}"
    yield f"- Basis: {basis_line(report)}"
    yield f"- Exit code {report.exit_code}: {_reason(report)}"
    yield f"- Rules: {count_rules(report.counts)}"
    yield f"- Findings: {count_findings(report.counts)}"
    if policy_line(report):
        yield f"- Policy: {_prose(policy_line(report))}"
    if baseline_line(report):
        yield f"- Baseline: {_prose(baseline_line(report))}"
    yield from _findings(report)
    yield from _waivers(report)
    yield from _broken(report)
    yield from _gaps(report)
    yield from _inputs(report)
    yield ""
    yield f"Written by {_prose(report.tool)}, ages held against {_code(report.at)}."


def _reason(report: Report) -> str:
    """Why that exit code, in words."""
    return report.exit_reason.replace("_", " ")


def _headed(title: str) -> Iterator[str]:
    """Title of a part."""
    yield ""
    yield f"### {title}"
    yield ""


def _more(shown: int, total: int, what: str) -> Iterator[str]:
    """Says what was left out."""
    if total > shown:
        yield f"- and {total - shown} more {what}; the JSON and the HTML report have them"


def _findings(report: Report) -> Iterator[str]:
    """Findings, worst first, with evidence and fix."""
    found = worst_first(report)
    if found:
        yield from _headed("Findings")
    for rule, finding in found[:_MOST_ITEMS]:
        yield from _finding(rule, finding)
    yield from _more(_MOST_ITEMS, len(found), "findings")


def _finding(rule: RuleReport, finding: ReportedFinding) -> Iterator[str]:
    """One finding."""
    state = "" if finding.counts else "waived " if finding.waiver else "known "
    yield f"- **{_prose(rule.id, _MOST_NAME)}** {state}{finding.severity}: {_prose(finding.message)}"
    about = fold(finding.subjects, finding.count)
    if about:
        yield f"  - about {_prose(about)}"
    for one in finding.evidence[:_MOST_EVIDENCE]:
        yield f"  - evidence {_code(cite(one))}: {_code(one.fact, 2 * _MOST_NAME)}"
    more = len(finding.evidence) - _MOST_EVIDENCE
    if more > 0:
        yield f"  - and {more} more fact{'s' * (more > 1)}"
    if finding.fix:
        yield f"  - fix: {_prose(finding.fix)}"
    if finding.waiver is not None:
        waiver = finding.waiver
        said = f"{waiver.reason} ({waiver.owner}, until {waiver.expires})"
        yield f"  - waived: {_prose(said)}"


def _waivers(report: Report) -> Iterator[str]:
    """Waivers that are expired or unused."""
    mend = waivers_to_mend(report)
    if mend:
        yield from _headed("Waivers to mend")
    for waiver in mend[:_MOST_ITEMS]:
        yield f"- **{_prose(waiver.rule, _MOST_NAME)}** {waiver.state}: {_prose(waiver.note)}"
        yield f"  - fix: {_prose(waiver.fix)}"
    yield from _more(_MOST_ITEMS, len(mend), "waivers")


def _broken(report: Report) -> Iterator[str]:
    """Rules that broke."""
    broken = broken_rules(report)
    if broken:
        yield from _headed("Broken rules")
        yield "Trouble of topocheck, not of the job."
        yield ""
    for rule in broken[:_MOST_ITEMS]:
        yield f"- **{_prose(rule.id, _MOST_NAME)}** {_prose(asks(rule))}: {_prose(rule.reason)}"
    yield from _more(_MOST_ITEMS, len(broken), "rules")


def _gaps(report: Report) -> Iterator[str]:
    """What is missing, with the command that gives it; of an open gate nothing keeps shut, so nothing."""
    gaps = [gap for gap in report.gaps if gap.required]
    mute = [rule for rule in mute_rules(report) if rule.required]
    if gaps or mute:
        yield from _headed("Missing evidence")
    for gap in gaps[:_MOST_ITEMS]:
        yield from _gap(gap)
    yield from _more(_MOST_ITEMS, len(gaps), "missing")
    for rule in mute[:_MOST_ITEMS]:
        yield f"- **{_prose(rule.id, _MOST_NAME)}** unknown: {_prose(rule.reason or 'nothing to ask')}"
    yield from _more(_MOST_ITEMS, len(mute), "undecided rules")
    optional = len(report.gaps) - len(gaps)
    if optional and gaps:
        yield f"- {optional} more keep only optional rules undecided"


def _gap(gap: GapReport) -> Iterator[str]:
    """One gap."""
    about = fold(gap.about, gap.count)
    need = f"{gap.need} ({about})" if about else gap.need
    yield f"- missing: {_prose(need)}"
    if gap.supply:
        yield f"  - give {_code(gap.supply, _MOST_TEXT)}"
    if gap.rules:
        yield f"  - blocks {_prose(', '.join(gap.rules))}"


def _inputs(report: Report) -> Iterator[str]:
    """Inputs with their digests."""
    if report.inputs:
        yield from _headed("Inputs")
    yield from map(_input, report.inputs[:_MOST_INPUTS])
    yield from _more(_MOST_INPUTS, len(report.inputs), "inputs")


def _input(one: InputReport) -> str:
    """One input."""
    digest = f" {_code(one.digest)}" if one.digest else ""
    return f"- {_code(one.name)} {_prose(one.kind, _MOST_NAME)}{digest}"
