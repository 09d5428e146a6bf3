"""TP and PP: the sizes fit the model."""

from __future__ import annotations

from collections.abc import Iterator

from topocheck.ask import Ask
from topocheck.engines import ENGINES
from topocheck.engines.layout import LayerSplit
from topocheck.errors import LayoutError, UnknownLayoutError
from topocheck.placement import Placement
from topocheck.plan import Model
from topocheck.ranges import first, fold
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, rule, the
from topocheck.splitting import Wish, wishes

__all__ = ["RULES"]

KEY = "model: {{{0}: N}} or model: PATH/config.json in the plan"

VOCABULARY_BLOCK = {"vllm": 64, "sglang": 64}
"""The vocabulary is padded to a multiple of this, and TP must divide that (VocabParallelEmbedding).

Megatron and TensorRT-LLM pad it for any TP; the other engines leave it to the script.
"""
KV_COPIES = ("vllm", "sglang", "tensorrt_llm")
"""Engines that copy KV heads where TP is a multiple of them."""
KV_STRICT = ("megatron",)
"""Engines that refuse a TP that does not divide the KV heads; newer releases copy them too."""
WHOLE_EXPERTS = ("sglang", "megatron")
"""Engines that need the same number of experts on each rank; vLLM spreads a remainder."""
UNEVEN_HEADS = ("deepspeed",)
"""Engines that may give ranks unequal numbers of heads (AutoTP)."""
ENDS_STAND_ALONE = ("megatron", "torchtitan", "deepspeed")
"""Engines whose first and last stage may hold the embedding or the head and no layer."""
MOST_SIZES = 64


def divided_model(placement: Placement) -> Situations[Model] | NotApplicable:
    """The model, where TP or expert parallelism cuts it."""
    if placement.layout.size("tensor") == 1 and placement.layout.size("expert") == 1:
        return NotApplicable("tensor parallel size is 1")
    return the(placement.plan.model or Model())


@rule("TP005", "TP divides the model", over=divided_model, severity="error")
def tensor_divides_model(ask: Ask, model: Model) -> Iterator[Finding]:
    """Heads, KV heads and vocabulary by the engine's rule, experts under expert parallelism."""
    placement = ask.placement
    engine, size = placement.plan.engine, placement.layout.size("tensor")
    ask.know()
    wrong = [*undivided_heads(placement, model), *undivided_vocabulary(engine, model, size)]
    if wrong:
        yield Finding(
            message=f"tensor parallel size {size} does not divide {first(wrong)}: {ENGINES[engine].title} "
            "cannot split the model so",
            fix=f"use one of {first(map(str, sizes(placement, model)), 12)} as tensor parallel size",
            cause="not divisible",
            subjects=tuple(wrong),
            evidence=(Evidence(source="plan", fact=f"tensor {size}; {first(wrong)}"),),
        )
    else:
        note_unknown(ask, model)
    yield from uneven_experts(ask, model)


def attention_size(placement: Placement) -> int:
    """Ranks that share the attention heads: attention data parallelism leaves fewer of them."""
    tensor, attention_data = placement.layout.size("tensor"), placement.plan.parallel.attention_data or 1
    if placement.plan.engine == "sglang" and "attention_tensor" in placement.layout.extra:
        return placement.layout.size("attention_tensor")
    return 1 if placement.plan.engine == "tensorrt_llm" and attention_data > 1 else tensor


def undivided_heads(placement: Placement, model: Model) -> list[str]:
    """Attention heads and KV heads that the ranks cannot share."""
    shared = attention_size(placement)
    return heads_by(shared, placement.plan.engine, model)


def heads_by(ranks: int, engine: str, model: Model) -> list[str]:
    """Heads that so many ranks cannot share under the engine's rule."""
    wrong = []
    if model.heads is not None and model.heads % ranks and engine not in UNEVEN_HEADS:
        wrong.append(f"{model.heads} attention heads")
    kv = model.kv_heads
    if kv is not None and kv % ranks and engine in (*KV_COPIES, *KV_STRICT) and ranks % kv:
        wrong.append(f"{kv} KV heads")
    return wrong


