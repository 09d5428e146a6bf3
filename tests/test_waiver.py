"""What a waiver is for is read as written, or refused in words; no pattern takes long."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.waiver import NodePatterns, parse_day, parse_group, parse_nodes, parse_ranks

FEW = settings(max_examples=50, deadline=None)


def test_a_day_is_a_day_of_the_calendar() -> None:
    assert parse_day("2028-02-29") == date(2028, 2, 29)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-2-3", "is no day: write year-month-day, for instance 2026-12-31"),
        ("31.12.2026", "is no day: "),
        ("2026-12-31T00:00:00Z", "is no day: "),
        ("20261231", "is no day: "),
        ("never", "is no day: "),
        ("\u0662026-12-31", "is no day: "),
        ("2026-02-30", "is no day of the calendar: "),
        ("0000-01-01", "is no day of the calendar: "),
        ("", "is no day: "),
    ],
)
def test_anything_else_is_no_day(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_day(text)


def test_ranks_have_both_ends() -> None:
    assert list(parse_ranks("3")) == [3]
    assert list(parse_ranks("0..2")) == [0, 1, 2]
    assert len(parse_ranks("0..999999999")) == 1_000_000_000


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0-7", r"is no range of ranks: write 0\.\.7"),
        ("7..0", r"ends before it starts: write 0\.\.7"),
        ("010", "is no range of ranks"),
        ("0..7, 9", r"several as a list \[0\.\.3, 8\]"),
        ("all", "is no range of ranks"),
        ("-1", "is no range of ranks"),
        ("9999999999", "is no range of ranks"),
    ],
)
def test_other_words_are_no_ranks(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_ranks(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("TP 3", ("tensor", 3)),
        ("tp group 0", ("tensor", 0)),
        ("PP 1", ("pipeline", 1)),
        ("expert 2", ("expert", 2)),
    ],
)
def test_a_group_is_its_kind_and_number(text: str, meant: tuple[str, int]) -> None:
    assert parse_group(text) == meant


@pytest.mark.parametrize("text", ["TP", "3", "TP3", "TP -1", "TP 01", "rack 3", "", "TP 3 4"])
def test_other_words_are_no_group(text: str) -> None:
    with pytest.raises(ValueError, match="is no group"):
        parse_group(text)


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("gpu-0*", ["gpu-0", "gpu-01.site"], ["gpu-1", "xgpu-01", "GPU-01"]),
        ("n[01-03]", ["n01", "n03"], ["n1", "n04", "n01.site"]),
        ("n[1-2]-*", ["n1-a", "n2-"], ["n3-a"]),
        ("a,b?", ["a", "b1"], ["b", "ab1"]),
        ("a.b", ["a.b"], ["axb"]),
        ("*", ["anything at all"], []),
    ],
)
def test_nodes_are_names_host_lists_and_wildcards(pattern: str, names: list[str], others: list[str]) -> None:
    patterns = NodePatterns([pattern])
    assert [name for name in names if not patterns.match([name])] == []
    assert [name for name in others if patterns.match([name])] == []


def test_a_node_is_meant_by_any_of_its_names() -> None:
    assert NodePatterns(["gpu-01"]).match(["ip-10-0-0-1", "gpu-01"])
    assert not NodePatterns(["gpu-01"]).match([])


@pytest.mark.parametrize(
    "text",
    ["n[!0]", "n[a-z]", "a b", "a,,b", "n[1", "n[1-999999999]", "{a}", "!a", "x" * 256, "@all", "a[1-999]*"],
)
def test_patterns_that_cannot_be_meant_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_nodes(text)


def test_a_hostile_pattern_goes_back_nowhere() -> None:
    """With a common translation of `*` this would take longer than the sun burns."""
    patterns = NodePatterns(["*a" * 120 + "*b"])
    assert not patterns.match(["a" * 250])
    assert patterns.match(["a" * 250 + "b"])


def refused(parse: Callable[[str], object], text: str) -> str | None:
    """What a parser says of a text; None if it reads it."""
    try:
        parse(text)
    except ValueError as error:
        return str(error) or "nothing"
    return None


@given(st.text(max_size=30))
@FEW
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_day, parse_ranks, parse_group, parse_nodes):
        said = refused(parse, text)
        assert said is None or said.isprintable() or not text.isprintable()


@given(st.text(alphabet="ab*?-", min_size=1, max_size=12), st.text(alphabet="ab-", max_size=12))
@FEW
def test_wildcards_mean_what_they_say(pattern: str, name: str) -> None:
    def meant(pattern: str, name: str) -> bool:
        if not pattern:
            return not name
        if pattern[0] == "*":
            return any(meant(pattern[1:], name[start:]) for start in range(len(name) + 1))
        return bool(name) and pattern[0] in ("?", name[0]) and meant(pattern[1:], name[1:])

    assert NodePatterns([pattern]).match([name]) == meant(pattern, name)
