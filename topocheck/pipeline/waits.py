"""A measured pipeline as a report: the time of each stage, its bubble, and what it waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from statistics import median

from topocheck.errors import UsageError
from topocheck.pipeline.bubble import measure
from topocheck.pipeline.causes import Split, split
from topocheck.pipeline.depth import DepthReading
from topocheck.pipeline.findings import Measured, findings, sentence, status
from topocheck.pipeline.schedule import Pipeline
from topocheck.pipeline.states import Run, Why
from topocheck.pipeline.trace import stage_times
from topocheck.pipeline.waits_report import (
    SCHEMA,
    BoundaryWaits,
    BubbleCheck,
    ClockReport,
    StageWaits,
    WaitsReport,
)

__all__ = ["depth_alone", "report"]

LARGE = 0.05
"""Part of all stages' time from which on an unknown is worth a line."""
AGREES = 1.5, 0.05
"""Measured idle time agrees with the bubble up to half as much again, and 5 points."""
FIRST = 10
"""A first transfer that takes so many times the median is the making of a connection."""

SUPPLY: dict[Why, str] = {
    "arrival": "when input was ready at the first stage is not in the trace: give ready_ns",
    "circular": "stages wait for each other in a circle: their times contradict, or a send was buffered",
    "clocks": "clocks of two hosts do not compare: give snapshots (--clocks), or trace what comes back",
    "occupied": "the first stage's host prepared work, or a collective joined stages: look at the host",
    "outside": "a stage is waited for at a time that its own trace does not cover: trace all ranks together",
    "overhead": "the input was there and nothing was computed: launches, scheduling, copies, untraced work",
    "return": "the last stage was sending out of the pipeline",
    "times": "send or receive times are missing: give both ends of each transfer",
    "unpaired": "the other end of a transfer is not in the trace: trace all ranks over the same iterations",
}
"""What an unknown is, and what would tell."""


def report(run: Run, inputs: Sequence[str], depth: DepthReading | None = None) -> WaitsReport:
    """All of it. Raises UsageError if nothing is left after the warm-up."""
    trace = run.trace
    if run.skip >= min(len({unit.unit for unit in stage.units}) for stage in trace.stages):
        raise UsageError(f"--skip {run.skip} leaves no unit of some stage: skip fewer, or trace more")
    splits = split(run)
    whole = sum(one.window for one in splits) or 1
    times = stage_times(trace)
    measured = Measured(
        stages=[_stage(run, stage, one, times[stage]) for stage, one in enumerate(splits)],
        boundaries=[*_boundaries(run, splits, whole)],
        bubble=_bubble(run, splits, times),
        depth=depth,
        everything_recorded=trace.everything_recorded,
    )
    found = findings(measured)
    return WaitsReport(
        schema=SCHEMA,
        source=trace.kind,
        status=status(measured, found),
        sentence=sentence(measured, found),
        findings=found,
        stages=measured.stages,
        boundaries=measured.boundaries,
        bubble=measured.bubble,
        depth=depth,
        clocks=[*_clocks(run)],
        inputs=list(inputs),
        gaps=[*_gaps(splits, whole)],
        notes=[*trace.notes, *run.alignment.notes, *_first_transfers(run), *(depth.notes if depth else ())],
    )


def depth_alone(depth: DepthReading) -> WaitsReport:
    """Results of several depths without a trace."""
    measured = Measured(stages=[], boundaries=[], bubble=None, depth=depth, everything_recorded=False)
    found = findings(measured)
    return WaitsReport(
        schema=SCHEMA,
        source="none",
        status=status(measured, found),
        sentence=sentence(measured, found),
        findings=found,
        stages=[],
        boundaries=[],
        bubble=None,
        depth=depth,
        clocks=[],
        inputs=[point.source for point in depth.points],
        gaps=[],
        notes=depth.notes,
    )


def _stage(run: Run, stage: int, found: Split, time: float) -> StageWaits:
    trace = run.trace.stages[stage]
    window = found.window or 1
    return StageWaits(
        stage=stage,
        rank=trace.rank,
        host=trace.host,
        units=len({unit.unit for unit in trace.units}),
        window_ns=found.window,
        unit_ns=time,
        computing=found.computing / window,
        work=sum(found.work.values()) / window,
        neighbour=sum(found.neighbour.values()) / window,
        boundary=sum(found.boundary.values()) / window,
        unknown=sum(found.unknown.values()) / window,
        ends=found.ends / window,
        by_stage={str(other): part / window for other, part in sorted(found.neighbour.items())},
        by_boundary={f"{a}>{b}": part / window for (a, b), part in sorted(found.boundary.items())},
        by_evidence={why or "no other unit": part / window for why, part in sorted(found.work.items())},
        by_reason={why: part / window for why, part in sorted(found.unknown.items())},
    )


