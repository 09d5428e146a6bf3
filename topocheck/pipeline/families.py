"""The weights of well-known model families, by name and shape, from the sizes of their architecture.

Names are those of the published checkpoints; the experts of a layer, which follow each other there as
`experts.0`, `experts.1` ..., are one entry with so many copies. Shapes are those of the model's class in
transformers 5.24 (`models/*/modeling_*.py`), against which the tests hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from topocheck.pipeline.architecture import Architecture

__all__ = ["FAMILIES", "Entry", "Family", "end_entries", "layer_entries", "mtp_entries"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a checkpoint, or as many alike as there are experts."""

    name: str
    """In a layer, without the layer's prefix: `self_attn.q_proj.weight`."""
    shape: tuple[int, ...]
    copies: int = 1


Entries = Iterator[Entry]
Rule = Callable[[Architecture], Entries]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How one family of models is built."""

    attention: Rule
    dense: Rule
    moe: Rule | None = None
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    """Norms of a layer, as wide as the hidden state."""
    norm_bias: bool = False
    ends: Rule
    mtp: bool = False
    """Layers for multi-token prediction are laid out as DeepSeek's."""


def layer_entries(family: Family, sizes: Architecture, *, moe: bool) -> Entries:
    """Weights of one layer. Raises InputError where a size is missing."""
    yield from family.attention(sizes)
    yield from family.moe(sizes) if moe and family.moe else family.dense(sizes)
    for norm in family.norms:
        yield from _norm(norm, sizes.need("hidden"), bias=family.norm_bias)


def end_entries(family: Family, sizes: Architecture) -> Entries:
    """Embedding, final norm, and the head unless it is tied. Raises InputError where a size is missing."""
    yield from family.ends(sizes)
    if not sizes.tied:
        yield Entry(
            "lm_head.weight", (sizes.need("vocabulary"), sizes.embedding_width or sizes.need("hidden"))
        )


def mtp_entries(family: Family, sizes: Architecture) -> Entries:
    """One layer for multi-token prediction: a layer, its own copies of the ends, and what joins them.

    As in the checkpoint of DeepSeek-V3; transformers itself does not build it.
    """
    hidden, vocabulary = sizes.need("hidden"), sizes.need("vocabulary")
    yield from layer_entries(family, sizes, moe=bool(sizes.experts))
    yield Entry("embed_tokens.weight", (vocabulary, hidden))
    yield Entry("enorm.weight", (hidden,))
    yield Entry("hnorm.weight", (hidden,))
    yield Entry("eh_proj.weight", (hidden, 2 * hidden))
    yield Entry("shared_head.norm.weight", (hidden,))
    yield Entry("shared_head.head.weight", (vocabulary, hidden))


def _norm(name: str, width: int, *, bias: bool = False) -> Entries:
    yield Entry(f"{name}.weight", (width,))
    if bias:
        yield Entry(f"{name}.bias", (width,))


def _linear(name: str, rows: int, columns: int, *, bias: bool = False) -> Entries:
    yield Entry(f"{name}.weight", (rows, columns))
    if bias:
        yield Entry(f"{name}.bias", (rows,))


def _grouped(
    sizes: Architecture, *, bias: bool | None = None, out_bias: bool | None = None, qk_norm: bool = False
) -> Entries:
    """Multi-head and grouped-query attention; biases as config.json says unless the family fixes them."""
    hidden, width = sizes.need("hidden"), sizes.width
    queries, keys = sizes.need("heads") * width, sizes.groups * width
    bias = sizes.attention_bias if bias is None else bias
    out_bias = sizes.attention_bias if out_bias is None else out_bias
    yield from _linear("self_attn.q_proj", queries, hidden, bias=bias)
    yield from _linear("self_attn.k_proj", keys, hidden, bias=bias)
    yield from _linear("self_attn.v_proj", keys, hidden, bias=bias)
    yield from _linear("self_attn.o_proj", hidden, queries, bias=out_bias)
    if qk_norm:
        yield from _norm("self_attn.q_norm", width)
        yield from _norm("self_attn.k_norm", width)


def _llama(sizes: Architecture) -> Entries:
    return _grouped(sizes)


def _without_bias(sizes: Architecture) -> Entries:
    return _grouped(sizes, bias=False, out_bias=False)


def _qwen2(sizes: Architecture) -> Entries:
    """Biases at query, key and value, whatever config.json says."""
    return _grouped(sizes, bias=True, out_bias=False)


def _normed(sizes: Architecture) -> Entries:
    """Qwen3, Gemma 3: a norm over each head's query and key."""
    return _grouped(sizes, qk_norm=True)


def _glm4(sizes: Architecture) -> Entries:
    return _grouped(sizes, out_bias=False, qk_norm=sizes.qk_norm)


def _gpt_oss(sizes: Architecture) -> Entries:
    """Grouped-query attention with a learned sink for each head."""
    yield from _grouped(sizes)
    yield Entry("self_attn.sinks", (sizes.need("heads"),))


