"""Megatron-LM's start-up log: sizes in force, the block of arguments, stages."""

from __future__ import annotations

from engine_evidence import CAPTURES, anything, facts, fixture, named, notes, one, read, sound
from hypothesis import given, settings

from topocheck.probes.capture.megatron_log import parse


def test_sizes_in_force_and_arguments_stay_apart() -> None:
    reading = fixture(parse, "megatron.log")
    assert named(reading, "size") == {"data": "2", "context": "1", "tensor": "4", "pipeline": "2"}
    assert named(reading, "requested-size") == {"pipeline": "2", "tensor": "4"}
    assert facts(reading, "world") == ["16"]
    assert named(reading, "option") == {
        "--decoder-first-pipeline-num-layers": "7",
        "--micro-batch-size": "1",
        "--use-tp-pp-dp-mapping": "True",
    }
    assert notes(reading) == []


def test_stages_that_count_parameters_are_coordinates() -> None:
    (snapshot,) = fixture(parse, "megatron.log").snapshots
    found = [(fact.name, fact.value) for fact in snapshot.job if fact.kind == "rank-coordinate"]
    assert found == [("tensor", "0"), ("pipeline", "1"), ("tensor", "3"), ("pipeline", "0")]


def test_arguments_without_an_end_are_cut() -> None:
    text = (CAPTURES / "megatron.log").read_text(encoding="utf-8")
    begin, end = text.index("-----"), text.index("  use_tp")
    reading = one(parse, text[begin:end])
    assert named(reading, "requested-size") == {"pipeline": "2", "tensor": "4"}
    assert notes(reading) == [(1, "cut")]


def test_the_same_block_of_another_program_is_left_alone() -> None:
    assert (
        read(parse, "-----------\n---------------- arguments ----------------\n  batch_size .......... 4\n")
        == []
    )


@settings(max_examples=50, deadline=None)
@given(anything("megatron.log"))
def test_any_text_is_read_soundly(text: str) -> None:
    assert all(sound(reading) for reading in read(parse, text))
