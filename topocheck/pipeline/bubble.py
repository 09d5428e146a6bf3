"""How long a pipeline takes and how much of it its stages wait: the bubble.

Equal stages, forward only: total (m + p - 1) t, occupancy m / (m + p - 1), idle (p - 1) / (m + p - 1).
Where a closed form holds it is used, whatever the sizes; else the schedule is simulated, exactly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import msgspec

from topocheck.errors import UsageError
from topocheck.pipeline.schedule import MOST_ACTIONS, Pipeline, held, run

__all__ = [
    "SCHEMA",
    "Bubble",
    "BubbleReport",
    "Compared",
    "assumptions",
    "closed_total",
    "compare",
    "describe",
    "measure",
]

SCHEMA = "topocheck.bubble/1"

Number = int | float
"""A time as JSON has it: whole where it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubble:
    """Time and waiting of one pipeline, in the unit of its times."""

    pipeline: Pipeline
    total: Fraction
    """From the start to the end of the last action."""
    method: Literal["closed form", "simulated"]

    @property
    def busy(self) -> Fraction:
        """Time taken by work, all stages together."""
        return self.serial

    @property
    def serial(self) -> Fraction:
        """Time with one microbatch after the other: no two stages at work at once."""
        return sum(self.pipeline.forward) * self.pipeline.factor * self.pipeline.microbatches

    @property
    def occupancy(self) -> Fraction:
        """Part of the stages' time in which they have work. Says nothing about their units' use."""
        return self.busy / (self.total * self.pipeline.stages)

    @property
    def idle(self) -> Fraction:
        """Part of the stages' time in which they wait: fill, drain, and for slower stages."""
        return 1 - self.occupancy

    @property
    def imbalance(self) -> Fraction:
        """Idle part that is left with ever more microbatches, because stages are uneven."""
        forward = self.pipeline.forward
        return 1 - sum(forward) / (max(forward) * self.pipeline.stages)

    @property
    def first(self) -> Fraction | None:
        """Forward only: when the first result is there: one forward pass, not time to first token."""
        return Fraction(sum(self.pipeline.forward)) if self.pipeline.schedule == "forward" else None

    @property
    def interval(self) -> Fraction | None:
        """Forward only: time from result to result: the slowest stage's, whatever the input."""
        return max(self.pipeline.forward) if self.pipeline.schedule == "forward" else None

    @property
    def slots(self) -> int | None:
        """Forward only, equal stages: stages x steps, busy or idle; None where there are no equal slots."""
        if self.pipeline.schedule != "forward" or not self.pipeline.even:
            return None
        return self.pipeline.stages * (self.pipeline.microbatches + self.pipeline.stages - 1)

    @property
    def busy_slots(self) -> int | None:
        """Slots with work."""
        return None if self.slots is None else self.pipeline.stages * self.pipeline.microbatches


def measure(pipeline: Pipeline) -> Bubble:
    """The bubble. Raises UsageError where no closed form holds and the simulation would be too long."""
    total = closed_total(pipeline)
    if total is not None:
        return Bubble(pipeline=pipeline, total=total, method="closed form")
    if pipeline.actions > MOST_ACTIONS:
        raise UsageError(
            f"{pipeline.schedule} with {'equal' if pipeline.even else 'uneven'} stages has no closed form "
            f"here, and {pipeline.actions:,} actions are more than the {MOST_ACTIONS:,} that are simulated: "
            "give fewer stages or microbatches"
        )
    return Bubble(pipeline=pipeline, total=run(pipeline).total, method="simulated")


def closed_total(pipeline: Pipeline) -> Fraction | None:
    """Total time without a simulation; None where no closed form is known.

    Fill and drain (forward, GPipe): the first microbatch crosses all stages, then the slowest stage sets the
    pace, forward and backward. 1F1B takes as long as GPipe if the stages are equal. Interleaved, if there are
    also at least as many microbatches as stages: fill and drain shrink to those of one chunk.
    """
    forward, count, factor = pipeline.forward, pipeline.microbatches, pipeline.factor
    if pipeline.schedule in {"forward", "gpipe"} or (pipeline.schedule == "1f1b" and pipeline.even):
        return (sum(forward) + (count - 1) * max(forward)) * factor
    if pipeline.schedule == "interleaved" and pipeline.even and count >= pipeline.stages:
        return (count + Fraction(pipeline.stages - 1, pipeline.chunks)) * forward[0] * factor
    return None


