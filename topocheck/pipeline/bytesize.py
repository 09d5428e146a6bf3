"""Sizes of memory as people write them, as whole bytes."""

from __future__ import annotations

import re
from fractions import Fraction

from topocheck.errors import UsageError

__all__ = ["parse_bytes", "spell_bytes"]

UNITS = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
DECIMAL = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3, "B": 1}
NAMES = {unit.lower(): size for unit, size in (UNITS | DECIMAL).items()}
SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s?([A-Za-z]{1,3})")


def parse_bytes(words: str) -> int:
    """Bytes of `80GiB`, `141 GB`, `512MiB`; the unit has to be there. Raises UsageError."""
    match = SIZE.fullmatch(words.strip())
    size = NAMES.get(match[2].lower()) if match else None
    if match is None or size is None:
        raise UsageError(f"expected a size with its unit such as 80GiB or 141GB, got {words.strip()[:40]!r}")
    return int(Fraction(match[1]) * size)


def spell_bytes(size: int) -> str:
    """`15.3 GiB`, in the largest unit that it fills, to four digits."""
    unit = next((unit for unit in UNITS if size >= UNITS[unit]), "B")
    return f"{size / UNITS.get(unit, 1):.4g} {unit}"
