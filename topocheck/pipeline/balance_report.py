"""A balance as a document."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby

import msgspec

from topocheck.pipeline.balance import Balance, Cut, Job, Measure, Stage
from topocheck.pipeline.weights import PARTS, ModelWeights, Weights

__all__ = [
    "SCHEMA",
    "Amount",
    "BalanceReport",
    "CutReport",
    "DivisionReport",
    "LayerKind",
    "MemoryReport",
    "ModelReport",
    "OverrideReport",
    "StageReport",
    "describe",
    "fit_of",
    "kinds_of",
]

SCHEMA = "topocheck.balance/1"

Number = int | float
"""A load as JSON has it: whole where it is whole."""

TRAINS = {"accelerate", "deepspeed", "megatron", "torch", "torchtitan"}

MEASURED = {
    "bytes": "Bytes of weights that the fullest rank of a stage holds are compared.",
    "read": "Bytes of weights that the fullest rank of a stage reads are compared: all that it holds but "
    "the embedding, of which a token reads one row. Of routed experts a small batch reads few.",
    "parameters": "Parameters of the fullest rank of a stage are compared. They stand for compute only "
    "where every parameter works on every token: of routed experts few do.",
    "time": "Each layer of a stage is taken to last the same, and the embedding and the head as part of "
    "their stage's layers: a layer that leaves them takes part of their time along. Measure again after the "
    "change.",
}


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Weights."""

    parameters: int
    """Parameters of the model; scales of quantised weights are none."""
    bytes: int
    """Bytes, with the scales of quantised weights."""


