"""What was declared: sizes, order, nodes, layers, policy.

A plan is four lines at least:

    engine: vllm
    parallel: {tensor: 4, pipeline: 2}
    nodes: 2

Everything else is optional. Reading a file is `topocheck.planfile`; this module has the types.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

__all__ = [
    "BASES",
    "Expect",
    "Model",
    "NodeRange",
    "Parallel",
    "Plan",
    "Policy",
    "PolicyFile",
    "Role",
    "Waiver",
    "Workload",
    "World",
]

Severity = Literal["error", "warning", "info"]
Basis = Literal["predicted", "claimed", "observed"]
ProfileChoice = Literal[
    "auto",
    "none",
    "nvl72",
    "hgx-a100",
    "hgx-h100",
    "hgx-h200",
    "hgx-b200",
    "hgx-4",
    "dgx-1v",
    "gh200",
    "gb10",
    "bridged",
    "pcie",
    "cloud-vm",
]
"""Profiles of `topocheck.profiles` by name; `auto` chooses by evidence, `none` does without."""
Role = Literal["prefill", "decode"]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
"""A part of a whole: 0.2 is a fifth."""
Milliseconds = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]
GigabitsPerSecond = Annotated[float, msgspec.Meta(gt=0, le=100_000)]

Layers = str | tuple[int, ...] | dict[str, int | bool | str | tuple[float, ...]]
"""Layers of each stage: a list, the engine's own override text, or options of its layer split."""

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
    data_external: int | None = None
    """Whole copies of a vLLM engine in one torchrun world (its executor `external_launcher`)."""
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
    tied: bool | None = None
    """Whether the head uses the embedding's weights (tie_word_embeddings)."""


class NodeRange(Declared, frozen=True, kw_only=True):
    """A number of nodes between two bounds, for elastic jobs."""

    min: int
    """At least so many."""
    max: int
    """At most so many."""


class Policy(Declared, frozen=True, kw_only=True):
    """What is demanded beyond what is right anyway."""

    only: tuple[str, ...] = ()
    """Rules, by id or prefix, that alone are asked; all unless given."""
    skip: tuple[str, ...] = ()
    """Rules, by id or prefix, that are not asked; a required one must be in `optional` too."""
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
    bubble: Share | None = None
    """Most of the stages' time that may go to fill and drain of the pipeline (PP009)."""
    imbalance: Share | None = None
    """Most of the stages' time that may go to waiting for the largest stage (PP007); 0.2 unless given."""
    prefill_boundary_ms: Milliseconds | None = None
    """Longest time of one prefill microbatch on the way from stage to stage, in milliseconds (PP010)."""
    decode_boundary_ms: Milliseconds | None = None
    """Longest time of one decode microbatch on the way from stage to stage, in milliseconds (PP010)."""
    head_room: Share | None = None
    """Least part of a GPU's memory that the job leaves free (CAP003)."""
    min_rate_gbps: GigabitsPerSecond | None = None
    """Least rate of each network port that the job needs, in Gbit/s (NET002)."""
    profile: ProfileChoice = "auto"
    """Kind of machine that all nodes are, or none; each is what its evidence shows unless given."""
    expect_nics: int | None = None
    """RDMA devices that each node has for the job (NET010)."""
    expect_rails: tuple[str, ...] = ()
    """Names of the RDMA devices that are the rails of a node: the job needs their ports, unless NCCL_IB_HCA
    says otherwise (NET001)."""
    expect_gpus: int | None = None
    """GPUs that each node has, in place of what its profile says (VER007)."""
    expect_nvlinks: int | None = None
    """Active NVLinks that each GPU has, in place of what its model has by design (NV001)."""
    used_memory: Share | None = None
    """Most of a GPU's memory that may be in use before the job starts (CAP001); 0.05 unless given."""
    clock_error_s: Seconds | None = None
    """Largest error of a node's clock, in seconds (ENV006); 1 unless given."""


