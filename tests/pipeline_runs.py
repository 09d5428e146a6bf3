"""Runs of a pipeline with known waits, as units that a program would have written down."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from topocheck.pipeline.clocks import HostClock, align
from topocheck.pipeline.states import Run
from topocheck.pipeline.trace import Trace
from topocheck.pipeline.trace_units import UnitTraces
from topocheck.pipeline.waits import report
from topocheck.pipeline.waits_report import WaitsReport

__all__ = ["HOSTS", "MS", "Line", "as_text", "blocking", "judged", "read", "there_and_back", "training"]

MS = 1_000_000
HOSTS = ["blue-1", "blue-2"]
Line = dict[str, Any]


def blocking(
    compute_ms: Sequence[float],
    units: int = 12,
    link_ms: Sequence[float] | float = 1,
    arrival_ms: float = 0,
    hosts: Sequence[str] = (),
) -> list[Line]:
    """A forward pipeline whose stages receive, compute and send one after the other.

    A send lasts until it is taken. `arrival_ms` lies between the inputs of the first stage. All times are of
    one clock, which starts at 1 s.
    """
    stages = len(compute_ms)
    links = [link_ms] * stages if isinstance(link_ms, (int, float)) else list(link_ms)
    free = [1000.0] * stages
    lines: list[Line] = []
    for unit in range(units):
        sent = 0.0
        for stage in range(stages):
            line: Line = {"unit": unit, "stage": stage, **({"host": hosts[stage]} if hosts else {})}
            if stage:
                begun, there = free[stage], max(free[stage], sent) + links[stage - 1]
                line |= {"receive_start_ns": begun, "receive_end_ns": there}
                lines[-1]["send_end_ns"] = free[stage - 1] = there
            else:
                ready = 1000.0 + unit * arrival_ms
                there = max(free[0], ready)
                line["ready_ns"] = min(ready, there)
            done = free[stage] = there + compute_ms[stage]
            line |= {"compute_start_ns": there, "compute_end_ns": done}
            if stage < stages - 1:
                line["send_start_ns"] = sent = done
            lines.append(line)
    return [_whole(line) for line in lines]


def training(forward_ms: Sequence[float], microbatches: int = 8, iterations: int = 2) -> list[Line]:
    """GPipe: all forward passes, then all backward passes of twice the time; transfers take no time."""
    stages = len(forward_ms)
    lines: list[Line] = []
    free = [1000.0] * stages
    for iteration in range(iterations):
        start = max(free)
        free = [start] * stages
        for backward in (False, True):
            order = range(stages - 1, -1, -1) if backward else range(stages)
            for unit in range(microbatches):
                before = start
                for stage in order:
                    begin = max(free[stage], before)
                    before = free[stage] = begin + forward_ms[stage] * (1 + backward)
                    line: Line = {"unit": unit, "iteration": iteration, "stage": stage}
                    line |= {"pass": "backward" if backward else "forward"}
                    line |= {"compute_start_ns": begin, "compute_end_ns": before}
                    lines.append(line)
    return [_whole(line) for line in lines]


def there_and_back(link_ms: float = 2, units: int = 10) -> list[Line]:
    """A forward pass over two hosts, and a backward pass that comes back."""
    lines: list[Line] = []
    free = [1000.0, 1000.0]
    for unit in range(units):
        at = free[0]
        steps = [(0, "forward", 5.0), (1, "forward", 5.0), (1, "backward", 10.0), (0, "backward", 10.0)]
        before: float | None = None
        for stage, way, length in steps:
            line: Line = {"unit": unit, "stage": stage, "host": HOSTS[stage], "pass": way}
            if before is not None and lines[-1]["stage"] != stage:
                lines[-1] |= {"send_start_ns": before, "send_end_ns": before + link_ms}
                line |= {"receive_start_ns": free[stage], "receive_end_ns": before + link_ms}
                at = before + link_ms
            line |= {"compute_start_ns": at, "compute_end_ns": at + length}
            at = before = free[stage] = at + length
            lines.append(line)
    return [_whole(line) for line in lines]


def _whole(line: Line) -> Line:
    return {name: round(value * MS) if name.endswith("_ns") else value for name, value in line.items()}


def as_text(lines: Sequence[Line]) -> bytes:
    """One JSON object a line."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def read(text: bytes, name: str = "units.jsonl") -> Trace:
    """A file of units."""
    traces = UnitTraces()
    traces.read(io.BytesIO(text), name)
    return traces.finish()


def judged(trace: Trace, known: Mapping[str, HostClock] | None = None, skip: int = 0) -> WaitsReport:
    """The report of a trace."""
    return report(Run(trace, align(trace, known), skip), ["units.jsonl"])
