"""Suggestions for names that people misspell or know under another name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

__all__ = ["CONFIG_KEYS", "ENGINE_NAMES", "KEY_NAMES", "suggest"]

CONFIG_KEYS: Mapping[str, str] = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "vocab_size": "vocabulary",
    "num_experts": "experts",
    "n_routed_experts": "experts",
    "num_local_experts": "experts",
}
"""Names of a Hugging Face config.json and ours."""

KEY_NAMES: Mapping[str, str] = {
    "tp": "tensor",
    "pp": "pipeline",
    "dp": "data",
    "cp": "context",
    "pcp": "context",
    "dcp": "decode_context",
    "ep": "expert",
    "etp": "expert_tensor",
    "sp": "sequence",
    "nnodes": "nodes",
    "num_nodes": "nodes",
    "version": "engine_version",
    **CONFIG_KEYS,
}
"""Names that launch commands and papers use for keys of the plan."""

ENGINE_NAMES: Mapping[str, str] = {
    "sgl": "sglang",
    "trt": "tensorrt_llm",
    "trtllm": "tensorrt_llm",
    "tensorrt": "tensorrt_llm",
    "mcore": "megatron",
    "megatron_core": "megatron",
    "megatron_lm": "megatron",
    "nemo": "megatron",
    "titan": "torchtitan",
    "ddp": "torch",
    "fsdp": "torch",
    "pytorch": "torch",
    "torchrun": "torch",
    "hf_accelerate": "accelerate",
}
"""Names that people use for engines."""


def suggest(word: str, known: Iterable[str], other_names: Mapping[str, str] | None = None) -> str | None:
    """The known name that `word` most likely means; None if nothing is near.

    `other_names` are further names for known ones; `-`, `_`, blanks and case make no difference, nor do
    the endings of launch options (`tensor-parallel-size`).
    """
    names = {_plain(name): name for name in known}
    names |= {_plain(other): name for other, name in (other_names or {}).items() if name in names.values()}
    plain = _plain(word)
    near = [plain] if plain in names else get_close_matches(plain, names, 1, cutoff=0.7)
    return names[near[0]] if near else None


def _plain(word: str) -> str:
    flat = re.sub(r"[^a-z0-9]", "", word.lower()[:100])
    return re.sub(r"(model)?(parallel)?(size|degree)$", "", flat) or flat
