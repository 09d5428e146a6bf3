"""TP and PP: the sizes fit the model."""

from __future__ import annotations

from collections.abc import Iterator

from topocheck.ask import Ask
from topocheck.engines import ENGINES
from topocheck.errors import LayoutError
from topocheck.layers import override_of
from topocheck.placement import Placement
from topocheck.plan import Model
from topocheck.ranges import first
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, rule, the

__all__ = ["RULES"]

PADDED_VOCABULARY = ("vllm", "sglang", "megatron", "tensorrt_llm")
"""Engines that pad the vocabulary, so that any TP size divides it."""
REPLICATED_KV_HEADS = ("vllm", "sglang", "tensorrt_llm")
"""Engines that copy KV heads where TP is larger, and then need TP to be a multiple of them."""


def tensor_model(placement: Placement) -> Situations[Model] | NotApplicable:
    """The model, where TP cuts it."""
    if placement.layout.size("tensor") == 1:
        return NotApplicable("tensor parallel size is 1")
    return the(placement.plan.model or Model())


@rule("TP005", "TP divides the model", over=tensor_model, severity="error")
def tensor_divides_model(ask: Ask, model: Model) -> Iterator[Finding]:
    """Heads, KV heads by the engine's rule, vocabulary unless padded, experts under expert parallelism."""
    plan, layout = ask.placement.plan, ask.placement.layout
    size = layout.size("tensor")
    ask.know()
    if model.heads is None:
        ask.gap(
            "the model's attention heads",
            ["plan"],
            "model: {heads: N} or model: PATH/config.json in the plan",
        )
    wrong = []
    if model.heads is not None and model.heads % size:
        wrong.append(f"{model.heads} attention heads")
    kv = model.kv_heads
    copied = plan.engine in REPLICATED_KV_HEADS and kv is not None and size > kv and size % kv == 0
    if kv is not None and kv % size and not copied:
        wrong.append(f"{kv} KV heads")
    if model.vocabulary is not None and plan.engine not in PADDED_VOCABULARY and model.vocabulary % size:
        wrong.append(f"a vocabulary of {model.vocabulary}")
    expert = layout.size("expert")
    if model.experts and expert > 1 and model.experts % expert:
        wrong.append(f"{model.experts} experts by expert parallel size {expert}")
    if wrong:
        yield Finding(
            message=f"tensor parallel size {size} does not divide {first(wrong)}: the engine refuses to load "
            "the model",
            fix=f"use one of {first(map(str, dividing(model)), 12)} as tensor parallel size",
            cause="not divisible",
            subjects=tuple(wrong),
            evidence=(Evidence(source="plan", fact=f"tensor {size}; {first(wrong)}"),),
        )


def dividing(model: Model) -> list[int]:
    """Sizes that divide the attention heads."""
    heads = model.heads or 1
    return [size for size in range(1, min(heads, 64) + 1) if heads % size == 0]


def staged_model(placement: Placement) -> Situations[Model] | NotApplicable:
    """The model, where stages cut it."""
    if placement.layout.size("pipeline") == 1 and placement.plan.layers is None:
        return NotApplicable("one pipeline stage")
    return the(placement.plan.model or Model())


@rule("PP002", "layers fall into stages", over=staged_model, severity="error")
def layers_fall_into_stages(ask: Ask, model: Model) -> Iterator[Finding]:
    """The engine's own rule or the override: covers the model once, none empty, accepted by the engine."""
    plan, layout = ask.placement.plan, ask.placement.layout
    stages = layout.size("pipeline")
    ask.know()
    if model.layers is None:
        ask.gap("the model's layers", ["plan"], "model: {layers: N} or model: PATH/config.json in the plan")
        return
    engine = ENGINES[plan.engine]
    override = override_of(plan)
    try:
        split = engine.split(model.layers, stages, override, plan.engine_version, {})
    except LayoutError as error:
        yield Finding(
            message=f"{engine.title} refuses {model.layers} layers on {stages} stages: {error}",
            fix="choose a number of stages that the layers allow, or correct the override",
            cause="split refused",
            subjects=(f"{model.layers} layers on {stages} stages",),
            evidence=(Evidence(source="plan", fact=f"layers {model.layers}, pipeline {stages}"),),
        )
        return
    empty = [stage for stage, (start, end) in enumerate(split.ranges) if end <= start]
    if empty:
        yield Finding(
            message=f"stages {first(map(str, empty))} of {stages} get no layer out of {model.layers} "
            f"({split.rule}): they hold GPUs and compute nothing",
            fix="use fewer stages, or an override that gives each stage a layer",
            cause="empty stage",
            subjects=tuple(f"stage {stage}" for stage in empty),
            evidence=(Evidence(source="plan", fact=f"layers {model.layers}, pipeline {stages}"),),
        )


RULES = (tensor_divides_model, layers_fall_into_stages)
