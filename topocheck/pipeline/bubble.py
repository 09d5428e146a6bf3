"""How long a pipeline takes and how much of it its stages wait: the bubble.

Equal stages, forward only: total (m + p - 1) t, occupancy m / (m + p - 1), idle (p - 1) / (m + p - 1).
Where a closed form holds it is used, whatever the sizes; else the schedule is simulated, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from topocheck.errors import UsageError
from topocheck.pipeline.schedule import MOST_ACTIONS, Pipeline, run

__all__ = ["Bubble", "assumptions", "closed_total", "measure"]


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
        "communication, contention or launching."
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
        if pipeline.chunks > 1:
            yield "Each stage's time divides evenly over its virtual stages."
        yield "Figures of training do not carry over to serving."
        return
    yield "The first result is one forward pass, not time to first token: queue, prefill, sampling are on top."
    yield (
        "Future tokens of one sequence are not microbatches: in decoding one sequence fills one stage at a "
        "time, and other requests must fill the rest."
    )
    yield "Speculative decoding is outside this model."
