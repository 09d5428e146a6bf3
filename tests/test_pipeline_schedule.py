"""Orders of actions and the exact simulation of them."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real import require

from topocheck.errors import UsageError
from topocheck.pipeline.schedule import SCHEDULES, Action, Pipeline, Schedule, held, order, run


def pipeline(schedule: Schedule, stages: int, microbatches: int, chunks: int = 1) -> Pipeline:
    return Pipeline(
        forward=(Fraction(5),) * stages, microbatches=microbatches, schedule=schedule, chunks=chunks
    )


def orders(one: Pipeline) -> list[list[str]]:
    return [[str(action) for action in order(one, stage)] for stage in range(one.stages)]


@pytest.fixture(scope="module")
def torch_schedules() -> Any:
    """torch.distributed.pipelining.schedules."""
    require("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that numpy is missing
        return importlib.import_module("torch.distributed.pipelining.schedules")


class Stage:
    """A stage that computes and sends nothing and notes what the schedule asks it for."""

    has_backward = False
    device = "cpu"

    def __init__(self, stages: int, rank: int, index: int, count: int) -> None:
        self.group_size, self.group_rank, self.stage_index, self.num_stages = stages, rank, index, count
        self.is_first, self.is_last = index == 0, index == count - 1
        self.asked: list[str] = []

    def forward_one_chunk(self, microbatch: int, *_: Any, **__: Any) -> None:
        self.asked.append(f"{self.stage_index}F{microbatch}")

    def backward_one_chunk(self, microbatch: int, *_: Any, **__: Any) -> None:
        self.asked.append(f"{self.stage_index}B{microbatch}")

    def no_transfer(self, _: int) -> list[Any]:
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = no_transfer

    def perform_reduce_grad(self, _: int) -> None:
        """Nothing was computed."""


@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (2, 2), (2, 7), (4, 4), (4, 9), (8, 8), (3, 16)])
@pytest.mark.parametrize(("schedule", "name"), [("gpipe", "ScheduleGPipe"), ("1f1b", "Schedule1F1B")])
def test_a_rank_does_what_torch_makes_it_do(
    torch_schedules: Any, schedule: Schedule, name: str, sizes: tuple[int, int]
) -> None:
    stages, microbatches = sizes
    ours = orders(pipeline(schedule, stages, microbatches))
    for rank in range(stages):
        stage = Stage(stages, rank, rank, stages)
        theirs = getattr(torch_schedules, name)(stage, microbatches)
        theirs._stage_forward_initialized = True  # noqa: SLF001 - no peer to agree on shapes with
        theirs._step_microbatches()  # noqa: SLF001 - step() would cut a tensor first
        assert stage.asked == ours[rank]


@pytest.mark.parametrize("sizes", [(1, 1), (2, 2), (2, 7), (4, 4), (4, 9), (8, 8), (3, 16)])
@pytest.mark.parametrize(("schedule", "name"), [("gpipe", "ScheduleGPipe"), ("1f1b", "Schedule1F1B")])
def test_the_table_that_torch_prints_agrees(
    torch_schedules: Any, schedule: Schedule, name: str, sizes: tuple[int, int]
) -> None:
    stages, microbatches = sizes
    table = getattr(torch_schedules, name)(Stage(stages, 0, 0, stages), microbatches).pipeline_order
    ours = orders(pipeline(schedule, stages, microbatches))
    # In torch 2.13 the table of 1F1B counts the last rank's forward passes from 1; what runs does not.
    for rank in range(stages if schedule == "gpipe" else stages - 1):
        assert computed(table[rank]) == ours[rank]


@pytest.mark.parametrize("chunks", [2, 3, 4])
@pytest.mark.parametrize(
    "sizes",
    [(1, 1), (1, 3), (2, 2), (2, 6), (4, 3), (4, 4), (4, 8), (4, 10), (4, 16), (8, 8), (3, 9), (5, 2)],
)
def test_interleaved_ranks_do_what_torch_plans(
    torch_schedules: Any, sizes: tuple[int, int], chunks: int
) -> None:
    stages, microbatches = sizes
    held_here = [Stage(stages, 0, chunk * stages, stages * chunks) for chunk in range(chunks)]
    table = torch_schedules.ScheduleInterleaved1F1B(held_here, microbatches).pipeline_order
    ours = orders(pipeline("interleaved", stages, microbatches, chunks))
    assert [computed(table[rank]) for rank in range(stages)] == ours


@pytest.mark.parametrize("sizes", [(4, 9), (2, 5), (4, 11), (3, 7)])
def test_what_interleaving_refuses_torch_refuses(torch_schedules: Any, sizes: tuple[int, int]) -> None:
    stages, microbatches = sizes
    held_here = [Stage(stages, 0, chunk * stages, stages * 2) for chunk in range(2)]
    with pytest.raises(ValueError, match="multiple of the number of rounds"):
        torch_schedules.ScheduleInterleaved1F1B(held_here, microbatches)
    with pytest.raises(UsageError, match="do not divide"):
        pipeline("interleaved", stages, microbatches, 2)


def computed(table: list[Any]) -> list[str]:
    """Actions of one rank without idle steps and gradient reduction."""
    return [str(action) for action in table if action is not None and "REDUCE" not in str(action)]


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """Any pipeline that is small."""
    schedule = draw(st.sampled_from(SCHEDULES))
    stages, chunks = draw(st.integers(1, 6)), draw(st.integers(2, 4)) if schedule == "interleaved" else 1
    microbatches = draw(st.integers(1, 12))
    if schedule == "interleaved":
        microbatches -= microbatches % max(1, microbatches // stages)
    time = st.fractions(min_value=Fraction(1, 7), max_value=50, max_denominator=9)
    return Pipeline(
        forward=tuple(draw(time) for _ in range(stages)),
        microbatches=microbatches,
        schedule=schedule,
        chunks=chunks,
        backward=draw(st.sampled_from([Fraction(1, 3), Fraction(1), Fraction(2), Fraction(17, 4)])),
    )


@given(pipelines())
@settings(max_examples=100, deadline=None)
def test_each_microbatch_crosses_each_virtual_stage_once_and_in_order(one: Pipeline) -> None:
    done = run(one)
    spans = {span.action: span for row in done.rows for span in row}
    last = one.stages * one.chunks - 1
    passes = (False,) if one.schedule == "forward" else (False, True)
    assert set(spans) == {
        Action(stage, backward, number)
        for stage in range(last + 1)
        for backward in passes
        for number in range(one.microbatches)
    }
    assert sum(map(len, done.rows)) == len(spans) == one.actions
    for action, span in spans.items():
        if action.backward:
            before = (
                action._replace(stage=action.stage + 1)
                if action.stage < last
                else action._replace(backward=False)
            )
        elif action.stage:
            before = action._replace(stage=action.stage - 1)
        else:
            continue
        assert spans[before].end <= span.start


@given(pipelines())
@settings(max_examples=100, deadline=None)
def test_a_stage_does_one_thing_at_a_time_and_never_waits_without_reason(one: Pipeline) -> None:
    done = run(one)
    ends = {span.end for row in done.rows for span in row}
    for stage, row in enumerate(done.rows):
        assert all(before.end <= after.start for before, after in pairwise(row))
        assert all(span.start == 0 or span.start in ends for span in row)
        busy = Fraction(sum(span.end - span.start for span in row), done.scale)
        assert busy == one.forward[stage] * one.factor * one.microbatches


@given(pipelines())
@settings(max_examples=100, deadline=None)
def test_activations_held_are_those_of_the_order(one: Pipeline) -> None:
    for stage in range(one.stages):
        most = now = 0
        for action in order(one, stage):
            now += -1 if action.backward else 1
            most = max(most, now)
        assert held(one, stage) == (0 if one.schedule == "forward" else Fraction(most, one.chunks))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forward": ()}, "number of stages must be from 1"),
        ({"forward": (Fraction(1),) * 10_001}, "number of stages must be from 1 to 10,000"),
        ({"forward": (Fraction(1), Fraction(0))}, "above zero"),
        ({"forward": (Fraction(-1),)}, "above zero"),
        ({"backward": Fraction(0)}, "above zero"),
        ({"microbatches": 0}, "microbatches must be from 1"),
        ({"microbatches": 10**10}, "microbatches must be from 1"),
        ({"chunks": 2}, "belongs to interleaved"),
        ({"schedule": "interleaved"}, "two virtual stages or more"),
        ({"schedule": "interleaved", "chunks": 65}, "virtual stages must be from 1 to 64"),
    ],
)
def test_what_no_pipeline_can_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(pipeline("forward", 4, 8), **change)


def test_a_simulation_is_bounded() -> None:
    with pytest.raises(UsageError, match="more than the 500,000 that are simulated"):
        run(pipeline("1f1b", 100, 2501))
