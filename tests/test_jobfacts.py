"""What is stated about the job as a whole."""

from __future__ import annotations

import pytest
from build import TWO, pair, placed
from hypothesis import given, settings
from hypothesis import strategies as st
from stating import said

from topocheck.jobfacts import facts_of, number, the_job


def test_statements_are_found_by_kind_in_the_order_of_their_texts() -> None:
    texts = said(("size", "tensor", "4"), ("world", "", "8")), said(("size", "pipeline", "2"), source="b.log")
    placement = placed(TWO, *pair(), *texts)
    assert [fact.name for fact in facts_of(placement, "size")] == ["tensor", "pipeline"]
    assert [fact.kind for fact in facts_of(placement, "size", "world")] == ["size", "world", "size"]
    assert facts_of(placement, "abort") == []


def test_a_text_of_statements_is_no_host() -> None:
    placement = placed(TWO, *pair(), said(("world", "", "8")))
    assert [machine.name for machine in placement.inventory.machines] == ["node-a", "node-b"]
    assert placement.inventory.unlabelled == []


def test_the_job_is_one_subject() -> None:
    placement = placed(TWO)
    assert list(the_job(placement).values()) == [[placement]]


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("16", 16), ("", None), ("-1", None), ("2:4", None), ("$N", None), ("4.0", None)],
)
def test_a_number_is_decimal_digits_and_nothing_else(text: str, value: int | None) -> None:
    assert number(text) == value


@given(st.text(max_size=30))
@settings(max_examples=50, deadline=None)
def test_any_text_is_a_number_or_none(text: str) -> None:
    value = number(text)
    assert value is None or (0 <= value < 1_000_000_000 and int(text) == value)
