"""The most even cut of layers into stages."""

from __future__ import annotations

from itertools import accumulate, combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.pipeline.cut import evenest_cut


def largest(costs: list[int], counts: list[int], first: int, last: int) -> int:
    """What the largest stage bears."""
    sizes = [sum(costs[a:b]) for a, b in pairwise(accumulate(counts, initial=0))]
    sizes[0] += first
    sizes[-1] += last
    return max(sizes)


def test_the_head_takes_layers_from_the_last_stage() -> None:
    assert evenest_cut([10] * 12, 3) == [4, 4, 4]
    assert evenest_cut([10] * 12, 3, last=30) == [5, 5, 2]
    assert evenest_cut([10] * 12, 3, first=30, last=30) == [3, 6, 3]


def test_fewer_layers_than_stages_have_no_cut() -> None:
    assert evenest_cut([1, 1], 3) is None
    assert evenest_cut([1], 0) is None


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(0, 99),
    st.integers(0, 99),
)
@settings(max_examples=50, deadline=None)
def test_no_other_cut_is_more_even(costs: list[int], stages: int, first: int, last: int) -> None:
    found = evenest_cut(costs, stages, first=first, last=last)
    if len(costs) < stages:
        assert found is None
        return
    assert found is not None
    assert (sum(found), len(found), min(found) > 0) == (len(costs), stages, True)
    cuts = [
        [b - a for a, b in pairwise((0, *inner, len(costs)))]
        for inner in combinations(range(1, len(costs)), stages - 1)
    ]
    assert largest(costs, found, first, last) == min(largest(costs, cut, first, last) for cut in cuts)
