"""The bubble over several sizes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import UsageError
from topocheck.pipeline.sweep import Sweep, parse_sizes, percent, sweep, table


@pytest.mark.parametrize(
    ("words", "sizes"), [("4", [4]), ("2,4,8", [2, 4, 8]), ("1..4", [1, 2, 3, 4]), ("8, 2..3,8", [8, 2, 3])]
)
def test_sizes_are_numbers_and_ranges(words: str, sizes: list[int]) -> None:
    assert parse_sizes(words, "--stages", 100) == sizes


@pytest.mark.parametrize(
    "words",
    ["", "0", "-4", "4,", "4..2", "0..3", "101", "1..101", "4.5", "a", "9" * 30, "²", "1...3", "4\n5"],
)
def test_what_is_no_size_is_refused_with_the_option(words: str) -> None:
    with pytest.raises(UsageError, match="--stages must be numbers from 1 to 100"):
        parse_sizes(words, "--stages", 100)


def test_a_range_without_end_is_refused_before_it_is_written_out() -> None:
    with pytest.raises(UsageError, match="10,000 numbers are the most"):
        parse_sizes("1..999999999", "--microbatches", 10**9)


@given(st.text("0123456789.,- x", max_size=12))
@settings(max_examples=100, deadline=None)
def test_any_text_gives_sizes_or_a_usage_error(words: str) -> None:
    with contextlib.suppress(UsageError):
        sizes = parse_sizes(words, "--stages", 5000)
        assert sizes
        assert all(1 <= size <= 5000 for size in sizes)
        assert len(set(sizes)) == len(sizes)


def test_the_table_is_that_of_the_hand_calculation() -> None:
    cells = sweep(Sweep(stages=[4, 8], microbatches=[4, 8, 32]))
    assert [line.split() for line in table(cells)] == [
        ["m", "p=4", "p=8"],
        ["4", "42.9", "63.6"],
        ["8", "27.3", "46.7"],
        ["32", "8.6", "17.9"],
    ]


def test_many_stages_go_on_in_another_block() -> None:
    lines = list(table(sweep(Sweep(stages=range(1, 12), microbatches=[3]))))
    assert [len(line.split()) for line in lines] == [10, 10, 0, 3, 3]
    assert max(map(len, lines)) <= 80


def test_sizes_that_interleaving_refuses_are_a_dash() -> None:
    cells = sweep(Sweep(stages=[4], microbatches=[8, 9], schedule="interleaved", chunks=2))
    assert [cell.idle is None for cell in cells] == [False, True]
    assert list(table(cells))[-1].split() == ["9", "-"]
    with pytest.raises(UsageError, match="no combination"):
        sweep(Sweep(stages=[4], microbatches=[9, 11], schedule="interleaved", chunks=2))


def test_a_sweep_is_bounded() -> None:
    with pytest.raises(UsageError, match="too much"):
        sweep(Sweep(stages=range(1, 200), microbatches=range(1, 200)))
    with pytest.raises(UsageError, match="would simulate"):
        sweep(Sweep(stages=range(300, 400), microbatches=range(90, 100), schedule="interleaved", chunks=4))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (None, "-"),
        (0.0, "0.0 %"),
        (1e-9, "<0.1 %"),
        (0.4286, "42.9 %"),
        (0.99999, ">99.9 %"),
        (1.0, "100.0 %"),
    ],
)
def test_a_part_is_never_rounded_to_nothing_or_to_all(part: float | None, words: str) -> None:
    assert percent(part) == words
