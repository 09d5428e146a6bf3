"""The tags before a line of an engine's log, and what they say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.log_line import Line, message, parse_line


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ("(EngineCore_DP0 pid=1088) hello ", Line(1, "hello", "EngineCore_DP0", 1088)),
        (
            "(RayWorkerWrapper pid=19, ip=10.2.0.8) hello",
            Line(1, "hello", "RayWorkerWrapper", 19, "10.2.0.8"),
        ),
        ("(W pid=9, ip=10.2.0.8) [rank9]:[W x.cpp:1] y", Line(1, "[W x.cpp:1] y", "W", 9, "10.2.0.8", 9)),
        ("[default3]:[rank7]: ValueError: x", Line(1, "ValueError: x", rank=7)),
        ("[1,4]<stdout>:hello", Line(1, "hello")),
        ("[pod/web-0/main] 2026-01-02T03:04:05.1Z hello", Line(1, "hello", host="web-0")),
        ("3: hello", Line(1, "hello")),
        ("(a note) hello", Line(1, "(a note) hello")),
        ("", Line(1, "")),
    ],
)
def test_tags_are_taken_off(raw: str, line: Line) -> None:
    assert parse_line(raw, 1) == line


@pytest.mark.parametrize(
    "text",
    [
        "ERROR 08-02 08:50:03 worker_base.py:382] words",
        "INFO 08-02 08:50:03 [worker_base.py:382] words",
        "[2026-01-02 03:04:05 TP1] words",
        "[2026-01-02 03:04:05,678] [INFO] [launch.py:1:main] words",
        "[E ProcessGroupGloo.cpp:144] words",
        "[W1129 03:04:05.1 ProcessGroupNCCL.cpp:1] words",
        "words",
    ],
)
def test_what_a_logger_puts_before_its_words(text: str) -> None:
    assert message(text) == "words"


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("([])pid=ip,rank12:/ <stdout>x"), max_size=60))
def test_what_is_left_is_the_end_of_the_line(raw: str) -> None:
    assert raw.rstrip().endswith(parse_line(raw, 1).text)
