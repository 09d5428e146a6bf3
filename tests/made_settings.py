"""Jobs for the rules of what NCCL is told: variables that differ, mean nothing, or stand in a file."""

from __future__ import annotations

from collections.abc import Sequence

from build import FOUR, TWO, pair, snap
from made_capacity import Made
from made_fabric import both
from made_path import told

from topocheck.snapshot import FullSnapshot, NcclFile

__all__ = ["CASES", "CONF", "FAILURES", "WARNINGS", "holding", "reading"]

Job = tuple[str, Sequence[FullSnapshot]]

WARNINGS = frozenset({"ENV002", "ENV003"})
CONF = "/etc/nccl.conf"


def reading(**settings: str) -> NcclFile:
    """An nccl.conf with these settings."""
    return NcclFile(path=CONF, kind="settings", settings=settings)


def holding(*files: NcclFile) -> list[FullSnapshot]:
    """Two nodes with a harmless nccl.conf; the first has these files besides."""
    harmless = reading(NCCL_DEBUG="WARN")
    return [
        snap("node-a", range(4), files=files or (harmless,)),
        snap("node-b", range(4, 8), files=(harmless,)),
    ]


CASES: dict[str, Made] = {
    "ENV001": Made(
        (TWO, told()),
        (TWO, told(NCCL_ALGO="Ring")),
        (TWO, both(environment={})),
        (FOUR, [snap("node-a", range(4), size=4)]),
        "error",
        ("NCCL_ALGO", "Ring on node-a", "not set on node-b"),
    ),
    "ENV002": Made(
        (TWO, told(NCCL_P2P_LEVEL="NVL")),
        (TWO, told(NCCL_P2P_LEVEL="nvl")),
        (TWO, both(environment={})),
        None,
        "warning",
        ("NCCL_P2P_LEVEL=nvl", "node-a", "NVL is meant"),
    ),
    "ENV003": Made(
        (TWO, holding()),
        (TWO, holding(reading(NCCL_IB_HCA="mlx5_2"))),
        (TWO, pair()),
        None,
        "warning",
        (CONF, "node-a", "NCCL_IB_HCA=mlx5_2"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
