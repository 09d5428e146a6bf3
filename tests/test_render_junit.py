"""The report as JUnit XML, as CI systems read it."""

from __future__ import annotations

from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
import sample_report
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml

from topocheck.render import junit
from topocheck.report import PolicyKey, Report, RuleReport

SAMPLES = {
    "healthy": sample_report.healthy(),
    "split": sample_report.split_group(),
    "unknown": sample_report.unknown_only(),
    "broken": sample_report.broken(),
    "hostile": sample_report.hostile("]]>&<\x00\x0b\x1b[31m\ufffe\uffff\ud800\u202eé"),
}
ORDER = ["properties", "testcase", "system-out", "system-err"]
SUITE = {"name", "hostname", "tests", "failures", "errors", "skipped", "time", "id", "package"}


def suite_of(report: Report) -> ET.Element:
    """The one test suite."""
    (suite,) = ET.fromstring(junit.render(report))  # noqa: S314  what was just written
    return suite


def results(report: Report) -> dict[str, tuple[str, str]]:
    """Kind and message of each test case by the id of its rule."""
    found = {}
    for case in suite_of(report).iter("testcase"):
        kinds = [(child.tag, child.get("message", "")) for child in case]
        found[case.get("name", "").partition(" ")[0]] = kinds[0] if kinds else ("passed", "")
    return found


def with_policy(report: Report, **keys: str) -> Report:
    given = [PolicyKey(key=key, value=value, source="option") for key, value in keys.items()]
    return msgspec.structs.replace(report, policy=given)


def with_rule(report: Report, rule: RuleReport) -> Report:
    rules = [rule if each.id == rule.id else each for each in report.rules]
    return msgspec.structs.replace(report, rules=rules)


@pytest.mark.parametrize("report", SAMPLES.values(), ids=SAMPLES.keys())
def test_it_has_the_form_that_the_schemas_of_ant_and_jenkins_share(report: Report) -> None:
    root = ET.fromstring(junit.render(report))  # noqa: S314  what was just written
    assert (root.tag, root.attrib) == ("testsuites", {})
    (suite,) = root
    assert SUITE <= set(suite.attrib) <= SUITE | {"timestamp"}
    tags = [child.tag for child in suite]
    assert tags == sorted(tags, key=ORDER.index)
    assert Counter(tags) == {**dict.fromkeys(ORDER, 1), "testcase": tags.count("testcase")}
    for case in suite.iter("testcase"):
        assert set(case.attrib) == {"name", "classname", "time"}
        assert all(case.attrib.values())
        assert len(case) <= 1
        for child in case:
            needed = {"message"} if child.tag == "skipped" else {"message", "type"}
            assert (child.tag, set(child.attrib)) == (child.tag, needed)
            assert child.tag in {"failure", "error", "skipped"}
    assert all(each.get("name") for each in suite.iter("property"))


@pytest.mark.parametrize("report", SAMPLES.values(), ids=SAMPLES.keys())
def test_junitparser_reads_it_and_the_counters_are_those_of_the_cases(report: Report) -> None:
    (suite,) = JUnitXml.fromstring(junit.render(report).encode())
    kinds = Counter(kind for kind, _ in results(report).values())
    cases = list(suite)
    assert suite.tests == len(cases) >= len(report.rules)
    assert suite.failures == sum(case.is_failure for case in cases)
    assert suite.errors == sum(case.is_error for case in cases)
    assert suite.skipped == sum(case.is_skipped for case in cases)
    if len(cases) == len(report.rules):
        assert (suite.failures, suite.errors, suite.skipped) == tuple(
            kinds[kind] for kind in ("failure", "error", "skipped")
        )


def test_each_rule_is_a_case_of_its_family() -> None:
    cases = list(suite_of(SAMPLES["split"]).iter("testcase"))
    assert [case.get("name") for case in cases] == [
        f"{rule[0]} {rule[1]}" for rule in sample_report.CATALOGUE
    ]
    assert [case.get("classname") for case in cases] == [rule[2] for rule in sample_report.CATALOGUE]


def test_what_shuts_the_gate_is_a_failure_and_what_does_not_is_skipped_with_its_reason() -> None:
    found = results(SAMPLES["split"])
    assert found["TP001"][0] == "failure"
    assert found["PP004"] == (
        "skipped",
        "warning: Stage 0 sends from GPU 3 through mlx5_0, which lies behind the other socket.",
    )
    assert found["VER007"] == ("skipped", "waived by infra until 2031-04-01: known, board on order")
    assert found["OBS003"][1].startswith("not-applicable: nothing was observed")
    assert found["NET001"] == (
        "skipped",
        "unknown: missing: state of the InfiniBand ports (gpu-0001); give ibstat > gpu-0001-ibstat.txt",
    )
    assert found["ID001"] == ("passed", "")
    assert results(with_policy(SAMPLES["split"], fail_on="warning"))["PP004"][0] == "failure"


def test_what_keeps_the_gate_undecided_is_an_error() -> None:
    found = results(SAMPLES["unknown"])
    assert {rule: kind for rule, (kind, _) in found.items() if kind != "passed"} == {
        "EV001": "error",
        "TP002": "error",
        "PP003": "error",
        "CAP001": "skipped",
    }
    assert results(SAMPLES["broken"])["TP001"][0] == "error"


def test_a_pass_that_is_known_too_badly_is_an_error_for_a_required_rule_alone() -> None:
    found = results(with_policy(SAMPLES["healthy"], min_basis="claimed"))
    assert found["TP001"] == ("error", "known as predicted only")
    assert found["TP003"] == ("passed", "")


@pytest.mark.parametrize(("required", "kind"), [(True, "error"), (False, "skipped")])
def test_a_rule_that_was_not_asked_is_no_pass(required: bool, kind: str) -> None:
    rule = sample_report.by_id("TP001")
    changes: dict[str, Any] = {"verdict": "deselected", "required": required, "basis": None, "passed": 0}
    report = with_rule(SAMPLES["healthy"], msgspec.structs.replace(rule, **changes, reason="left out"))
    assert results(report)["TP001"] == (kind, "deselected: left out")


def test_a_failure_has_evidence_and_fix_in_its_text() -> None:
    (failure, _) = suite_of(SAMPLES["split"]).iter("failure")
    lines = (failure.text or "").splitlines()
    assert failure.get("type") == "TP001"
    assert "evidence: evidence/hostfile:1: gpu-0000 slots=2" in lines
    assert "about: ranks 0..7" in lines
    assert lines[-1].startswith("fix: Give both nodes slots=4")


def test_the_properties_have_verdict_exit_code_counts_and_digests() -> None:
    shown = {each.get("name"): each.get("value") for each in suite_of(SAMPLES["split"]).iter("property")}
    assert (shown["verdict"], shown["exit_code"], shown["exit_reason"]) == ("fail", "1", "findings")
    assert shown["input plan.yaml"] == "sha256:" + "1f" * 32
    assert shown["counts.waived"] == "1"
    assert suite_of(SAMPLES["split"]).get("timestamp") == "2031-03-04T05:06:07"


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(codec=None), max_size=40))
def test_any_text_is_carried_or_left_out(text: str) -> None:
    written = junit.render(sample_report.hostile(text))
    written.encode()
    assert len(list(JUnitXml.fromstring(written.encode()))) == 1
    assert written == junit.render(sample_report.hostile(text))
