"""Processes on GPUs have the name, age and owner that /proc gives them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rooted import roots_at

from topocheck.probes.node.processes import named, parse_owner, parse_started
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import GpuState, Process

STAT = "4711 (python3 (a) b) S 1 4711 4711 0 -1 4194560 1 0 0 0 10 5 0 0 20 0 64 0 {start} 1000 20 1"


def machine(root: Path) -> Roots:
    folder = root / "proc" / "4711"
    folder.mkdir(parents=True)
    (root / "proc" / "uptime").write_text("100000.25 799000.11\n")
    (folder / "stat").write_text(STAT.format(start=1_360_000))
    (folder / "comm").write_text("VLLM::Worker_TP\n")
    (folder / "status").write_text("Name:\tVLLM::Worker_TP\nUid:\t1003\t1003\t1003\t1003\n")
    return roots_at(root)


def test_a_process_is_known_by_name_age_and_owner(tmp_path: Path) -> None:
    states = (
        GpuState(gpu=0, processes=(Process(pid=4711, memory_bytes=1 << 30),)),
        GpuState(gpu=1, processes=()),
    )
    found = named(machine(tmp_path), states)
    assert found[0].processes == (
        Process(pid=4711, memory_bytes=1 << 30, name="VLLM::Worker_TP", age_seconds=86_400, owner="uid 1003"),
    )
    assert found[1] == states[1]


def test_a_process_that_ended_or_is_in_another_namespace_keeps_its_pid_alone(tmp_path: Path) -> None:
    states = (GpuState(gpu=0, processes=(Process(pid=0), Process(pid=9))),)
    assert named(machine(tmp_path), states) == states


def test_this_very_process_is_as_old_as_it_is() -> None:
    (state,) = named(Roots.real(), (GpuState(gpu=0, processes=(Process(pid=os.getpid()),)),))
    assert state.processes is not None
    (process,) = state.processes
    assert process.owner == f"uid {os.getuid()}"
    assert process.age_seconds is not None
    assert 0 <= process.age_seconds <= time.monotonic()


@pytest.mark.parametrize("text", ["", "1 (x", "1 (x) S", ") " + "1 " * 19 + "x"])
def test_a_line_that_is_cut_has_no_start(text: str) -> None:
    assert parse_started(text) is None


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_text_is_read_or_left(text: str) -> None:
    assert parse_started(text) is None or isinstance(parse_started(text), int)
    owner = parse_owner(text)
    assert owner is None or owner.startswith("uid ")
