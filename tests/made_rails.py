"""Jobs for the rule that a stage boundary stays on one rail: nodes with a NIC for each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from build import FOUR, TWO, claims, nics, pair, snap
from made_capacity import Made

from topocheck.snapshot import FullSnapshot, NicShape

__all__ = ["CASES", "FAILURES", "RAILS", "WARNINGS", "railed", "two"]

Job = tuple[str, Sequence[FullSnapshot]]

WARNINGS = frozenset({"PP005"})
RAILS = tuple(
    msgspec.structs.replace(nic, pci=f"0000:{0x2A + 0x10 * n:02x}:00.0") for n, nic in enumerate(nics(4))
)
"""A NIC for each GPU, names and PCI addresses in one order."""


def railed(
    name: str,
    gpus: Sequence[int] = (0, 1, 2, 3),
    *,
    ports: Sequence[NicShape] = RAILS,
    near: str = "PIX",
    far: str = "SYS",
    **parts: Any,
) -> FullSnapshot:
    """A node of the job with ranks on these GPUs; GPU n is nearest to the NIC in place n of `ports`."""
    start = 0 if name == "node-a" else 4
    view = snap(name, (), ports=tuple(ports), **parts)
    rows = tuple(tuple(near if nic == gpu else far for nic in range(len(ports))) for gpu in range(4))
    matrix = view.hardware.matrix
    if matrix is None:
        raise AssertionError(name)
    hardware = msgspec.structs.replace(view.hardware, matrix=msgspec.structs.replace(matrix, nics=rows))
    known = tuple(
        msgspec.structs.replace(claim, gpu=gpu)
        for claim, gpu in zip(claims(range(start, start + 4)), gpus, strict=True)
    )
    coverage = msgspec.structs.replace(view.coverage, ranks="all")
    return msgspec.structs.replace(view, hardware=hardware, ranks=known, coverage=coverage)


def two(gpus: Sequence[int] = (0, 1, 2, 3), **of_second: Any) -> list[FullSnapshot]:
    """Both nodes; the ranks of the second are on these GPUs."""
    return [railed("node-a"), railed("node-b", gpus, **of_second)]


CASES: dict[str, Made] = {
    "PP005": Made(
        (TWO, two()),
        (TWO, two((3, 2, 1, 0))),
        (TWO, pair(near=None)),
        (FOUR, [snap("node-a", range(4), size=4)]),
        "warning",
        ("node-a - node-b", "rank 0", "0000:2a:00.0, rail 0", "rank 4", "0000:5a:00.0, rail 3"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
