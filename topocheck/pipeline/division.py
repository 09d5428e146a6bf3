"""By how much the ranks of a stage divide its weights, by engine."""

from __future__ import annotations

from topocheck.engines.layout import Layout
from topocheck.pipeline.weights import Division

__all__ = ["division_of"]

VOCABULARY = {"vllm": 64, "sglang": 64}
"""The vocabulary is padded to a multiple of this, whatever the sizes (VocabParallelEmbedding)."""
MEGATRON_VOCABULARY = 128
"""Megatron's --make-vocab-size-divisible-by, which it takes times the tensor size."""


def division_of(layout: Layout, *, routed: bool, attention_data: int = 1) -> Division:
    """Division of weights in this layout.

    `routed` says that the model has routed experts, `attention_data` is the attention data parallel size.
    vLLM: with expert parallelism whole experts over all ranks of a stage, else each expert over the tensor
    ranks of all data replicas (FusedMoEParallelConfig). SGLang: attention over tp / attention data, experts
    over moe_tp x ep. TensorRT-LLM: attention whole under attention data parallelism. Megatron-Core: the
    expert tensor size is the tensor size unless given. torchtitan: expert parallelism takes the tensor axis.
    """
    tensor, expert, engine = layout.size("tensor"), layout.size("expert"), layout.engine
    attention, each = tensor, 1
    if "attention_tensor" in layout.extra:
        attention = layout.size("attention_tensor")
    elif engine == "tensorrt_llm" and attention_data > 1:
        attention = 1
    if "expert_tensor" in layout.extra:
        each = layout.size("expert_tensor")
    elif expert == 1:
        each = tensor * (layout.size("data") * layout.size("context") if engine == "vllm" else 1)
    padded = MEGATRON_VOCABULARY * tensor if engine == "megatron" else VOCABULARY.get(engine, 1)
    return Division(
        tensor=tensor,
        attention=attention,
        expert=expert if routed else 1,
        expert_tensor=each if routed else None,
        vocabulary_multiple=padded,
    )
