"""Results of growing depth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topocheck.errors import InputError, UsageError
from topocheck.pipeline.depth import DepthPoint, parse_point, read_depth, result_of, times_of
from topocheck.pipeline.waits import depth_alone


def points(*times: tuple[int, float, float]) -> list[DepthPoint]:
    return [
        DepthPoint(stages=stages, ttft_ms=ttft, tpot_ms=tpot, source="-", requests=None)
        for stages, ttft, tpot in times
    ]


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ([(1, 200, 24), (2, 260, 24), (4, 390, 25)], "depth"),
        ([(4, 390, 25), (1, 200, 24), (2, 260, 24)], "depth"),
        ([(1, 200, 24), (2, 260, 30), (4, 390, 50)], "both rise"),
        ([(1, 200, 24), (2, 201, 24), (4, 202, 24)], "no rise"),
        ([(1, 200, 24), (2, 150, 24), (4, 390, 24)], "no rise"),
        ([(1, 200, 24), (2, 260, 12)], "no rise"),
    ],
)
def test_a_later_first_token_with_a_flat_time_per_token_is_depth(
    times: list[tuple[int, float, float]], verdict: str
) -> None:
    assert read_depth(points(*times)).verdict == verdict


def test_depth_is_a_finding_with_what_to_do_and_its_cost() -> None:
    report = depth_alone(read_depth(points((1, 200, 24), (2, 260, 24), (4, 395, 25))))
    (finding,) = report.findings
    assert (report.status, finding.kind, finding.where) == ("depth", "depth", "4 stages")
    assert "one stage more adds 65 ms to the first token" in finding.evidence
    assert "fewer stages than 4; data parallel replicas" in finding.action
    assert "memory" in finding.cost
    assert depth_alone(read_depth(points((1, 200, 24), (2, 200, 24)))).findings == []


RESULT = '{"completed": 8, "duration": 3.5, "mean_ttft_ms": 300, "median_ttft_ms": %s, "mean_tpot_ms": %s}'


def test_a_result_file_gives_medians_or_means() -> None:
    point = result_of(2, RESULT % (250, 20), "r.json")
    assert (point.ttft_ms, point.tpot_ms, point.requests) == (250, 20, 8)
    assert result_of(2, RESULT % (0, 20), "r.json").ttft_ms == 300  # a median of 0 is none
    with pytest.raises(InputError, match="has no time to first token or per token"):
        result_of(2, RESULT % (250, 0), "r.json")


def test_results_of_other_requests_are_doubted() -> None:
    one, other = result_of(1, RESULT % (100, 20), "a"), result_of(2, RESULT % (250, 20), "b")
    assert read_depth([one, other]).notes == []
    changed = result_of(2, (RESULT % (250, 20)).replace("8", "9"), "b")
    assert "8 to 9 completed requests" in read_depth([one, changed]).notes[0]


@pytest.mark.parametrize("words", ["", "4", "x=1", "0=1,2", "99999=1,2", "=1,2"])
def test_what_is_no_depth_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match="expected STAGES=FILE or STAGES=TTFT,TPOT"):
        parse_point(words)


def test_times_are_taken_in_ms_and_other_words_are_a_file() -> None:
    assert times_of(4, "310,24") == times_of(4, " 310 ms, 24ms ") or times_of(4, "310,24") is not None
    point = times_of(4, "310.5,24")
    assert point is not None
    assert (point.ttft_ms, point.tpot_ms) == (310.5, 24)
    assert times_of(4, "result.json") is None
    with pytest.raises(UsageError, match="above zero"):
        times_of(4, "0,24")


def test_one_depth_or_one_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="two numbers of stages or more"):
        read_depth(points((1, 200, 24)))
    with pytest.raises(UsageError, match="gives 2 stages twice"):
        read_depth(points((2, 200, 24), (2, 210, 24)))


@given(st.text(max_size=30))
def test_any_words_are_read_or_refused(words: str) -> None:
    refused = ""
    try:
        stages, rest = parse_point(words)
        times_of(stages, rest)
    except UsageError as error:
        refused = str(error)
    assert not refused or "--bench" in refused
