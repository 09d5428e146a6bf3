"""Waivers, baseline and policy read alike in every format."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import sample_report

from topocheck.render import html, json_report, terminal
from topocheck.render.text import baseline_line, count_findings, count_rules, policy_line, waivers_to_mend
from topocheck.report import BaselineReport, GoneReport, PolicyKey, Report, WaiverReport

DAY = "2026-12-31"


def borne(**changes: Any) -> Report:
    """The failing job, its finding waived."""
    made = sample_report.split_group()
    waiver = WaiverReport(reason="cable ordered", owner="net-team", expires=DAY)
    rules = [
        msgspec.structs.replace(
            rule, findings=[msgspec.structs.replace(finding, waiver=waiver) for finding in rule.findings]
        )
        for rule in made.rules
    ]
    return msgspec.structs.replace(made, rules=rules, **changes)


def text_of(report: Report) -> str:
    return " ".join(terminal.render(report).split())


def test_a_waived_finding_has_its_reason_owner_and_day_everywhere() -> None:
    report = borne()
    assert "waived cable ordered (net-team, until 2026-12-31)" in text_of(report)
    assert "cable ordered (net-team, until 2026-12-31)" in html.render(report)
    found = [f for rule in json.loads(json_report.render(report))["rules"] for f in rule["findings"]]
    assert found
    assert all(finding["waiver"]["expires"] == DAY for finding in found)


def test_nothing_is_to_be_done_first_about_what_is_borne() -> None:
    def first(report: Report) -> str:
        page = html.render(report)
        return page[page.index("What to do first") : page.index('<dl class="counts">')]

    fix = next(f.fix for rule in borne().rules for f in rule.findings)
    assert fix in first(sample_report.split_group())
    assert fix not in first(borne())


def test_a_waiver_in_the_way_shows_and_one_in_use_only_if_asked() -> None:
    used, unused, expired, undecided = (
        sample_report.waiver_state(f"W-{state}", state)
        for state in ("used", "unused", "expired", "undecided")
    )
    report = borne(waivers=[used, unused, expired, undecided])
    assert waivers_to_mend(report) == [unused, expired]
    shown = text_of(report)
    assert "W-unused warning" in shown
    assert "W-expired warning" in shown
    assert "W-used" not in shown
    assert "W-undecided" not in shown
    whole = " ".join(terminal.render(report, verbose=True).split())
    assert "W-used used" in whole
    assert "W-undecided undecided" in whole
    page = html.render(report)
    assert page.index("Waivers to mend") < page.index("W-unused")


def test_the_policy_is_one_line_by_source() -> None:
    keys = [
        PolicyKey(key="fail_on", value="error", source="default"),
        PolicyKey(key="skip", value="ENV007", source="site.yaml"),
        PolicyKey(key="optional", value="TP", source="plan"),
        PolicyKey(key="only", value="", source="site.yaml"),
    ]
    report = borne(policy=keys)
    assert policy_line(report) == "skip ENV007, only none (site.yaml); optional TP (plan)"
    assert policy_line(borne(policy=keys[:1])) == policy_line(borne()) == ""
    assert "Policy in force" in html.render(report)
    assert "Policy in force" not in html.render(borne())


def test_the_baseline_is_one_line() -> None:
    gone = [
        GoneReport(rule="NV001", cause="links missing", subjects=["GPU 1 of a", "GPU 2 of a"], decided=True),
        GoneReport(rule="NV002", cause="fabric", subjects=["a"], decided=False),
    ]
    baseline = BaselineReport(
        name="b.json", at="2026-01-01T00:00:00Z", digest="sha256:00", unlisted=3, gone=gone
    )
    counts = msgspec.structs.replace(sample_report.split_group().counts, known=4, deselected=2)
    report = borne(baseline=baseline, counts=counts)
    assert baseline_line(report) == (
        "b.json of 2026-01-01T00:00:00Z: 4 findings known, 2 subjects gone, 1 not looked at again, "
        "3 that it does not list count"
    )
    assert baseline_line(borne()) == ""
    assert count_findings(counts).endswith("4 known")
    assert count_rules(counts).endswith("2 deselected")
    assert "GPU 1 of a" in terminal.render(report, verbose=True)
    assert "not looked at again: <strong>NV002</strong>" in html.render(report)


@pytest.mark.parametrize("verbose", [False, True])
def test_a_deselected_rule_is_shown_as_such(verbose: bool) -> None:
    made = sample_report.healthy()
    changes: dict[str, Any] = {"verdict": "deselected", "reason": "policy.skip", "subjects": 0, "passed": 0}
    report = msgspec.structs.replace(
        made, rules=[msgspec.structs.replace(made.rules[0], **changes), *made.rules[1:]]
    )
    assert 'class="badge deselected"' in html.render(report)
    assert ("deselected" in terminal.render(report, verbose=verbose)) is verbose
