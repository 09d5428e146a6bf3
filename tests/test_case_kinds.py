"""Reported kinds of fault that no collected input shows: the rule of each case speaks as the table says."""

from __future__ import annotations

import msgspec
import pytest
from build import TWO, pair
from case_kinds import MADE, ON_FOUR, RAY, REFUSED, on_ray, read, without_verbs
from case_table import TABLE, Row
from made_versions import nodes as on_four
from set_ups import verified

from topocheck.probes.capture import failure_lines
from topocheck.snapshot import FullSnapshot

ROWS = [row for row in TABLE if row.where in MADE]


def verdicts(text: str, *evidence: FullSnapshot) -> dict[str, str]:
    """Verdicts by rule."""
    return {rule.id: rule.verdict for rule in verified(text, *evidence).rules}


def test_a_driver_that_has_a_bundle_or_needs_none_is_no_fault() -> None:
    for version, reserved in (("0.7.2", "ad"), ("0.24.0", "cd")):
        found = verdicts(RAY.format(version), on_ray(*reserved))
        assert found["ID010"] != "fail"
    assert verdicts(RAY.format("0.7.2"), on_ray())["ID010"] == "unknown"


def test_the_engines_own_refusal_names_the_driver_and_the_chosen_nodes() -> None:
    found = verified(RAY.format("0.7.2"), *read(failure_lines.parse, REFUSED))
    (finding,) = next(rule.findings for rule in found.rules if rule.id == "ID010")
    assert "10.44.0.1" in finding.message
    assert "10.44.0.3" in finding.message
    assert next(rule for rule in found.rules if rule.id == "OBS006").findings == []


def test_a_job_of_one_node_does_not_miss_libibverbs() -> None:
    text, evidence = without_verbs(1)
    assert verdicts(text, *evidence)["NET009"] == "not-applicable"


def test_one_node_alone_proves_no_equality() -> None:
    found = verdicts(ON_FOUR, *on_four()[:1])
    assert {found[rule] for rule in ("VER001", "VER002", "VER003")} == {"unknown"}


def test_clocks_that_nobody_compared_are_undecided() -> None:
    assert verdicts(TWO, *pair())["ENV006"] == "unknown"


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_rule_of_a_case_speaks_as_the_table_says(row: Row) -> None:
    text, evidence = MADE[row.where]()
    found = next(rule for rule in verified(text, *evidence).rules if rule.id == row.rule)
    assert (found.verdict, {finding.severity for finding in found.findings}) == (
        row.verdict,
        {row.severity} - {None},
    )
    said = msgspec.json.encode(found.findings).decode()
    assert [words for words in row.names if words not in said] == []


def test_every_fixture_is_of_some_row() -> None:
    assert MADE.keys() == {row.where for row in ROWS}
