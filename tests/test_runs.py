"""Lists by rank are handled run by run where each run holds one entry."""

from __future__ import annotations

import pytest

from topocheck.runs import runs_of, spread


def test_runs_of_equal_neighbours_are_their_entries() -> None:
    assert runs_of([4, 4, 7, 7, None, None], 2) == [4, 7, None]


@pytest.mark.parametrize("entries", [[4, 4, 7, 8], [4, 7, 7, 4], [4, 4, 4], [4, 4, 7, 7, 7]])
def test_a_run_of_unlike_or_missing_entries_makes_no_runs(entries: list[int]) -> None:
    assert runs_of(entries, 2) is None


def test_entries_are_spread_over_their_runs() -> None:
    assert spread([4, 7], 3) == [4, 4, 4, 7, 7, 7]
    assert runs_of(spread([4, 7], 3), 3) == [4, 7]
