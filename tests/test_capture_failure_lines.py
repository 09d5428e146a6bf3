"""Lines of failure: what a program refuses, and by what initialisation ended."""

from __future__ import annotations

import pytest
from engine_evidence import anything, case, facts, one, read, sound
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.failure_lines import ABORTS, REFUSALS, parse
from topocheck.probes.capture.reading import Reading


def who(reading: Reading) -> list[tuple[str, str | None, str | None]]:
    return [(fact.kind, fact.engine, fact.host) for snapshot in reading.snapshots for fact in snapshot.job]


def test_a_refusal_is_no_abort_and_names_its_engine() -> None:
    reading = one(
        parse, "ValueError: World size (16) is larger than the number of available GPUs (8) in this node."
    )
    assert who(reading) == [("refused", "vllm", None)]


@pytest.mark.parametrize(
    "line",
    [
        "torch.DistStoreError: Timed out after 9 seconds waiting for clients. 1/4 clients joined.",
        "[rank3]:[E1129 12:00:00.1 Work.cpp:6] [Rank 3] Watchdog caught collective operation timeout: x",
        "mpirun noticed that process rank 3 with PID 0 on node calc2 exited on signal 9 (Killed).",
        "ERROR 01-02 03:04:05 [core.py:700] EngineCore failed to start.",
        "[2026-01-02 03:04:05 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        "E1129 12:00:00.0 api.py:9] failed (exitcode: 1) local_rank: 0 (pid: 77) of binary: /usr/bin/python",
    ],
)
def test_the_end_of_initialisation(line: str) -> None:
    assert [kind for kind, _, _ in who(one(parse, line))] == ["abort"]


def test_srun_names_the_host() -> None:
    reading = one(
        parse, "srun: error: calc7: tasks 8-15: Exited with exit code 1\nsrun: error: calc7: task 1: Killed"
    )
    assert who(reading) == [("abort", None, "calc7")] * 2


def test_the_time_and_place_of_a_logger_are_no_part_of_the_words() -> None:
    line = "(Worker pid={}, ip=10.1.0.3) ERROR 01-02 03:04:{} [m.py:9] WorkerProc failed to start."
    reading = one(parse, line.format(1, "05") + "\n" + line.format(2, "06"))
    assert facts(reading, "abort") == ["WorkerProc failed to start."]
    assert who(reading) == [("abort", None, "10.1.0.3")]


def test_an_exception_is_uncaught_if_its_process_says_no_more() -> None:
    last = "(A pid=1) Traceback (most recent call last):\n(A pid=1) ValueError: bad\n(B pid=2) still here\n"
    assert facts(one(parse, last), "abort") == ["ValueError: bad"]
    assert read(parse, last + "(A pid=1) going on\n") == []


def test_an_exception_with_torchs_rank_before_it_is_uncaught() -> None:
    assert facts(one(parse, "[rank2]: RuntimeError: no\n[rank2]: more\nand more\n"), "abort") == [
        "RuntimeError: no"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "INFO 01-02 03:04:05 [x.py:1] errors: 0\n",
        "calc1:7:7 [0] NCCL WARN connectFullMesh failed\n",
        "ERROR 01-02 03:04:05 [serving.py:1] ValueError: a request was too long\nINFO: 200 OK\n",
        "[launch.py:1] process 7 exits successfully.\n",
    ],
)
def test_what_is_no_failure_of_the_job(text: str) -> None:
    assert read(parse, text) == []


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from([*ABORTS, *(words for _, words in REFUSALS), "ValueError: x", "x", ""])).map(
        "\n".join
    )
    | anything("torchrun-agents.log", "nccl-2.30.log")
)
def test_any_text_is_read_soundly(text: str) -> None:
    assert all(sound(reading) for reading in read(parse, text))


def test_c05_c06_c11_c50_read_as_their_truth_says() -> None:
    assert [kind for kind, _, _ in who(case(parse, "C05-vllm-collectenv-tail.txt"))] == ["abort"]
    assert who(case(parse, "C06-ray-status-2x1gpu.txt")) == [("refused", "vllm", None)]
    assert who(case(parse, "C11-deepspeed-hostfile.txt")) == [("refused", "deepspeed", None)]
    assert who(case(parse, "C50-vllm-gloo-loopback.log")) == [("abort", None, "10.0.7.8")] * 2
