"""Is there an assignment where every pair of a group has NVLink."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from build import paired
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.regroup import linked_groups, smaller_size


def bridged(a: int, b: int) -> bool:
    return paired(a, b) == "NV4"


def test_pairs_that_are_not_adjacent_are_found() -> None:
    assert linked_groups([0, 1, 2, 3], 2, 2, bridged) == [[0, 2], [1, 3]]
    assert linked_groups([0, 1, 2, 3], 2, 1, bridged) == [[0, 2]]


def test_what_is_impossible_is_none() -> None:
    assert linked_groups([0, 1, 2, 3], 4, 1, bridged) is None
    assert linked_groups([0, 1], 2, 2, bridged) is None
    assert linked_groups([], 2, 1, bridged) is None


def test_a_greedy_choice_is_taken_back() -> None:
    path = {(0, 1), (1, 2), (2, 3)}
    assert linked_groups([0, 1, 2, 3], 2, 2, lambda a, b: (min(a, b), max(a, b)) in path) == [[0, 1], [2, 3]]
    star = {(0, 1), (1, 2), (0, 3)}
    assert linked_groups([0, 1, 2, 3], 2, 2, lambda a, b: (min(a, b), max(a, b)) in star) == [[0, 3], [1, 2]]


def test_the_largest_smaller_size_that_fits_is_advised() -> None:
    assert smaller_size([0, 1, 2, 3], 4, bridged) == (2, [[0, 2], [1, 3]])
    assert smaller_size(list(range(8)), 8, lambda a, b: a // 4 == b // 4) == (4, [[0, 1, 2, 3], [4, 5, 6, 7]])
    assert smaller_size([0, 1, 2, 3], 4, lambda a, b: a == b) is None
    assert smaller_size([0, 1, 2], 2, bridged) is None


@pytest.mark.parametrize("linked", [False, True])
def test_sixteen_gpus_are_answered_at_once(linked: bool) -> None:
    found = linked_groups(list(range(16)), 8, 2, lambda a, b: linked or (a + b) % 3 == 0)
    assert (found is not None) is linked


@given(st.integers(1, 3), st.integers(1, 2), st.integers(2, 6), st.data())
@settings(max_examples=100, deadline=None)
def test_the_answer_is_that_of_trying_everything(
    size: int, count: int, gpus: int, data: st.DataObject
) -> None:
    edges = {pair for pair in combinations(range(gpus), 2) if data.draw(st.booleans())}

    def linked(a: int, b: int) -> bool:
        return (min(a, b), max(a, b)) in edges

    def whole(group: tuple[int, ...]) -> bool:
        return all(linked(a, b) for a, b in combinations(group, 2))

    possible = any(
        all(whole(order[n * size : (n + 1) * size]) for n in range(count))
        for order in permutations(range(gpus), size * count)
    )
    found = linked_groups(list(range(gpus)), size, count, linked)
    assert (found is not None) == possible
    if found is not None:
        used = [gpu for group in found for gpu in group]
        assert len(set(used)) == size * count
        assert all(whole(tuple(group)) for group in found)
