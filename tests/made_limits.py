"""Jobs for the rules of limits and clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from build import TWO, pair, snap
from made_capacity import Made

from topocheck.snapshot import Clock, FullSnapshot, Limits, State

__all__ = ["CASES", "FAILURES", "GIB", "KIB", "WARNINGS", "limited", "ticking"]

Job = tuple[str, Sequence[FullSnapshot]]

KIB, GIB = 1 << 10, 1 << 30
WELL = Limits(scope="task", memlock_bytes=-1, ipc_lock=False, shm_bytes=64 * GIB, shm_free_bytes=63 * GIB)
ALONE = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n"
APART = "engine: vllm\nparallel: {pipeline: 2}\nnodes: [node-a, node-b]\n"

WARNINGS = frozenset({"ENV006"})


def limited(**of_first: Any) -> list[FullSnapshot]:
    """Two nodes; keywords change the limits of the first."""
    odd = msgspec.structs.replace(WELL, **of_first)
    return [
        msgspec.structs.replace(view, limits=limits) for view, limits in zip(pair(), (odd, WELL), strict=True)
    ]


def ticking(**of_first: Any) -> list[FullSnapshot]:
    """Two nodes whose clocks are kept; keywords change the first."""
    well = Clock(synchronised=True, error_seconds=1e-4)
    odd = msgspec.structs.replace(well, **of_first)
    return [
        msgspec.structs.replace(view, state=State(clock=clock))
        for view, clock in zip(pair(), (odd, well), strict=True)
    ]


ONE: Job = (ALONE, [snap("node-a", range(4), size=4)])

CASES: dict[str, Made] = {
    "ENV004": Made(
        (TWO, limited()),
        (TWO, limited(memlock_bytes=64 * KIB)),
        (TWO, pair()),
        ONE,
        "error",
        ("node-a", "64 KiB", "CAP_IPC_LOCK"),
    ),
    "ENV005": Made(
        (TWO, limited()),
        (TWO, limited(shm_bytes=64 << 20, shm_free_bytes=64 << 20)),
        (TWO, pair()),
        (APART, [snap("node-a", [0], size=2), snap("node-b", [1], size=2)]),
        "error",
        ("node-a", "64 MiB", "4 ranks"),
    ),
    "ENV006": Made(
        (TWO, ticking()),
        (TWO, ticking(synchronised=False)),
        (TWO, pair()),
        ONE,
        "warning",
        ("node-a", "clock"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
