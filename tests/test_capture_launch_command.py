"""A launch command in captured text says what was asked for; a sentence about one says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_facts import facts, one, text

from topocheck.probes.capture.launch_command import parse
from topocheck.probes.capture.text import read_text

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"


def test_a_command_at_a_prompt_names_its_host_and_its_line() -> None:
    reading = one(
        parse(text("hello", "root@gpu-3:/w# vllm serve /m -tp 8 --nnodes 2 --node-rank 1", "INFO x"))
    )
    (snapshot,) = reading.snapshots
    assert facts([reading]) == [
        ("engine", "", "vllm"),
        ("requested-size", "tensor", "8"),
        ("nodes", "", "2"),
        ("node-rank", "", "1"),
    ]
    assert {fact.host for fact in snapshot.job} == {"gpu-3"}
    assert {fact.at.line for fact in snapshot.job if fact.at} == {2}
    assert snapshot.identity.host.name is None, "a command is no sign that its host reported"
    assert reading.lines == {2}


def test_lines_that_go_on_belong_to_the_command() -> None:
    reading = one(parse(text("$ torchrun --nnodes 2 \\", "> --nproc_per_node 8 \\", "> t.py", "output")))
    assert reading.lines == {1, 2, 3}
    assert facts([reading], "nodes", "processes-per-node") == [
        ("nodes", "agent", "2"),
        ("processes-per-node", "agent", "8"),
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('NCCL_DEBUG="INFO" GLOO_SOCKET_IFNAME=net1  vllm serve /m --tensor-parallel-size 4',
         [("option", "NCCL_DEBUG", "INFO"), ("option", "GLOO_SOCKET_IFNAME", "net1")]),
        ("mpirun -np 16 -H 10.1.0.1:8,10.1.0.2:8 -map-by slot ./all_reduce -g 1",
         [("processes", "launcher", "16"), ("host-slots", "10.1.0.1", "8"), ("host-slots", "10.1.0.2", "8"),
          ("node-order", "", "10.1.0.1 10.1.0.2")]),
        ("$ deepspeed --include=w1:2,3 t.py", [("include", "w1", "2,3"), ("launcher", "t.py", "deepspeed")]),
        ("Singularity> vllm serve /m -tp 2", [("requested-size", "tensor", "2")]),
        ("srun -N2 --ntasks-per-node=8 torchrun --nproc_per_node=8 --nnodes 2 t.py",
         [("processes-per-node", "launcher", "8"), ("processes-per-node", "agent", "8"),
          ("launcher", "t.py", "srun torchrun")]),
        ("torchrun --nproc_per_node 4 --master_addr 10.1.0.1 --master_port 29500 t.py",
         [("rendezvous", "master", "10.1.0.1:29500")]),
        ("SGLANG_PP_LAYER_PARTITION=9,8 sglang serve m --pp 2 --nnodes $N",
         [("unresolved", "--nnodes", "$N"), ("layers", "", "9,8")]),
    ],
)  # fmt: skip
def test_a_command_states_what_it_says(line: str, expected: list[tuple[str, str, str]]) -> None:
    found = facts(parse(text("before", line, "after")))
    assert [fact for fact in found if fact in expected] == expected


def test_defaults_are_no_statements() -> None:
    assert facts(parse(text("$ torchrun t.py")), "nodes", "processes-per-node") == []


@pytest.mark.parametrize(
    "line",
    [
        "torchrun is deprecated, use python -m torch.distributed.run",
        "deepspeed: command not found",
        "deepspeed wheel compiled w. ...... torch 2.6, cuda 12.4",
        "INFO 08-02 [api_server.py:1] vllm serve --tensor-parallel-size 4",
        "vllm serve failed with exit code 1",
        "srun: error: node-1: task 3: Exited with exit code 1",
        "mpirun noticed that process rank 3 exited on signal 9",
        "$ srun hostname",
        "$ pip install vllm",
        "accelerate launch --help shows the options",
    ],
)
def test_a_sentence_about_a_launcher_is_no_command(line: str) -> None:
    assert parse(text("x", line, "y")) == []


def test_a_script_is_read_with_its_variables() -> None:
    script = text(
        "#!/usr/bin/env bash", "TP=8", "ARGS=(--tensor-model-parallel-size $TP", "  --num-layers 32)",
        "torchrun --nnodes ${NNODES:-2} --nproc_per_node $TP \\", "  p.py ${ARGS[@]}", "srun hostname",
    )  # fmt: skip
    reading = one(parse(script))
    assert facts([reading], "requested-size", "processes-per-node", "unresolved") == [
        ("unresolved", "torchrun --nnodes", "${NNODES:-2}"),
        ("processes-per-node", "agent", "8"),
        ("requested-size", "tensor", "8"),
    ]
    assert reading.lines == {5}


def test_files_that_a_captured_command_names_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("tensor-parallel-size: 9\n")
    reading = one(parse(text(f"$ vllm serve --config {tmp_path}/c.yaml -pp 2")))
    assert facts([reading], "requested-size") == [("requested-size", "pipeline", "2")]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("C06-ray-status-2x1gpu.txt",
         [("engine", "", "vllm"), ("requested-size", "tensor", "1"), ("requested-size", "pipeline", "2")]),
        ("C11-deepspeed-hostfile.txt", [("engine", "", "deepspeed"), ("include", "work1", "2,3")]),
        ("C13-mpirun-onehost.log",
         [("processes", "launcher", "16"),
          ("host-slots", "10.0.0.138", "8"), ("host-slots", "10.0.0.238", "8"),
          ("node-order", "", "10.0.0.138 10.0.0.238"), ("option", "CUDA_DEVICE_ORDER", "PCI_BUS_ID")]),
        ("C50-vllm-gloo-loopback.log",
         [("requested-size", "tensor", "16"), ("option", "GLOO_SOCKET_IFNAME", "eth0"),
          ("option", "NCCL_SOCKET_IFNAME", "eth0"), ("option", "TP_SOCKET_IFNAME", "eth0")]),
    ],
)  # fmt: skip
def test_the_cases_are_read_as_their_truth_says(case: str, expected: list[tuple[str, str, str]]) -> None:
    if not (CASES / case).is_file():
        pytest.skip("the shared cases are not here")
    found = facts(parse(read_text(CASES / case)))
    assert [fact for fact in found if fact in expected] == expected


@given(
    st.lists(st.text(max_size=40), max_size=8),
    st.sampled_from(["vllm serve", "#!/bin/sh\nsrun", "$ mpirun -H"]),
)
@settings(max_examples=100, deadline=None)
def test_any_text_is_read_or_left_alone(lines: list[str], start: str) -> None:
    for given_text in (text("\n".join(lines)), text(start + " " + " \\\n".join(lines))):
        for reading in parse(given_text):
            assert reading.lines
            assert max(reading.lines) <= len(given_text.lines)
