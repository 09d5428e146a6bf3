"""Evidence of another run or too old counts as absent, and is named."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from build import AT, TWO, answer, report, text_of
from hypothesis import given
from hypothesis import strategies as st
from made_evidence import ASKED, taken
from shell import topocheck

from topocheck.freshness import age_seconds, oldest_and_newest


def test_a_stale_node_is_absent_to_all_other_rules() -> None:
    found = report(ASKED, *taken(at="2026-02-20T00:00:00Z"))
    assert answer(found, "EV003").verdict == "fail"
    assert "9 days ago" in text_of(answer(found, "EV003"))
    assert answer(found, "EV001").verdict == "unknown"
    assert answer(found, "ID001").verdict == "unknown"


def test_a_time_ahead_of_now_is_doubted() -> None:
    found = answer(report(ASKED, *taken(at="2026-03-01T02:00:00Z")), "EV003")
    assert found.verdict == "fail"
    assert "from now" in text_of(found)


def test_a_clock_a_little_ahead_is_let_pass() -> None:
    assert answer(report(ASKED, *taken(at="2026-03-01T00:00:30Z")), "EV003").verdict == "pass"


@pytest.mark.parametrize("missing", ["run", "at"])
def test_what_bears_no_run_or_time_is_unknown_and_still_used(missing: str) -> None:
    found = report(ASKED, *taken(**{missing: None}))
    assert answer(found, "EV003").verdict == "unknown"
    assert answer(found, "ID001").verdict == "pass"


def test_evidence_that_may_be_of_another_run_is_the_reason_of_the_exit_code() -> None:
    found = report(ASKED, *taken(run=None))
    assert (found.exit_code, found.exit_reason) == (3, "stale_evidence")


@given(st.text(max_size=30))
def test_any_text_is_an_age_or_none(text: str) -> None:
    age = age_seconds(text, AT)
    assert age is None or isinstance(age, float)


def test_options_ask_and_go_before_the_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(ASKED)
    stream = tmp_path / "stream.jsonl"
    stream.write_bytes(b"".join(msgspec.json.encode(view) + b"\n" for view in taken()))
    arguments: list[str | Path] = [
        "verify",
        "--plan",
        tmp_path / "plan.yaml",
        "--at",
        AT,
        "--json",
        "-",
        stream,
    ]
    said = json.loads(topocheck(*arguments).out)
    assert {r["id"]: r["verdict"] for r in said["rules"]}["EV003"] == "pass"
    other = json.loads(topocheck(*arguments, "--run", "4712.0").out)
    assert {r["id"]: r["verdict"] for r in other["rules"]}["EV003"] == "fail"
    old = json.loads(topocheck(*arguments, "--max-age", "30s").out)
    assert {r["id"]: r["verdict"] for r in old["rules"]}["EV003"] == "fail"


@pytest.mark.parametrize("words", ["10", "m", "-5m", "0s", "1y", "1.5h", "9999999999s"])
def test_a_duration_that_is_none_is_one_sentence(words: str, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(ASKED)
    ran = topocheck("verify", "--plan", tmp_path / "plan.yaml", f"--max-age={words}", tmp_path)
    assert ran.code == 2
    assert "expected a time such as 90s, 10m, 2h or 1d" in ran.last


def test_the_report_says_from_when_the_evidence_that_counts_is(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(TWO)
    for asked, oldest in (((), "2026-02-20T00:00:00Z"), (("--max-age", "1h"), "2026-02-28T23:59:00Z")):
        views = taken(at="2026-02-20T02:00:00+02:00")
        stdin = "".join(f"{msgspec.json.encode(view).decode()}\n" for view in views)
        words = ["--plan", str(tmp_path / "plan.yaml"), "--at", AT, *asked, "--json", "-", "-"]
        found = json.loads(topocheck("verify", *words, stdin=stdin).out)
        assert (found["evidence_from"], found["evidence_to"]) == (oldest, "2026-02-28T23:59:00Z")


@given(st.lists(st.none() | st.text(max_size=30) | st.datetimes().map(lambda time: f"{time.isoformat()}Z")))
def test_the_oldest_and_the_newest_of_any_times_are_in_order(times: list[str | None]) -> None:
    found = oldest_and_newest(times)
    assert (found is None) == (not any(age_seconds(time, AT) is not None for time in times))
    assert found is None or found[0] <= found[1]


def test_times_of_other_zones_are_held_against_each_other() -> None:
    times = ["2026-01-31T12:00:00+02:00", None, "soon", "2026-01-31T11:30:00Z", "2026-01-31T09:59:59Z"]
    assert oldest_and_newest(times) == ("2026-01-31T09:59:59Z", "2026-01-31T11:30:00Z")
    assert oldest_and_newest(["0001-01-01T00:00:00+23:59", "2026-01-31"]) is None
