"""Microbatches and stages in force, out of commands and logs."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import CaptureError
from topocheck.pipeline.microbatches import InForce, parse_in_force


def sizes(found: InForce) -> tuple[int | None, int | None]:
    return (
        None if found.stages is None else found.stages.value,
        None if found.microbatches is None else found.microbatches.value,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vllm serve m --pipeline-parallel-size 4 --ubatch-size 2", (4, 2)),
        ("vllm serve m --pipeline_parallel_size=4 --ubatch-size=0", (4, 1)),
        ("args: {'pipeline_parallel_size': 2, 'ubatch_size': 8}", (2, 8)),
        ("with config: pipeline_parallel_size=2, data_parallel_size=1,", (2, None)),
        ("llama-server -m x.gguf --batch-size 2048 --ubatch-size 600", (None, 4)),
        ("server_args=ServerArgs(tp_size=1, pp_size=2, pp_async_batch_depth=1, device='cuda')", (2, 3)),
        ("python -m sglang.launch_server --pp-size 4", (4, None)),
        ("  pipeline_model_parallel_size .................... 8", (8, None)),
        ("INFO:x:setting number of microbatches to constant 32", (None, 32)),
        ("setting number of micro-batches to constant 4", (None, 4)),
        ("[INFO] CONFIG: micro_batches=16 micro_batch_size=2", (None, 16)),
        (
            "train.py --global-batch-size 64\n  micro_batch_size ...... 2\n  data_parallel_size ..... 4",
            (None, 8),
        ),
        ("train.py --global-batch-size 64 --micro-batch-size 2", (None, None)),
        ("train.py --global-batch-size 63 --micro-batch-size 2 --data-parallel-size 4", (None, None)),
        (
            "--local_batch_size 8 --pipeline_parallel_degree=2\n--pipeline_parallel_microbatch_size=2",
            (2, 4),
        ),
        ("--training.local_batch_size=8 --parallelism.pipeline_parallel_degree=4", (4, 8)),
        ("deepspeed x.py --gradient_accumulation_steps 12", (None, 12)),
        ("--my-ubatch-size 3 ubatch_sizes=4 --ubatch-size 5.5 --ubatch-size", (None, None)),
        ("", (None, None)),
    ],
)
def test_sizes_are_read_where_they_are_written(text: str, expected: tuple[int | None, int | None]) -> None:
    assert sizes(parse_in_force(text, "run.log")) == expected


def test_a_count_that_the_engine_states_goes_before_flags() -> None:
    log = "start --ubatch-size 2\nsetting number of microbatches to constant 6\n"
    found = parse_in_force(log, "run.log").microbatches
    assert found is not None
    assert (found.value, found.line, found.basis) == (6, 2, "stated by Megatron")


@pytest.mark.parametrize(
    "text",
    [
        "--pp-size 2\n--pp-size 4",
        "x --ubatch-size 2\nubatch_size=3",
        "setting number of microbatches to constant 6\nsetting number of microbatches to constant 8",
    ],
)
def test_two_values_are_two_runs_and_refused_with_both_lines(text: str) -> None:
    with pytest.raises(CaptureError, match=r"run\.log:2: .* in line 1: give the log"):
        parse_in_force(text, "run.log")


@pytest.mark.parametrize("text", ["--pp-size 0", "setting number of microbatches to constant 0"])
def test_no_stage_and_no_microbatch_are_refused(text: str) -> None:
    with pytest.raises(CaptureError, match=r"run\.log:1: .* gives 0"):
        parse_in_force(text, "run.log")


def test_values_that_are_not_used_may_differ() -> None:
    found = parse_in_force("batch_size=3 batch_size=5 --pp-size 2", "run.log")
    assert sizes(found) == (2, None)


PIECES = st.sampled_from(
    [
        "--ubatch-size",
        "ubatch_size",
        "=",
        " ",
        "2",
        "0",
        "pp_size",
        "\n",
        "...",
        "micro_batches=",
        "CONFIG: ",
        "é",
    ]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=20))
@settings(max_examples=100, deadline=None)
def test_any_text_gives_sizes_or_a_capture_error(pieces: list[str]) -> None:
    with contextlib.suppress(CaptureError):
        stages, microbatches = sizes(parse_in_force("".join(pieces), "run.log"))
        assert stages is None or stages >= 1
        assert microbatches is None or microbatches >= 1
