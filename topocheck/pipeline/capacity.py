"""What one rank's GPU must hold: weights, KV cache, activations, buffers, as bounds with what they rest on.

Weights are `topocheck.pipeline.weights`. The KV cache is arithmetic: layers x tokens x width. Activations and
buffers depend on kernels and settings: they are bounds, wide ones, and no measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import msgspec

from topocheck.errors import LayoutError
from topocheck.pipeline.architecture import Architecture
from topocheck.pipeline.bounds import Bounds, exactly

__all__ = [
    "GIB",
    "SCHEMA",
    "Budget",
    "Cache",
    "CapacityReport",
    "Load",
    "Need",
    "StageReport",
    "activation_bytes",
    "assumptions",
    "budget_of",
    "cache_bytes",
    "caches_of",
    "gib",
]

SCHEMA = "topocheck.capacity/1"

GIB = 1 << 30

BLOCK_TOKENS = 128
"""Most tokens of a block of the KV cache: 16 in vLLM unless the kernel wants more, 1 to 64 in SGLang, 32 to
128 in TensorRT-LLM. A sequence's last block may be almost empty."""
ACTIVATION_WIDTHS = Bounds(2, 32)
"""Hidden states that are alive at once at the peak of a layer: in and out at least; with the feed-forward's
columns, or rows repeated for each expert, several times that."""
BUFFERS = Bounds(0.5 * GIB, 4 * GIB)
"""CUDA context, communicators, graphs, workspaces, the driver's reserve."""
USABLE = {"vllm": 0.9, "sglang": 0.8}
"""Part of a GPU's memory that an engine takes at least where its flag is not given."""
LEAST_USABLE = 0.9
SLIDING = "sliding_attention"
FULL = "full_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """What one layer keeps of each token of each sequence."""

    heads: int
    """Key-value heads, which tensor parallelism divides; 0 for a latent that every rank holds."""
    width: int
    """Elements of a head, key and value together; of the latent with its rotary key."""
    window: int | None = None
    """Tokens that the layer keeps at least: its sliding window, none of a layer of unknown kind. None is all;
    at most it keeps all."""

    def elements(self, tensor: int) -> int:
        """Elements of one token on one rank. Raises LayoutError where ranks cannot share the heads."""
        if not self.heads:
            return self.width
        if self.heads % tensor and tensor % self.heads:
            raise LayoutError(f"{self.heads} KV heads neither divide by {tensor} ranks nor divide them")
        return max(1, self.heads // tensor) * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one replica is given to hold."""

    tokens: int
    """Tokens of one sequence: input and output."""
    sequences: Bounds
    """Sequences whose tokens one rank keeps."""
    tensor: int = 1
    """Ranks that share the heads of attention."""
    contexts: int = 1
    """Ranks that share the tokens of a sequence (decode context parallelism)."""
    element_bytes: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes that one rank needs."""

    weights: Bounds
    cache: Bounds
    activations: Bounds
    buffers: Bounds = BUFFERS

    @property
    def total(self) -> Bounds:
        """All together."""
        return self.weights + self.cache + self.activations + self.buffers

    @property
    def held(self) -> Bounds:
        """What stays: weights and KV cache."""
        return self.weights + self.cache

    def words(self) -> str:
        """Each part, `weights 70 GiB, KV cache 8 to 9 GiB ...`."""
        names = {"cache": "KV cache"}
        return ", ".join(
            f"{names.get(part.name, part.name)} {gib(getattr(self, part.name))}" for part in fields(self)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Memory of one GPU and what the engine may take of it."""

    memory_bytes: int
    share: Bounds
    """Part that the engine takes; bounds where its flag is not given."""
    static: bool = False
    """The part holds weights and KV cache alone (SGLang); the rest beside it."""

    def least_free(self, need: Need) -> float:
        """Bytes that are free at least; below zero where the need may not fit."""
        return self._free(need.held.high, need.total.high, self.share.low)

    def most_free(self, need: Need) -> float:
        """Bytes that are free at most; below zero where the need cannot fit."""
        return self._free(need.held.low, need.total.low, self.share.high)

    def _free(self, held: float, total: float, share: float) -> float:
        usable = self.memory_bytes * share
        return min(usable - held, self.memory_bytes - total) if self.static else usable - total


def budget_of(engine: str, memory_bytes: int, utilization: float | None) -> Budget:
    """The budget of an engine; where its flag is not given between its default, about, and all."""
    least = USABLE.get(engine, LEAST_USABLE)
    share = Bounds(least, 1) if utilization is None else exactly(utilization)
    return Budget(memory_bytes=memory_bytes, share=share, static=engine == "sglang")


