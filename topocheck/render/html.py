"""The report as one HTML file that asks nothing of anybody: no request, no clock, and no need of its script.

The policy in its head allows the one style and the one script of the page by their digests, and nothing
else. Without the script verdict, findings, checklist and inputs are there, and the first rows of the table.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from topocheck.render import text
from topocheck.render.boxes import PALETTE
from topocheck.render.compiled import CompiledTemplates
from topocheck.render.concern import Concern, Homes, anchor, concern, homes_of
from topocheck.render.embedded import Embedded, embed, seal
from topocheck.render.json_report import encoded
from topocheck.render.lean import is_lean
from topocheck.render.marks import SEVERITIES
from topocheck.render.placementview import views_of
from topocheck.render.rulepage import rule_page
from topocheck.render.sections import sections
from topocheck.render.words import SCRIPT_WORDS, say
from topocheck.report import Report, ReportedFinding, RuleReport

__all__ = ["FORMAT", "render"]

FORMAT = "html"

MOST = {
    "findings": 100,
    "findings_of_rule": 5,
    "evidence": 8,
    "evidence_of_rule": 3,
    "gaps": 200,
    "inputs": 256,
    "waivers": 100,
    "gone": 50,
    "notes": 256,
}
"""How many of each are shown; where more exist, the page says so and the JSON report has them."""

_MOST_TEXT = 600
_MOST_NAME = 100
_SCRIPTS = ("report.js", "rank_table.js", "placement_map.js")
_MARKS = {"pass": "✓", "fail": "✗", "unknown": "?", "not-applicable": "-", "error": "!", "deselected": "-"}
_SIGNS = {"error": "✗", "warning": "!", "info": "i"}


class Action(msgspec.Struct, frozen=True):
    """Something to do, and why."""

    rule: str
    what: str
    why: str
    command: bool
    """`what` is a command that gives missing evidence, not a sentence."""


class Shown(NamedTuple):
    """A finding as the page shows it."""

    rule: RuleReport
    finding: ReportedFinding
    anchor: str
    """Its name in links."""
    about: Concern


def render(report: Report, embedded: Embedded | None = None) -> str:
    """The whole page, ending in a newline. The same report gives the same bytes.

    `embedded` is the report as a page already holds it: another zlib packs the same document otherwise.
    The page shows what the report has: of a big one, `lean` leaves most identities out.
    """
    report, compact = encoded(report)
    block = embedded or embed(report, compact)
    environment = _environment()
    style, script = _file("report.css") + _file("section.css"), "".join(map(_file, _SCRIPTS))
    found = text.worst_first(report)
    views = views_of(report)
    homes = homes_of(view.report for view in views)
    page = environment.get_template(
        "report.html.j2"
    ).render(
        report=report,
        # The three are files and words of ours, and must reach the page byte by byte for their digests.
        css=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        script_words=Markup(_script_words()),  # noqa: S704
        policy=f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "base-uri 'none'; form-action 'none'",
        evidence_time=_evidence_time(report),
        is_lean=is_lean(report),
        actions=list(_actions(report, found)),
        findings=list(_shown(found[: MOST["findings"]], homes)),
        found=len(found),
        abouts=_abouts(report, homes),
        families=_families(report.rules),
        broken=text.broken_rules(report),
        mute=text.mute_rules(report),
        baseline=text.baseline_line(report),
        mend=text.waivers_to_mend(report),
        views=views,
        states=[verdict for verdict in _MARKS if any(rule.verdict == verdict for rule in report.rules)],
        worlds=len(report.worlds) if report.worlds else 1,
        most=MOST,
        **sections(report),
        embedded=block,
        embedded_text=Markup(block.text),  # noqa: S704  written by `embed`, which leaves nothing that ends a script
    )
    return seal(page.rstrip("\n") + "\n")


def _evidence_time(report: Report) -> str:
    """From when the evidence is, in words."""
    first, last = report.evidence_from, report.evidence_to
    if first is None or last is None:
        return say("evidence_undated")
    return say("evidence_at" if first == last else "evidence_between", first=first, last=last)


def _file(name: str) -> str:
    """A file beside the template."""
    return files("topocheck.templates").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """How a Content-Security-Policy names the one text that it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _script_words() -> str:
    """Words of the script as JSON that cannot end its element."""
    return msgspec.json.encode(dict(SCRIPT_WORDS)).decode().replace("<", "\\u003c")