def _phi3(sizes: Architecture) -> Entries:
    """Query, key and value in one matrix."""
    hidden, width = sizes.need("hidden"), sizes.width
    queries, keys = sizes.need("heads") * width, sizes.groups * width
    yield from _linear("self_attn.qkv_proj", queries + 2 * keys, hidden)
    yield from _linear("self_attn.o_proj", hidden, queries)


def _latent(sizes: Architecture) -> Entries:
    """Multi-head latent attention (MLA) of DeepSeek."""
    hidden, heads, latent = sizes.need("hidden"), sizes.need("heads"), sizes.need("kv_lora_rank")
    nope, rope, value = (sizes.need(f"{part}_head_dim") for part in ("qk_nope", "qk_rope", "v"))
    bias = sizes.attention_bias
    if sizes.q_lora_rank:
        yield from _linear("self_attn.q_a_proj", sizes.q_lora_rank, hidden, bias=bias)
        yield from _norm("self_attn.q_a_layernorm", sizes.q_lora_rank)
        yield from _linear("self_attn.q_b_proj", heads * (nope + rope), sizes.q_lora_rank)
    else:
        yield from _linear("self_attn.q_proj", heads * (nope + rope), hidden)
    yield from _linear("self_attn.kv_a_proj_with_mqa", latent + rope, hidden, bias=bias)
    yield from _norm("self_attn.kv_a_layernorm", latent)
    yield from _linear("self_attn.kv_b_proj", heads * (nope + value), latent)
    yield from _linear("self_attn.o_proj", hidden, heads * value, bias=bias)


def _gpt2_attention(sizes: Architecture) -> Entries:
    """Conv1D: shapes are transposed, biases everywhere."""
    hidden = sizes.need("hidden")
    for name, columns in (("attn.c_attn", 3 * hidden), ("attn.c_proj", hidden)):
        yield Entry(f"{name}.weight", (hidden, columns))
        yield Entry(f"{name}.bias", (columns,))


def _opt_attention(sizes: Architecture) -> Entries:
    hidden = sizes.need("hidden")
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        yield from _linear(f"self_attn.{name}", hidden, hidden, bias=True)


def _gated(name: str, sizes: Architecture, columns: int, *, bias: bool = False, copies: int = 1) -> Entries:
    """Gate, up and down projection."""
    hidden = sizes.need("hidden")
    for part, rows, width in (
        ("gate_proj", columns, hidden),
        ("up_proj", columns, hidden),
        ("down_proj", hidden, columns),
    ):
        yield Entry(f"{name}.{part}.weight", (rows, width), copies)
        if bias:
            yield Entry(f"{name}.{part}.bias", (rows,), copies)


def _gated_mlp(sizes: Architecture) -> Entries:
    return _gated("mlp", sizes, sizes.need("intermediate"), bias=sizes.mlp_bias)


def _fused_mlp(sizes: Architecture) -> Entries:
    """Phi-3: gate and up projection in one matrix."""
    hidden, columns = sizes.need("hidden"), sizes.need("intermediate")
    yield from _linear("mlp.gate_up_proj", 2 * columns, hidden)
    yield from _linear("mlp.down_proj", hidden, columns)


def _gpt2_mlp(sizes: Architecture) -> Entries:
    hidden = sizes.need("hidden")
    columns = sizes.intermediate or 4 * hidden
    yield Entry("mlp.c_fc.weight", (hidden, columns))
    yield Entry("mlp.c_fc.bias", (columns,))
    yield Entry("mlp.c_proj.weight", (columns, hidden))
    yield Entry("mlp.c_proj.bias", (hidden,))


def _opt_mlp(sizes: Architecture) -> Entries:
    hidden, columns = sizes.need("hidden"), sizes.need("intermediate")
    yield from _linear("fc1", columns, hidden, bias=True)
    yield from _linear("fc2", hidden, columns, bias=True)


def _experts(sizes: Architecture, router: str = "mlp.gate") -> Entries:
    """Router and routed experts."""
    experts = sizes.need("experts")
    yield from _linear(router, experts, sizes.need("hidden"))
    columns = sizes.expert_intermediate or sizes.need("intermediate")
    yield from _gated("mlp.experts", sizes, columns, copies=experts)


def _mixtral(sizes: Architecture) -> Entries:
    hidden, columns, experts = sizes.need("hidden"), sizes.need("intermediate"), sizes.need("experts")
    yield from _linear("block_sparse_moe.gate", experts, hidden)
    for name, shape in (("w1", (columns, hidden)), ("w2", (hidden, columns)), ("w3", (columns, hidden))):
        yield Entry(f"block_sparse_moe.experts.{name}.weight", shape, experts)


def _qwen2_moe(sizes: Architecture) -> Entries:
    """One shared expert with a gate of its own."""
    yield from _experts(sizes)
    yield from _gated("mlp.shared_expert", sizes, sizes.need("shared_intermediate"))
    yield from _linear("mlp.shared_expert_gate", 1, sizes.need("hidden"))


def _deepseek_v2(sizes: Architecture) -> Entries:
    yield from _experts(sizes)
    if sizes.shared_experts:
        yield from _gated(
            "mlp.shared_experts", sizes, sizes.shared_experts * sizes.need("expert_intermediate")
        )


