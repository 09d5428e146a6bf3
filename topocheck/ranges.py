"""Numbers and names folded as people read them, `0..3, 8`, and ranks counted within their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["first", "fold", "local_ranks"]


def fold(numbers: Iterable[int], most: int = 12) -> str:
    """Ascending ranges; after `most` of them only how many numbers are left."""
    ordered = sorted(set(numbers))
    ranges: list[tuple[int, int]] = []
    for number in ordered:
        if ranges and ranges[-1][1] + 1 == number:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    shown = [str(a) if a == b else f"{a}, {b}" if a + 1 == b else f"{a}..{b}" for a, b in ranges[:most]]
    left = sum(b - a + 1 for a, b in ranges[most:])
    return ", ".join(shown) + (f" and {left} more" if left else "")


def first(names: Iterable[str], most: int = 8) -> str:
    """The first names, and how many more there are."""
    listed = list(names)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")


def local_ranks(nodes: Sequence[int]) -> list[int]:
    """Local rank by rank: how many lower ranks are on the same node."""
    seen: dict[int, int] = {}
    ranks = []
    for node in nodes:
        ranks.append(seen.get(node, 0))
        seen[node] = ranks[-1] + 1
    return ranks
