"""Which stage computes which microbatch in which order, and when.

Orders are those of torch.distributed.pipelining 2.13 (schedules.py). Times are exact: whole ticks, never
floats. No communication, no contention, all microbatches ready at the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Literal, NamedTuple, get_args

from topocheck.errors import InternalError, UsageError

__all__ = [
    "MOST_ACTIONS",
    "MOST_CHUNKS",
    "MOST_MICROBATCHES",
    "MOST_STAGES",
    "SCHEDULES",
    "Action",
    "Pipeline",
    "Run",
    "Schedule",
    "Span",
    "held",
    "order",
    "run",
]

Schedule = Literal["forward", "gpipe", "1f1b", "interleaved"]

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
"""Forward only (serving), and three schedules of training."""

MOST_STAGES = 10_000
MOST_MICROBATCHES = 1_000_000_000
MOST_CHUNKS = 64
MOST_ACTIONS = 500_000
"""Actions that are simulated, some seconds of work. Closed forms know no such bound."""


class Action(NamedTuple):
    """One stage's work on one microbatch; as text in the notation of torch: `3F0`, `0B2`."""

    stage: int
    """Virtual stage: chunk c of stage s is c * stages + s."""
    backward: bool
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{'B' if self.backward else 'F'}{self.microbatch}"


