"""What stages of a pipeline waited for: runs whose fault is known are named as what they are."""

from __future__ import annotations

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_runs import MS, Line, as_text, blocking, judged, read, training

from topocheck.errors import UsageError
from topocheck.pipeline.bubble import measure
from topocheck.pipeline.schedule import Pipeline
from topocheck.pipeline.waits_report import StageWaits, WaitsReport
from topocheck.schema import schema_for

PARTS = ("computing", "work", "neighbour", "boundary", "unknown")


def report(lines: list[Line], skip: int = 0) -> WaitsReport:
    return judged(read(as_text(lines)), skip=skip)


def named(found: WaitsReport) -> list[tuple[str, str]]:
    return [(finding.kind, finding.where) for finding in found.findings]


def whole(stage: StageWaits) -> float:
    return stage.computing + stage.work + stage.neighbour + stage.boundary + stage.unknown


HEALTHY = blocking([20] * 3, units=20)
SLOW_STAGE = blocking([20, 60, 20])
SLOW_LINK = blocking([20] * 3, link_ms=[1, 80])
STARVED = blocking([20] * 3, arrival_ms=70)
FEW = blocking([5] * 4, units=4, link_ms=0)
SERIAL = blocking([20] * 4, units=10, link_ms=0, arrival_ms=80)


@pytest.mark.parametrize(
    ("lines", "status", "findings"),
    [
        (HEALTHY, "nothing named", []),
        (SLOW_STAGE, "imbalance", [("neighbour", "stage 1")]),
        (blocking([60, 20, 20]), "imbalance", [("neighbour", "stage 0")]),
        (blocking([20, 20, 20, 60]), "imbalance", [("neighbour", "stage 3")]),
        (blocking([4, 11, 5], units=40, link_ms=0), "imbalance", [("neighbour", "stage 1")]),
        (SLOW_LINK, "boundary", [("boundary", "stage 1 -> 2")]),
        (STARVED, "work", [("work", "stage 0")]),
        (SERIAL, "work", [("work", "stage 0")]),
        (FEW, "bubble", [("work", "all stages")]),
        (training([10] * 4), "bubble", [("work", "all stages")]),
        (training([10, 30, 10, 10]), "imbalance", [("neighbour", "stage 1")]),
    ],
)
def test_each_fault_is_named_as_what_it_is(
    lines: list[Line], status: str, findings: list[tuple[str, str]]
) -> None:
    found = report(lines)
    assert (found.status, named(found)) == (status, findings)
    assert [stage.unknown for stage in found.stages] == [0] * len(found.stages)


def test_two_faults_at_once_are_both_named_the_larger_first() -> None:
    link_and_stage = report(blocking([20, 60, 20], link_ms=[1, 60]))
    assert named(link_and_stage) == [("boundary", "stage 1 -> 2"), ("neighbour", "stage 1")]
    link_and_input = report(blocking([20] * 3, link_ms=[1, 80], arrival_ms=200))
    assert named(link_and_input) == [("work", "stage 0"), ("boundary", "stage 1 -> 2")]


@pytest.mark.parametrize("lines", [SLOW_STAGE, SLOW_LINK, blocking([20, 60, 20], units=4, link_ms=[1, 60])])
def test_more_in_flight_is_no_advice_for_a_slow_link_or_stage(lines: list[Line]) -> None:
    for finding in report(lines).findings:
        assert finding.kind in {"neighbour", "boundary"}
        assert "more" not in finding.action
        assert "more concurrency" in finding.no_cure


@pytest.mark.parametrize("lines", [SLOW_STAGE, SLOW_LINK, STARVED, FEW])
def test_every_finding_says_why_what_to_do_and_at_which_cost(lines: list[Line]) -> None:
    for finding in report(lines).findings:
        assert finding.evidence
        assert all((finding.sentence, finding.action, finding.cost, finding.no_cure))
        assert finding.share is not None
        assert 0.1 <= finding.share <= 1


def test_the_bubble_is_estimated_as_by_hand_and_compared_first() -> None:
    found = report(FEW)
    assert found.bubble is not None
    assert found.bubble.estimated_idle == pytest.approx(12 / 28)
    assert found.bubble.measured_idle == pytest.approx(12 / 28)
    assert found.bubble.verdict == "agree"
    worse = report(SLOW_STAGE).bubble
    assert worse is not None
    assert (worse.verdict, worse.rounds) == ("worse", 1)
    uneven = Pipeline(forward=(20, 60, 20), microbatches=12)  # type: ignore[arg-type]
    assert worse.imbalance == pytest.approx(float(measure(uneven).imbalance))


def test_a_pipeline_that_runs_empty_fills_anew_each_time() -> None:
    rounds = report(training([10] * 4, microbatches=8, iterations=3)).bubble
    assert rounds is not None
    assert (rounds.rounds, rounds.units) == (3, 24)
    assert rounds.estimated_idle == pytest.approx(9 / 33)
    assert report(SERIAL).bubble.rounds == 10  # type: ignore[union-attr]


