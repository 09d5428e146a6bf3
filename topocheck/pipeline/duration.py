"""Times as people write them, as exact nanoseconds."""

from __future__ import annotations

import re
from fractions import Fraction

from topocheck.errors import UsageError

__all__ = ["parse_duration", "spell_duration"]

UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "µs": 1_000, "ns": 1}
"""Nanoseconds."""
DURATION = re.compile(rf"([0-9]{{1,12}}(?:\.[0-9]{{1,12}})?)\s?({'|'.join(UNITS)})?")


def parse_duration(words: str) -> Fraction:
    """Nanoseconds of `5ms`, `0.5 s`, `300us`; a number alone is ms. Raises UsageError."""
    match = DURATION.fullmatch(words.strip())
    if match is None or not Fraction(match[1]):
        raise UsageError(f"expected a time above zero such as 5ms, 300us or 0.5s, got {words.strip()[:40]!r}")
    return Fraction(match[1]) * UNITS[match[2] or "ms"]


def spell_duration(time_ns: Fraction) -> str:
    """`35 ms`, in the largest unit that it fills, to six digits."""
    unit = next((unit for unit in UNITS if time_ns >= UNITS[unit]), "ns")
    return f"{float(time_ns / UNITS[unit]):.6g} {unit}"
