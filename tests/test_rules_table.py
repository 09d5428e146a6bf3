"""Every rule passes, fails, stays undecided and stands aside where it must, and says what a reader needs."""

from __future__ import annotations

import re

import made_direct
import made_edges
import made_experts
import made_fabric
import made_hops
import made_limits
import made_path
import made_ports
import made_rails
import made_settings
import made_versions
import pytest
from build import answer, report, text_of
from rule_cases import CASES, Job

from topocheck.report import RuleReport
from topocheck.rules import RULES

IDS = [rule.id for rule in RULES]
REQUIRED = {
    "EV001",
    "EV003",
    "ID001",
    "ID002",
    "ID003",
    "ID004",
    "ID010",
    "TP001",
    "TP002",
    "PP001",
    "PP003",
    "OBS003",
}
"""Those of the catalogue's required rules that this version asks."""
WARNINGS = {
    "CAP003",
    "PP007",
    "PP009",
    "PP010",
    "EV002",
    "GR005",
    "TP004",
    "PP004",
    "NET003",
    "ENV007",
    "OBS002",
    "OBS009",
    *made_direct.WARNINGS,
    *made_fabric.WARNINGS,
    *made_hops.WARNINGS,
    *made_edges.WARNINGS,
    *made_experts.WARNINGS,
    *made_limits.WARNINGS,
    *made_path.WARNINGS,
    *made_ports.WARNINGS,
    *made_rails.WARNINGS,
    *made_settings.WARNINGS,
    *made_versions.WARNINGS,
}
"""Rules whose findings are warnings unless they say otherwise."""

BY_PLAN = {"TP005", "PP002", "PP007", "PP009"}
"""Rules that the plan alone answers."""


def verdict(rule: str, job: Job) -> RuleReport:
    return answer(report(job.plan, *job.evidence, since=job.since), rule)


def test_every_rule_has_its_cases_and_no_case_lacks_its_rule() -> None:
    assert sorted(CASES) == sorted(IDS)


def test_ids_are_unique_and_names_say_what_holds() -> None:
    assert len(set(IDS)) == len(IDS)
    assert all(rule.name and not rule.name.endswith(".") for rule in RULES)


def test_required_rules_and_severities_are_those_of_the_catalogue() -> None:
    known = {rule.id: rule for rule in RULES if rule.id in CASES}
    assert {rule.id for rule in known.values() if rule.required} == REQUIRED & set(known)
    assert {rule.id for rule in known.values() if rule.severity == "warning"} == WARNINGS & set(known)
    assert {rule.severity for rule in known.values()} == {"error", "warning"}


@pytest.mark.parametrize("rule", sorted(CASES))
def test_a_rule_passes_where_all_is_well(rule: str) -> None:
    found = verdict(rule, CASES[rule].holds)
    assert (found.verdict, found.findings, found.gaps) == ("pass", [], [])
    assert found.passed == found.subjects > 0


@pytest.mark.parametrize("rule", sorted(CASES))
def test_a_rule_fails_where_its_fault_is(rule: str) -> None:
    cases = CASES[rule]
    found = verdict(rule, cases.broken)
    assert found.verdict == "fail"
    assert [finding.severity for finding in found.findings] == [cases.severity]  # one finding for one cause


@pytest.mark.parametrize("rule", sorted(CASES))
def test_a_finding_names_what_it_is_about_where_it_was_read_and_what_to_change(rule: str) -> None:
    cases = CASES[rule]
    found = verdict(rule, cases.broken)
    text = text_of(found)
    assert not [name for name in cases.names if name not in text]
    for finding in found.findings:
        assert finding.fix
        assert finding.subjects
        assert finding.count >= len(finding.subjects)
        assert finding.evidence
        assert all(evidence.source and evidence.fact for evidence in finding.evidence)
        assert re.search(
            r"rank|node-|replica|GPU|edge|size|layers|process|master",
            " ".join([*finding.subjects, finding.message]),
        )


@pytest.mark.parametrize("rule", sorted(CASES))
def test_a_rule_is_undecided_where_its_evidence_is_missing(rule: str) -> None:
    job = CASES[rule].undecided
    whole = report(job.plan, *job.evidence, since=job.since)
    found = answer(whole, rule)
    assert (found.verdict, found.findings) == ("unknown", [])
    if found.subjects:
        gaps = [whole.gaps[index] for index in found.gaps]
        assert gaps
        assert all(gap.need and gap.about and gap.supply and rule in gap.rules for gap in gaps)
    else:
        assert found.reason == "there was nothing to look at"


@pytest.mark.parametrize("rule", sorted(rule for rule, cases in CASES.items() if cases.absent))
def test_a_rule_stands_aside_by_proof_only(rule: str) -> None:
    absent = CASES[rule].absent
    assert absent is not None
    found = verdict(rule, absent)
    assert (found.verdict, found.findings, found.gaps) == ("not-applicable", [], [])
    assert found.reason


@pytest.mark.parametrize("rule", sorted(CASES.keys() - BY_PLAN))
def test_no_evidence_is_never_a_proof(rule: str) -> None:
    found = verdict(rule, Job(CASES[rule].holds.plan))
    assert found.verdict in {"unknown", "not-applicable"} or found.basis == "predicted"
    assert found.findings == []