def test_a_unit_that_is_large_for_all_stages_is_nobodys_unevenness() -> None:
    lines = blocking([20] * 3, units=20)
    free: dict[int, int] = {}
    for line in lines:  # every fourth unit takes three times as long, in every stage
        length = (60 if line["unit"] % 4 == 0 else 20) * MS
        at = max(free.get(line["stage"], 0), free.get(line["stage"] - 1, 0) if line["stage"] else 0)
        for name in [name for name in line if name not in {"unit", "stage"}]:
            del line[name]
        line |= {"compute_start_ns": at, "compute_end_ns": at + length}
        free[line["stage"]] = at + length
    found = report(lines)
    assert all(stage.neighbour < 0.01 for stage in found.stages)


def test_warm_up_can_be_left_out_and_is_noticed() -> None:
    lines = blocking([20] * 2, units=20)
    for line in lines:
        if line["unit"] or line["stage"]:
            line |= {name: value + 500 * MS for name, value in line.items() if name.endswith("_ns")}
    first = lines[1]
    first["receive_start_ns"] -= 500 * MS
    lines[0]["send_end_ns"] = first["receive_end_ns"]
    cold = report(lines)
    assert any("the first transfer to stage 1 took 501.0 ms" in note for note in cold.notes)
    assert named(cold) == [("boundary", "stage 0 -> 1")]
    warm = report(lines, skip=1)
    assert (named(warm), warm.notes[1:]) == ([], [])
    with pytest.raises(UsageError, match="--skip 20 leaves no unit"):
        report(lines, skip=20)


def test_what_is_not_recorded_is_unknown_and_says_what_would_tell() -> None:
    without_ready = [{k: v for k, v in line.items() if k != "ready_ns"} for line in STARVED]
    found = report(without_ready)
    assert (found.status, found.findings) == ("unknown", [])
    assert "give ready_ns" in found.gaps[0]
    computing_alone = [
        {k: v for k, v in line.items() if "send" not in k and "receive" not in k} for line in SLOW_LINK
    ]
    found = report(computing_alone)
    assert found.findings == []
    assert "give both ends of each transfer" in found.gaps[0]
    one_end = [{k: v for k, v in line.items() if "send" not in k} for line in SLOW_LINK]
    assert named(report(one_end)) == [("boundary", "stage 1 -> 2")]  # the other end stopped computing


def test_units_that_share_no_id_are_unpaired_and_have_no_bubble() -> None:
    found = report([line | {"unit": f"{line['unit']}-{line['stage']}"} for line in SLOW_LINK])
    assert (found.bubble, found.findings, found.status) == (None, [], "unknown")
    assert "the other end of a transfer is not in the trace" in found.gaps[0]


def test_one_stage_alone_is_split_and_has_no_bubble() -> None:
    found = report(blocking([10], units=5, arrival_ms=40))
    assert found.bubble is None
    assert named(found) == [("work", "stage 0")]


def test_the_report_fits_its_schema() -> None:
    for lines in (HEALTHY, SLOW_STAGE, STARVED):
        document = msgspec.to_builtins(report(lines))
        jsonschema.Draft202012Validator(schema_for("waits")).validate(document)


@settings(max_examples=60, deadline=None)
@given(
    compute=st.lists(st.integers(1, 80), min_size=1, max_size=5),
    units=st.integers(1, 9),
    link=st.integers(0, 60),
    arrival=st.integers(0, 200),
)
def test_of_a_whole_trace_all_time_is_accounted_for_and_nothing_is_unknown(
    compute: list[int], units: int, link: int, arrival: int
) -> None:
    found = report(blocking(compute, units, link, arrival))
    for stage, length in zip(found.stages, compute, strict=True):
        assert whole(stage) == pytest.approx(1)
        assert stage.unknown == 0
        assert stage.computing * stage.window_ns == pytest.approx(units * length * MS)
        assert all(0 <= getattr(stage, part) <= 1 for part in PARTS)
    slow = {int(name) for stage in found.stages for name in stage.by_stage}
    assert all(compute[stage] > min(compute) for stage in slow)


@settings(max_examples=60, deadline=None)
@given(
    keep=st.sets(
        st.sampled_from(["ready_ns", "receive_start_ns", "receive_end_ns", "send_start_ns", "send_end_ns"])
    ),
    lost=st.sets(st.integers(0, 35), max_size=20),
    hosts=st.sampled_from([["a", "a", "a"], ["a", "a", "b"], ["a", "b", "c"]]),
)
def test_whatever_is_missing_time_adds_up(keep: set[str], lost: set[int], hosts: list[str]) -> None:
    times = {"unit", "stage", "host", "compute_start_ns", "compute_end_ns", *keep}
    lines = blocking([20, 40, 10], link_ms=5, arrival_ms=30, hosts=hosts)
    kept = [line for number, line in enumerate(lines) if number not in lost or line["unit"] == 11]
    found = report([{name: value for name, value in line.items() if name in times} for line in kept])
    assert [whole(stage) for stage in found.stages] == [pytest.approx(1)] * 3
