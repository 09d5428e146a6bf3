"""Other ways to put tensor groups on the GPUs of one node: is there one where every pair has NVLink."""

from __future__ import annotations

from collections.abc import Callable, Iterator

__all__ = ["linked_groups", "smaller_size"]

Linked = Callable[[int, int], bool]
MOST_STEPS = 200_000
"""Search steps after which the answer is taken as no: nodes have at most 16 GPUs or so."""


def linked_groups(gpus: list[int], size: int, count: int, linked: Linked) -> list[list[int]] | None:
    """`count` disjoint groups of `size` GPUs, each fully linked, in ascending order; None if impossible."""
    steps = iter(range(MOST_STEPS))

    def cover(free: list[int], left: int) -> list[list[int]] | None:
        if left == 0:
            return []
        for clique in cliques(free, size, linked):
            if next(steps, None) is None:
                return None
            rest = cover([gpu for gpu in free if gpu not in clique], left - 1)
            if rest is not None:
                return [clique, *rest]
        return None

    return cover(sorted(gpus), count)


def cliques(free: list[int], size: int, linked: Linked) -> Iterator[list[int]]:
    """Fully linked groups among the free GPUs, in lexicographic order."""
    if size == 0:
        yield []
        return
    for place, gpu in enumerate(free):
        near = [other for other in free[place + 1 :] if linked(gpu, other)]
        for rest in cliques(near, size - 1, linked):
            yield [gpu, *rest]


def smaller_size(gpus: list[int], size: int, linked: Linked) -> tuple[int, list[list[int]]] | None:
    """The largest proper divisor of `size`, above 1, for which all the GPUs fall into linked groups."""
    for smaller in range(size // 2, 1, -1):
        if size % smaller or len(gpus) % smaller:
            continue
        groups = linked_groups(gpus, smaller, len(gpus) // smaller, linked)
        if groups is not None:
            return smaller, groups
    return None
