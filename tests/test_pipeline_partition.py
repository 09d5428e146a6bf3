"""The partition is the best of all, found by trying all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.pipeline.partition import Load, Room, best_counts


def every_partition(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    for cuts in combinations(range(1, layers), stages - 1):
        yield tuple(end - start for start, end in pairwise((0, *cuts, layers)))


def loads_of(load: Load, counts: Sequence[int]) -> list[int]:
    return [load.of(start, end) for start, end in pairwise(accumulate(counts, initial=0))]


def rank(load: Load, counts: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
    """What is to be smallest: the heaviest stage, then the sum of squares, then the first stages."""
    loads = loads_of(load, counts)
    return max(loads), sum(one * one for one in loads), counts


def best_of_all(load: Load, stages: int, room: Room | None = None) -> tuple[int, ...] | None:
    fitting = [
        counts
        for counts in every_partition(len(load.layers), stages)
        if room is None or max(loads_of(room.load, counts)) <= room.most
    ]
    return min(fitting, key=lambda counts: rank(load, counts), default=None)


weights = st.integers(0, 30)
loads = st.builds(Load, st.lists(weights, min_size=1, max_size=9).map(tuple), weights, weights)


@given(loads, st.integers(1, 5))
@settings(max_examples=300, deadline=None)
def test_no_partition_is_better(load: Load, stages: int) -> None:
    found, best = best_counts(load, stages), best_of_all(load, stages)
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        assert rank(load, found)[:2] == rank(load, best)[:2]
        assert sum(found) == len(load.layers)
        assert min(found) >= 1


@given(loads, st.integers(1, 5), st.data())
@settings(max_examples=300, deadline=None)
def test_no_partition_that_has_room_is_better(load: Load, stages: int, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(weights, min_size=len(load.layers), max_size=len(load.layers)))
    room = Room(Load(sizes, data.draw(weights), data.draw(weights)), data.draw(st.integers(0, 150)))
    found, best = best_counts(load, stages, room), best_of_all(load, stages, room)
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        assert max(loads_of(room.load, found)) <= room.most
        assert rank(load, found)[:2] == rank(load, best)[:2]


def test_equal_layers_divide_evenly() -> None:
    assert best_counts(Load((1,) * 32), 4) == (8, 8, 8, 8)
    assert sorted(best_counts(Load((1,) * 61), 4) or ()) == [15, 15, 15, 16]


def test_ends_take_the_place_of_layers() -> None:
    assert best_counts(Load((10,) * 8, first=20, last=20), 3) == (2, 4, 2)
    assert best_counts(Load((1,) * 4, first=100), 2) == (1, 3)
    assert best_counts(Load((5,), first=7, last=9), 1) == (1,)


def test_fewer_layers_than_stages_have_no_partition() -> None:
    assert best_counts(Load((1, 1)), 3) is None


def test_many_layers_go_on_many_stages() -> None:
    load = Load(tuple(100 + layer % 7 for layer in range(1000)), 500, 700)
    for stages in (2, 64, 500, 1000):
        counts = best_counts(load, stages)
        assert counts is not None
        assert sum(counts) == 1000
