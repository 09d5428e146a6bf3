"""Host lists as Slurm writes them: `p[01-03,07],q5`, in the order in which they are written.

ClusterShell expands the ranges, with their zero padding. Its NodeSet would sort the names, and the
order of nodes decides where ranks lie; so the pieces are joined here.
"""

from __future__ import annotations

import re
from itertools import product

__all__ = ["MAX_NODES", "expand"]

MAX_NODES = 1_000_000
"""More names than this are a slip of the keyboard, and `n[1-999999999]` would fill the memory."""
TOO_MANY = f"the host list names more than {MAX_NODES:,} nodes"

TOKEN = re.compile(r"\[[^\[\]]*\]|[^\[\],]+|[\[\],]")
"""Ranges in their brackets, text, and single marks."""
RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def expand(text: str) -> list[str]:
    """Names of the hosts, each as often as it is written, the last bracket counting fastest.

    Raises ValueError with a sentence about what is wrong.
    """
    hosts: list[str] = []
    parts: list[list[str]] = []
    count = 0
    for piece in [*TOKEN.findall(text), ","]:
        if piece == ",":
            hosts += ("".join(name).strip() for name in product(*parts))
            if not hosts[-1]:
                raise ValueError("a name is missing beside a comma of the host list")
            parts, count = [], 0
        elif piece in ("[", "]"):
            raise ValueError("a bracket of the host list is not closed or not opened")
        else:
            parts.append(_numbers(piece[1:-1]) if piece[0] == "[" else [piece])
            count = max(count, 1) * len(parts[-1])
        if len(hosts) + count > MAX_NODES:
            raise ValueError(TOO_MANY)
    return hosts


def _numbers(ranges: str) -> list[str]:
    from ClusterShell.RangeSet import RangeSet, RangeSetException  # noqa: PLC0415 - only where ranges are

    numbers: list[str] = []
    for part in ranges.split(","):
        bounds = RANGE.fullmatch(part.strip())
        if not bounds:
            raise ValueError(
                "brackets of the host list hold something other than numbers and ranges such as 01-04"
            )
        first, last = bounds[1], bounds[2] or bounds[1]
        if len(numbers) + int(last) - int(first) >= MAX_NODES:
            raise ValueError(TOO_MANY)
        try:
            numbers += RangeSet(bounds[0]).striter()
        except RangeSetException as error:
            raise ValueError(f"the range {bounds[0]} of the host list cannot be counted") from error
    return numbers
