"""Engines: rank layout, layer split and placement rule of each, by version."""

from __future__ import annotations

import re

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
from topocheck.spelling import ENGINE_NAMES, suggest

__all__ = ["ENGINES", "Engine", "find"]

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (VLLM, SGLANG, TENSORRT_LLM, MEGATRON, DEEPSPEED, TORCH, TORCHTITAN, ACCELERATE)
}
"""Engines by the name that a plan gives."""


def find(name: str) -> Engine:
    """The engine of that name, in any case and common spelling: `vLLM`, `trtllm`, `megatron-lm`.

    Raises LayoutError, with what was probably meant, for a name that is none.
    """
    plain = _plain(name)
    if plain == "nemo":
        raise LayoutError("NeMo trains on Megatron-Core's groups: name the engine 'megatron'")
    names = {_plain(other): known for other, known in ENGINE_NAMES.items()}
    names |= {_plain(known): known for known in ENGINES}
    if plain in names:
        return ENGINES[names[plain]]
    meant = suggest(name, ENGINES, ENGINE_NAMES)
    hint = f"did you mean {meant!r}?" if meant else f"known are {', '.join(ENGINES)}"
    raise LayoutError(f"unknown engine {name[:100]!r}: {hint}")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
