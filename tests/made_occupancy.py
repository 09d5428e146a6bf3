"""Jobs for the rule that the GPUs are free."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from build import TWO, pair, running
from made_capacity import Made

from topocheck.snapshot import FullSnapshot, GpuState, Process, State

__all__ = ["CASES", "FAILURES", "GIB", "WARNINGS", "left_over", "using"]

Job = tuple[str, Sequence[FullSnapshot]]

GIB = 1 << 30
WARNINGS: frozenset[str] = frozenset()

left_over = Process(
    pid=31337, memory_bytes=70 * GIB, name="python3", age_seconds=12 * 86_400, owner="uid 1003"
)
"""What an earlier job left behind."""


def using(*processes: Process, used: int | None = None, gpu: int = 2) -> list[FullSnapshot]:
    """Two nodes whose GPUs hold the job's own processes, and on node-a's GPU 2 these as well."""
    made = []
    for view, first in zip(pair(), (0, 4), strict=True):
        states = []
        for n in range(4):
            own = (Process(pid=9000 + first + n, memory_bytes=GIB // 2),)
            odd = processes if (first, n) == (0, gpu) else ()
            held = sum(process.memory_bytes or 0 for process in (*own, *odd))
            total = used if used is not None and (first, n) == (0, gpu) else held
            states.append(GpuState(gpu=n, memory_used_bytes=total, processes=(*own, *odd)))
        made.append(msgspec.structs.replace(view, state=State(gpus=tuple(states))))
    return made


CASES: dict[str, Made] = {
    "CAP001": Made(
        (TWO, using()),
        (TWO, using(left_over)),
        (TWO, pair()),
        (TWO, running()),
        "error",
        ("node-a", "rank 2", "70.0 GiB", "pid 31337", "uid 1003", "12 days", "python3"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
