"""Jobs for the rules of what keeps a TP group from its own links: variables and containers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from build import TWO, pair, snap
from made_capacity import Made
from made_fabric import both

from topocheck.snapshot import FullSnapshot, Limits

__all__ = ["CASES", "FAILURES", "SHARED", "WARNINGS", "apart", "told"]

Job = tuple[str, Sequence[FullSnapshot]]

WARNINGS = frozenset({"TP007"})
STAGES = "engine: vllm\nparallel: {pipeline: 4}\nnodes: [node-a]\n"
ALONE = "engine: vllm\nparallel: {tensor: 2}\nnodes: [node-a, node-b]\n"
SHARED = Limits(scope="container", container="5c" * 32)


def told(**variables: str) -> list[FullSnapshot]:
    """Two nodes; the ranks of the first have these variables."""
    return pair(environment={"NCCL_DEBUG": "INFO"} | variables)


def apart(*containers: str) -> list[FullSnapshot]:
    """Two nodes; each rank of the first tells of its own process, in one of these containers."""
    whole, second = both(limits=SHARED)
    views = [
        msgspec.structs.replace(whole, ranks=(claim,), limits=Limits(scope="container", container=name * 32))
        for claim, name in zip(whole.ranks, containers, strict=True)
    ]
    return [*views, second]


CASES: dict[str, Made] = {
    "TP006": Made(
        (TWO, told()),
        (TWO, told(NCCL_P2P_DISABLE="1")),
        (TWO, both(environment={})),
        (STAGES, [snap("node-a", range(4), size=4)]),
        "error",
        ("NCCL_P2P_DISABLE=1", "node-a", "ranks 0..3", "NVLink"),
    ),
    "TP007": Made(
        (TWO, both(limits=SHARED)),
        (TWO, apart("a1", "b2", "c3", "d4")),
        (TWO, pair()),
        (ALONE, [snap("node-a", [0], size=2), snap("node-b", [1], size=2)]),
        "warning",
        ("node-a", "TP group 0", "a1a1a1a1a1a1", "container of its own"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
