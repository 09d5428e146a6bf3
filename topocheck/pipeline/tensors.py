"""Where a tensor of a checkpoint belongs in the model and how engines divide it, from its name.

Names are those of Hugging Face checkpoints. Division as in vLLM's and SGLang's model files (ColumnParallel-
Linear, RowParallelLinear, QKVParallelLinear, VocabParallelEmbedding, ReplicatedLinear, FusedMoE), which
Megatron-Core's and TensorRT-LLM's agree with: output columns of the first projection and input rows of the
second are divided, biases of the second, norms and routers are whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from topocheck.pipeline.architecture import Architecture
from topocheck.pipeline.weights import Block, Part, Shard

__all__ = ["End", "blocks_of", "holds_parameters", "is_buffer", "is_linear", "place_of"]

End = Literal["embedding", "norm", "head", "other"]
"""Where a tensor stands that is in no layer."""

PREFIX = r"(?:(?:model|language_model|transformer|decoder)\.)*"
LAYER = re.compile(PREFIX + r"(?:layers|h)\.([0-9]{1,5})\.(.+)", re.DOTALL)
ENDS: tuple[tuple[re.Pattern[str], End], ...] = (
    (re.compile(PREFIX + r"(?:embed_tokens|wte|wpe|embed_positions|embed_in|project_in)\..+"), "embedding"),
    (re.compile(PREFIX + r"(?:norm|ln_f|final_layer_norm|final_layernorm)\..+"), "norm"),
    (re.compile(PREFIX + r"(?:lm_head|embed_out|project_out)\..+"), "head"),
)
BUFFER = re.compile(r"(?:.*\.)?(?:rotary_emb\.inv_freq|attn\.(?:masked_)?bias|position_ids)")
"""Constants that older checkpoints hold: no weights, and no engine loads them."""

SCALE = re.compile(
    r"(?P<module>.+?)(?:\.(?:qzeros|scales|g_idx|weight_scale_inv|weight_scale|weight_scale_2|input_scale|"
    r"output_scale|k_scale|v_scale|weight_zero_point|weight_shape|weight_g_idx|weight_global_scale|"
    r"input_global_scale|weight\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..+))|_scales)"
)
"""What belongs to a quantised weight and is no parameter of the model."""
LEAF = re.compile(r"(?P<module>.+?)(?:[._](?P<leaf>weight|bias|qweight|weight_packed|blocks))?")

PARTS: tuple[tuple[str, Part, Shard], ...] = (
    (
        r"(?:.*\.)?shared_experts?\.(?:gate_proj|up_proj|gate_up_proj|down_proj)",
        "shared_experts",
        "columns",
    ),
    (r"(?:.*\.)?experts\..+", "experts", "experts"),
    (r"(?:mlp|block_sparse_moe|feed_forward)\.(?:gate|router|shared_expert_gate)", "router", "whole"),
    (r"(?:.*\.)?e_score_correction", "router", "whole"),
    (
        r"self_attn\.(?:q_proj|q_b_proj|kv_b_proj|o_proj|out_proj|sinks)|attn\.c_proj",
        "attention",
        "heads",
    ),
    (r"self_attn\.(?:k_proj|v_proj)", "attention", "kv_heads"),
    (r"self_attn\.(?:q_a_proj|kv_a_proj_with_mqa)", "attention", "whole"),
    (
        r"(?:(?:mlp|feed_forward)\.)?(?:gate_proj|up_proj|gate_up_proj|down_proj|fc1|fc2|c_fc|c_proj)",
        "mlp",
        "columns",
    ),
    (r"shared_head\.head", "head", "vocabulary"),
    (r"embed_tokens|wte|embed_in", "embedding", "vocabulary"),
    (r"embed_positions|wpe|project_in", "embedding", "whole"),
    (r"lm_head|embed_out", "head", "vocabulary"),
    (r"project_out", "head", "whole"),
    (r"eh_proj", "other", "whole"),
    (r"(?:.*[._])?(?:[a-z]*norm|ln_[0-9f])", "norm", "whole"),
)
FUSED = re.compile(r"self_attn\.qkv_proj|attn\.c_attn")
"""Query, key and value in one matrix."""
SECOND = re.compile(r"(?:.*\.)?(?:o_proj|out_proj|c_proj|down_proj|fc2)")
"""Second projections: their inputs are divided, their biases are not."""


def place_of(name: str) -> tuple[int | End, str]:
    """Layer, or end of the model, of a tensor; and its name there, without the prefix of the layer."""
    match = LAYER.fullmatch(name)
    if match is not None:
        return int(match[1]), match[2]
    end: End = next((end for pattern, end in ENDS if pattern.fullmatch(name)), "other")
    return end, re.sub("^" + PREFIX, "", name) if end != "other" else name


def is_buffer(name: str) -> bool:
    """Constants such as the frequencies of rotary embeddings, which are no weights."""
    return BUFFER.fullmatch(name) is not None


def holds_parameters(name: str) -> bool:
    """False for scales and zero points of quantised weights."""
    return SCALE.fullmatch(name) is None


def is_linear(name: str) -> bool:
    """Whether quantisation takes a weight of a layer: projections, not routers, norms and ends."""
    part, _ = _kind(_module(name)[0])
    return name.endswith(".weight") and part in {"attention", "mlp", "experts", "shared_experts"}


def blocks_of(
    name: str, parameters: int, size: int, shape: tuple[int, ...], sizes: Architecture
) -> Iterator[Block]:
    """Blocks of one tensor, by its name in its layer or at its end; `size` in bytes.

    Query, key and value in one matrix are two blocks: KV heads divide otherwise.
    """
    module, leaf = _module(name)
    if FUSED.fullmatch(module):
        yield from _fused(parameters, size, sizes)
        return
    part, shard = _kind(module)
    undivided = leaf == "bias" or (leaf == "scale" and shape[-1:] == (1,))
    if leaf == "scale" and max(shape, default=1) == 1:
        undivided = True
    elif not SECOND.fullmatch(module):
        undivided = False
    if undivided and shard != "experts":
        shard = "whole"
    units, inner = _units(part, shard, sizes)
    if units is None or inner is None:
        yield Block(part, "unknown", 1, parameters, size)
    else:
        yield Block(part, shard, units, parameters, size, inner)


def _module(name: str) -> tuple[str, str]:
    """`self_attn.q_proj` and `weight`, `bias` or `scale`."""
    match = SCALE.fullmatch(name)
    if match is not None:
        return match["module"], "scale"
    match = LEAF.fullmatch(name)
    return (name, "") if match is None else (match["module"], match["leaf"] or "")


def _kind(module: str) -> tuple[Part, Shard]:
    for pattern, part, shard in PARTS:
        if re.fullmatch(pattern, module):
            return part, shard
    return "other", "unknown"


def _fused(parameters: int, size: int, sizes: Architecture) -> Iterator[Block]:
    heads, groups = sizes.heads, sizes.kv_heads or sizes.heads
    if heads is None or groups is None:
        yield Block("attention", "unknown", 1, parameters, size)
        return
    queries, part = parameters * heads // (heads + 2 * groups), size * heads // (heads + 2 * groups)
    yield Block("attention", "heads", heads, queries, part)
    yield Block("attention", "kv_heads", groups, parameters - queries, size - part)


def _units(part: Part, shard: Shard, sizes: Architecture) -> tuple[int | None, int | None]:
    """Pieces of a block, and columns of one expert; None where config.json does not say."""
    if shard == "experts":
        return sizes.experts, sizes.expert_intermediate or sizes.intermediate
    units = {
        "whole": 1,
        "heads": sizes.heads,
        "kv_heads": sizes.kv_heads or sizes.heads,
        "columns": _shared_columns(sizes) if part == "shared_experts" else _columns(sizes),
        "vocabulary": sizes.vocabulary,
    }.get(shard)
    return units, 1


def _columns(sizes: Architecture) -> int | None:
    return sizes.intermediate or (sizes.hidden and 4 * sizes.hidden if sizes.family == "gpt2" else None)


def _shared_columns(sizes: Architecture) -> int | None:
    if sizes.shared_intermediate or not sizes.shared_experts or not sizes.expert_intermediate:
        return sizes.shared_intermediate
    return sizes.shared_experts * sizes.expert_intermediate
