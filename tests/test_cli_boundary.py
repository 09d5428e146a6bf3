"""`topocheck boundary` and `topocheck capacity` as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_capacity import DENSE, FITTING, plan_of, sized, two
from shell import topocheck

from topocheck.cli.boundary import parse_link
from topocheck.errors import UsageError
from topocheck.schema import Kind, schema_for

Read = TypeVar("Read")


def tried(read: Callable[[], Read]) -> Read | UsageError:
    try:
        return read()
    except UsageError as error:
        return error


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(plan_of(model=str(DENSE), workload=FITTING))
    return path


def test_the_hand_calculation_reads_as_64_mebibytes() -> None:
    ran = topocheck("boundary", "--rows", "4096", "--hidden", "8192", "--link", "400Gb/s", "--gpudirect")
    words = " ".join(ran.out.split())
    assert (ran.code, ran.err) == (0, "")
    assert "4,096 rows x 8,192 hidden x 2 bytes x 1 tensor" in words
    assert "bytes 67,108,864: 64 MiB" in words
    assert "time 1.35 to 1.73 ms over RDMA at 400 Gb/s" in words
    assert "not a measurement" in words
    assert max(map(len, ran.out.splitlines())) <= 80


def test_residual_type_and_parts_count() -> None:
    ran = topocheck(
        "boundary", "--rows", "4096", "--hidden", "8192", "--tensors", "2", "--split", "8",
        "--dtype", "float32", "--decode-rows", "64", "--json",
    )  # fmt: skip
    document = json.loads(ran.out)
    assert document["schema"] == "topocheck.boundary/1"
    assert [(p["phase"], p["bytes"], p["rank_bytes"]) for p in document["payloads"]] == [
        ("prefill", 4 * 67_108_864, 67_108_864 // 2),
        ("decode", 64 * 8192 * 4 * 2, 64 * 8192),
    ]


def test_a_plan_gives_sizes_and_the_engine_what_is_sent(plan: Path) -> None:
    document = json.loads(topocheck("boundary", "--from-plan", plan, "--json").out)
    prefill, decode = document["payloads"]
    assert (prefill["rows"], prefill["hidden"], prefill["tensors"], prefill["parts"]) == (8192, 5120, 2, 4)
    assert decode["rows"] == 64
    assert document["sources"]["rows"] == f"{plan}: workload.max_batched_tokens"
    assert "send_tensor_dict" in document["assumptions"][0]


def test_an_option_goes_before_the_plan(plan: Path) -> None:
    document = json.loads(topocheck("boundary", "--from-plan", plan, "--rows", "16", "--json").out)
    assert document["payloads"][0]["rows"] == 16
    assert document["sources"]["rows"] == "--rows"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "the rows of a microbatch are not known: give them, for instance --rows 4096"),
        (["--rows", "1"], "the hidden size is not known: give it, for instance --hidden 8192"),
        (
            ["--rows", "1", "--hidden", "1", "--link", "fast"],
            "--link 'fast': expected a link such as 400Gb/s",
        ),
        (["--rows", "1", "--hidden", "1", "--link", "nvlink9:2"], "--link 'nvlink9:2': expected a link"),
        (["--rows", "1", "--hidden", "1", "--link", "0"], "--link '0': expected a link"),
        (["--from-plan", "none.yaml"], "none.yaml: cannot be read (No such file or directory)"),
    ],
)
def test_what_is_missing_or_wrong_is_one_sentence(arguments: list[str], sentence: str) -> None:
    ran = topocheck("boundary", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"topocheck: {sentence}")
    assert len(ran.err.splitlines()) == 1


@given(st.text(max_size=20) | st.from_regex(r"(nvlink|pcie)[0-9]{0,2}[:x][0-9]{0,4}", fullmatch=True))
@settings(max_examples=50, deadline=None)
def test_any_link_is_one_or_a_sentence(text: str) -> None:
    outcome = tried(lambda: parse_link(text, None))
    if isinstance(outcome, UsageError):
        assert "expected a link such as" in str(outcome)
    else:
        assert 0 < outcome.bytes_per_s.low <= outcome.bytes_per_s.high


def test_capacity_shows_each_stage_and_whether_it_fits(plan: Path) -> None:
    ran = topocheck("capacity", "--from-plan", plan, "--gpu-memory", "40GiB")
    words = " ".join(ran.out.split())
    assert (ran.code, ran.err) == (0, "")
    for fact in (
        "stage 0: 24 layers, a rank of it",
        "weights 3.38 GiB",
        "KV cache 6 GiB",
        "36 GiB usable of 40 GiB: fits",
        "room for 278 to 340 sequences",
    ):
        assert fact in words
    assert max(map(len, ran.out.splitlines())) <= 80


def test_capacity_takes_the_memory_of_the_evidence(plan: Path, tmp_path: Path) -> None:
    evidence = tmp_path / "nodes.jsonl"
    lines = [msgspec.json.encode(one).decode() + "\n" for one in two(memory=8 << 30)]
    evidence.write_text("".join(lines))
    document = json.loads(topocheck("capacity", "--from-plan", plan, evidence, "--json").out)
    assert document["schema"] == "topocheck.capacity/1"
    assert [(stage["memory_bytes"], stage["fits"]) for stage in document["stages"]] == [(8 << 30, False)] * 2
    alone = json.loads(topocheck("capacity", "--from-plan", plan, "--json").out)
    assert [(stage["memory_bytes"], stage["fits"]) for stage in alone["stages"]] == [(None, None)] * 2


def test_capacity_without_weights_says_what_would_give_them(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(plan_of(model="{layers: 48, hidden: 5120}", workload=FITTING))
    ran = topocheck("capacity", "--from-plan", path)
    assert (ran.code, ran.out) == (2, "")
    assert "config.json in the plan" in ran.err


def test_capacity_refuses_a_memory_that_is_none(plan: Path) -> None:
    ran = topocheck("capacity", "--from-plan", plan, "--gpu-memory", "80")
    assert ran.code == 2
    assert ran.err.startswith("topocheck: expected a size with its unit such as 80GiB")


def test_a_gpu_that_is_cut_into_slices_has_no_memory_to_compare_with(plan: Path, tmp_path: Path) -> None:
    evidence = tmp_path / "nodes.jsonl"
    sliced = [sized(one, mig=True) for one in two()]
    evidence.write_text("".join(msgspec.json.encode(one).decode() + "\n" for one in sliced))
    document = json.loads(topocheck("capacity", "--from-plan", plan, evidence, "--json").out)
    assert [(stage["memory_bytes"], stage["fits"]) for stage in document["stages"]] == [(None, None)] * 2


def test_capacity_computes_no_engine_that_trains(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(plan_of(model=str(DENSE), workload=FITTING).replace("vllm", "megatron"))
    ran = topocheck("capacity", "--from-plan", path, "--gpu-memory", "80GiB")
    assert (ran.code, ran.out) == (2, "")
    assert "gradients and optimiser states are not counted" in ran.err


def test_the_start_up_time_of_each_link_is_said() -> None:
    ran = topocheck(
        "boundary", "--rows", "1", "--hidden", "8192", "--link", "400Gb/s", "--link", "nvlink4:18"
    )
    words = " ".join(ran.out.split())
    assert "Start-up (launch, rendezvous, first packet) takes 3 to 100 us of it." in words
    assert "Start-up (launch, rendezvous, first packet) takes 2 to 20 us of it." in words


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [("boundary", ["--link", "400Gb/s"]), ("capacity", ["--gpu-memory", "40GiB"]), ("capacity", [])],
)
def test_documents_fit_their_schemas(kind: Kind, arguments: list[str], plan: Path) -> None:
    ran = topocheck(kind, "--from-plan", plan, *arguments, "--json")
    jsonschema.validate(json.loads(ran.out), schema_for(kind))