class LayerKind(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that follow each other and are alike."""

    first: int
    """The first of them, from 0."""
    last: int
    """The last of them, included."""
    parameters: int
    """Of each."""
    bytes: int
    """Of each."""
    parts: dict[str, Amount]
    """What each consists of: attention, mlp, experts, shared_experts, router, norm, other."""


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of the model, each once."""

    source: str
    """What they were read from: config.json, or headers of safetensors files."""
    dtype: str | None
    """Data type of weights that are not quantised; None where config.json names none."""
    quantisation: str | None
    """Method of quantised weights; None without."""
    layers: int
    """Transformer layers, without those for multi-token prediction."""
    parameters: int
    """All parameters."""
    bytes: int
    """All bytes."""
    tied: bool
    """The head is the embedding, of which a last stage that is not the first holds a copy."""
    kinds: list[LayerKind]
    """The layers in order, those that are alike together."""
    embedding: Amount
    """Token and position embedding."""
    norm: Amount
    """The norm after the last layer."""
    head: Amount | None
    """None where it is tied to the embedding."""
    other: Amount | None
    """What stands in no layer and at no end, on the first stage: vision towers; None without."""
    mtp: list[Amount]
    """Layers for multi-token prediction, which the sums above do not count."""


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one stage carries."""

    stage: int
    """Number of the stage, from 0."""
    layers: list[tuple[int, int]]
    """Ranges of layers from 0, end exclusive; several with virtual stages."""
    layer_count: int
    """Number of its layers."""
    ends: list[str]
    """What it holds beside layers: embedding, norm, head, other."""
    parameters: int
    """Of the whole stage."""
    bytes: int
    """Of the whole stage."""
    rank_parameters: int
    """Of its fullest rank, after tensor and expert division."""
    rank_bytes: int
    """Of its fullest rank."""
    load: Number
    """In the measure: bytes, parameters, or ns."""
    fits: bool | None
    """Weights and reserve fit the GPU's memory; None where no memory is given."""


class CutReport(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of the layers."""

    rule: str
    """Engine's rule or override that gives it."""
    layers_per_stage: list[int]
    """Number of layers of each stage."""
    stages: list[StageReport]
    """The stages in order."""
    heaviest: int
    """The stage that carries most."""
    imbalance: float
    """Part of all stages' load that the lighter ones lack of the heaviest: 1 - mean / most."""


class DivisionReport(msgspec.Struct, frozen=True, kw_only=True):
    """By how much the ranks of a stage divide its weights."""

    tensor: int
    """Ranks that divide dense feed-forwards and the vocabulary."""
    attention: int
    """Ranks that divide attention heads."""
    expert: int
    """Ranks over which whole experts are divided."""
    expert_tensor: int
    """Ranks that divide each expert."""
    vocabulary_multiple: int
    """The vocabulary is padded to a multiple of this first."""


class MemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that was given."""

    gpu_bytes: int
    """Memory of each GPU."""
    reserve_bytes: int
    """What weights must leave: KV cache, activations, buffers."""


class OverrideReport(msgspec.Struct, frozen=True, kw_only=True):
    """The best partition in the engine's own words."""

    setting: str
    """Environment variable, option, or key of a settings file."""
    value: str
    """What it is set to: the engine's own partition function reads it as the ranges claimed."""
    line: str
    """Both as one writes them."""


class BalanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """How evenly stages share a model, and the partition that shares it best."""

    schema: str
    """topocheck.balance/1."""
    engine: str
    """Engine, as a plan names it."""
    engine_version: str | None
    """None where none was given: the newest known is assumed."""
    stages: int
    """Number of pipeline stages."""
    measure: Measure
    """What is compared: bytes or parameters of the fullest rank, bytes read, or time."""
    unit: str
    """Unit of every load: bytes, parameters, or ns."""
    division: DivisionReport
    """How ranks divide weights."""
    model: ModelReport
    """The model."""
    current: CutReport | None
    """The engine's own partition, or the one declared; None where the engine refuses it."""
    refusal: str | None
    """Why the engine refuses it."""
    best: CutReport | None
    """The best partition that fits, which is `current` where that is as good; None where none fits."""
    override: OverrideReport | None
    """What gives `best`; None where the current partition is as good, and where none fits."""
    does_not_fit: CutReport | None
    """A partition that would balance better, refused because a stage would not fit (CAP002)."""
    memory: MemoryReport | None
    """Memory that was given; None without."""
    fits: bool | None
    """Whether some partition fits; None where no memory is given."""
    sources: dict[str, str]
    """Where each size comes from."""
    notes: list[str]
    """What the input leaves open."""
    assumptions: list[str]
    """What the numbers rest on."""


def describe(found: Balance, *, sources: dict[str, str]) -> BalanceReport:
    """The balance as a document."""
    job = found.job
    return BalanceReport(
        schema=SCHEMA,
        engine=job.engine.name,
        engine_version=job.version,
        stages=job.stages,
        measure=found.measure,
        unit={"time": "ns", "parameters": "parameters"}.get(found.measure, "bytes"),
        division=DivisionReport(
            tensor=job.division.tensor,
            attention=job.division.heads,
            expert=job.division.expert,
            expert_tensor=job.division.columns_of_experts,
            vocabulary_multiple=job.division.vocabulary_multiple,
        ),
        model=_model(job.model),
        current=_cut(found.current, job),
        refusal=job.refusal or None,
        best=_cut(found.best, job),
        override=found.override
        and OverrideReport(
            setting=found.override.setting, value=found.override.value, line=found.override.line
        ),
        does_not_fit=_cut(found.refused, job),
        memory=None
        if job.memory is None
        else MemoryReport(gpu_bytes=job.memory.gpu, reserve_bytes=job.memory.reserve),
        fits=found.fits,
        sources=sources,
        notes=[*_notes(found)],
        assumptions=[*_assumptions(found)],
    )


def fit_of(stage: Stage, job: Job) -> bool | None:
    """Whether a stage's weights fit; None where no memory is given."""
    return None if job.memory is None else stage.rank_bytes <= job.memory.most


def kinds_of(model: ModelWeights) -> Iterator[LayerKind]:
    """Layers that follow each other and are alike, in order."""
    first = 0
    for weights, alike in groupby(model.layers):
        last = first + sum(1 for _ in alike) - 1
        parts = {str(part): _amount(weights.of(part)) for part in PARTS if weights.of(part).blocks}
        yield LayerKind(
            first=first, last=last, parameters=weights.parameters, bytes=weights.bytes, parts=parts
        )
        first = last + 1


def _amount(weights: Weights) -> Amount:
    return Amount(parameters=weights.parameters, bytes=weights.bytes)


def _model(model: ModelWeights) -> ModelReport:
    return ModelReport(
        source=model.source,
        dtype=model.dtype or None,
        quantisation=model.quantisation or None,
        layers=len(model.layers),
        parameters=model.parameters,
        bytes=model.bytes,
        tied=model.tied,
        kinds=list(kinds_of(model)),
        embedding=_amount(model.embedding),
        norm=_amount(model.norm),
        head=_amount(model.head) if model.head.of("head").blocks and not model.tied else None,
        other=_amount(model.other) if model.other.blocks else None,
        mtp=list(map(_amount, model.mtp)),
    )


def _cut(cut: Cut | None, job: Job) -> CutReport | None:
    if cut is None:
        return None
    return CutReport(
        rule=cut.rule,
        layers_per_stage=list(cut.counts),
        stages=[_stage(number, stage, job) for number, stage in enumerate(cut.stages)],
        heaviest=cut.heaviest,
        imbalance=float(cut.imbalance),
    )


def _stage(number: int, stage: Stage, job: Job) -> StageReport:
    return StageReport(
        stage=number,
        layers=list(stage.ranges),
        layer_count=stage.layers,
        ends=list(stage.ends),
        parameters=stage.weights.parameters,
        bytes=stage.weights.bytes,
        rank_parameters=stage.rank_parameters,
        rank_bytes=stage.rank_bytes,
        load=_number(stage.load),
        fits=fit_of(stage, job),
    )


def _number(value: Fraction) -> Number:
    return int(value) if value.denominator == 1 else float(value)


def _notes(found: Balance) -> Iterator[str]:
    """What the input itself leaves open."""
    yield from found.job.model.notes
    if found.current is not None and found.best is None and found.fits is not False:
        yield "With virtual stages no partition is proposed: layers are dealt to the stages in turns."
    if found.job.engine.name in {"deepspeed", "torch", "accelerate"} and found.override is not None:
        yield f"{found.job.engine.title} has no override of its own: its script takes these layers a stage."


def _assumptions(found: Balance) -> Iterator[str]:
    """What the numbers rest on, a sentence each."""
    job = found.job
    yield MEASURED[found.measure]
    yield (
        "Weights are those of the checkpoint. Sharding over data parallel ranks (FSDP, ZeRO), adapters, "
        "draft models and copies of experts for load balancing are not counted."
    )
    if job.version is None:
        yield f"{job.engine.title} {job.engine.newest} is taken for the engine's version."
    if job.division.vocabulary_multiple > 1 and job.division.tensor > 1:
        multiple = job.division.vocabulary_multiple
        yield f"The vocabulary is padded to a multiple of {multiple} before it is divided."
    if job.memory is not None:
        yield "A rank fits where its weights and the reserve are at most the GPU's memory."
        if job.engine.name in TRAINS:
            yield "Gradients and optimiser states are not counted: the reserve has to hold them."
