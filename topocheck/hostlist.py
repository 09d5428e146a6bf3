"""Host lists as Slurm writes them: `p[01-03,07],q5`, in the order in which they are written.

ClusterShell expands the ranges, with their zero padding. Its NodeSet would sort the names, and the
order of nodes decides where ranks lie; so the pieces are joined here.
"""

from __future__ import annotations

import re
from itertools import product
from math import prod

from ClusterShell.RangeSet import RangeSet, RangeSetException

__all__ = ["MAX_NODES", "expand"]

MAX_NODES = 1_000_000
"""More names than this are a slip of the keyboard, and `n[1-999999999]` would fill the memory."""

BETWEEN = re.compile(r"\s*,\s*(?![^\[\]]*\])")
"""Commas outside brackets."""
RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def expand(text: str) -> list[str]:
    """Names of the hosts, each as often as it is written, the last bracket counting fastest.

    Raises ValueError with a sentence about what is wrong.
    """
    hosts: list[str] = []
    for piece in BETWEEN.split(text.strip()):
        if not piece:
            raise ValueError("a name is missing beside a comma of the host list")
        choices = [_numbers(part) if odd % 2 else [part] for odd, part in enumerate(_parts(piece))]
        if len(hosts) + prod(map(len, choices)) > MAX_NODES:
            raise ValueError(f"the host list names more than {MAX_NODES:,} nodes")
        hosts += map("".join, product(*choices))
    return hosts


def _parts(piece: str) -> list[str]:
    """Text and the contents of brackets in turn, text first."""
    parts = re.split(r"\[([^\[\]]*)\]", piece)
    if any(mark in text for text in parts[::2] for mark in "[]"):
        raise ValueError("a bracket of the host list is not closed or not opened")
    return parts


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        bounds = RANGE.fullmatch(part.strip())
        if not bounds:
            raise ValueError(
                "brackets of the host list hold something other than numbers and ranges such as 01-04"
            )
        first, last = bounds[1], bounds[2] or bounds[1]
        if len(numbers) + int(last) - int(first) >= MAX_NODES:
            raise ValueError(f"the host list names more than {MAX_NODES:,} nodes")
        try:
            numbers += RangeSet(bounds[0]).striter()
        except RangeSetException as error:
            raise ValueError(f"the range {bounds[0]} of the host list cannot be counted") from error
    return numbers