def undivided_vocabulary(engine: str, model: Model, size: int) -> list[str]:
    """A vocabulary that TP does not divide after padding."""
    block = VOCABULARY_BLOCK.get(engine)
    if block is None or model.vocabulary is None:
        return []
    padded = -(-model.vocabulary // block) * block
    return [f"a vocabulary of {model.vocabulary} (padded to {padded})"] if padded % size else []


def note_unknown(ask: Ask, model: Model) -> None:
    """Gaps: numbers that the engine's rule needs, and rules that are not known."""
    placement = ask.placement
    engine, size, ranks = placement.plan.engine, placement.layout.size("tensor"), attention_size(placement)
    if ranks > 1 and model.heads is None:
        ask.gap("the model's attention heads", ["plan"], KEY.format("heads"))
    elif ranks > 1 and model.kv_heads is None:
        ask.gap("the model's KV heads", ["plan"], KEY.format("kv_heads"))
    elif engine not in KV_COPIES and ((model.kv_heads or 0) % ranks or (model.heads or 0) % ranks):
        need = f"whether {ENGINES[engine].title} shares {model.kv_heads} KV heads among {ranks} ranks"
        ask.gap(need, ["plan"], "a start of the engine with this model: its release decides it")
    block = VOCABULARY_BLOCK.get(engine)
    if block is not None and block % size and model.vocabulary is None:
        ask.gap("the model's vocabulary", ["plan"], KEY.format("vocabulary"))


def sizes(placement: Placement, model: Model) -> list[int]:
    """Tensor parallel sizes that divide everything."""
    engine, heads = placement.plan.engine, model.heads or MOST_SIZES
    share = placement.layout.size("tensor") // attention_size(placement)
    return [
        size
        for size in range(1, min(heads * share, MOST_SIZES) + 1)
        if size % share == 0
        and not heads_by(size // share, engine, model)
        and not undivided_vocabulary(engine, model, size)
    ]


def uneven_experts(ask: Ask, model: Model) -> Iterator[Finding]:
    """Experts that expert parallelism does not divide, where the engine needs it to."""
    engine, size = ask.placement.plan.engine, ask.placement.layout.size("expert")
    if size == 1:
        return
    if not model.experts:
        ask.gap("the model's experts", ["plan"], KEY.format("experts"))
    elif model.experts % size and engine in WHOLE_EXPERTS:
        better = [str(number) for number in range(1, size * 2 + 1) if model.experts % number == 0]
        yield Finding(
            message=f"expert parallel size {size} does not divide {model.experts} experts: "
            f"{ENGINES[engine].title} needs as many on each rank",
            fix=f"use one of {first(better, 12)} as expert parallel size",
            cause="experts not divisible",
            subjects=(f"{model.experts} experts",),
            evidence=(Evidence(source="plan", fact=f"expert {size}; {model.experts} experts"),),
        )


def staged_model(placement: Placement) -> Situations[Model] | NotApplicable:
    """The model, where stages cut it."""
    if placement.layout.size("pipeline") == 1 and placement.plan.layers is None:
        return NotApplicable("one pipeline stage")
    return the(placement.plan.model or Model())


@rule("PP002", "layers fall into stages", over=staged_model, severity="error")
def layers_fall_into_stages(ask: Ask, model: Model) -> Iterator[Finding]:
    """The engine's own rule or the override: covers the model once, none empty, accepted by the engine."""
    placement = ask.placement
    ask.know()
    if model.layers is None:
        ask.gap("the model's layers", ["plan"], KEY.format("layers"))
        return
    for wish in wishes(placement):
        yield from judged(ask, wish, model.layers)


def judged(ask: Ask, wish: Wish, layers: int) -> Iterator[Finding]:
    """What is wrong with one split that is asked for."""
    plan, stages = ask.placement.plan, ask.placement.layout.size("pipeline")
    engine = ENGINES[plan.engine]
    shown = Evidence(source="plan", fact=f"layers {layers}, pipeline {stages}")
    try:
        split = engine.split(layers, stages, wish.override, plan.engine_version, wish.options)
    except UnknownLayoutError as error:
        ask.gap(f"how the layers are split ({error})", ["plan"], "layers: in the plan, one number a stage")
        return
    except LayoutError as error:
        yield Finding(
            message=f"{engine.title} refuses {layers} layers on {stages} stages: "
            f"{str(error).removeprefix(f'{engine.title}: ')}",
            fix="choose a number of stages that the layers allow, or correct the override",
            cause="split refused",
            subjects=(f"{layers} layers on {stages} stages",),
            evidence=(shown, *wish.evidence),
        )
        return
    yield from lost_layers(split, layers, (shown, *wish.evidence))
    empty = [stage for stage in range(stages) if is_empty(plan.engine, split, stage, stages)]
    if empty:
        yield Finding(
            message=f"stages {fold(empty)} of 0..{stages - 1} get no layer out of {layers} ({split.rule}): "
            "they hold GPUs and compute nothing",
            fix="use fewer stages, or an override that gives each stage a layer",
            cause="empty stage",
            subjects=tuple(f"stage {stage}" for stage in empty),
            evidence=(shown, *wish.evidence),
        )


def lost_layers(split: LayerSplit, layers: int, evidence: tuple[Evidence, ...]) -> Iterator[Finding]:
    """A negative entry: the sum is right, and some layers lie on two stages or outside the model."""
    reversed_ = [stage for stage, (start, end) in enumerate(split.ranges) if end < start]
    if reversed_:
        last = max(end for _, end in split.ranges)
        beyond = f", and others reach layer {last - 1} of 0..{layers - 1}" if last > layers else ""
        yield Finding(
            message=f"stages {fold(reversed_)} are given a negative number of layers ({split.rule}){beyond}: "
            "the sum is right and so the engine accepts it, and layers are held twice or not at all",
            fix="give each stage its number of layers, all of them positive",
            cause="negative stage",
            subjects=tuple(f"stage {stage}" for stage in reversed_),
            evidence=evidence,
        )


def is_empty(engine: str, split: LayerSplit, stage: int, stages: int) -> bool:
    """A stage holds no layer, nor the embedding or the head where these may stand alone."""
    if engine in ENDS_STAND_ALONE and stage in (0, stages - 1):
        return False
    return all(start == end for start, end in split.held(stage))


RULES = (tensor_divides_model, layers_fall_into_stages)
