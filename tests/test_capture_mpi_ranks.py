"""Ranks that a launcher tagged say where they are, and which device they do not have."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_facts import facts, one, text

from topocheck.probes.capture.mpi_ranks import parse
from topocheck.probes.capture.text import read_text

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[1,9]<stdout>:gpu-7: Test CUDA failure common.cu:732 'invalid device ordinal'",
         [("rank", "gpu-7", "9"), ("device-error", "gpu-7", "9")]),
        ("[1,9]<stderr>:RuntimeError: CUDA error: invalid device ordinal", [("device-error", "", "9")]),
        ("[rank3]: RuntimeError: CUDA error: invalid device ordinal", [("device-error", "", "3")]),
        ("5: RuntimeError: CUDA error: invalid device ordinal", [("device-error", "", "5")]),
        ("[12] gpu-7: Test NCCL failure common.cu:1 'unhandled system error'", [("rank", "gpu-7", "12")]),
    ],
)  # fmt: skip
def test_a_tagged_line_names_its_rank(line: str, expected: list[tuple[str, str, str]]) -> None:
    reading = one(parse(text("x", line)))
    assert facts([reading]) == expected
    assert reading.lines == {2}


@pytest.mark.parametrize(
    "line",
    [
        "gpu-7: Test CUDA failure common.cu:732 'invalid device ordinal'",
        "RuntimeError: CUDA error: invalid device ordinal",
        "[1,9]<stdout>:# nThread 1 nGpus 1",
        "the message invalid device ordinal means that",
    ],
)
def test_a_line_without_a_rank_or_a_fault_says_nothing(line: str) -> None:
    assert parse(text(line)) == []


def test_a_rank_that_says_it_twice_is_one_statement() -> None:
    line = "[1,9]<stdout>:a: Test CUDA failure x.cu:1 'invalid device ordinal'"
    assert facts(parse(text(line, line))) == [("rank", "a", "9"), ("device-error", "a", "9")]


def test_the_case_is_read_as_its_truth_says() -> None:
    path = CASES / "C13-mpirun-onehost.log"
    if not path.is_file():
        pytest.skip("the shared cases are not here")
    reading = one(parse(read_text(path)))
    broken = facts([reading], "device-error")
    assert {name for _, name, _ in broken} == {"10.0.0.138"}
    assert sorted(int(value) for _, _, value in broken) == list(range(8, 16))


@given(st.text(max_size=60), st.sampled_from(["[1,2]<stdout>:", "[rank2]:", "2: ", "[2] ", ""]))
@settings(max_examples=80, deadline=None)
def test_any_line_is_read_or_left_alone(rest: str, tag: str) -> None:
    for fact in facts(parse(text(f"{tag}{rest} invalid device ordinal".replace("\n", " ")))):
        assert fact[0] in {"rank", "device-error"}
