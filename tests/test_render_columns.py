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


def test_a_report_comes_back_as_it_was() -> None:
    plain = msgspec.to_builtins(sample_report.swept(252, marked=[3]))
    assert through(plain) == plain


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


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_any_other_document_is_refused_or_read(value: Any) -> None:
    try:
        in_rows(value)
    except ValueError:
        return
