"""Engines: rank layout, layer split and placement rule of each, by version."""

from __future__ import annotations

import re
from difflib import get_close_matches

from topocheck.engines.accelerate import ENGINE as ACCELERATE
from topocheck.engines.deepspeed import ENGINE as DEEPSPEED
from topocheck.engines.engine import Engine
from topocheck.engines.megatron import ENGINE as MEGATRON
from topocheck.engines.sglang import ENGINE as SGLANG
from topocheck.engines.tensorrt_llm import ENGINE as TENSORRT_LLM
from topocheck.engines.torch import ENGINE as TORCH
from topocheck.engines.torchtitan import ENGINE as TORCHTITAN
from topocheck.engines.vllm import ENGINE as VLLM
from topocheck.errors import LayoutError

__all__ = ["ENGINES", "Engine", "find"]

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (VLLM, SGLANG, TENSORRT_LLM, MEGATRON, DEEPSPEED, TORCH, TORCHTITAN, ACCELERATE)
}
"""Engines by the name that a plan gives."""

SPELLINGS = {
    "trtllm": "tensorrt_llm",
    "trt_llm": "tensorrt_llm",
    "tensorrtllm": "tensorrt_llm",
    "tensorrt": "tensorrt_llm",
    "megatron_lm": "megatron",
    "megatron_core": "megatron",
    "megatronlm": "megatron",
    "mcore": "megatron",
    "deep_speed": "deepspeed",
    "pytorch": "torch",
    "devicemesh": "torch",
    "device_mesh": "torch",
    "torch_titan": "torchtitan",
    "hf_accelerate": "accelerate",
}
"""Other names that people write, in lower case with `_` between words."""


def find(name: str) -> Engine:
    """The engine of that name, in any case and common spelling: `vLLM`, `trtllm`, `megatron-lm`.

    Raises LayoutError, with what was probably meant, for a name that is none.
    """
    plain = re.sub(r"[\s.-]+", "_", name.strip().lower())
    engine = ENGINES.get(SPELLINGS.get(plain, plain))
    if engine is not None:
        return engine
    if plain == "nemo":
        raise LayoutError("NeMo trains on Megatron-Core's groups: name the engine 'megatron'")
    close = get_close_matches(plain[:100], [*ENGINES, *SPELLINGS], n=1)
    hint = (
        f"did you mean {SPELLINGS.get(close[0], close[0])!r}?" if close else f"known are {', '.join(ENGINES)}"
    )
    raise LayoutError(f"unknown engine {name!r}: {hint}")
