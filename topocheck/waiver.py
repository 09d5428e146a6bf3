"""What a waiver is for, in its own words: a day, ranks, a group, names and patterns of nodes.

Everything here is written by people into files, and refused rather than guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from fnmatch import translate

from topocheck.hostlist import expand
from topocheck.spelling import AXIS_NAMES, suggest

__all__ = ["MAX_NAMED", "NodePatterns", "parse_day", "parse_group", "parse_nodes", "parse_ranks"]

MAX_NAMED = 100_000
"""Nodes that all waivers of a file may name one by one; patterns name any number."""
MAX_PATTERNS = 100
"""Patterns with wildcards of one waiver: each is tried on every node."""
LONGEST = 255
"""Characters of a host name."""

DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
RANKS = re.compile(r"(0|[1-9][0-9]{0,8})(?:\.\.(0|[1-9][0-9]{0,8}))?")
GROUP = re.compile(r"([A-Za-z_]+) (?:group )?(0|[1-9][0-9]{0,8})")
NOT_IN_A_PATTERN = re.compile(r"[\s\[\](){},@!&^]")
KINDS = {short.upper(): axis for axis, short in AXIS_NAMES.items()}
"""Kinds of group as people write them -> as a plan does."""


def parse_day(text: str) -> date:
    """The day of `2026-12-31`. Raises ValueError with what is wrong."""
    if not DAY.fullmatch(text):
        raise ValueError("is no day: write year-month-day, for instance 2026-12-31")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError("is no day of the calendar: write for instance 2026-12-31") from None


def parse_ranks(text: str) -> range:
    """The ranks of `5` or `0..7`, both ends included. Raises ValueError with what is wrong."""
    found = RANKS.fullmatch(text)
    if not found:
        meant = re.fullmatch(r"\s*([0-9]{1,9})\s*[-:]\s*([0-9]{1,9})\s*", text)
        raise ValueError(
            f"is no range of ranks: write {int(meant[1])}..{int(meant[2])}"
            if meant
            else "is no range of ranks: write for instance 0..7, and several as a list [0..3, 8]"
        )
    first, last = int(found[1]), int(found[2] or found[1])
    if first > last:
        raise ValueError(f"ends before it starts: write {last}..{first}")
    return range(first, last + 1)


def parse_group(text: str) -> tuple[str, int]:
    """Axis and number of the group `TP 3`. Raises ValueError with what is wrong."""
    found = GROUP.fullmatch(text)
    kind = found[1] if found else ""
    if found and kind.upper() in KINDS:
        return KINDS[kind.upper()], int(found[2])
    if found and kind in AXIS_NAMES:
        return kind, int(found[2])
    meant = suggest(kind, [*KINDS, *AXIS_NAMES]) if kind else None
    raise ValueError(
        f"is no group: did you mean '{meant}'?"
        if meant
        else "is no group: write its kind and number, for instance TP 3"
    )


def parse_nodes(text: str) -> list[str]:
    """Names and patterns of `gpu-0*`, `n[01-04]`, `a,b`. Raises ValueError with what is wrong."""
    names = expand(text)
    for name in names:
        if len(name) > LONGEST:
            raise ValueError(f"holds a name of {len(name)} characters: a host name has {LONGEST} at most")
        if bad := NOT_IN_A_PATTERN.search(name):
            raise ValueError(f"is no name or pattern of nodes: remove '{bad[0]}'")
    if sum(map(is_pattern, names)) > MAX_PATTERNS:
        raise ValueError(f"holds more than {MAX_PATTERNS} patterns: say it with fewer")
    return names


def is_pattern(name: str) -> bool:
    """It has a wildcard."""
    return "*" in name or "?" in name


class NodePatterns:
    """Names and patterns of nodes, ready to be held against many names."""

    def __init__(self, texts: Sequence[str]) -> None:
        named = [name for text in texts for name in parse_nodes(text)]
        self._names = frozenset(name for name in named if not is_pattern(name))
        # fnmatch makes expressions that never go back, so that no pattern takes long on any name.
        patterns = [translate(name) for name in named if is_pattern(name)]
        self._patterns = re.compile("|".join(patterns)) if patterns else None

    def match(self, names: Iterable[str]) -> bool:
        """One of a node's names is meant."""
        return any(
            name in self._names or (self._patterns is not None and bool(self._patterns.match(name)))
            for name in names
        )
