"""What an earlier report has already is known again by rule, cause and subject; all else counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from build import TWO, answer, pair, snap
from hypothesis import given, settings
from hypothesis import strategies as st
from made_policy import baseline_of, judged, waiver, waiving
from made_worlds import TWINS, carrier, of
from test_policy import ROW, exits, row, told

from topocheck.baseline import parse_baseline, read_baseline
from topocheck.errors import InputError, UsageError
from topocheck.render.json_report import render
from topocheck.verify import MOST_SUBJECTS


def test_only_what_is_new_counts() -> None:
    before = judged(ROW, *row("n1", "n3"))
    found = judged(ROW, *row("n1", "n2", "n3"), baseline=baseline_of(before))
    assert told(answer(found, "NV001")) == [
        (True, 1, ["GPU 2 of n2"]),
        (False, 2, ["GPU 2 of n1", "GPU 2 of n3"]),
    ]
    assert found.exit_code == 1
    assert found.sentence.startswith("GPU 2 ")
    assert " of n2, " in found.sentence


def test_a_job_that_is_as_it_was_opens_the_gate_and_still_fails_its_rules() -> None:
    before = judged(ROW, *row("n1", "n3"))
    found = judged(ROW, *row("n1", "n3"), baseline=baseline_of(before))
    assert exits(found) == (0, "passed", "pass")
    assert found.counts.failed == before.counts.failed > 0
    assert found.counts.known == sum(len(rule.findings) for rule in before.rules)
    assert (found.counts.errors, found.counts.warnings) == (0, 0)
    assert "known from the baseline" in found.sentence
    assert found.baseline is not None
    assert (found.baseline.name, found.baseline.at, found.baseline.gone) == ("base.json", before.at, [])


def test_what_is_gone_is_told() -> None:
    before = judged(ROW, *row("n1", "n3"))
    found = judged(ROW, *row("n3"), baseline=baseline_of(before))
    assert found.baseline is not None
    gone = [(one.rule, one.subjects, one.decided) for one in found.baseline.gone if one.rule == "NV001"]
    assert gone == [("NV001", ["GPU 2 of n1"], True)]


def test_what_nobody_looked_at_again_is_not_gone() -> None:
    before = judged(ROW, *row("n1"))
    for views, more in (([], ""), (row(), "policy: {skip: [NV001]}\n")):
        found = judged(ROW + more, *views, baseline=baseline_of(before))
        assert found.baseline is not None
        assert {one.rule: one.decided for one in found.baseline.gone}["NV001"] is False


def test_what_got_worse_is_new() -> None:
    mild = judged(ROW + "policy: {severity: {NV001: warning}}\n", *row("n1"))
    found = judged(ROW, *row("n1"), baseline=baseline_of(mild))
    assert [finding.counts for finding in answer(found, "NV001").findings] == [True]
    harsh = baseline_of(judged(ROW, *row("n1")))
    found = judged(ROW + "policy: {severity: {NV001: warning}}\n", *row("n1"), baseline=harsh)
    assert [finding.counts for finding in answer(found, "NV001").findings] == [False]


def test_another_cause_of_the_same_subject_is_new() -> None:
    before = render(judged(ROW, *row("n1"))).replace('"links missing"', '"another cause"')
    found = judged(ROW, *row("n1"), baseline=parse_baseline(before.encode(), "base.json"))
    assert [finding.counts for finding in answer(found, "NV001").findings] == [True]


def test_a_known_error_does_not_decide_what_lacks_evidence() -> None:
    views = [snap("node-a", range(4), nvlinks=[18, 18, 12, None]), snap("node-b", range(4, 8))]
    before = judged(TWO, *views)
    after = judged(TWO, *views, baseline=baseline_of(before))
    assert after.counts.required_unknown >= before.counts.required_unknown
    assert after.exit_code in {0, 3}


def test_a_finding_that_is_waived_and_known_is_waived_and_an_expired_waiver_does_not_make_it_count() -> None:
    base = baseline_of(judged(ROW, *row("n1")))
    found = judged(waiving(ROW, waiver("NV001")), *row("n1"), baseline=base)
    (finding,) = answer(found, "NV001").findings
    assert (finding.waiver is not None, finding.known) == (True, True)
    found = judged(waiving(ROW, waiver("NV001", expires="2026-01-01")), *row("n1"), baseline=base)
    (finding,) = answer(found, "NV001").findings
    assert (finding.waiver, finding.known, finding.counts) == (None, True, False)


def test_what_a_baseline_does_not_list_counts() -> None:
    nodes = MOST_SUBJECTS + 5
    text = f"engine: vllm\nparallel: {{tensor: 4, pipeline: {nodes}}}\nnodes: n[1-{nodes}]\n"
    short = [18, 18, 12, 18]
    views = [
        snap(f"n{n}", range(4 * n - 4, 4 * n), size=4 * nodes, nvlinks=short) for n in range(1, nodes + 1)
    ]
    base = baseline_of(judged(text, *views))
    found = judged(text, *views, baseline=base)
    assert [(counts, count) for counts, count, _ in told(answer(found, "NV001"))] == [
        (True, 5),
        (False, MOST_SUBJECTS),
    ]
    assert found.baseline is not None
    assert found.baseline.unlisted >= 5


def test_ranks_of_one_world_are_not_known_of_another() -> None:
    held = [0, 1, 2, 2]
    first = carrier("node-a", of("0", held, 4), of("1", range(4), 4, first=4))
    both = carrier("node-a", of("0", held, 4), of("1", held, 4, first=4))
    base = baseline_of(judged(TWINS, first))
    again = judged(TWINS, first, baseline=base)
    assert not [f for f in answer(again, "ID001").findings if f.counts]
    found = judged(TWINS, both, baseline=base)
    counting = [finding for finding in answer(found, "ID001").findings if finding.counts]
    assert counting
    assert all(subject.endswith("of world 1") for finding in counting for subject in finding.subjects)


def test_the_report_of_another_job_is_refused() -> None:
    base = baseline_of(judged(ROW, *row()))
    with pytest.raises(
        UsageError, match=r"base\.json is the report of another job \(vLLM, tensor 4 x pipeline 4"
    ):
        judged(TWO, *pair(), baseline=base)


def broken(report: str, *path: str | int, value: Any) -> bytes:
    """The report with one of its values replaced."""
    document = json.loads(report)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(document).encode()


def test_a_file_that_is_no_report_is_refused(tmp_path: Path) -> None:
    good = render(judged(ROW, *row("n1")))
    for data in (
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"schema": "topocheck.report/1"}',
        b"\xff\xfe",
        b"[" * 100_000,
        broken(good, "schema", value="topocheck.report/2"),
        broken(good, "schema", value="topocheck.snapshot/1"),
        broken(good, "rules", value=[1]),
        broken(good, "rules", 0, "findings", value=[{"cause": "a"}]),
    ):
        with pytest.raises(InputError) as caught:
            parse_baseline(data, "base.json")
        assert str(caught.value).startswith("base.json: is no ")
        assert str(caught.value).endswith("write one with topocheck verify --json FILE")
    with pytest.raises(InputError, match="cannot be read"):
        read_baseline(str(tmp_path / "none.json"))
    with pytest.raises(InputError, match="cannot be read"):
        read_baseline("a\0b")
    with pytest.raises(InputError, match="cannot be read"):
        read_baseline(str(tmp_path))


def test_a_report_with_what_is_not_known_yet_is_read() -> None:
    newer = broken(render(judged(ROW, *row("n1"))), "something_new", value={"a": 1})
    assert ("NV001", "links missing") in parse_baseline(newer, "base.json").known


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
@settings(max_examples=50, deadline=None)
def test_any_bytes_are_a_baseline_or_one_sentence(data: bytes) -> None:
    with pytest.raises(InputError):
        parse_baseline(data, "base.json")


@given(st.sets(st.sampled_from(["n1", "n2", "n3", "n4"])), st.sets(st.sampled_from(["n1", "n2", "n3", "n4"])))
@settings(max_examples=30, deadline=None)
def test_a_baseline_never_makes_the_gate_stricter_nor_hides_what_is_new(
    before: set[str], now: set[str]
) -> None:
    base = baseline_of(judged(ROW, *row(*before)))
    plain, found = judged(ROW, *row(*now)), judged(ROW, *row(*now), baseline=base)
    assert (plain.exit_code, found.exit_code) in {(0, 0), (1, 1), (1, 0)}
    new = {f"GPU 2 of {name}" for name in now - before}
    counting = [finding for finding in answer(found, "NV001").findings if finding.counts]
    assert {subject for finding in counting for subject in finding.subjects} == new
    assert msgspec.structs.replace(plain.counts, errors=0, warnings=0) == msgspec.structs.replace(
        found.counts, errors=0, warnings=0, known=0
    )
