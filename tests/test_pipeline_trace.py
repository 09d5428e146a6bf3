"""Units of work of a measured pipeline, and what times cannot be."""

from __future__ import annotations

import pytest
from pipeline_runs import MS, Line, as_text, blocking, read, training

from topocheck.errors import InputError
from topocheck.pipeline.trace import stage_times

UNIT: Line = {"unit": 1, "stage": 0, "compute_start_ns": 10, "compute_end_ns": 20}


def test_stage_times_are_medians_on_a_unit() -> None:
    lines = blocking([4, 11, 5], units=5)
    lines[0]["compute_start_ns"] += 3 * MS  # one unit is small
    assert stage_times(read(as_text(lines))) == (4 * MS, 11 * MS, 5 * MS)


def test_forward_and_backward_pass_of_a_unit_count_together() -> None:
    assert stage_times(read(as_text(training([10, 20])))) == (30 * MS, 60 * MS)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"compute_start_ns": -1}, "u:1: unit '1' of stage 0: compute_start is negative (-1 ns)"),
        ({"compute_end_ns": 9}, "unit '1' of stage 0: compute_end is 1 ns before compute_start"),
        ({"send_start_ns": 15, "send_end_ns": 30}, "send_start is 5 ns before compute_end"),
        ({"send_start_ns": 30, "send_end_ns": 25}, "send_end is 5 ns before send_start"),
        ({"receive_start_ns": 5, "receive_end_ns": 12}, "compute_start is 2 ns before receive_end"),
        ({"ready_ns": 11}, "ready (11 ns) is not between 0 and compute_start"),
        ({"pass": "backward", "compute_end_ns": 1}, "unit '1' of stage 0 (backward): compute_end"),
    ],
)
def test_times_that_cannot_be_are_told_with_their_line(changes: Line, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        read(as_text([UNIT | changes]), "u")
    assert sentence in str(error.value)
    assert error.value.line == 1


def test_times_that_run_in_a_circle_are_refused() -> None:
    sender = UNIT | {"send_start_ns": 30, "send_end_ns": 31}
    receiver = {"unit": 1, "stage": 1, "receive_start_ns": 1, "receive_end_ns": 5}
    with pytest.raises(InputError, match="25 ns before stage 0 sends it: the times run in a circle"):
        read(as_text([sender, receiver | {"compute_start_ns": 6, "compute_end_ns": 7}]))
    with pytest.raises(InputError, match="14 ns before stage 0 sends it"):
        read(as_text([UNIT, {"unit": 1, "stage": 1, "compute_start_ns": 6, "compute_end_ns": 7}]))


def test_of_two_clocks_no_circle_is_concluded() -> None:
    lines = blocking([5, 5], units=3, hosts=["blue-1", "blue-2"])
    for line in lines:
        if line["stage"]:
            line |= {name: value - 900 * MS for name, value in line.items() if name.endswith("_ns")}
    assert len(read(as_text(lines)).stages) == 2


@pytest.mark.parametrize(
    ("stages", "sentence"), [([0, 1, 3], "has stage 3 and no stage 2"), ([1], "has stage 1 and no stage 0")]
)
def test_a_missing_stage_is_named(stages: list[int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read(as_text([UNIT | {"stage": stage} for stage in stages]))