class Span(NamedTuple):
    """When an action ran, in ticks."""

    action: Action
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline and what it is given to do. Raises UsageError for what no pipeline can be."""

    forward: tuple[Fraction, ...]
    """Time of one microbatch's forward pass in each stage, in any one unit."""
    microbatches: int
    schedule: Schedule = "forward"
    chunks: int = 1
    """Virtual stages of each stage, all equal: above 1 for the interleaved schedule alone."""
    backward: Fraction = Fraction(2)
    """Time of a backward pass as a multiple of the forward pass; of no use with `forward`."""

    def __post_init__(self) -> None:
        _within("the number of stages", self.stages, MOST_STAGES)
        _within("the number of microbatches", self.microbatches, MOST_MICROBATCHES)
        _within("the number of virtual stages", self.chunks, MOST_CHUNKS)
        if min(self.forward) <= 0 or self.backward <= 0:
            raise UsageError("the time of a stage must be above zero")
        if (self.schedule == "interleaved") != (self.chunks > 1):
            raise UsageError(
                "the interleaved schedule needs two virtual stages or more in each stage (--virtual 2)"
                if self.schedule == "interleaved"
                else f"the schedule {self.schedule} has one chunk a stage: --virtual belongs to interleaved"
            )
        if self.schedule == "interleaved" and self.microbatches % self.rounds:
            raise UsageError(
                f"interleaved 1F1B with {self.stages} stages runs {self.rounds} rounds, and "
                f"{self.microbatches} microbatches do not divide by {self.rounds}: "
                f"give for instance {-(-self.microbatches // self.stages) * self.stages}"
            )

    @property
    def stages(self) -> int:
        """Stages, each one rank."""
        return len(self.forward)

    @property
    def even(self) -> bool:
        """All stages take the same time."""
        return min(self.forward) == max(self.forward)

    @property
    def rounds(self) -> int:
        """Rounds of the interleaved schedule: number_of_rounds of ScheduleInterleaved1F1B."""
        return max(1, self.microbatches // self.stages)

    @property
    def actions(self) -> int:
        """Actions in all."""
        passes = 1 if self.schedule == "forward" else 2
        return self.stages * self.microbatches * self.chunks * passes

    @property
    def factor(self) -> Fraction:
        """Work on a microbatch as a multiple of its forward pass."""
        return Fraction(1) if self.schedule == "forward" else 1 + self.backward


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What each stage did, and when."""

    pipeline: Pipeline
    rows: tuple[tuple[Span, ...], ...]
    """Spans of each stage, in their order."""
    scale: int
    """Ticks in one unit of the pipeline's times."""
    end: int
    """Tick at which the last action ended."""

    @property
    def total(self) -> Fraction:
        """Time from start to end, in the pipeline's unit."""
        return Fraction(self.end, self.scale)


def _within(what: str, number: int, most: int) -> None:
    if not 1 <= number <= most:
        raise UsageError(f"{what} must be from 1 to {most:,}, not {number:,}")


def order(pipeline: Pipeline, stage: int) -> Iterator[Action]:
    """Actions of one stage in the order in which it takes them."""
    count = pipeline.microbatches
    if pipeline.schedule == "interleaved":
        return _interleaved(pipeline, stage)
    forwards = (Action(stage, backward=False, microbatch=number) for number in range(count))
    backwards = (Action(stage, backward=True, microbatch=number) for number in range(count))
    if pipeline.schedule == "forward":
        return forwards
    return _one_by_one(forwards, backwards, _warmup(pipeline, stage), backward_first=True)


def _warmup(pipeline: Pipeline, stage: int) -> int:
    """Forward passes before the first backward pass is due: _step_microbatches and _get_warmup_ops."""
    count, left = pipeline.microbatches, pipeline.stages - stage
    if pipeline.schedule == "1f1b":
        return min(count, left)
    if pipeline.schedule == "interleaved":
        batch = count // pipeline.rounds
        return min(count * pipeline.chunks, (pipeline.chunks - 1) * batch + 2 * (left - 1))
    return count


def _interleaved(pipeline: Pipeline, stage: int) -> Iterator[Action]:
    """ScheduleInterleaved1F1B: each chunk takes as many microbatches as a round has, then the next chunk."""
    stages, chunks, batch = pipeline.stages, pipeline.chunks, pipeline.microbatches // pipeline.rounds
    work = pipeline.microbatches * chunks

    def passes(*, backward: bool) -> Iterator[Action]:
        for step in range(work):
            chunk = step // batch % chunks
            held_by = (chunks - 1 - chunk if backward else chunk) * stages + stage
            yield Action(held_by, backward, step // (batch * chunks) * batch + step % batch)

    return _one_by_one(
        passes(backward=False), passes(backward=True), _warmup(pipeline, stage), backward_first=False
    )


def _one_by_one(
    forwards: Iterator[Action], backwards: Iterator[Action], warmup: int, *, backward_first: bool
) -> Iterator[Action]:
    """`warmup` forwards, then one backward and one forward in turn, then the backwards that are left."""
    for _ in range(warmup):
        yield next(forwards)
    for forward in forwards:
        backward = next(backwards)
        yield from (backward, forward) if backward_first else (forward, backward)
    yield from backwards


def held(pipeline: Pipeline, stage: int) -> Fraction:
    """Most microbatches whose activations a stage holds at once for backward passes to come."""
    if pipeline.schedule == "forward":
        return Fraction(0)
    most = _warmup(pipeline, stage)
    if pipeline.schedule == "interleaved":  # a forward pass comes first in each pair
        most = min(most + 1, pipeline.microbatches * pipeline.chunks)
    return Fraction(most, pipeline.chunks)


def run(pipeline: Pipeline) -> Run:
    """Simulate. Raises UsageError above MOST_ACTIONS, InternalError if an order blocks itself."""
    if pipeline.actions > MOST_ACTIONS:
        raise UsageError(
            f"{pipeline.actions:,} actions are more than the {MOST_ACTIONS:,} that are simulated: give fewer "
            "stages or microbatches"
        )
    durations, scale = _ticks(pipeline)
    orders = [list(order(pipeline, stage)) for stage in range(pipeline.stages)]
    rows: list[list[Span]] = [[] for _ in orders]
    ended: dict[Action, int] = {}
    waiting: dict[Action, int] = {}
    ready = list(range(pipeline.stages))
    while ready:
        stage = ready.pop()
        row = rows[stage]
        while len(row) < len(orders[stage]):
            action = orders[stage][len(row)]
            needed = _needed(action, pipeline.stages * pipeline.chunks - 1)
            if needed is not None and needed not in ended:
                waiting[needed] = stage
                break
            start = max(row[-1].end if row else 0, ended[needed] if needed else 0)
            end = ended[action] = start + durations[stage][action.backward]
            row.append(Span(action, start, end))
            if action in waiting:
                ready.append(waiting.pop(action))
    if waiting:
        raise InternalError(f"the {pipeline.schedule} order blocks itself at {next(iter(waiting))}")
    last = max(row[-1].end for row in rows)
    return Run(pipeline=pipeline, rows=tuple(map(tuple, rows)), scale=scale, end=last)


def _needed(action: Action, last: int) -> Action | None:
    """What must have ended before; None for the first stage's forward pass."""
    if action.backward:
        return Action(min(action.stage + 1, last), action.stage < last, action.microbatch)
    return Action(action.stage - 1, backward=False, microbatch=action.microbatch) if action.stage else None


def _ticks(pipeline: Pipeline) -> tuple[list[tuple[int, int]], int]:
    """Forward and backward time of one chunk of each stage in whole ticks, and the ticks of one unit."""
    times = [
        (time / pipeline.chunks, time * pipeline.backward / pipeline.chunks) for time in pipeline.forward
    ]
    scale = lcm(*(value.denominator for pair in times for value in pair))
    return [(int(forward * scale), int(backward * scale)) for forward, backward in times], scale