class Workload(Declared, frozen=True, kw_only=True):
    """What the job is given to do, in the words of the engines' flags."""

    microbatches: int | None = None
    """Microbatches that are ready at once to fill the stages."""
    virtual_stages: int | None = None
    """Virtual stages of each stage (interleaved schedule of training); 1 unless given."""
    input_tokens: int | None = None
    """Tokens of one request's input, the longest that must be served."""
    output_tokens: int | None = None
    """Tokens of one request's output, the longest that must be served."""
    max_sequences: int | None = None
    """Requests in work at once (vLLM --max-num-seqs, SGLang --max-running-requests, TensorRT-LLM
    --max_batch_size)."""
    max_batched_tokens: int | None = None
    """Rows of one prefill microbatch (vLLM --max-num-batched-tokens, SGLang --chunked-prefill-size,
    TensorRT-LLM --max_num_tokens; in training sequence length x micro batch size)."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Type of activations, and of weights whose config.json names float32 or no type."""
    kv_dtype: Literal["bfloat16", "float16", "float32", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"] | None = None
    """Type of the KV cache (vLLM and SGLang --kv-cache-dtype); that of activations unless given."""
    gpu_memory_utilization: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Part of each GPU's memory that the engine may take (vLLM --gpu-memory-utilization); for SGLang the part
    that weights and KV cache may take (--mem-fraction-static)."""
    boundary_tensors: int | None = None
    """Tensors that go from stage to stage, 2 for hidden states and residual; the engine's unless given."""
    boundary_split: Literal["none", "tensor"] | None = None
    """Whether each rank of a tensor group sends all rows (none) or its part (tensor: sequence parallelism, or
    slices that the receivers gather); the engine's own unless given."""


class Waiver(Declared, frozen=True, kw_only=True):
    """Findings that are known and borne: they still show, and do not count until the waiver expires.

    All scopes that are given must hold for everything that a finding names; without one the rule is waived
    everywhere.
    """

    rule: str
    """Id of the rule whose findings it covers."""
    nodes: tuple[str, ...] = ()
    """Nodes that it is for: names, host lists n[01-04], patterns with * and ?."""
    ranks: tuple[str, ...] = ()
    """Ranks that it is for: 5, 0..7."""
    group: str | None = None
    """Group that it is for, by kind and number: TP 3."""
    world: str | None = None
    """World that it is for, by name; every world unless given."""
    reason: str
    """Why it may be borne."""
    owner: str
    """Who answers for it."""
    expires: Annotated[str, msgspec.Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    """Last day on which it holds, in UTC: 2026-12-31."""


class Expect(Declared, frozen=True, kw_only=True):
    """What evidence must be to count."""

    run: str | None = None
    """Run id that snapshots must bear (`topocheck probe --run ID`)."""
    max_age_s: int | None = None
    """Oldest snapshot that counts, in seconds."""
    recovered: bool = False
    """The job came back after a fault, and all evidence is of afterwards: does it work again (OBS007)."""


class World(Declared, frozen=True, kw_only=True):
    """One world of a job that has several, ranks from 0 in each; what it leaves out is the plan's own.

    What it gives stands whole: `parallel` of a world is not mixed with that of the plan. A world of another
    engine takes neither version, order nor layers from the plan.
    """

    engine: str | None = None
    """Engine of this world."""
    engine_version: str | None = None
    """Engine version of this world."""
    parallel: Parallel | None = None
    """Sizes of its parallel axes."""
    nodes: int | tuple[str, ...] | NodeRange | None = None
    """Its nodes; a node may carry several worlds."""
    order: str | None = None
    """Order of its axes."""
    model: Model | None = None
    """Its model's sizes."""
    layers: Layers | None = None
    """Layers of each of its stages."""
    workload: Workload | None = None
    """What it is given to do."""
    role: Role | None = None
    """What it does where prefill and decode are apart; unless given, a name that begins so says it."""


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
    launcher: Literal["ray"] | None = None
    """What gives the ranks to the nodes, if neither the engine's own start on each node nor a launcher that
    counts them does: `ray`, which has an order of its own. Of named nodes the first runs the command."""
    order: str | None = None
    """Order of the axes, for engines that take one, in the engine's own notation."""
    model: Model | None = None
    """The model's sizes."""
    layers: Layers | None = None
    """Layers of each stage, the engine's own override string, or the options of its layer split:
    {first_stage: 10, last_stage: 8} for Megatron."""
    workload: Workload | None = None
    """What the job is given to do: what capacity, bubble and boundary times are computed for."""
    worlds: int | dict[str, World] = 1
    """Worlds of a job that has several: their number if they are equal, or each by its name."""
    expect: Expect = Expect()
    """What evidence must be to count."""
    policy: Policy = Policy()
    """Demands and exceptions."""
    waivers: tuple[Waiver, ...] = ()
    """Findings that are known and borne, each with reason, owner and expiry."""


class PolicyFile(Declared, frozen=True, kw_only=True):
    """What of a plan may stand in a file of its own, for many jobs."""

    policy: Policy = Policy()
    """Demands and exceptions; a key that is given here wins over the plan's."""
    waivers: tuple[Waiver, ...] = ()
    """Findings that are known and borne, beside those of the plan."""
