"""Jobs for the rule that evidence belongs to this run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from build import TWO, pair
from made_capacity import Made

from topocheck.snapshot import FullSnapshot

__all__ = ["ASKED", "CASES", "FAILURES", "taken"]

Job = tuple[str, Sequence[FullSnapshot]]

ASKED = f"{TWO}expect: {{run: 4711.0, max_age_s: 600}}\n".replace("4711.0", "'4711.0'")


def taken(run: str | None = "4711.0", at: str | None = "2026-02-28T23:58:00Z") -> list[FullSnapshot]:
    """Two nodes; node-a's snapshot is of this run and this time."""
    first, second = (
        msgspec.structs.replace(view, run="4711.0", taken_at="2026-02-28T23:59:00Z") for view in pair()
    )
    return [msgspec.structs.replace(first, run=run, taken_at=at), second]


CASES: dict[str, Made] = {
    "EV003": Made(
        (ASKED, taken()),
        (ASKED, taken(run="4690.0")),
        (ASKED, taken(run=None)),
        (TWO, pair()),
        "error",
        ("node-a", "4690.0", "4711.0"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