def caches_of(model: Architecture) -> tuple[Cache, ...]:
    """The KV cache of each layer. Raises InputError where a size is missing.

    MLA keeps one latent and one rotary key for all heads. Which layers slide is known where the file lists
    them; where it names a window alone, each layer may slide or not.
    """
    if model.kv_lora_rank:
        heads, width = 0, model.kv_lora_rank + model.need("qk_rope_head_dim")
    else:
        heads, width = model.groups, 2 * model.width
    plain = Cache(heads=heads, width=width)
    if len(model.layer_types) != model.layers:
        return (Cache(heads=heads, width=width, window=model.sliding_window or None),) * model.layers
    sliding = Cache(heads=heads, width=width, window=model.sliding_window or None)
    other = Cache(heads=heads, width=width, window=0)  # a state of fixed size, or a kind unknown
    kinds = {FULL: plain, SLIDING: sliding}
    return tuple(kinds.get(kind, other) for kind in model.layer_types)


def cache_bytes(layers: Sequence[Cache], load: Load) -> Bounds:
    """Bytes of the KV cache of these layers on one rank. Raises LayoutError where heads do not divide.

    At least the tokens themselves, sliding windows used; at most whole blocks of all tokens: engines differ
    in whether they free what lies before the window.
    """
    tokens = -(-load.tokens // load.contexts)
    blocks = -(-tokens // BLOCK_TOKENS) * BLOCK_TOKENS if load.tokens else 0
    low = high = 0
    counts: dict[Cache, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    for layer, count in counts.items():
        each = layer.elements(load.tensor) * load.element_bytes * count
        low += each * (tokens if layer.window is None else min(tokens, layer.window))
        high += each * blocks
    return Bounds(low * load.sequences.low, high * load.sequences.high)


def activation_bytes(
    rows: Bounds, hidden: int, element_bytes: int, *, sampled: Bounds, vocabulary: int | None
) -> Bounds:
    """Bytes of activations at the peak of one forward pass.

    `rows` are its tokens. On the last stage, `sampled` rows become logits over the vocabulary: nothing at the
    lower bound, all of it in float32, twice, at the upper one. `vocabulary` None is another stage.
    """
    layer = Bounds(
        rows.low * hidden * element_bytes * ACTIVATION_WIDTHS.low,
        rows.high * hidden * element_bytes * ACTIVATION_WIDTHS.high,
    )
    return layer if vocabulary is None else layer + Bounds(0, sampled.high * vocabulary * 4 * 2)


def gib(size: Bounds) -> str:
    """`70.2 GiB`, `8 to 9.1 GiB`."""
    low, high = (f"{number / GIB:.3g}" for number in (size.low, size.high))
    return f"{low} GiB" if low == high else f"{low} to {high} GiB"


def assumptions() -> Iterator[str]:
    """What capacity rests on, a sentence each."""
    yield "Weights are those of the fullest rank of the stage, after division by the engine's rule."
    yield (
        "The KV cache holds every sequence at its full length: at least the tokens, at most whole blocks of "
        f"up to {BLOCK_TOKENS}. KV heads are copied where there are fewer of them than ranks; an MLA latent "
        "is on every rank. Sliding windows count at the lower bound alone: engines differ in freeing what "
        "lies before them. States of linear attention are not counted."
    )
    yield (
        f"Activations are {ACTIVATION_WIDTHS.low:g} to {ACTIVATION_WIDTHS.high:g} times rows x hidden x "
        "element size, and logits of the sampled rows on the last stage."
    )
    yield (
        f"Buffers are {gib(BUFFERS)}: CUDA context, communicators, graphs, workspaces, the driver's reserve."
    )
    yield "Draft models, multi-token prediction, adapters and offloading are not counted."


Range = tuple[int, int]
"""Bytes: at least, at most."""


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    """One stage as JSON: what one rank of it needs and has."""

    stage: int
    """Pipeline stage, from 0."""
    layers: int
    """Layers that it holds."""
    weights_bytes: int
    """Weights of its fullest rank."""
    cache_bytes: Range | None
    """KV cache of all sequences; null where the workload does not give their number and length."""
    activation_bytes: Range
    """Activations at the peak of a forward pass."""
    buffer_bytes: Range
    """CUDA context, communicators, graphs, workspaces, the driver's reserve."""
    total_bytes: Range
    """All together; without the KV cache where that is null."""
    memory_bytes: int | None
    """Memory of the smallest GPU under it; null where nothing shows it, or a GPU is cut into slices."""
    usable: tuple[float, float]
    """Part of the memory that the engine may take."""
    sequences: Range | None
    """Sequences of the workload's length that fit beside the rest; null if memory or length is not known."""
    fits: bool | None
    """Null where bounds, workload or memory leave it open."""


class CapacityReport(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity of all stages as JSON."""

    schema: str
    """`topocheck.capacity/` and the major version."""
    engine: str
    """Engine, as a plan names it."""
    weights: str
    """What the weights were read from."""
    stages: list[StageReport]
    """All stages from 0."""
    assumptions: list[str]
    """What the bytes rest on."""