def _deepseek_v3(sizes: Architecture) -> Entries:
    """As V2, with a bias that corrects the router's scores."""
    yield from _deepseek_v2(sizes)
    yield Entry("mlp.gate.e_score_correction_bias", (sizes.need("experts"),))


def _gpt_oss_moe(sizes: Architecture) -> Entries:
    """Experts of a layer in one tensor, with biases."""
    hidden, columns, experts = sizes.need("hidden"), sizes.need("intermediate"), sizes.need("experts")
    yield from _linear("mlp.router", experts, hidden, bias=True)
    yield Entry("mlp.experts.gate_up_proj", (experts, hidden, 2 * columns))
    yield Entry("mlp.experts.gate_up_proj_bias", (experts, 2 * columns))
    yield Entry("mlp.experts.down_proj", (experts, columns, hidden))
    yield Entry("mlp.experts.down_proj_bias", (experts, hidden))


def _usual_ends(sizes: Architecture) -> Entries:
    yield Entry("model.embed_tokens.weight", (sizes.need("vocabulary"), sizes.need("hidden")))
    yield from _norm("model.norm", sizes.need("hidden"))


def _gpt2_ends(sizes: Architecture) -> Entries:
    hidden = sizes.need("hidden")
    yield Entry("wte.weight", (sizes.need("vocabulary"), hidden))
    yield Entry("wpe.weight", (sizes.need("positions"), hidden))
    yield from _norm("ln_f", hidden, bias=True)


def _opt_ends(sizes: Architecture) -> Entries:
    """Two more positions than config.json names, and projections where the embedding is narrower."""
    hidden = sizes.need("hidden")
    width = sizes.embedding_width or hidden
    yield Entry("model.decoder.embed_tokens.weight", (sizes.need("vocabulary"), width))
    yield Entry("model.decoder.embed_positions.weight", (sizes.need("positions") + 2, hidden))
    if width != hidden:
        yield Entry("model.decoder.project_in.weight", (hidden, width))
        yield Entry("model.decoder.project_out.weight", (width, hidden))
    if sizes.norm_before:
        yield from _norm("model.decoder.final_layer_norm", hidden, bias=True)


GEMMA_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)

LLAMA = Family(attention=_llama, dense=_gated_mlp, ends=_usual_ends)
MISTRAL = Family(attention=_without_bias, dense=_gated_mlp, ends=_usual_ends)
QWEN2 = Family(attention=_qwen2, dense=_gated_mlp, ends=_usual_ends)
QWEN3 = Family(attention=_normed, dense=_gated_mlp, ends=_usual_ends)
DEEPSEEK_V2 = Family(attention=_latent, dense=_gated_mlp, moe=_deepseek_v2, ends=_usual_ends)
DEEPSEEK_V3 = Family(attention=_latent, dense=_gated_mlp, moe=_deepseek_v3, ends=_usual_ends, mtp=True)

FAMILIES: Mapping[str, Family] = {
    "llama": LLAMA,
    "mistral": MISTRAL,
    "granite": LLAMA,
    "gemma": LLAMA,
    "gemma2": Family(attention=_llama, dense=_gated_mlp, norms=GEMMA_NORMS, ends=_usual_ends),
    "gemma3_text": Family(attention=_normed, dense=_gated_mlp, norms=GEMMA_NORMS, ends=_usual_ends),
    "qwen2": QWEN2,
    "qwen2_vl": QWEN2,
    "qwen2_vl_text": QWEN2,
    "qwen2_5_vl": QWEN2,
    "qwen2_5_vl_text": QWEN2,
    "qwen3": QWEN3,
    "qwen3_vl_text": QWEN3,
    "qwen2_moe": Family(attention=_qwen2, dense=_gated_mlp, moe=_qwen2_moe, ends=_usual_ends),
    "qwen3_moe": Family(attention=_normed, dense=_gated_mlp, moe=_experts, ends=_usual_ends),
    "phi3": Family(attention=_phi3, dense=_fused_mlp, ends=_usual_ends),
    "mixtral": Family(attention=_without_bias, dense=_gated_mlp, moe=_mixtral, ends=_usual_ends),
    "deepseek_v2": DEEPSEEK_V2,
    "deepseek_v3": DEEPSEEK_V3,
    "kimi_k2": DEEPSEEK_V3,
    "glm4_moe": Family(attention=_glm4, dense=_gated_mlp, moe=_deepseek_v3, ends=_usual_ends, mtp=True),
    "gpt_oss": Family(attention=_gpt_oss, dense=_gated_mlp, moe=_gpt_oss_moe, ends=_usual_ends),
    "gpt2": Family(
        attention=_gpt2_attention, dense=_gpt2_mlp, norms=("ln_1", "ln_2"), norm_bias=True, ends=_gpt2_ends
    ),
    "opt": Family(
        attention=_opt_attention,
        dense=_opt_mlp,
        norms=("self_attn_layer_norm", "final_layer_norm"),
        norm_bias=True,
        ends=_opt_ends,
    ),
}
"""Families by model_type, that of the text part for a multimodal model."""
