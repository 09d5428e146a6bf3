"""What the plan's model and workload ask of each stage: weights, KV cache, activations, as `Ask` answers.

A size that the plan leaves out is a gap that names the key; nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from topocheck.ask import Ask
from topocheck.engines import ENGINES
from topocheck.engines.layout import LayerSplit
from topocheck.errors import InputError, LayoutError
from topocheck.modelconfig import ConfigModel
from topocheck.pipeline.architecture import Architecture, parse_architecture
from topocheck.pipeline.balance import Job
from topocheck.pipeline.boundary import ELEMENT_BYTES
from topocheck.pipeline.bounds import Bounds, exactly
from topocheck.pipeline.capacity import Budget, Load, Need, activation_bytes, cache_bytes, caches_of
from topocheck.pipeline.checkpoint import read_weights, weigh
from topocheck.pipeline.division import division_of
from topocheck.pipeline.weights import Division, ModelWeights, Weights, rank_weights, stage_weights
from topocheck.placement import Placement
from topocheck.plan import Workload
from topocheck.splitting import wishes

__all__ = [
    "CONFIG",
    "TRAINING",
    "StageNeed",
    "balance_job",
    "division",
    "layer_counts",
    "model_weights",
    "needs",
    "prefill_rows",
    "split_of",
]

CONFIG = "model: PATH/config.json in the plan, the model's own file"
"""What supplies the weights of a model."""
FOLDER = "model: PATH in the plan, a folder with config.json and its safetensors files"
"""What supplies weights that config.json does not fix."""
TRAINING = ("accelerate", "deepspeed", "megatron", "torch", "torchtitan")
"""Engines that hold gradients and optimiser states beside the weights."""
USUAL_ROWS = Bounds(2_048, 16_384)
"""Rows of a prefill microbatch, unless the plan gives them: about the defaults of engines for one chunk."""
LOADED_AS = ("float32", None)
"""Data types of a config.json whose weights engines load as the type of activations."""


@dataclass(frozen=True, slots=True)
class StageNeed:
    """What one rank of one stage needs."""

    need: Need
    """With the KV cache of all sequences; of none where their number or length is not known."""
    missing: tuple[str, ...]
    """Keys of the workload without which the KV cache is not known."""
    sequence_bytes: Bounds
    """KV cache of one sequence; 0 where its length is not known."""

    def fits(self, budget: Budget) -> bool | None:
        """Whether it fits a GPU; None where bounds or the workload leave it open."""
        if budget.most_free(self.need) < 0:
            return False
        return None if self.missing or budget.least_free(self.need) < 0 else True


def model_weights(ask: Ask) -> ModelWeights | None:
    """Weights of the plan's model; None with a gap where only its sizes are known, or not all of them."""
    model = architecture(ask)
    if model is None:
        return None
    try:
        return ask.placement.keep("model weights", lambda p: weights_of(model, p.plan.workload or Workload()))
    except InputError as error:
        ask.gap(f"the model's weights ({error.problem})", ["plan"], FOLDER)
        return None


def weights_of(model: Architecture, workload: Workload) -> ModelWeights:
    """Weights by config.json; where it does not fix them, by the headers of the files beside it.

    Raises InputError, the first one's if there are no files.
    """
    dtype = workload.dtype if model.dtype in LOADED_AS else None
    try:
        return weigh(model, dtype)
    except InputError:
        folder = Path(model.source).parent
        if not (folder / "config.json").is_file():
            raise
        return read_weights(folder, dtype)


def architecture(ask: Ask) -> Architecture | None:
    """Architecture of the plan's model; None with a gap."""
    model = ask.placement.plan.model
    if not isinstance(model, ConfigModel):
        ask.gap("the model's weights, which its sizes alone do not give", ["plan"], CONFIG)
        return None
    try:
        return ask.placement.keep("architecture", lambda _: parse_architecture(model.text, model.source))
    except InputError as error:
        ask.gap(f"the model's architecture ({error.problem})", ["plan"], CONFIG)
        return None


def split_of(ask: Ask, layers: int) -> LayerSplit | None:
    """Layers of each stage, by the plan's override, the evidence's, or the engine's rule; None with a gap.

    Where nodes or commands ask for different splits, none of them is chosen.
    """
    placement = ask.placement
    asked, stages = wishes(placement), placement.layout.size("pipeline")
    if len(asked) > 1:
        ask.gap("one split of the layers (several are asked for)", ["plan"], "layers: in the plan")
        return None
    wish, engine = asked[0], ENGINES[placement.plan.engine]
    try:
        return engine.split(layers, stages, wish.override, placement.plan.engine_version, wish.options)
    except LayoutError as error:
        ask.gap(f"the layers of each stage ({error})", ["plan"], "layers: in the plan", because="PP002")
        return None


def layer_counts(ask: Ask) -> list[int] | None:
    """Number of layers of each stage; None with a gap."""
    model = architecture(ask)
    split = split_of(ask, model.layers) if model is not None else None
    if split is None:
        return None
    stages = range(ask.placement.layout.size("pipeline"))
    return [sum(end - start for start, end in split.held(stage)) for stage in stages]


