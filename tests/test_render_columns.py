"""JSON in columns: what goes in comes out, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import sample_report
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.render.columns import MOST_CHARACTERS, in_columns, in_rows
from topocheck.report import Report

ROWS = [{"rank": rank, "node": f"q{rank // 4}", "layers": [rank, 4]} for rank in range(8)]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=4)
)


def through(value: Any) -> Any:
    """In columns, written, read, in rows."""
    return in_rows(json.loads(json.dumps(in_columns(value))))


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_any_document_comes_back_as_it_was(value: Any) -> None:
    assert through(value) == value
    assert json.dumps(through(value)) == json.dumps(value)


@pytest.mark.parametrize(
    "value",
    [
        ROWS,
        [],
        [[]],
        [{}],
        [{}, {}],
        [True, 1],
        [True] * 9,
        [None] * 9,
        ["a"] * 9,
        [7] * 9,
        [1.0] * 9,
        [0.0, -0.0] * 9,
        [*["a"] * 9, None],
        [1, 1, 1, 1, 1, True],
        [1, 1.0],
        [None, "a", None],
        [{"a": 1}, {"b": 1}],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
        [[1], [], [2, 3]],
        {"0": [0, 1, "x"], "": None},
    ],
)
def test_lists_of_every_kind_come_back(value: Any) -> None:
    assert json.dumps(through(value)) == json.dumps(value)


def test_like_rows_become_columns_and_texts_stand_once() -> None:
    texts, (kind, keys, *columns) = in_columns(ROWS)
    assert texts == ["q0", "q1"]
    assert (kind, keys) == (1, ["rank", "node", "layers"])
    assert columns[0] == [3, 0, 1, 1, 1, 1, 1, 1, 1]
    assert len(columns) == 3


@pytest.mark.parametrize(
    "report", [sample_report.swept(252, marked=[3]), sample_report.split_group(), sample_report.healthy()]
)
def test_a_report_comes_back_as_it_was_and_is_packed_as_its_json_is(report: Report) -> None:
    plain = msgspec.json.decode(msgspec.json.encode(report))
    assert through(report) == plain
    assert in_columns(report) == in_columns(plain)


class Step(msgspec.Struct, tag="step"):
    name: str
    ranks: tuple[int, ...] = ()


class Part(msgspec.Struct):
    name: str
    steps: list[Step] = []
    more: int | msgspec.UnsetType = msgspec.UNSET


class Short(msgspec.Struct, omit_defaults=True, rename="upper"):
    name: str = ""


@pytest.mark.parametrize(
    "value",
    [
        [Part("a"), Part("b", more=1)],
        [Part("b", more=1), Part("a")],
        [Part("a", [Step("x", (1, 2))]), None],
        [Step("x"), Step("y", (1,))],
        [Short(), Short("a")],
        {"a": Short("b"), "b": (Part("a"), Step("c"))},
        Part("a", [Step("x")], 2),
        [((1, 2), [3]), ()],
    ],
)
def test_typed_rows_are_packed_as_their_json_is(value: Any) -> None:
    plain = msgspec.json.decode(msgspec.json.encode(value))
    assert in_columns(value) == in_columns(plain)
    assert through(value) == plain


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        [[]],
        [[1], 2],
        [["a"], [4, [3, 1]]],
        [["a"], [4, [3, -2]]],
        [[], [0, [9]]],
        [[], []],
        [[], [5, 1]],
        [[], [True, 1]],
        [[], [1, ["a"], 3]],
        [[], [1, [], []]],
        [[], [1, ["a", "a"], [3, 1], [3, 1]]],
        [[], [1, ["a", "b"], [3, 1], [3, 1, 1]]],
        [[], [1, [1], [3, 1]]],
        [[], [2, [3, 1], [3, 1, 1]]],
        [[], [2, [3, -1, 3], [3, 1]]],
        [[], [3]],
        [[], [5, 1, 0]],
        [[], [5, 1, -1]],
        [[], [5, 1, True]],
        [[], [5, [], 2]],
        [[], [3, "1"]],
        [[], [3, True]],
    ],
)
def test_what_is_not_in_columns_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        in_rows(value)


def test_a_few_bytes_do_not_repeat_without_end() -> None:
    long = "x" * (MOST_CHARACTERS // 1000)
    with pytest.raises(ValueError, match="without end"):
        in_rows([[long], [4, [3, *[0] * 1001]]])
    with pytest.raises(ValueError, match="without end"):
        in_rows([[], [1, [long], [3, *[0] * 1001]]])
    with pytest.raises(ValueError, match="without end"):
        in_rows([[], [5, None, 10**15]])
    with pytest.raises(ValueError, match="without end"):
        in_rows([[], [5, long, 1001]])


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_any_other_document_is_refused_or_read(value: Any) -> None:
    try:
        found = in_rows(value)
    except ValueError:
        return
    assert in_rows(in_columns(found)) == found
