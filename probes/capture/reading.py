"""What one parser took from one text.

Each kind of text has a module with `KIND` and `parse(text) -> list[Reading]`. A parser looks at the
whole text, takes the lines that it is sure of, and leaves the rest to others: one file may hold the
output of several tools. It never guesses: what cannot be aligned is a CaptureError with the line,
what is cut is a Note and makes the coverage `part`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from topocheck.snapshot import FullSnapshot

__all__ = ["Note", "Parser", "Reading", "Text"]


@dataclass(frozen=True, slots=True)
class Text:
    """One captured file, decoded, without terminal escapes."""

    source: str
    """Name as the user gave it; goes into every `At`."""
    lines: tuple[str, ...]
    """Lines without their ends; line n of the file is lines[n - 1]."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something about the text that the user must know; it accuses nobody."""

    line: int | None
    """Line, from 1."""
    kind: Literal["cut", "contradictory", "repaired", "ignored"]
    """What sort of thing."""
    text: str
    """In words."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Facts of one kind from one text."""

    kind: str
    """What it was recognised as, for instance `nvidia-smi topo -m`."""
    snapshots: tuple[FullSnapshot, ...]
    """One for each host that the text names; a host without a name is a text that names none."""
    lines: frozenset[int]
    """Lines that were used, from 1."""
    facts: int
    """How many facts were taken, for the report of `import`."""
    notes: tuple[Note, ...] = ()
    """What was cut, repaired, ignored or contradictory."""


Parser = Callable[[Text], list[Reading]]
"""Takes a text, gives what it is sure of; [] if the text has nothing of its kind."""
