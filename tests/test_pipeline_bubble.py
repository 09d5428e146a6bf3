"""Closed forms of the bubble against hand calculations and the simulation."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import UsageError
from topocheck.pipeline.bubble import (
    Bubble,
    BubbleReport,
    assumptions,
    closed_total,
    compare,
    describe,
    measure,
)
from topocheck.pipeline.schedule import Pipeline, Schedule, run
from topocheck.pipeline.sweep import percent

moments = st.fractions(min_value=Fraction(1, 9), max_value=100, max_denominator=12)
factors = st.sampled_from([Fraction(1, 3), Fraction(1), Fraction(2), Fraction(13, 4)])


def even(stages: int, microbatches: int, time: int = 5, **more: Any) -> Pipeline:
    return Pipeline(forward=(Fraction(time),) * stages, microbatches=microbatches, **more)


def test_four_stages_of_5_ms_give_the_first_result_after_20_ms_and_all_four_after_35() -> None:
    found = measure(even(4, 4))
    times = [found.first, found.interval, found.total, found.serial]
    assert times == [Fraction(20), Fraction(5), Fraction(35), Fraction(80)]
    assert (found.slots, found.busy_slots) == (28, 16)
    assert found.idle == Fraction(12, 28)
    assert found.occupancy == Fraction(16, 28)
    last = run(found.pipeline).rows[-1]
    assert [span.end for span in last] == [20, 25, 30, 35]


@pytest.mark.parametrize(
    ("stages", "microbatches", "idle"),
    [
        (4, 4, "42.9 %"),
        (4, 8, "27.3 %"),
        (4, 32, "8.6 %"),
        (8, 32, "17.9 %"),
        (1, 5, "0.0 %"),
        (4, 1, "75.0 %"),
    ],
)
def test_the_idle_part_is_that_of_the_hand_calculation(stages: int, microbatches: int, idle: str) -> None:
    assert percent(measure(even(stages, microbatches)).idle) == idle


@pytest.mark.parametrize("microbatches", [1, 2, 7, 1000])
def test_stages_of_4_11_and_5_ms_give_a_result_every_11_ms_whatever_the_input(microbatches: int) -> None:
    found = measure(Pipeline(forward=tuple(map(Fraction, (4, 11, 5))), microbatches=microbatches))
    assert found.interval == 11
    assert found.total == 20 + 11 * (microbatches - 1)
    assert found.imbalance == 1 - Fraction(20, 33)
    ends = [span.end for span in run(found.pipeline).rows[-1]]
    assert ends == [20 + 11 * number for number in range(microbatches)]


@given(st.integers(1, 8), st.integers(1, 20), moments)
@settings(max_examples=100, deadline=None)
def test_fill_and_drain_follow_the_closed_form(stages: int, microbatches: int, time: Fraction) -> None:
    found = measure(Pipeline(forward=(time,) * stages, microbatches=microbatches))
    done = run(found.pipeline)
    assert found.total == done.total == (microbatches + stages - 1) * time
    assert found.occupancy == Fraction(microbatches, microbatches + stages - 1)
    assert found.idle == Fraction(stages - 1, microbatches + stages - 1)
    assert found.imbalance == 0
    assert done.rows[-1][0].end == found.first * done.scale if found.first else False


@given(
    st.lists(moments, min_size=1, max_size=7),
    st.integers(1, 15),
    st.sampled_from(["forward", "gpipe"]),
    factors,
)
@settings(max_examples=100, deadline=None)
def test_uneven_stages_follow_the_closed_form(
    forward: list[Fraction], microbatches: int, schedule: Schedule, backward: Fraction
) -> None:
    one = Pipeline(forward=tuple(forward), microbatches=microbatches, schedule=schedule, backward=backward)
    assert closed_total(one) == run(one).total


@given(st.integers(1, 7), st.integers(1, 20), moments, factors)
@settings(max_examples=100, deadline=None)
def test_1f1b_with_equal_stages_takes_as_long_as_gpipe(
    stages: int, microbatches: int, time: Fraction, backward: Fraction
) -> None:
    forward = (time,) * stages
    one = Pipeline(forward=forward, microbatches=microbatches, schedule="1f1b", backward=backward)
    assert closed_total(one) == run(one).total == (microbatches + stages - 1) * time * (1 + backward)


@given(st.integers(1, 6), st.integers(0, 14), st.integers(2, 4), moments, factors)
@settings(max_examples=100, deadline=None)
def test_interleaving_divides_fill_and_drain_by_the_virtual_stages(
    stages: int, more: int, chunks: int, time: Fraction, backward: Fraction
) -> None:
    rounds = (stages + more) // stages
    one = Pipeline(
        forward=(time,) * stages,
        microbatches=(stages + more) // rounds * rounds,
        schedule="interleaved",
        chunks=chunks,
        backward=backward,
    )
    found = measure(one)
    assert found.method == "closed form"
    assert found.total == run(one).total
    assert found.idle == Fraction(stages - 1, chunks * one.microbatches + stages - 1)


@pytest.mark.parametrize(
    "one",
    [
        Pipeline(forward=(Fraction(1), Fraction(3)), microbatches=4, schedule="1f1b"),
        Pipeline(forward=(Fraction(1), Fraction(3)), microbatches=4, schedule="interleaved", chunks=2),
        even(4, 2, schedule="interleaved", chunks=2),
    ],
)
def test_what_has_no_closed_form_is_simulated(one: Pipeline) -> None:
    found = measure(one)
    assert found.method == "simulated"
    assert found.total == run(one).total
    assert found.total >= sum(one.forward) * one.factor
    assert found.total >= max(one.forward) * one.factor * one.microbatches


def test_sizes_beyond_simulation_have_their_closed_form_or_are_refused() -> None:
    assert measure(even(1000, 10**9)).idle == Fraction(999, 10**9 + 999)
    assert measure(even(1000, 10**6, schedule="1f1b")).total == (10**6 + 999) * 15
    uneven = (Fraction(1),) * 999 + (Fraction(2),)
    with pytest.raises(UsageError, match="uneven stages has no closed form"):
        measure(Pipeline(forward=uneven, microbatches=10**6, schedule="1f1b"))


def test_schedules_of_training_are_compared_by_bubble_and_by_what_they_hold() -> None:
    compared = describe_json(measure(even(4, 8, schedule="1f1b")))["compared"]
    assert [one["schedule"] for one in compared] == ["gpipe", "1f1b", "interleaved"]
    assert [round(one["idle"], 4) for one in compared] == [0.2727, 0.2727, 0.1579]
    assert [one["held"] for one in compared] == [8, 4, 5.5]


def test_a_schedule_that_refuses_the_sizes_is_not_compared() -> None:
    assert [one.pipeline.schedule for one in compare(measure(even(4, 9, schedule="gpipe")))] == [
        "gpipe",
        "1f1b",
    ]
    assert compare(measure(even(4, 9))) == []


def test_serving_and_training_state_what_they_assume() -> None:
    serving, training = (" ".join(assumptions(even(4, 2, schedule=name))) for name in ("forward", "1f1b"))
    for text in (
        "nvidia-smi",
        "not microbatches",
        "Speculative decoding",
        "not time to first token",
        "two measures",
    ):
        assert text in serving
    for text in (
        "nvidia-smi",
        "two measures",
        "2 times its forward pass",
        "do not carry over",
        "refuses 1F1B",
    ):
        assert text in training


def test_times_in_json_are_whole_where_they_are_whole_and_unmeasured_use_is_null() -> None:
    found = describe_json(measure(Pipeline(forward=(Fraction(1, 2), Fraction(3)), microbatches=2)))
    assert found["stage_times"] == [0.5, 3]
    assert found["slots"] is None
    assert found["effective_use"] is None
    assert found["time_unit"] == "ns"


def describe_json(found: Bubble) -> Any:
    document = describe(found, timed=True, sources={}, notes=[], compared=compare(found))
    encoded = msgspec.json.encode(document)
    assert msgspec.json.decode(encoded, type=BubbleReport) == document
    return json.loads(encoded)
