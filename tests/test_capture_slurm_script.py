"""A batch script says what sbatch reads in it, not what its author thinks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_facts import facts, one, text

from topocheck.probes.capture import launch_command
from topocheck.probes.capture.slurm_script import parse
from topocheck.probes.capture.text import read_text

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
SCRIPT = Path(__file__).parent / "captures" / "slurm-torchrun.sbatch"


def test_directives_and_commands_of_a_script() -> None:
    reading = one(parse(read_text(SCRIPT)))
    assert facts([reading]) == [
        ("launcher", "", "sbatch"),
        ("processes-per-node", "launcher", "1"),
        ("gpus-per-node", "launcher", "8"),
        ("nodes", "launcher", "2"),
        ("engine", "", "megatron"),
        ("unresolved", "torchrun --nnodes", "$SLURM_NNODES"),
        ("processes-per-node", "agent", "8"),
        ("option", "rdzv-backend", "c10d"),
        ("launcher", "pretrain.py", "srun torchrun"),
        ("requested-size", "tensor", "8"),
        ("requested-size", "pipeline", "2"),
        ("unresolved", "torchrun --rdzv_endpoint", "$HEAD:29500"),
        ("option", "NCCL_IB_HCA", "mlx5"),
    ]


def test_what_sbatch_does_not_read_is_noted() -> None:
    reading = one(parse(read_text(SCRIPT)))
    assert [(note.line, note.kind) for note in reading.notes] == [(7, "ignored"), (11, "ignored")]
    assert "after the first command (line 10)" in reading.notes[1].text


def test_a_lower_case_directive_is_a_comment() -> None:
    reading = one(parse(text("#!/bin/sh", "#sbatch --nodes=4", "#SBATCH --ntasks-per-node=8", "srun x --y")))
    assert facts([reading], "nodes") == []
    assert facts([reading], "processes-per-node") == [("processes-per-node", "launcher", "8")]
    assert reading.notes[0].line == 2


def test_the_last_of_two_directives_counts() -> None:
    reading = one(parse(text("#SBATCH -N 4 -n 8", "#SBATCH --nodes=2")))
    assert facts([reading], "nodes", "processes") == [
        ("processes", "launcher", "8"),
        ("nodes", "launcher", "2"),
    ]
    (snapshot,) = reading.snapshots
    assert {fact.kind: fact.at.line for fact in snapshot.job if fact.at} == {
        "launcher": 1, "processes": 1, "nodes": 2,
    }  # fmt: skip


def test_a_script_is_told_once() -> None:
    script = read_text(SCRIPT)
    assert launch_command.parse(script) == []
    printed = text("$ vllm serve /m -tp 2", "$ cat job.sh", "#SBATCH -N 2", "srun torchrun --nnodes 2 t.py")
    assert facts(launch_command.parse(printed), "nodes", "requested-size") == [
        ("requested-size", "tensor", "2")
    ]
    assert facts(parse(printed), "nodes") == [("nodes", "launcher", "2"), ("nodes", "agent", "2")]


def test_the_case_is_read_as_its_truth_says() -> None:
    path = CASES / "C14-gpus-per-task.sbatch"
    if not path.is_file():
        pytest.skip("the shared cases are not here")
    reading = one(parse(read_text(path)))
    assert facts([reading], "nodes") == []
    assert facts([reading], "processes", "processes-per-node", "gpus-per-task") == [
        ("processes-per-node", "launcher", "8"),
        ("processes", "launcher", "8"),
        ("gpus-per-task", "launcher", "1"),
    ]
    assert [note.line for note in reading.notes] == [2]


@given(
    st.lists(
        st.sampled_from(["#SBATCH -N 2", "#SBATCH --x='", "#sbatch -n", "srun x", "", "# c", "a=1", "'"])
    )
)
@settings(max_examples=80, deadline=None)
def test_any_lines_are_a_script_or_none(lines: list[str]) -> None:
    for reading in parse(text("\n".join(lines))):
        assert facts([reading])[0] == ("launcher", "", "sbatch")
