"""Jobs for the rule of the two ends of an edge."""

from __future__ import annotations

from collections.abc import Sequence

from build import TWO, edge, pair, running
from made_capacity import Made

from topocheck.snapshot import Edge, FullSnapshot

__all__ = ["CASES", "FAILURES", "WARNINGS", "both_ends", "received"]

Job = tuple[str, Sequence[FullSnapshot]]

WARNINGS = frozenset({"OBS004"})
DIRECT = "NET/IB/0/GDRDMA"


def received(src: int, dst: int, host: str, how: str = DIRECT) -> Edge:
    """A connection as its receiver logged it."""
    return edge(src, dst, how, host=host, line=61, side="receive")


def both_ends(sent: str = DIRECT, got: str = DIRECT) -> list[FullSnapshot]:
    """The healthy job with both ends of its two edges between the nodes; `got` is how node-b receives."""
    ends = {"node-a": [received(7, 0, "node-a", sent)], "node-b": [received(3, 4, "node-b", got)]}
    return running(sent, edges=ends)


CASES: dict[str, Made] = {
    "OBS004": Made(
        (TWO, both_ends()),
        (TWO, both_ends(got="NET/IB/1")),
        (TWO, running()),
        (TWO, pair()),
        "warning",
        ("edge 3->4", "node-b", "without", "node-a.log:60", "node-b.log:61"),
    )
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
