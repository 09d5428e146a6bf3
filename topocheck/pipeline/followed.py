"""One unit of work followed through the stages of a trace: when its input was there, when it was computed.

Times are ms from the first moment of the unit. Stages whose clocks do not compare with the first one's have
none: two hosts' times say nothing beside each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from topocheck.errors import UsageError
from topocheck.pipeline.clocks import Alignment, align
from topocheck.pipeline.trace import StageTrace, Trace
from topocheck.pipeline.trace import Unit as TracedUnit
from topocheck.record import NOT_MEASURED, Interval, Unit

__all__ = ["follow"]

Moment = tuple[int, str, int | None, int | None]
"""Stage, what it did, and start and end in ns on the first stage's clock."""


def follow(trace: Trace, unit: str | None = None) -> Unit:
    """The intervals of one unit; unless one is named, of one in the middle that all stages computed.

    Raises UsageError if no stage computed it, InputError for clocks that cannot be.
    """
    chosen = unit if unit is not None else _middle(trace)
    if chosen is None:
        raise UsageError("no unit of the trace was computed in every stage: name one with --unit")
    alignment = align(trace)
    moments = [
        moment
        for stage in trace.stages
        for traced in stage.units
        if traced.unit == chosen
        for moment in _moments(stage, traced, alignment)
    ]
    if not moments:
        raise UsageError(f"--unit {chosen[:60]}: no stage of the trace computed it")
    first = min((start for *_, start, _ in moments if start is not None), default=0)
    return Unit(id=chosen, intervals=tuple(_interval(moment, first) for moment in moments))


def _middle(trace: Trace) -> str | None:
    """A unit in the middle, neither warming up nor draining, that all stages computed."""
    seen = Counter(unit for stage in trace.stages for unit in dict.fromkeys(u.unit for u in stage.units))
    whole = [unit for unit, count in seen.items() if count == len(trace.stages)]
    return whole[len(whole) // 2] if whole else None


def _moments(stage: StageTrace, unit: TracedUnit, alignment: Alignment) -> Iterator[Moment]:
    """What one stage did with the unit, in the order of an inference: receive, ready, compute, send."""
    shift = alignment.shifts.get(stage.clock)
    suffix = ", backward" if unit.backward else ""
    ready = unit.ready_ns if unit.ready_ns is not None else unit.receive_end_ns
    spans = (
        ("receive", unit.receive_start_ns, unit.receive_end_ns),
        ("input ready", ready, ready),
        ("compute", unit.compute_start_ns, unit.compute_end_ns),
        ("send", unit.send_start_ns, unit.send_end_ns),
    )
    for kind, *times in spans:
        if any(time is not None for time in times):
            start, end = (None if time is None or shift is None else time + shift for time in times)
            yield stage.stage, kind + suffix, start, end


def _interval(moment: Moment, first: int) -> Interval:
    stage, kind, start, end = moment
    return Interval(stage=stage, kind=kind, start_ms=_ms(start, first), end_ms=_ms(end, first))


def _ms(time: int | None, first: int) -> float | Literal["not measured"]:
    return NOT_MEASURED if time is None else round((time - first) / 1e6, 6)
