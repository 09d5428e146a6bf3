"""A measured run of a pipeline: which stage worked on which unit, and when.

Times are whole nanoseconds of the clock of the machine that took them; two stages compare only where
`topocheck.pipeline.clocks` says how their clocks stand to each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Literal

import msgspec

from topocheck.errors import InputError

__all__ = [
    "MOST_STAGE_UNITS",
    "Key",
    "StageTrace",
    "Trace",
    "Unit",
    "arrival_ns",
    "assembled",
    "departure_ns",
    "stage_times",
]

MOST_STAGE_UNITS = 5_000
"""Units of each stage that are kept; of a longer trace the first ones are used, and that is said."""

Key = tuple[str, bool]
"""A unit's id and whether it is the backward pass: what a transfer is known by at both of its ends."""


class Unit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One unit of work (an iteration or a microbatch) in one stage, and when what happened to it."""

    unit: str
    """Iteration or microbatch id, the same in all stages."""
    stage: int
    """Pipeline stage, from 0."""
    backward: bool = False
    """The backward pass; False is the forward pass."""
    ready_ns: int | None = None
    """When the input was there to be worked on, where nothing is received: arrival at the first stage."""
    receive_from: int | None = None
    """Stage that sends its input; None where it has none."""
    receive_start_ns: int | None = None
    """When the stage began to wait for the input."""
    receive_end_ns: int | None = None
    """When the input was there."""
    compute_start_ns: int
    """When the stage began to compute."""
    compute_end_ns: int
    """When the stage had computed; equal to the start where a pass has no work of its own here."""
    holes: tuple[tuple[int, int], ...] = ()
    """Times between start and end in which nothing was computed, as (start, end)."""
    send_to: int | None = None
    """Stage that gets the output; None where there is none."""
    send_start_ns: int | None = None
    """When the stage began to send."""
    send_end_ns: int | None = None
    """When the stage had sent."""
    line: int | None = None
    """Line of the file it comes from."""

    @property
    def key(self) -> Key:
        """What its transfers are known by."""
        return self.unit, self.backward

    @property
    def busy_ns(self) -> int:
        """Time computed, without the holes."""
        return self.compute_end_ns - self.compute_start_ns - sum(end - start for start, end in self.holes)


class StageTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One stage as one of its ranks saw it."""

    stage: int
    """Pipeline stage, from 0."""
    clock: str
    """Name of the clock that took its times: a host, or a file where no host is named."""
    host: str | None
    """Machine that it ran on, as the trace names it; untrusted text."""
    rank: int | None = None
    """Global rank, where the trace names one."""
    source: str
    """File it comes from."""
    units: tuple[Unit, ...]
    """Units in the order in which they were computed."""
    occupied: tuple[tuple[int, int], ...] = ()
    """Times as (start, end), in order, in which the host prepared work or a collective joined stages."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """All stages of one pipeline."""

    kind: Literal["units", "torch"]
    """A file of units, or traces of the PyTorch profiler."""
    stages: tuple[StageTrace, ...]
    """Stages from 0, none missing."""
    tolerance_ns: int
    """How far two times of one clock may contradict each other: the error of the tool that took them."""
    everything_recorded: bool
    """What is not recorded did not happen: at the first stage, time without a record is without work."""
    notes: tuple[str, ...] = ()
    """What was left out or assumed."""

    def unit_of(self) -> list[dict[Key, Unit]]:
        """Units of each stage by their key."""
        return [{unit.key: unit for unit in stage.units} for stage in self.stages]


def stage_times(trace: Trace) -> tuple[float, ...]:
    """Median time in ns that each stage computes on one unit, forward and backward pass together."""
    times = []
    for stage in trace.stages:
        by_unit: defaultdict[str, int] = defaultdict(int)
        for unit in stage.units:
            by_unit[unit.unit] += unit.busy_ns
        times.append(float(median(by_unit.values())))
    return tuple(times)


def assembled(
    kind: Literal["units", "torch"],
    stages: Sequence[StageTrace],
    *,
    tolerance_ns: int,
    notes: Sequence[str] = (),
) -> Trace:
    """A trace whose stages are complete and whose times can be. Raises InputError."""
    ordered = tuple(sorted(stages, key=lambda stage: stage.stage))
    trace = Trace(
        kind=kind,
        stages=ordered,
        tolerance_ns=tolerance_ns,
        everything_recorded=kind == "torch",
        notes=tuple(notes),
    )
    _check_numbers(ordered)
    empty = next((stage for stage in ordered if not stage.units), None)
    if empty is not None:
        raise InputError(
            f"holds no unit of work of stage {empty.stage}: nothing was computed, and nothing moved",
            path=empty.source,
            fix="trace some iterations that do work",
        )
    units = trace.unit_of()
    for stage in ordered:
        for unit in stage.units:
            _check_order(unit, stage, tolerance_ns)
            _check_causes(unit, stage, trace, units)
    return trace


def _check_numbers(stages: Sequence[StageTrace]) -> None:
    """Stages are 0, 1, 2 ..., each once."""
    numbers = [stage.stage for stage in stages]
    if numbers == list(range(len(numbers))) and numbers:
        return
    given = set(numbers)
    missing = next(number for number in range(len(given) + 1) if number not in given)
    last = stages[-1] if stages else None
    raise InputError(
        f"has stage {last.stage} and no stage {missing}" if last is not None else "has no stages",
        path=last.source if last is not None else "-",
        fix="give the traces of all stages, numbered from 0",
    )


def _check_order(unit: Unit, stage: StageTrace, tolerance_ns: int) -> None:
    """Within a unit each step follows the one before, and ends after it starts. Raises InputError."""
    before, earlier = "", 0
    for name, time in _steps(unit):
        if time is None:
            continue
        if time < 0:
            raise InputError(
                f"{_named(unit)}: {name} is negative ({time:,} ns)",
                path=stage.source,
                line=unit.line,
                fix="give times of one clock, from its zero",
            )
        if time < earlier - tolerance_ns:
            raise InputError(
                f"{_named(unit)}: {name} is {earlier - time:,} ns before {before}",
                path=stage.source,
                line=unit.line,
                fix="receive, compute and send follow each other, and each ends after it starts",
            )
        before, earlier = name, time
    if unit.ready_ns is not None and not 0 <= unit.ready_ns <= unit.compute_start_ns + tolerance_ns:
        raise InputError(
            f"{_named(unit)}: ready ({unit.ready_ns:,} ns) is not between 0 and compute_start",
            path=stage.source,
            line=unit.line,
            fix="ready is when the input was there to be computed on",
        )


def _steps(unit: Unit) -> Iterator[tuple[str, int | None]]:
    """Times in the order in which they have to be."""
    yield "receive_start", unit.receive_start_ns
    yield "receive_end", unit.receive_end_ns
    yield "compute_start", unit.compute_start_ns
    yield "compute_end", unit.compute_end_ns
    yield "send_start", unit.send_start_ns
    yield "send_end", unit.send_end_ns


def _check_causes(unit: Unit, stage: StageTrace, trace: Trace, units: Sequence[dict[Key, Unit]]) -> None:
    """On one clock nothing is received before it is sent. Raises InputError."""
    if unit.receive_from is None or unit.receive_from >= len(trace.stages):
        return
    sender = trace.stages[unit.receive_from]
    sent = units[unit.receive_from].get(unit.key)
    if sent is None or sender.clock != stage.clock:
        return
    left, arrived = departure_ns(sent), arrival_ns(unit)
    if arrived < left - trace.tolerance_ns:
        raise InputError(
            f"{_named(unit)} has its input {left - arrived:,} ns before stage {unit.receive_from} sends it: "
            "the times run in a circle",
            path=stage.source,
            line=unit.line,
            fix=f"take both stages' times from one clock, or name their hosts apart ({stage.clock[:80]})",
        )


def departure_ns(unit: Unit) -> int:
    """Earliest time at which its output can have been on its way."""
    return unit.compute_end_ns if unit.send_start_ns is None else unit.send_start_ns


def arrival_ns(unit: Unit) -> int:
    """Latest time at which its input was there."""
    return unit.compute_start_ns if unit.receive_end_ns is None else unit.receive_end_ns


def _named(unit: Unit) -> str:
    return f"unit {unit.unit[:40]!r} of stage {unit.stage}{' (backward)' if unit.backward else ''}"
