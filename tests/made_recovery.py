"""Jobs for the rules of what comes after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from build import TWO, pair, running, snap

from topocheck.snapshot import At, FullSnapshot, Host, Identity, JobFact, Software

__all__ = ["CASES", "FAILURES", "RECOVERED", "came_back", "served"]

Job = tuple[str, Sequence[FullSnapshot], Sequence[FullSnapshot]]
"""Plan, evidence, evidence of an earlier look."""

RECOVERED = f"{TWO}expect: {{recovered: true}}\n"
"""The job came back after a fault."""


class Made(NamedTuple):
    """Jobs by the verdict that one rule must give, as in `rule_cases`."""

    holds: Job
    broken: Job
    undecided: Job
    absent: Job
    severity: str
    names: tuple[str, ...]


def served(kind: str = "request-done", status: str = "200", line: int = 90) -> FullSnapshot:
    """The access log of the server."""
    at = At(source="server.log", line=line)
    fact = JobFact(kind=kind, name="/v1/completions", value=status, at=at)
    return FullSnapshot(schema="topocheck.snapshot/1", identity=Identity(host=Host()), job=(fact,))


def came_back(first: str = "0.33.0", second: str = "0.33.0", *more: FullSnapshot) -> list[FullSnapshot]:
    """Logs of the job since its restart: engine versions of the nodes, its communicators."""
    versions = (first, second)
    return [
        msgspec.structs.replace(view, software=Software(engine="vllm", engine_version=version))
        for view, version in zip(running(), versions, strict=True)
    ] + list(more)


CASES: dict[str, Made] = {
    "OBS005": Made(
        (TWO, pair(), pair()),
        (TWO, [snap("node-a", range(4, 8)), snap("node-b", range(4))], pair()),
        (TWO, [snap("node-a", range(4))], pair()),
        (TWO, pair(), ()),
        "error",
        ("ranks 0..3", "node-a, now node-b", "earlier.json"),
    ),
    "OBS007": Made(
        (RECOVERED, came_back("0.33.0", "0.33.0", served()), ()),
        (RECOVERED, came_back("0.33.0", "0.24.0", served()), ()),
        (RECOVERED, came_back(), ()),
        (TWO, came_back(), ()),
        "error",
        ("stage 0 (node-a)", "stage 1 (node-b)", "vllm 0.24.0", "node-b.log"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
