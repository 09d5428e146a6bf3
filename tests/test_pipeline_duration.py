"""Times as people write them."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import UsageError
from topocheck.pipeline.duration import parse_duration, spell_duration


@pytest.mark.parametrize(
    ("words", "time_ns"),
    [
        ("5ms", 5_000_000),
        ("5", 5_000_000),
        ("0.1 s", 100_000_000),
        ("300us", 300_000),
        ("300µs", 300_000),
        (" 7ns ", 7),
        ("0.1ns", Fraction(1, 10)),
    ],
)
def test_a_time_is_exact(words: str, time_ns: Fraction) -> None:
    assert parse_duration(words) == time_ns


@pytest.mark.parametrize(
    "words", ["", "0", "0.0ms", "-5ms", "5 m", "1e3ms", ".5ms", "5.ms", "5ms5", "nan", "1" * 40, "\u0665ms"]
)
def test_what_is_no_time_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match="expected a time above zero such as 5ms"):
        parse_duration(words)


@pytest.mark.parametrize(
    ("time_ns", "words"),
    [
        (35_000_000, "35 ms"),
        (1_100_000_000, "1.1 s"),
        (1_000, "1 us"),
        (999, "999 ns"),
        (Fraction(1, 2), "0.5 ns"),
    ],
)
def test_a_time_is_said_in_the_largest_unit_that_it_fills(time_ns: int, words: str) -> None:
    assert spell_duration(Fraction(time_ns)) == words


@given(st.text(max_size=20))
@settings(max_examples=100, deadline=None)
def test_any_text_gives_a_time_or_a_usage_error(words: str) -> None:
    with contextlib.suppress(UsageError):
        assert parse_duration(words) > 0


@given(st.integers(1, 999), st.sampled_from(["ns", "us", "ms"]))
@settings(max_examples=50, deadline=None)
def test_what_is_said_reads_back(number: int, unit: str) -> None:
    assert spell_duration(parse_duration(f"{number}{unit}")) == f"{number} {unit}"
