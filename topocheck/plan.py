"""What was declared: sizes, order, nodes, layers, policy.

A plan is four lines at least:

    engine: vllm
    parallel: {tensor: 4, pipeline: 2}
    nodes: 2

Everything else is optional. Reading a file is `topocheck.planfile`; this module has the types.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["BASES", "Model", "NodeRange", "Parallel", "Plan", "Policy"]

Severity = Literal["error", "warning", "info"]
Basis = Literal["predicted", "claimed", "observed"]

BASES: tuple[Basis, ...] = ("predicted", "claimed", "observed")
"""How well a placement is known, weakest first."""


class Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all declared data: immutable, and strict, because a misspelt key would hide a check."""


class Parallel(Declared, frozen=True, kw_only=True):
    """Sizes of the parallel axes. An axis that is left out is derived from the world size, else 1."""

    tensor: int | None = None
    """Tensor-parallel size (TP)."""
    pipeline: int | None = None
    """Pipeline-parallel size (PP): the number of stages."""
    data: int | None = None
    """Data-parallel size (DP)."""
    context: int | None = None
    """Context-parallel size (CP); in vLLM the prefill context parallel size."""
    decode_context: int | None = None
    """Decode context parallel size (DCP); divides TP and adds no ranks."""
    expert: int | None = None
    """Expert-parallel size (EP); adds no ranks of its own."""
    expert_tensor: int | None = None
    """Expert tensor parallel size (ETP)."""
    attention_data: int | None = None
    """Attention data parallel size (SGLang --attn-dp-size); divides TP."""
    moe_data: int | None = None
    """MoE data parallel size (SGLang); divides TP."""
    data_replicate: int | None = None
    """Replicated part of data parallelism (torchtitan, accelerate)."""
    data_shard: int | None = None
    """Sharded part of data parallelism (torchtitan, accelerate)."""
    sequence: int | None = None
    """Sequence parallel size as an axis of its own (accelerate)."""


class Model(Declared, frozen=True, kw_only=True):
    """What of the model the arithmetic needs."""

    layers: int | None = None
    """Number of transformer layers."""
    hidden: int | None = None
    """Hidden size."""
    heads: int | None = None
    """Attention heads."""
    kv_heads: int | None = None
    """Key-value heads."""
    vocabulary: int | None = None
    """Vocabulary size."""
    experts: int | None = None
    """Routed experts; None or 0 for a dense model."""


class NodeRange(Declared, frozen=True, kw_only=True):
    """A number of nodes between two bounds, for elastic jobs."""

    min: int
    """At least so many."""
    max: int
    """At most so many."""


class Policy(Declared, frozen=True, kw_only=True):
    """What is demanded beyond what is right anyway."""

    optional: tuple[str, ...] = ()
    """Rules, by id or prefix, that may stay unknown without keeping the gate shut."""
    severity: dict[str, Severity] = {}
    """Severity of a rule's findings, by id or prefix, in place of the catalogue's."""
    tensor_domain: Literal["node", "nvlink", "any"] | None = None
    """Where a tensor-parallel group may lie: in one node (the default), in one NVLink domain, anywhere."""
    boundary: Literal["rdma", "any"] = "rdma"
    """What a stage boundary between nodes needs: RDMA (the default), or whatever there is."""
    min_basis: Basis | None = None
    """How well placement must be known for a pass to count: predicted, claimed or observed."""


class Plan(Declared, frozen=True, kw_only=True):
    """One job as declared."""

    engine: str
    """Engine: vllm, sglang, tensorrt_llm, megatron, deepspeed, torchtitan, accelerate or torch."""
    parallel: Parallel = Parallel()
    """Sizes of the parallel axes."""
    nodes: int | tuple[str, ...] | NodeRange
    """Number of nodes, their names in node-rank order, or {min, max}."""
    engine_version: str | None = None
    """Engine version, where the layout or the layer split depends on it."""
    order: str | None = None
    """Order of the axes, for engines that take one, in the engine's own notation."""
    model: Model | None = None
    """The model's sizes."""
    layers: str | tuple[int, ...] | None = None
    """Layers of each stage, or the engine's own override string."""
    policy: Policy = Policy()
    """Demands and exceptions."""