def weights_by_stage(ask: Ask) -> tuple[Weights, ...] | None:
    """What each stage holds; None with a gap."""
    model = model_weights(ask)
    split = split_of(ask, len(model.layers)) if model is not None else None
    if model is None or split is None:
        return None
    stages = ask.placement.layout.size("pipeline")
    held = [split.held(stage) for stage in range(stages)]
    if any(end < start for ranges in held for start, end in ranges):
        ask.gap("the layers of each stage", ["plan"], "layers: in the plan", because="PP002")
        return None
    return tuple(
        stage_weights(model, ranges, first=stage == 0, last=stage == stages - 1)
        for stage, ranges in enumerate(held)
    )


def needs(ask: Ask) -> tuple[StageNeed, ...] | None:
    """What one rank of each stage needs to serve; None with a gap, and for engines that train."""
    engine = ask.placement.plan.engine
    if engine in TRAINING:
        need = (
            f"what training holds ({ENGINES[engine].title}: gradients and optimiser states are not counted)"
        )
        ask.gap(need, ["plan"], "the plan of an engine that serves")
        return None
    kept = ask.placement.keep("needs", lambda _: list[tuple[StageNeed, ...]]())
    if not kept and (found := find_needs(ask)) is not None:
        kept.append(found)
    return kept[0] if kept else None


def find_needs(ask: Ask) -> tuple[StageNeed, ...] | None:
    """The same, computed."""
    placement, model = ask.placement, architecture(ask)
    stages = weights_by_stage(ask) if model is not None else None
    split = split_of(ask, model.layers) if stages is not None and model is not None else None
    if model is None or stages is None or split is None:
        return None
    shares, load = division(placement), load_of(placement)
    missing = tuple(missing_keys(placement.plan.workload or Workload()))
    try:
        caches = caches_of(model)
        return tuple(
            StageNeed(
                Need(
                    weights=exactly(rank_weights(weights, shares).bytes),
                    cache=cache_bytes(held, load) if not missing else exactly(0),
                    activations=activations_of(placement, model, last=stage == len(stages) - 1),
                ),
                missing,
                cache_bytes(held, one_sequence(load)),
            )
            for stage, weights in enumerate(stages)
            for held in [[cache for start, end in split.held(stage) for cache in caches[start:end]]]
        )
    except (InputError, LayoutError) as error:
        because = "TP005" if isinstance(error, LayoutError) else None
        reason = error.problem if isinstance(error, InputError) else str(error)
        ask.gap(f"what a rank holds of the model ({reason})", ["plan"], CONFIG, because=because)
        return None


def missing_keys(workload: Workload) -> list[str]:
    """Keys of the workload that the KV cache depends on and that are not given."""
    missing = [] if workload.max_sequences else ["max_sequences"]
    return [*missing, *([] if workload.input_tokens else ["input_tokens"])]


def division(placement: Placement) -> Division:
    """By how much the ranks of a stage divide its weights, by the engine."""
    plan = placement.plan
    routed = bool(plan.model and plan.model.experts)
    return division_of(placement.layout, routed=routed, attention_data=plan.parallel.attention_data or 1)


def balance_job(ask: Ask) -> Job | None:
    """The model on the engine's stages; None with a gap."""
    placement, model = ask.placement, model_weights(ask)
    split = split_of(ask, len(model.layers)) if model is not None else None
    if model is None or split is None:
        return None
    return Job(
        model=model,
        engine=ENGINES[placement.plan.engine],
        version=placement.plan.engine_version,
        stages=placement.layout.size("pipeline"),
        division=division(placement),
        split=split,
    )


def load_of(placement: Placement) -> Load:
    """Sequences and tokens whose KV cache one rank keeps."""
    plan, layout = placement.plan, placement.layout
    workload = plan.workload or Workload()
    sequences, heads = workload.max_sequences or 0, division(placement).heads
    share = max(1, layout.size("tensor") // heads)
    return Load(
        tokens=(workload.input_tokens or 0) + (workload.output_tokens or 0),
        sequences=Bounds(-(-sequences // share), sequences),
        tensor=heads,
        contexts=layout.size("decode_context"),
        element_bytes=ELEMENT_BYTES[workload.kv_dtype or workload.dtype],
    )


def one_sequence(load: Load) -> Load:
    """The same for one sequence."""
    return replace(load, sequences=exactly(1))


def prefill_rows(workload: Workload) -> Bounds | None:
    """Rows of a prefill microbatch: as given, else one prompt, which engines may cut or batch; else None."""
    if workload.max_batched_tokens:
        return exactly(workload.max_batched_tokens)
    tokens = workload.input_tokens
    if not tokens:
        return None
    return Bounds(min(tokens, USUAL_ROWS.low), max(tokens, USUAL_ROWS.high))


def activations_of(placement: Placement, model: Architecture, *, last: bool) -> Bounds:
    """Bytes at the peak of a forward pass: that of a prefill microbatch."""
    workload = placement.plan.workload or Workload()
    return activation_bytes(
        prefill_rows(workload) or Bounds(1, USUAL_ROWS.high),
        model.need("hidden"),
        ELEMENT_BYTES[workload.dtype],
        sampled=Bounds(1, workload.max_sequences or 1),
        vocabulary=model.vocabulary if last else None,
    )
