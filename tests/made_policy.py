"""Reports under a policy: waivers, selection, a baseline."""

from __future__ import annotations

from build import AT, inventory, plan

from topocheck.answer import Declared, answer
from topocheck.baseline import Baseline, parse_baseline
from topocheck.checklist import Gate
from topocheck.freshness import Admission
from topocheck.planfile import parse_policy
from topocheck.policy import Site
from topocheck.render.json_report import render
from topocheck.report import Report
from topocheck.snapshot import FullSnapshot

__all__ = ["AFTER", "baseline_of", "judged", "site", "states", "waiver", "waiving"]

AFTER = "2026-03-02"
"""A day after that of the runs, which is 2026-03-01."""


def judged(
    text: str,
    *views: FullSnapshot,
    site: Site | None = None,
    baseline: Baseline | None = None,
    gate: Gate | None = None,
    at: str = AT,
    whole: bool = False,
) -> Report:
    """What verify says of a plan and evidence."""
    declared = plan(text)
    known = inventory(*views, admission=Admission(declared.expect, at))
    asked = Declared(declared, site=site, baseline=baseline)
    return answer(asked, known, [], gate or Gate(), at=at, whole=whole)


def site(text: str) -> Site:
    """A policy file."""
    stated, given = parse_policy(text, "site.yaml")
    return Site("site.yaml", stated.policy, given, stated.waivers)


def waiver(
    rule: str, scope: str = "", expires: str = AFTER, owner: str = "ops", reason: str = "ticket"
) -> str:
    """One waiver as a plan has it."""
    given = f"rule: {rule}, {scope + ', ' if scope else ''}"
    return f"{{{given}reason: {reason}, owner: {owner}, expires: {expires}}}"


def waiving(text: str, *waivers: str) -> str:
    """A plan with waivers."""
    return text + "waivers: [" + ", ".join(waivers) + "]\n"


def baseline_of(report: Report, name: str = "base.json") -> Baseline:
    """A report as a baseline, through its file."""
    return parse_baseline(render(report).encode(), name)


def states(report: Report) -> list[tuple[str, str, int]]:
    """Rule, state and covered subjects of each waiver."""
    return [(each.rule, each.state, each.subjects) for each in report.waivers]
