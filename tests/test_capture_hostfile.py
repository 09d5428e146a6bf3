"""Host files in captured text: hosts in order, slots where they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_facts import facts, one, text

from topocheck.errors import CaptureError
from topocheck.probes.capture.hostfile import parse
from topocheck.probes.capture.text import read_text

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"


def test_hosts_with_slots_are_a_host_file_anywhere() -> None:
    reading = one(parse(text("# ours", "", "w1 slots=8", "w2 slots=4 max_slots=8  # old", "", "done")))
    assert facts([reading]) == [
        ("host-slots", "w1", "8"),
        ("node-order", "", "w1 w2"),
        ("host-slots", "w2", "4"),
    ]
    assert reading.lines == {3, 4}


def test_other_forms_are_read_where_a_command_names_the_file() -> None:
    shown = text("$ cat hostfile", "w1:8", "w2:8", "$ ls", "a", "b")
    assert facts(parse(shown)) == [
        ("host-slots", "w1", "8"),
        ("node-order", "", "w1 w2"),
        ("host-slots", "w2", "8"),
    ]
    assert facts(parse(text("$ cat machines.txt", "w1", "w2"))) == [("node-order", "", "w1 w2")]
    assert parse(text("$ cat notes.txt", "w1", "w2:8")) == []
    assert facts(parse(text("$ cat hosts", "w1", "w2"))) == [("node-order", "", "w1 w2")]


@pytest.mark.parametrize(
    "line", ["w1:8080", "server slots=4 busy now", "KV cache slots = 128", "slots=8", "a b slots=3 c"]
)
def test_other_lines_are_no_host_file(line: str) -> None:
    assert parse(text("x", line, "y")) == []


def test_a_damaged_line_of_a_named_file_is_an_error_with_its_line() -> None:
    with pytest.raises(CaptureError, match=r"x:4: "):
        parse(text("hello", "$ cat hostfile", "w1 slots=8", "w2 slots=eight", "w3 slots=8"))


def test_a_host_that_stands_twice_is_one_host_with_the_sum() -> None:
    assert facts(parse(text("w1 slots=2", "w2 slots=2", "w1 slots=2"))) == [
        ("host-slots", "w1", "4"),
        ("node-order", "", "w1 w2"),
        ("host-slots", "w2", "2"),
    ]


def test_the_case_is_read_as_its_truth_says() -> None:
    path = CASES / "C11-deepspeed-hostfile.txt"
    if not path.is_file():
        pytest.skip("the shared cases are not here")
    assert facts(parse(read_text(path)), "host-slots") == [
        ("host-slots", "work1", "2"),
        ("host-slots", "work2", "2"),
    ]


@given(
    st.lists(
        st.sampled_from(
            ["w1 slots=8", "w2:4", "w3", "# c", "", "$ cat hostfile", "$ ls", "x slots=", "w slots=y"]
        )
    )
)
@settings(max_examples=100, deadline=None)
def test_any_lines_are_hosts_or_one_error(lines: list[str]) -> None:
    try:
        readings, wrong = parse(text("\n".join(lines))), 1
    except CaptureError as error:
        readings, wrong = [], error.line or 0
    assert 0 < wrong <= max(len(lines), 1)
    assert all(reading.lines for reading in readings)