def _shown(found: Iterable[tuple[RuleReport, ReportedFinding]], homes: Homes) -> Iterator[Shown]:
    """Findings with what filter and links need; those that would share a name get numbers."""
    names: Counter[str] = Counter()
    for rule, finding in found:
        name = anchor(rule.id, finding)
        names[name] += 1
        number = f"-{names[name]}" if names[name] > 1 else ""
        yield Shown(rule, finding, name + number, concern(finding.subjects, finding.count, homes))


def _abouts(report: Report, homes: Homes) -> dict[str, Concern]:
    """What each rule with findings or gaps speaks of."""
    found: dict[str, Concern] = {}
    for rule in report.rules:
        parts = [(finding.subjects, finding.count) for finding in rule.findings]
        gaps = [report.gaps[number] for number in rule.gaps if 0 <= number < len(report.gaps)]
        parts += [(gap.about, gap.count) for gap in gaps]
        if parts:
            subjects = [subject for told, _ in parts for subject in told]
            more = any(count > len(told) for told, count in parts)
            found[rule.id] = concern(subjects, len(subjects) + more, homes)
    return found


def _levels(rule: RuleReport) -> str:
    """Severities of a rule's findings, else its own."""
    found = {finding.severity for finding in rule.findings}
    return " ".join(level for level in SEVERITIES if level in found) or rule.severity


@cache
def _environment() -> Environment:
    """Templates with autoescape on; all text passes `printable` before it is escaped."""
    environment = Environment(
        loader=PackageLoader("topocheck.templates", ""),
        autoescape=True,
        finalize=_safe,
        undefined=StrictUndefined,
        bytecode_cache=CompiledTemplates(),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        short=lambda said: text.shorten(text.printable(said), _MOST_NAME),
        asks=text.asks,
        cite=text.cite,
        fold=text.fold,
        layers=text.layer_range,
        levels=_levels,
        page=rule_page,
        shorten=text.shorten,
        whole=escape,
    )
    environment.globals["say"] = say
    environment.globals.update(mark=_MARKS, sign=_SIGNS, palette=PALETTE)
    return environment


def _safe(value: Any) -> Any:
    """Text of others without controls and not without end; what a template itself made stays."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return text.shorten(text.printable(value), _MOST_TEXT)
    return "" if value is None else value


def _actions(report: Report, found: Iterable[tuple[RuleReport, ReportedFinding]]) -> Iterator[Action]:
    """What to do first: mend what shuts the gate, then supply what keeps it from being decided.

    The finding that the sentence names is the cause of others, and goes before them.
    """
    number = 0
    for rule, finding in sorted(found, key=lambda pair: f"[{pair[0].id}]" not in report.sentence):
        if finding.fix and finding.counts and finding.severity != "info" and number < 3:
            number += 1
            yield Action(rule.id, finding.fix, finding.message, command=False)
    required = {rule.id for rule in report.rules if rule.required}
    for gap in report.gaps:
        if gap.supply and number < 4 and required.intersection(gap.rules):
            number += 1
            yield Action(
                ", ".join(gap.rules[:6]), gap.supply, say("missing_because", need=gap.need), command=True
            )


def _families(rules: Iterable[RuleReport]) -> dict[str, list[RuleReport]]:
    """Rules by family, in the order of the catalogue."""
    families: dict[str, list[RuleReport]] = {}
    for rule in rules:
        families.setdefault(rule.family, []).append(rule)
    return families
