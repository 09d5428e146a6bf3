"""A measured pipeline as a run of the kind that is simulated, to be drawn beside it."""

from __future__ import annotations

from fractions import Fraction

from topocheck.pipeline import schedule
from topocheck.pipeline.schedule import Action, Pipeline, Span
from topocheck.pipeline.states import Run
from topocheck.pipeline.trace import stage_times

__all__ = ["as_run"]


def as_run(run: Run) -> schedule.Run | None:
    """What each stage computed and when, in ns from the start; None where clocks of stages do not compare."""
    stages = range(len(run.trace.stages))
    times = stage_times(run.trace)
    if any(run.error(0, stage) is None for stage in stages) or min(times) <= 0:
        return None
    start, end = run.windows[0]
    numbers: dict[str, int] = {}
    for stage in run.trace.stages:
        for unit in stage.units:
            numbers.setdefault(unit.unit, len(numbers))
    rows = tuple(
        tuple(
            Span(Action(stage, state.unit[1], numbers[state.unit[0]]), state.start - start, state.end - start)
            for state in row
            if state.unit is not None
        )
        for stage, row in enumerate(run.rows)
    )
    if end <= start or not all(rows):
        return None
    pipeline = Pipeline(forward=tuple(map(Fraction, times)), microbatches=max(1, len(numbers)))
    return schedule.Run(pipeline=pipeline, rows=rows, scale=1, end=end - start)
