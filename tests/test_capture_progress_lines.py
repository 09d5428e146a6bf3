"""Lines that show that a job works."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import CaptureError
from topocheck.probes.capture.progress_lines import parse
from topocheck.probes.capture.reading import Text
from topocheck.probes.capture.recognise import read_capture
from topocheck.snapshot import JobFact


def facts(*lines: str) -> list[JobFact]:
    return [fact for one in parse(Text("server.log", lines)) for view in one.snapshots for fact in view.job]


@pytest.mark.parametrize(
    "line",
    [
        'INFO:     10.3.0.9:41742 - "POST /v1/completions HTTP/1.1" 200 OK',
        '(APIServer pid=4711) INFO:     10.3.0.9:41742 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        '[2026-03-01 08:11:12] INFO:     127.0.0.1:50114 - "POST /generate HTTP/1.1" 200 OK',
        'INFO:     10.3.0.9:41742 - "POST /v1/completions?trace=1 HTTP/1.1" 200 OK',
        '[pod/serve-0/engine] INFO:     10.3.0.9:1 - "POST /v1/embeddings HTTP/2" 201 Created',
    ],
)
def test_a_request_that_a_model_computed_is_work_done(line: str) -> None:
    (fact,) = facts("unrelated", line)
    assert (fact.kind, fact.at and fact.at.line) == ("request-done", 2)
    assert fact.name.startswith("/")


@pytest.mark.parametrize(
    "line",
    [
        'INFO:     10.3.0.9:41742 - "GET /health HTTP/1.1" 200 OK',
        'INFO:     10.3.0.9:41742 - "GET /v1/models HTTP/1.1" 200 OK',
        'INFO:     10.3.0.9:41742 - "POST /tokenize HTTP/1.1" 200 OK',
        'INFO:     10.3.0.9:41742 - "POST /v1/completions HTTP/1.1" 404 Not Found',
        "curl -X POST http://node-a/v1/completions # answers 200 OK over HTTP/1.1",
    ],
)
def test_what_needs_no_model_is_no_work(line: str) -> None:
    assert facts(line) == []


def test_a_server_that_answers_with_its_own_fault_is_told_apart() -> None:
    line = 'INFO:     10.3.0.9:41742 - "POST /v1/completions HTTP/1.1" {}'
    found = facts(line.format("200 OK"), line.format("500 Internal Server Error"), line.format("503 Gone"))
    assert [(fact.kind, fact.value, fact.at and fact.at.line) for fact in found] == [
        ("request-done", "200", 1),
        ("request-failed", "503", 3),
    ]


@pytest.mark.parametrize(
    ("line", "engine", "step"),
    [
        (
            " [2026-03-01 08:00:00.123456] iteration      120/    5000 | consumed samples:        30720 | lr",
            "megatron",
            "120",
        ),
        (
            "[rank0]:[titan] 2026-03-01 08:00:00,000 - root - INFO - step: 20  loss:  7.1234  ",
            "torchtitan",
            "20",
        ),
        ("[titan] step: 20  epoch:1  loss:  7.1234", "torchtitan", "20"),
        (
            "[2026-03-01 08:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.1]",
            "deepspeed",
            "10",
        ),
    ],
)
def test_a_training_step_is_work_done(line: str, engine: str, step: str) -> None:
    (fact,) = facts(line)
    assert (fact.kind, fact.engine, fact.value) == ("step-done", engine, step)


def test_of_many_lines_the_last_one_counts() -> None:
    many = [f'INFO:     10.3.0.9:{n} - "POST /v1/completions HTTP/1.1" 200 OK' for n in range(1000)]
    (fact,) = facts(*many)
    assert fact.at is not None
    assert fact.at.line == 1000


def test_a_file_without_work_is_not_recognised_by_it() -> None:
    with pytest.raises(CaptureError):
        read_capture(b'INFO: 10.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n', "server.log")


@given(st.text(alphabet='POST /v1completns"HTP.20 step:=,loss|iteration\n', max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_text_is_read_without_a_guess(text: str) -> None:
    lines = text.splitlines()
    for fact in facts(*lines):
        assert fact.kind in {"request-done", "request-failed", "step-done"}
        assert fact.at is not None
        assert fact.value in lines[(fact.at.line or 0) - 1]
