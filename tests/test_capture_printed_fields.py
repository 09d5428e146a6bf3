"""What Python printed, as fields by name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.printed_fields import parse_fields, read_fields, whole


@pytest.mark.parametrize(
    ("text", "fields", "closed"),
    [
        (
            "a=1, b='x, y', c=[1, {'a': 2}], d=F(a=3)) rest",
            {"a": "1", "b": "x, y", "c": "[1, {'a': 2}]", "d": "F(a=3)"},
            True,
        ),
        ("'a': 1, \"b\": None}", {"a": "1", "b": "None"}, True),
        ("a='it\\'s)', b=\"q'\")", {"a": "it\\'s)", "b": "q'"}, True),
        ("a=1, b=1", {"a": "1"}, False),
        ("a=1, a=2)", {"a": "1"}, True),
        (")", {}, True),
        ("", {}, False),
    ],
)
def test_fields_end_at_their_bracket(text: str, fields: dict[str, str], closed: bool) -> None:
    assert parse_fields(text) == (fields, closed)


def test_broken_lines_are_joined_until_another_message_begins() -> None:
    lines = ("x(a=1, na", "me=2, b=3", ")", "INFO next")
    found = read_fields(lines, 1, "a=1, na", lambda line: line.startswith("INFO"))
    assert (found.fields, found.lines, found.closed) == ({"a": "1", "name": "2", "b": "3"}, (1, 2, 3), True)
    cut = read_fields(lines[:2] + lines[3:], 1, "a=1, na", lambda line: line.startswith("INFO"))
    assert (cut.fields, cut.lines, cut.closed) == ({"a": "1", "name": "2"}, (1,), False)


def test_only_whole_numbers_are_numbers() -> None:
    assert [whole(text) for text in ("16", " 2 ", "", "-1", "1.0", "True", "\u0661")] == [16, 2, *[None] * 5]


@settings(max_examples=50, deadline=None)
@given(st.text("ab=,:'\"\\()[]{} 1", max_size=60))
def test_any_text_is_split_in_one_pass(text: str) -> None:
    fields, closed = parse_fields(text)
    assert all(name.strip() for name in fields)
    assert not closed or any(bracket in text for bracket in ")]}")


def test_hostile_quotes_take_no_longer_than_their_length() -> None:
    assert parse_fields("a='" + "\\'" * 200_000) == ({}, False)
