"""Process titles: workers have coordinates, servers and engine cores are processes."""

from __future__ import annotations

import pytest
from engine_evidence import anything, facts, fixture, named, notes, one, read, sound
from hypothesis import given, settings

from topocheck.probes.capture.process_titles import parse


def test_workers_have_coordinates_and_helpers_have_none() -> None:
    reading = fixture(parse, "process-titles.txt")
    assert named(reading, "process") == {
        "451": "data 1, pipeline 0, tensor 0",
        "452": "data 1, pipeline 0, tensor 1",
        "1204": "tensor 10",
    }
    hosts = {fact.name: fact.host for s in reading.snapshots for fact in s.job if fact.kind == "process"}
    assert hosts == {"451": "serve-3", "452": "serve-3", "1204": "serve-4"}
    assert facts(reading, "engine") == ["vllm", "sglang"]
    assert notes(reading) == [(10, "cut"), (3, "ignored")]
    assert reading.notes[-1].text.startswith("3 processes")


def test_the_table_of_nvidia_smi_names_the_gpu() -> None:
    reading = fixture(parse, "process-titles-smi.txt")
    assert named(reading, "process") == {"90210": "tensor 3"}
    assert named(reading, "device") == {"tensor 3": "3"}
    assert notes(reading) == [(3, "cut")]


@pytest.mark.parametrize(
    "row",
    [
        "  4242 VLLM::Worker_PP1_TP0",
        "root      4242       1  0 05:06 ?        00:00:01 VLLM::Worker_PP1_TP0",
        "user      4242 99.0  1.2 123 456 ?  Rl  05:06  1:02 VLLM::Worker_PP1_TP0",
    ],
)
def test_rows_without_a_header(row: str) -> None:
    assert named(one(parse, row), "process") == {"4242": "pipeline 1, tensor 0"}


def test_axes_with_two_words() -> None:
    reading = one(parse, "77 sglang::scheduler_DP0_PP1_ATTN_CP2_MOE_DP3_TP4_EP5")
    words = "data 0, pipeline 1, context 2, moe_data 3, tensor 4, expert 5"
    assert named(reading, "process") == {"77": words}


def test_words_in_a_log_are_no_listing() -> None:
    assert read(parse, "Process VLLM::EngineCore died\nERROR 'VLLM::Worker_TP0' failed\n") == []


@settings(max_examples=50, deadline=None)
@given(anything("process-titles.txt", "process-titles-smi.txt"))
def test_any_text_is_read_soundly(text: str) -> None:
    assert all(sound(reading) for reading in read(parse, text))
