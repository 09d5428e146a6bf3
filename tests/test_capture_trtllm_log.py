"""TensorRT-LLM's start-up log: ranks in prefixes, worlds of the C++ runtime."""

from __future__ import annotations

from engine_evidence import anything, facts, fixture, members, named, one, read, sound
from hypothesis import given, settings

from topocheck.probes.capture.trtllm_log import parse


def test_ranks_world_sizes_and_devices() -> None:
    reading = fixture(parse, "trtllm.log")
    found = {rank: (member.size, member.cuda) for (_, _, rank), member in members(reading).items()}
    assert found == {0: (4, None), 3: (4, None), 2: (4, 0)}
    assert named(reading, "size") == {"tensor": "2", "pipeline": "2", "context": "1"}
    assert facts(reading, "world") == ["4"]
    assert named(reading, "processes-per-node") == {"launcher": "2"}
    assert facts(reading, "gpus-per-node") == ["2"]
    assert facts(reading, "engine-version") == ["1.2.0"]


def test_the_older_prefix_is_a_rank_too() -> None:
    reading = one(
        parse,
        "[TensorRT-LLM] TensorRT-LLM version: 0.12.0\n[01/02/2026-03:04:05] [TRT-LLM] [MPI_Rank 1] [I] x\n",
    )
    assert [(rank, member.size) for (_, _, rank), member in members(reading).items()] == [(1, None)]
    assert facts(reading, "engine-version") == ["0.12.0"]


def test_two_worlds_in_one_text_give_no_size() -> None:
    lines = [f"[TensorRT-LLM][INFO] MPI size: {size}, MPI local size: 1, rank: 0" for size in (2, 4)]
    assert {member.size for member in members(one(parse, "\n".join(lines))).values()} == {None}


@settings(max_examples=50, deadline=None)
@given(anything("trtllm.log"))
def test_any_text_is_read_soundly(text: str) -> None:
    assert all(sound(reading) for reading in read(parse, text))
