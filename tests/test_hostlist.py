"""Host lists are expanded in the order in which they are written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.hostlist import MAX_NODES, expand


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("one", ["one"]),
        ("q[01-03,07],r5", ["q01", "q02", "q03", "q07", "r5"]),
        ("q[3,1-2]", ["q3", "q1", "q2"]),
        ("q9,q10", ["q9", "q10"]),
        ("q[8-11]", ["q8", "q9", "q10", "q11"]),
        ("q[098-101]", ["q098", "q099", "q100", "q101"]),
        ("rack[1-2]q[01-02]x", ["rack1q01x", "rack1q02x", "rack2q01x", "rack2q02x"]),
        ("10.1.0.[7-8]", ["10.1.0.7", "10.1.0.8"]),
        (" a , b ", ["a", "b"]),
        ("a,a", ["a", "a"]),
    ],
)
def test_names_keep_their_order_and_their_zeros(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q[1", "bracket"),
        ("q1]", "bracket"),
        ("q[[1]]", "bracket"),
        ("q[]", "numbers and ranges"),
        ("q[a-c]", "numbers and ranges"),
        ("q[1-3/2]", "numbers and ranges"),
        ("q[4-1]", "range 4-1"),
        ("q[9-010]", "range 9-010"),
        ("a,,b", "missing"),
        ("", "missing"),
        ("q[1-999999999]", "more than 1,000,000"),
        ("q[1-9999]r[1-9999]", "more than 1,000,000"),
        ("q[1-600000,1-600000]", "more than 1,000,000"),
        ("q" + "[1-9999]" * 50_000, "more than 1,000,000"),
    ],
)
def test_what_cannot_be_counted_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        expand(text)


def test_a_long_list_is_read_in_one_go() -> None:
    names = [f"q{number}" for number in range(100_000)]
    assert expand(",".join(names)) == names


@given(st.text(st.sampled_from("ab[]-,019/ @!&%\n"), max_size=16))
@settings(max_examples=100, deadline=None)
def test_any_text_is_expanded_or_refused(text: str) -> None:
    hosts = expanded(text)
    assert isinstance(hosts, str) or 0 < len(hosts) <= MAX_NODES
    assert isinstance(hosts, str) or not any(mark in host for host in hosts for mark in "[],")


def expanded(text: str) -> list[str] | str:
    try:
        return expand(text)
    except ValueError as error:
        return str(error)
