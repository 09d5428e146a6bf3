"""The table of reported faults is whole, and every row of it is shown by a test."""

from __future__ import annotations

from typing import Any

import pytest
import test_cases
from case_kinds import MADE
from case_table import CASES, TABLE, Row
from set_ups_jobs import JOBS
from set_ups_machines import MACHINES
from test_cases import RUNS

from topocheck.rules import RULES

KEYED = [row for row in TABLE if row.where.startswith("C")]
needs_key = pytest.mark.skipif(not RUNS, reason="the collected cases are not here")


def test_every_case_has_a_row_and_every_row_a_test() -> None:
    assert sorted({row.case for row in TABLE}) == sorted(CASES)
    assert {row.where for row in TABLE if row not in KEYED} <= MADE.keys() | MACHINES.keys() | JOBS.keys()
    assert {row.rule for row in TABLE} <= {rule.id for rule in RULES} | {"*"}
    assert len(set(TABLE)) == len(TABLE)


@needs_key
def test_every_run_of_the_answer_key_is_of_a_case_of_the_table() -> None:
    assert {name.partition("-")[0] for name in RUNS} <= set(CASES)
    assert {row.where for row in KEYED} <= RUNS.keys()


@needs_key
@pytest.mark.parametrize("row", KEYED, ids=str)
def test_a_row_says_what_the_answer_key_lets_verify_say(row: Row) -> None:
    expected: dict[str, Any] = RUNS[row.where]["expect"]
    told = f"{row.rule}:{row.severity}" if row.severity else row.rule
    if row.verdict == "fail":
        groups = [*expected.get("fail_any", []), expected.get("fail", []), expected.get("may_fail", [])]
        assert told in [name for group in groups for name in group]
    elif row.rule == "*":
        assert "*" in expected["must_not_fail"]
    else:
        undecided = expected.get("unknown_required", []) + expected.get("must_not_pass", [])
        assert row.rule in undecided


@needs_key
@pytest.mark.parametrize("row", KEYED, ids=str)
def test_verify_says_of_a_collected_case_what_its_row_says(row: Row, verify: Any) -> None:
    run = RUNS[row.where]
    _, report = verify(run["plan"], *test_cases.arguments(run))
    rules = {rule["id"]: rule for rule in report["rules"]}
    if row.rule == "*":
        found = [finding["severity"] for rule in rules.values() for finding in rule["findings"]]
        assert [severity for severity in found if severity != "info"] == []
        return
    severities = {finding["severity"] for finding in rules[row.rule]["findings"]}
    assert rules[row.rule]["verdict"] == row.verdict
    assert row.severity is None or row.severity in severities


verify = test_cases.verify
