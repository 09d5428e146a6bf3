"""SGLang.

Facts from srt/distributed/parallel_state.py, srt/distributed/utils.py (get_pp_indices),
srt/entrypoints/engine.py (rank ranges and GPU ids) and srt/managers/data_parallel_controller.py of the
releases 0.4.10 to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topocheck.engines.engine import Engine, Sizes, all_sizes, axes_of, no_order
from topocheck.engines.layers import contiguous, declared_counts, known_options
from topocheck.engines.layout import Axes, LayerSplit, Layout, Lines, Slot
from topocheck.engines.version import release
from topocheck.errors import LayoutError

__all__ = ["ENGINE", "slots"]

TITLE = "SGLang"
ORDER = ("data", "pipeline", "tensor")
SIZES = (*ORDER, "attention_data", "context", "decode_context", "expert", "moe_data")


def layout(sizes: Sizes, version: str | None, order: str | None) -> Layout:
    """`rank = tp_size * pp_rank + tp_rank`; attention and MoE divide the tensor axis anew.

    Attention: tp_rank = (attn_dp * CP + attn_cp) * ATP + attn_tp. MoE: (moe_dp * EP + ep) * MTP + moe_tp.
    Data replicas are torch worlds of their own whose ranks start at 0; here they follow each other.
    `attention_data` is --attn-dp-size, up to 0.5.10 --dp-size with --enable-dp-attention.
    """
    no_order(TITLE, order)
    size = all_sizes(TITLE, sizes, SIZES)
    extra: dict[str, Lines] = {}
    if size["attention_data"] * size["context"] > 1:
        extra |= _attention(size)
    if size["expert"] * size["moe_data"] > 1:
        extra |= _moe(size)
    if size["context"] > size["moe_data"]:
        extra["moe_data"] = extra["context"]  # initialize_model_parallel takes the attention CP group
    if size["decode_context"] > 1:
        axes = _divided(size, "decode_context", blocks=())
        extra["decode_context"] = Lines(axes, ("decode_context",))
    return Layout("sglang", version, axes_of(size, ORDER), extra)


def _attention(size: Sizes) -> dict[str, Lines]:
    axes = _divided(size, "attention_data", "context", blocks=("attention_tensor",))
    return {
        "attention_data": Lines(axes, ("attention_data",)),
        "context": Lines(axes, ("context",)),
        "attention_tensor": Lines(axes, ("attention_tensor",)),
    }


def _moe(size: Sizes) -> dict[str, Lines]:
    axes = _divided(size, "moe_data", "expert", blocks=("expert_tensor",))
    return {kind: Lines(axes, (kind,)) for kind in ("moe_data", "expert", "expert_tensor")}
