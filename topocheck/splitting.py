"""How the layers fall into stages, by the plan and by what commands, logs and variables state of it.

What a plan leaves open (`layers:`) is read from the evidence, because with other options the engine
accepts what its default refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from topocheck.jobfacts import facts_of, number
from topocheck.layers import options_of, override_of
from topocheck.placement import Placement
from topocheck.rule import Evidence, read_at
from topocheck.snapshot import JobFact

__all__ = ["Wish", "declared_counts", "wishes"]

VARIABLES = {"vllm": "VLLM_PP_LAYER_PARTITION", "sglang": "SGLANG_PP_LAYER_PARTITION"}
"""Variable that overrides the split, by engine."""
STATED_BY_FLAG = ("megatron", "tensorrt_llm")
"""Engines of which a stated list of layers is always what was asked for."""
OPTIONS = {
    "virtual_pipeline_model_parallel_size": "virtual_pipeline_model_parallel_size",
    "virtual_stages": "virtual_pipeline_model_parallel_size",
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "first_stage_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
    "last_stage_layers": "num_layers_in_last_pipeline_stage",
    "account_for_embedding_in_pipeline_split": "account_for_embedding_in_pipeline_split",
    "account_for_embedding": "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split": "account_for_loss_in_pipeline_split",
    "account_for_loss": "account_for_loss_in_pipeline_split",
    "num_layers_per_virtual_pipeline_stage": "num_layers_per_virtual_pipeline_stage",
    "layers_per_virtual_stage": "num_layers_per_virtual_pipeline_stage",
}
"""Megatron's options as its log and as a command spell them -> the option of the split."""
CHUNKS, CHUNK_LAYERS = "virtual_pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage"
LAYOUT = ("pipeline_model_parallel_layout",)


@dataclass(frozen=True, slots=True)
class Wish:
    """One split that is asked for."""

    override: str | None = None
    """The engine's override string; None for its default rule."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Further options of the engine's split."""
    evidence: tuple[Evidence, ...] = ()
    """What asks for it."""


def wishes(placement: Placement) -> list[Wish]:
    """Every split that is asked for: the plan's, else those of variables and commands, else the default."""
    plan = placement.plan
    declared, own = override_of(plan), options_of(plan)
    options, evidence = megatron_options(placement)
    if declared is not None or own:
        shown = declared or ", ".join(f"{name} {value}" for name, value in own.items())
        return [
            Wish(declared, {**options, **own}, (Evidence(source="plan", fact=f"layers {shown}"), *evidence))
        ]
    asked = {**overrides_of_nodes(placement), **stated_overrides(placement)}
    return [Wish(override, options, (where, *evidence)) for override, where in sorted(asked.items())] or [
        Wish(None, options, evidence)
    ]


def stated_overrides(placement: Placement) -> dict[str, Evidence]:
    """Overrides that commands state.

    What vLLM logs of its split may be a draft model's, and DeepSpeed logs entries that are no layers.
    """
    engine = placement.plan.engine
    name = VARIABLES.get(engine)
    facts = [fact for fact in facts_of(placement, "option") if name is not None and fact.name == name]
    if engine in STATED_BY_FLAG:
        facts += facts_of(placement, "layers")
        facts += [fact for fact in stated_options(placement, "megatron") if spelled(fact) in LAYOUT]
    return {f.value: read_at(f.at, f"{f.name or 'layers'} {f.value}") for f in facts}


def overrides_of_nodes(placement: Placement) -> dict[str, Evidence]:
    """Overrides in the environment of the nodes."""
    name = VARIABLES.get(placement.plan.engine)
    found: dict[str, Evidence] = {}
    seen: set[int] = set()  # nodes share a few distinct environments
    for node in placement.nodes if name else ():
        for raw in node.machine.environments if node.machine else ():
            known = {} if id(raw) in seen else msgspec.json.decode(raw, type=dict[str, str])
            seen.add(id(raw))
            value = known.get(name or "")
            if value is not None:
                found.setdefault(value, Evidence(source="environment", fact=f"{name}={value} on {node}"))
    return found


def megatron_options(placement: Placement) -> tuple[dict[str, object], tuple[Evidence, ...]]:
    """(options of the split, where they are stated). A log also shows the number of chunks it derived."""
    options: dict[str, object] = {}
    evidence = []
    for fact in stated_options(placement, "megatron"):
        name, value = OPTIONS.get(spelled(fact)), number(fact.value)
        if name is None or (value is None and fact.value.lower() == "none"):
            continue
        options[name] = value if value is not None else fact.value.lower() != "false"
        evidence.append(read_at(fact.at, f"{fact.name} {fact.value}"))
    if CHUNKS in options:
        options.pop(CHUNK_LAYERS, None)
    return options, tuple(evidence)


def stated_options(placement: Placement, engine: str) -> list[JobFact]:
    """Options of commands and logs, where the plan is of this engine."""
    return facts_of(placement, "option") if placement.plan.engine == engine else []


def spelled(fact: JobFact) -> str:
    """An option's name without dashes."""
    return fact.name.lstrip("-").replace("-", "_")


def declared_counts(placement: Placement) -> list[int]:
    """The plan's layers of each stage; [] where it has no list of numbers."""
    text = override_of(placement.plan) or ""
    counts = [number(part.strip()) for part in text.split(",")]
    return [count for count in counts if count is not None] if None not in counts else []
