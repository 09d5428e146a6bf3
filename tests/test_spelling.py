"""Misspelt and foreign names lead to the known ones."""

from __future__ import annotations

import pytest

from topocheck.spelling import ENGINE_NAMES, KEY_NAMES, suggest

ENGINES = ("vllm", "sglang", "tensorrt_llm", "megatron", "deepspeed", "torchtitan", "accelerate", "torch")
SIZES = ("tensor", "pipeline", "data", "context", "expert")


@pytest.mark.parametrize(
    ("word", "engine"),
    [
        ("vLLM", "vllm"),
        ("SG-Lang", "sglang"),
        ("TensorRT-LLM", "tensorrt_llm"),
        ("trt-llm", "tensorrt_llm"),
        ("Megatron-LM", "megatron"),
        ("deep speed", "deepspeed"),
        ("FSDP", "torch"),
        ("torchtitn", "torchtitan"),
        ("banana", None),
        ("", None),
    ],
)
def test_engines_are_known_by_many_names(word: str, engine: str | None) -> None:
    assert suggest(word, ENGINES, ENGINE_NAMES) == engine


@pytest.mark.parametrize(
    ("word", "size"),
    [
        ("tensr", "tensor"),
        ("TP", "tensor"),
        ("tensor_model_parallel_size", "tensor"),
        ("--data-parallel-size", "data"),
        ("size", None),
        ("world", None),
    ],
)
def test_sizes_are_known_by_the_names_of_launch_options(word: str, size: str | None) -> None:
    assert suggest(word, SIZES, KEY_NAMES) == size


def test_only_what_is_known_is_suggested() -> None:
    assert suggest("tp", ("min", "max"), KEY_NAMES) is None
    assert suggest("pytorch", ("vllm",), ENGINE_NAMES) is None