def assumptions(pipeline: Pipeline) -> Iterator[str]:
    """What the numbers rest on and what they do not say, a sentence each."""
    yield (
        "All microbatches are ready at the start, a stage takes one at a time, and no time goes to "
        "communication, contention or kernel launches."
    )
    yield (
        "Idle time by fill and drain is a bound of this model, not a forecast of the utilisation that "
        "nvidia-smi shows."
    )
    yield (
        "Occupancy (a stage has work) and effective use (its units compute) are two measures; effective use "
        "is not measured here."
    )
    if pipeline.schedule != "forward":
        yield (
            f"A backward pass takes {float(pipeline.backward):g} times its forward pass; gradient reduction "
            "and the optimiser step are not counted."
        )
        if pipeline.schedule == "1f1b" and pipeline.microbatches < pipeline.stages:
            yield "torch.distributed.pipelining refuses 1F1B with fewer microbatches than stages."
        if pipeline.chunks > 1:
            yield "Each stage's time divides evenly over its virtual stages."
        yield "Figures of training do not carry over to serving."
        return
    yield (
        "The first result is one forward pass, not time to first token: queue, input, prefill, sampling and "
        "return come on top."
    )
    yield (
        "Future tokens of one sequence are not microbatches: in decoding one sequence fills one stage at a "
        "time, and other requests must fill the rest."
    )
    yield "Speculative decoding is outside this model."


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule of training with the same stages and microbatches."""

    schedule: str
    """Its name."""
    virtual_stages: int
    """Virtual stages of each stage."""
    total: Number
    """Time from the first pass to the last."""
    idle: float
    """Idle part of the stages' time."""
    held: Number
    """Most microbatches whose activations the first stage holds at once."""


class BubbleReport(msgspec.Struct, frozen=True, kw_only=True):
    """A bubble as JSON."""

    schema: str
    """`topocheck.bubble/` and the major version."""
    schedule: str
    """`forward` without backward passes, else the schedule of training."""
    stages: int
    """Pipeline stages."""
    microbatches: int
    """Microbatches of one step."""
    virtual_stages: int
    """Virtual stages of each stage: above 1 for the interleaved schedule alone."""
    backward_factor: float | None
    """Backward time as a multiple of forward time; None without backward passes."""
    time_unit: Literal["ns", "slot"]
    """Unit of all times; a slot is one microbatch's forward pass in one stage, where no time was given."""
    stage_times: list[Number]
    """Time of one microbatch's forward pass in each stage."""
    total: Number
    """Time from the first pass to the last."""
    serial: Number
    """Time with one microbatch after the other."""
    first_result: Number | None
    """One forward pass, not time to first token; None in training."""
    interval: Number | None
    """Time from result to result; None in training."""
    slots: int | None
    """Stages x steps; None in training and where stages are uneven."""
    busy_slots: int | None
    """Slots in which a stage has work; None where slots is."""
    occupancy: float
    """Part of the stages' time in which they have work."""
    effective_use: None
    """Part of the time in which the units of a GPU compute: not measured here."""
    idle: float
    """Part of the stages' time in which they wait."""
    imbalance: float
    """Idle part that no number of microbatches takes away, because stages are uneven."""
    method: Literal["closed form", "simulated"]
    """How the numbers were found."""
    compared: list[Compared]
    """Schedules of training beside each other; empty for forward only."""
    sources: dict[str, str]
    """Where each size comes from."""
    notes: list[str]
    """Sizes that another source says otherwise."""
    assumptions: list[str]
    """What was assumed."""


def describe(
    bubble: Bubble, *, timed: bool, sources: dict[str, str], notes: list[str], compared: list[Bubble]
) -> BubbleReport:
    """The bubble as a document; `timed` says that times were given, in ns."""
    pipeline = bubble.pipeline
    return BubbleReport(
        schema=SCHEMA,
        schedule=pipeline.schedule,
        stages=pipeline.stages,
        microbatches=pipeline.microbatches,
        virtual_stages=pipeline.chunks,
        backward_factor=None if pipeline.schedule == "forward" else float(pipeline.backward),
        time_unit="ns" if timed else "slot",
        stage_times=list(map(_number, pipeline.forward)),
        total=_number(bubble.total),
        serial=_number(bubble.serial),
        first_result=None if bubble.first is None else _number(bubble.first),
        interval=None if bubble.interval is None else _number(bubble.interval),
        slots=bubble.slots,
        busy_slots=bubble.busy_slots,
        occupancy=float(bubble.occupancy),
        effective_use=None,
        idle=float(bubble.idle),
        imbalance=float(bubble.imbalance),
        method=bubble.method,
        compared=[_compared(one) for one in compared],
        sources=sources,
        notes=notes,
        assumptions=list(assumptions(pipeline)),
    )


def compare(bubble: Bubble) -> list[Bubble]:
    """The schedules of training with the same stages and microbatches; without those that refuse."""
    pipeline = bubble.pipeline
    if pipeline.schedule == "forward":
        return []
    chunks = max(pipeline.chunks, 2)
    found = []
    for schedule in ("gpipe", "1f1b", "interleaved"):
        if schedule == pipeline.schedule:
            found.append(bubble)
            continue
        with contextlib.suppress(UsageError):  # sizes that this schedule does not take
            split = chunks if schedule == "interleaved" else 1
            found.append(measure(replace(pipeline, schedule=schedule, chunks=split)))
    return found


def _compared(bubble: Bubble) -> Compared:
    pipeline = bubble.pipeline
    return Compared(
        schedule=pipeline.schedule,
        virtual_stages=pipeline.chunks,
        total=_number(bubble.total),
        idle=float(bubble.idle),
        held=_number(held(pipeline, 0)),
    )


def _number(value: Fraction) -> Number:
    return int(value) if value.denominator == 1 else float(value)
