"""Statements about the whole job, as a launch command or a log makes them."""

from __future__ import annotations

from build import TWO, answer, pair, report

from topocheck.report import Report, RuleReport
from topocheck.snapshot import SCHEMA, At, FullSnapshot, Host, Identity, JobFact

__all__ = ["launch", "of", "said"]

Fact = tuple[str, str, str]
"""(kind, name, value)."""


def said(
    *facts: Fact, source: str = "launch.sh", engine: str | None = None, host: str | None = None
) -> FullSnapshot:
    """A text with a line for each fact. `host` is what its lines name as their writer."""
    job = tuple(
        JobFact(kind=kind, name=name, value=value, engine=engine, host=host, at=At(source=source, line=line))
        for line, (kind, name, value) in enumerate(facts, 1)
    )
    return FullSnapshot(schema=SCHEMA, identity=Identity(host=Host()), job=job)


def launch(*facts: Fact, source: str = "launch.sh", line: int = 1, engine: str | None = None) -> FullSnapshot:
    """All facts of one command: they stand on one line."""
    at = At(source=source, line=line)
    job = tuple(
        JobFact(kind=kind, name=name, value=value, engine=engine, at=at) for kind, name, value in facts
    )
    return FullSnapshot(schema=SCHEMA, identity=Identity(host=Host()), job=job)


def of(rule: str, *views: FullSnapshot, text: str = TWO, healthy: bool = True) -> RuleReport:
    """What becomes of one rule of the healthy job with these texts beside it, or of the texts alone."""
    found: Report = report(text, *(pair() if healthy else ()), *views)
    return answer(found, rule)
