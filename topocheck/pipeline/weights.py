"""Weights of a model: of its layers and ends, of a stage, and of one rank after tensor and expert division.

Pure arithmetic over blocks. A block is weights that divide over ranks in one way: attention heads, KV heads,
columns of a feed-forward, whole experts, rows of the vocabulary, or not at all. What a model holds is read by
`topocheck.pipeline.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from topocheck.errors import LayoutError

__all__ = [
    "PARTS",
    "Block",
    "Division",
    "LayerWeights",
    "ModelWeights",
    "Part",
    "Shard",
    "Weights",
    "merged",
    "rank_weights",
    "stage_weights",
]

Part = Literal[
    "attention", "mlp", "experts", "shared_experts", "router", "norm", "embedding", "head", "other"
]
"""What weights are for; `other` is what no rule of topocheck recognises."""

PARTS: tuple[Part, ...] = get_args(Part)

Shard = Literal["whole", "heads", "kv_heads", "columns", "experts", "vocabulary", "unknown"]
"""How a tensor-parallel engine divides weights.

`whole`: every rank holds all (norms, routers, biases of row-parallel layers, MLA's down projections).
`heads`, `columns`: divided evenly by the tensor size. `kv_heads`: divided by the tensor size, and replicated
where there are fewer KV heads than ranks. `experts`: whole experts to expert ranks, each divided by the
expert tensor size. `vocabulary`: rows, padded first. `unknown`: only tensor size 1 has an answer.
"""


@dataclass(frozen=True, slots=True)
class Block:
    """Weights that divide over ranks in one way."""

    part: Part
    shard: Shard
    units: int
    """Pieces that cannot be cut: heads, KV heads, columns, experts or rows of the vocabulary; 1 for whole."""
    parameters: int
    """Parameters of the model. Scales and zero points of quantised weights are none, and count as bytes."""
    bytes: int
    inner: int = 1
    """Columns of one expert, which expert tensor parallelism divides; 1 for other blocks."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Blocks that lie together: one layer, the embedding, one stage, one rank."""

    blocks: tuple[Block, ...] = ()

    @property
    def parameters(self) -> int:
        """All parameters."""
        return sum(block.parameters for block in self.blocks)

    @property
    def bytes(self) -> int:
        """All bytes."""
        return sum(block.bytes for block in self.blocks)

    def of(self, *parts: Part) -> Weights:
        """Only the blocks of these parts."""
        return Weights(tuple(block for block in self.blocks if block.part in parts))

    def __add__(self, other: Weights) -> Weights:
        return Weights(self.blocks + other.blocks)


LayerWeights = Weights
"""The weights of one transformer layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """The weights of a model, where they stand in it."""

    layers: tuple[LayerWeights, ...]
    """Transformer layers in order. Layers that are alike share one object."""
    embedding: Weights
    """Token embedding, and position embedding and embedding norm where there are any."""
    norm: Weights
    """The norm after the last layer."""
    head: Weights
    """The output head; empty where it is tied to the embedding."""
    tied: bool
    """The head's matrix is the token embedding: another stage needs a copy of it."""
    mtp: tuple[LayerWeights, ...] = ()
    """Layers for multi-token prediction: loaded for speculative decoding, trained on the last stage."""
    other: Weights = field(default_factory=Weights)
    """What stands in no layer and at no end: vision towers, projectors."""
    dtype: str = ""
    """Data type of weights that are not quantised: `bfloat16`."""
    quantisation: str = ""
    """Method of quantised weights: `fp8`, `awq`; empty without."""
    source: str = ""
    """What it was read from: `config.json`, or the headers of so many safetensors files."""
    notes: tuple[str, ...] = ()
    """What was assumed or left out, a sentence each."""

    @property
    def tied_head(self) -> Weights:
        """Copy of the token embedding on a last stage that is not the first; empty for a head of its own."""
        tokens = (block for block in self.embedding.blocks if block.shard == "vocabulary")
        return Weights(tuple(replace(block, part="head") for block in tokens if self.tied))

    @property
    def parameters(self) -> int:
        """Parameters of the model, each once; without the layers for multi-token prediction."""
        ends = (self.embedding, self.norm, self.head, self.other)
        return sum(weights.parameters for weights in (*self.layers, *ends))

    @property
    def bytes(self) -> int:
        """Bytes of the model, each once; without the layers for multi-token prediction."""
        ends = (self.embedding, self.norm, self.head, self.other)
        return sum(weights.bytes for weights in (*self.layers, *ends))


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """By how much the ranks of one stage divide its weights."""

    tensor: int = 1
    """Tensor size: columns of dense feed-forwards, and the vocabulary."""
    attention: int | None = None
    """Tensor size of attention, where attention data parallelism makes it smaller; None is `tensor`."""
    expert: int = 1
    """Ranks over which whole experts are divided."""
    expert_tensor: int | None = None
    """Ranks that divide each expert; None is `tensor` without expert parallelism, else 1."""
    vocabulary_multiple: int = 1
    """The vocabulary is padded to a multiple of this before it is divided."""

    @property
    def heads(self) -> int:
        """Ranks that divide attention heads."""
        return self.tensor if self.attention is None else self.attention

    @property
    def columns_of_experts(self) -> int:
        """Ranks that divide each expert."""
        if self.expert_tensor is not None:
            return self.expert_tensor
        return self.tensor if self.expert == 1 else 1


def merged(blocks: Iterable[Block]) -> Weights:
    """Blocks that are alike in part and division as one block each, in the order of their first."""
    sums: dict[tuple[Part, Shard, int, int], list[int]] = {}
    for block in blocks:
        total = sums.setdefault((block.part, block.shard, block.units, block.inner), [0, 0])
        total[0] += block.parameters
        total[1] += block.bytes
    return Weights(
        tuple(
            Block(part, shard, units, parameters, size, inner)
            for (part, shard, units, inner), (parameters, size) in sums.items()
        )
    )


def stage_weights(
    model: ModelWeights, ranges: Sequence[tuple[int, int]], *, first: bool, last: bool, mtp: bool = False
) -> Weights:
    """What one stage holds: the layers of its ranges (from 0, end exclusive; several with virtual stages).

    The first stage also holds the embedding and what stands in no layer; the last the final norm and the
    head, where a tied head is a copy of the embedding unless the stage is the first too; with `mtp` also the
    layers for multi-token prediction.
    """
    held = [model.layers[index] for start, end in ranges for index in range(start, end)]
    if first:
        held += [model.embedding, model.other]
    if last:
        held += [model.norm, model.head]
        held += [] if first else [model.tied_head]
        held += model.mtp if mtp else ()
    return merged(block for weights in held for block in weights.blocks)


def rank_weights(stage: Weights, division: Division) -> Weights:
    """What the fullest rank of a stage holds.

    Raises LayoutError where heads, columns or KV heads do not divide (engines refuse such sizes), and for
    weights whose division is not known.
    """
    return Weights(tuple(_held(block, division) for block in stage.blocks))


def _held(block: Block, division: Division) -> Block:
    numerator, denominator = _share(block, division)
    if denominator == 1 and numerator == 1:
        return block
    return replace(
        block,
        parameters=-(-block.parameters * numerator // denominator),
        bytes=-(-block.bytes * numerator // denominator),
    )


def _share(block: Block, division: Division) -> tuple[int, int]:
    """The part of a block that one rank holds, as a fraction."""
    share = 1, 1
    if block.shard == "heads":
        share = 1, _even(block.units, division.heads, "attention heads")
    elif block.shard == "columns":
        share = 1, _even(block.units, division.tensor, "columns of the feed-forward")
    elif block.shard == "kv_heads":
        share = _kv_share(block.units, division.heads)
    elif block.shard == "vocabulary":
        padded = -(-block.units // division.vocabulary_multiple) * division.vocabulary_multiple
        share = -(-padded // division.tensor), block.units
    elif block.shard == "experts":
        inner = _even(block.inner, division.columns_of_experts, "columns of an expert")
        share = -(-block.units // division.expert), block.units * inner
    elif block.shard == "unknown" and division.tensor * division.expert > 1:
        raise LayoutError(
            "how this model's weights divide over ranks is not known: only tensor and expert size 1 have an "
            "answer"
        )
    return share


def _even(units: int, size: int, what: str) -> int:
    if units % size:
        raise LayoutError(f"{units} {what} are not divisible by {size} ranks")
    return size


def _kv_share(units: int, size: int) -> tuple[int, int]:
    """KV heads divide, or each is on several ranks: max(1, kv_heads // tensor) in vLLM and SGLang."""
    if units >= size:
        return 1, _even(units, size, "KV heads")
    if size % units:
        raise LayoutError(f"{units} KV heads neither divide by {size} ranks nor divide them")
    return 1, units