def _boundaries(run: Run, splits: Sequence[Split], whole: int) -> Iterator[BoundaryWaits]:
    """Pairs of stages with transfers, and how long these take."""
    waited: Counter[tuple[int, int]] = Counter()
    for found in splits:
        waited.update(found.boundary)
    took: dict[tuple[int, int], list[int]] = {pair: [] for pair in waited}
    for stage in run.trace.stages:
        for unit in stage.units:
            if unit.receive_from is not None and unit.receive_from < len(run.units):
                took.setdefault((unit.receive_from, stage.stage), [])
                length = run.took(unit)
                if length is not None:
                    took[unit.receive_from, stage.stage].append(length)
    for (source, target), lengths in sorted(took.items()):
        yield BoundaryWaits(
            source=source,
            target=target,
            transfers=len(lengths),
            transfer_ns=median(lengths) if lengths else None,
            bound=run.error(source, target) is None,
            waited=waited[source, target] / whole,
        )


def _bubble(run: Run, splits: Sequence[Split], times: Sequence[float]) -> BubbleCheck | None:
    """The estimate for equal stages, and what was measured."""
    stages = len(splits)
    if stages < 2 or min(times) <= 0:
        return None
    rounds = _rounds(run)
    units = sum(rounds)
    if not units:
        return None
    idle = len(rounds) * (stages - 1)
    estimated = idle / (units + idle)
    whole = sum(found.window for found in splits) or 1
    measured = 1 - sum(found.computing for found in splits) / whole
    factor, points = AGREES
    uneven = measure(Pipeline(forward=tuple(map(Fraction, times)), microbatches=units))
    return BubbleCheck(
        stages=stages,
        units=units,
        rounds=len(rounds),
        estimated_idle=estimated,
        measured_idle=measured,
        imbalance=float(uneven.imbalance),
        verdict="agree" if measured <= estimated * factor + points else "worse",
    )


def _rounds(run: Run) -> list[int]:
    """Units of each stretch between two moments at which the pipeline is empty.

    Only stages whose clocks compare with the first one's say when that was, and only units of all these.
    """
    near = [stage.stage for stage in run.trace.stages if run.error(0, stage.stage) is not None]
    whole: set[str] = set.intersection(
        *({unit.unit for unit in run.trace.stages[stage].units} for stage in near)
    )
    spans: dict[str, tuple[int, int]] = {}
    for stage in near:
        shift = run.shifts[stage]
        for unit in run.trace.stages[stage].units:
            start, end = unit.compute_start_ns + shift, unit.compute_end_ns + shift
            if end > run.windows[0][0] and unit.unit in whole:
                known = spans.get(unit.unit, (start, end))
                spans[unit.unit] = min(known[0], start), max(known[1], end)
    rounds, until = [0], None
    for start, end in sorted(spans.values()):
        if until is not None and start >= until:
            rounds.append(0)
        rounds[-1] += 1
        until = end if until is None else max(until, end)
    return rounds


def _clocks(run: Run) -> Iterator[ClockReport]:
    alignment = run.alignment
    for name in dict.fromkeys(stage.clock for stage in run.trace.stages):
        yield ClockReport(
            name=name,
            stages=[stage.stage for stage in run.trace.stages if stage.clock == name],
            shift_ns=alignment.shifts.get(name),
            error_ns=alignment.errors.get(name),
            basis=alignment.basis.get(name, "unknown"),
        )


def _gaps(splits: Sequence[Split], whole: int) -> Iterator[str]:
    """What is unknown in a part that counts."""
    reasons: Counter[Why] = Counter()
    for found in splits:
        reasons.update(found.unknown)
    for why, length in reasons.most_common():
        if length >= LARGE * whole:
            yield f"{100 * length / whole:.1f} % of the stages' time: {SUPPLY.get(why, why)}"


def _first_transfers(run: Run) -> Iterator[str]:
    """A connection is made with the first transfer; that is no property of the link."""
    for stage in run.trace.stages:
        lengths = [
            length
            for unit in stage.units
            if unit.receive_from is not None
            if (length := run.took(unit)) is not None
        ]
        if not run.skip and len(lengths) > 3 and lengths[0] > FIRST * (usual := median(lengths[1:])) > 0:
            yield (
                f"the first transfer to stage {stage.stage} took {lengths[0] / 1e6:.1f} ms and the others "
                f"{usual / 1e6:.1f} ms: warm-up, which --skip 1 leaves out"
            )
