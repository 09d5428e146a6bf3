"""Jobs for the rules of NVLink fabrics: trays of one rack, fabric managers, peer access."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from build import FOUR, GB200, L40S, RING, TWO, comm, completed, log, pair, snap, sockets
from made_capacity import Made

from topocheck.snapshot import Fabric, FullSnapshot, Software

__all__ = ["CASES", "FAILURES", "RACK", "SWITCHED", "WARNINGS", "both", "joined", "managed", "trays"]

Job = tuple[str, Sequence[FullSnapshot]]

WARNINGS = frozenset({"NV004"})
RACK = "engine: vllm\nparallel: {tensor: 8}\nnodes: [node-a, node-b]\npolicy: {tensor_domain: nvlink}\n"
SWITCHED = (Fabric(cluster_uuid="0" * 32, clique=0, state="Completed", status="Success"),)
"""What a host with NVSwitches of its own reports."""


def both(**parts: Any) -> list[FullSnapshot]:
    """Two nodes with ranks 0..3 and 4..7, equal but for their names."""
    return [snap("node-a", range(4), **parts), snap("node-b", range(4, 8), **parts)]


def trays(first: tuple[Fabric, ...], second: tuple[Fabric, ...]) -> list[FullSnapshot]:
    """Two trays of a rack that report these fabrics."""
    return [
        snap("node-a", range(4), model=GB200, fabric=first),
        snap("node-b", range(4, 8), model=GB200, fabric=second),
    ]


def joined(clique: str = "7") -> list[FullSnapshot]:
    """Logs of one communicator over both trays, all of whose ranks are in one active clique."""
    return [
        log(name, comm(RING, ranks, host=name, clique=clique, clique_size=8))
        for name, ranks in (("node-a", range(4)), ("node-b", range(4, 8)))
    ]


def managed(**of_first: str | None) -> list[FullSnapshot]:
    """Two nodes whose fabric was set up; keywords are versions on the first."""
    first, second = both(fabric=SWITCHED)
    return [msgspec.structs.replace(first, software=Software(**of_first)), second]  # type: ignore[arg-type]


def unasked() -> list[FullSnapshot]:
    """Two nodes whose driver was not asked for peer access."""
    return [
        msgspec.structs.replace(view, hardware=msgspec.structs.replace(view.hardware, peers=()))
        for view in pair()
    ]


BARE: Job = (FOUR, [snap("node-a", range(4), size=4, model=L40S, links=sockets, switch=None)])

CASES: dict[str, Made] = {
    "NV003": Made(
        (RACK, [*trays(completed(), completed()), *joined()]),
        (RACK, trays(completed(clique=7), completed(clique=8))),
        (RACK, trays(completed(), completed())),
        (TWO, pair()),
        "error",
        ("TP group 0", "clique 7 on node-a", "clique 8 on node-b", "a" * 32),
    ),
    "NV004": Made(
        (TWO, managed()),
        (TWO, managed(driver="570.124.06", fabric_manager="570.86.15")),
        (TWO, pair()),
        BARE,
        "warning",
        ("node-a", "570.124.06", "570.86.15"),
    ),
    "NV005": Made(
        (TWO, pair()),
        (TWO, pair(refused=[(0, 1)])),
        (TWO, unasked()),
        BARE,
        "error",
        ("node-a", "GPUs 0-1", "not supported"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
