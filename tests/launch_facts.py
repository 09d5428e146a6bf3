"""Statements about the whole job, short enough to compare."""

from __future__ import annotations

from collections.abc import Iterable

from topocheck.probes.capture.reading import Reading, Text

__all__ = ["facts", "one", "text"]

Fact = tuple[str, str, str]


def text(*lines: str) -> Text:
    """A capture of these lines."""
    return Text("x", tuple(line for part in lines for line in part.split("\n")))


def one(readings: list[Reading]) -> Reading:
    """The only reading."""
    (reading,) = readings
    return reading


def facts(readings: Iterable[Reading], *kinds: str) -> list[Fact]:
    """(kind, name, value) in order, of these kinds only if there are any."""
    found = [fact for reading in readings for snapshot in reading.snapshots for fact in snapshot.job]
    return [(fact.kind, fact.name, fact.value) for fact in found if not kinds or fact.kind in kinds]
