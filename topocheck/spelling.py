"""Suggestions for names that people misspell or know under another name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

__all__ = ["AXIS_NAMES", "CONFIG_KEYS", "ENGINE_NAMES", "KEY_NAMES", "short_name", "suggest"]

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
    "max_num_seqs": "max_sequences",
    "max_running_requests": "max_sequences",
    "max_batch": "max_sequences",
    "max_num_batched_tokens": "max_batched_tokens",
    "chunked_prefill": "max_batched_tokens",
    "max_num_tokens": "max_batched_tokens",
    "input_len": "input_tokens",
    "output_len": "output_tokens",
    "isl": "input_tokens",
    "osl": "output_tokens",
    "kv_cache_dtype": "kv_dtype",
    "mem_fraction_static": "gpu_memory_utilization",
    "boundary_ms": "prefill_boundary_ms",
    **CONFIG_KEYS,
}
"""Names that launch commands and papers use for keys of the plan."""

AXIS_NAMES: Mapping[str, str] = {
    "tensor": "tp",
    "pipeline": "pp",
    "data": "dp",
    "context": "cp",
    "decode_context": "dcp",
    "expert": "ep",
    "expert_tensor": "etp",
    "sequence": "sp",
    "data_replicate": "dp_replicate",
    "data_shard": "dp_shard",
    "data_external": "external_dp",
    "attention_data": "attn_dp",
    "attention_tensor": "attn_tp",
    "moe_data": "moe_dp",
    "expert_data": "edp",
    "data_context": "dp_cp",
    "tensor_context": "tp_cp",
    "tensor_pipeline": "tp_pp",
    "tensor_expert": "etp_ep",
    "data_shard_context": "dp_shard_cp",
}
"""Axes and kinds of group by their name in a plan -> as engines and papers write them."""

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


def short_name(axis: str) -> str:
    """`tp` for `tensor`; a name that has no short form stays."""
    return AXIS_NAMES.get(axis, axis)


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
