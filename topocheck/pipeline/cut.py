"""The most even cut of a model's layers into stages."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["evenest_cut"]


def evenest_cut(costs: Sequence[int], stages: int, *, first: int = 0, last: int = 0) -> list[int] | None:
    """Layers of each stage so that the largest stage is as small as it can be, each with a layer at least.

    `costs` are those of the layers in order, `first` and `last` what the end stages bear besides. None with
    fewer layers than stages.
    """
    if len(costs) < stages or stages < 1:
        return None
    low, high = 0, sum(costs) + first + last
    while low < high:
        middle = (low + high) // 2
        if _filled(costs, stages, middle, first, last) is None:
            low = middle + 1
        else:
            high = middle
    return _filled(costs, stages, low, first, last)


def _filled(costs: Sequence[int], stages: int, most: int, first: int, last: int) -> list[int] | None:
    """Stages filled from the front up to `most` each; None where the layers do not fit.

    A stage stops early where the stages after it would be left without a layer.
    """
    counts, at = [], 0
    for stage in range(stages):
        room = most - (first if stage == 0 else 0) - (last if stage == stages - 1 else 0)
        begin, after = at, stages - stage - 1
        while at < len(costs) - after and costs[at] <= room:
            room -= costs[at]
            at += 1
        if at == begin:
            return None
        counts.append(at - begin)
    return counts if at == len(costs) else None
