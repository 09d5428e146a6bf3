"""How the layers fall into stages, by the plan and by what commands, logs and variables state of it.

A plan has a word for the override (`layers:`) and none for an engine's further options: those are read
from the evidence, because with other options the engine accepts what its default refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from topocheck.jobfacts import facts_of, number
from topocheck.layers import override_of
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
}
"""Megatron's options as its log and as a command spell them -> the option of the split."""
CHUNK_LAYERS = ("num_layers_per_virtual_pipeline_stage", "layers_per_virtual_stage")
LAYOUT = ("pipeline_model_parallel_layout",)


@dataclass(frozen=True, slots=True)
class Wish:
    """One split that is asked for."""

    override: str | None = None
    """The engine's override string; None for its default rule."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Further options of the engine's split."""
    chunk_layers: int | None = None
    """Layers of each virtual stage, which give the number of chunks."""
    evidence: tuple[Evidence, ...] = ()
    """What asks for it."""

    def chunks(self, layers: int, stages: int) -> dict[str, object]:
        """Options for a model of so many layers."""
        found = dict(self.options)
        if self.chunk_layers and layers % (stages * self.chunk_layers) == 0:
            found["virtual_pipeline_model_parallel_size"] = layers // stages // self.chunk_layers
        return found


def wishes(placement: Placement) -> list[Wish]:
    """Every split that is asked for: the plan's, else those of variables and commands, else the default."""
    declared = override_of(placement.plan)
    options, chunk_layers, evidence = megatron_options(placement)
    if declared is not None:
        return [
            Wish(
                declared,
                options,
                chunk_layers,
                (Evidence(source="plan", fact=f"layers {declared}"), *evidence),
            )
        ]
    asked = {**overrides_of_nodes(placement), **stated_overrides(placement)}
    return [
        Wish(override, options, chunk_layers, (where, *evidence)) for override, where in sorted(asked.items())
    ] or [Wish(None, options, chunk_layers, evidence)]


def stated_overrides(placement: Placement) -> dict[str, Evidence]:
    """Overrides that commands state.

    What vLLM logs of its split may be a draft model's, and DeepSpeed logs entries that are no layers.
    """
    engine = placement.plan.engine
    name = VARIABLES.get(engine)
    facts = [fact for fact in facts_of(placement, "option") if name is not None and fact.name == name]
    if engine in STATED_BY_FLAG:
        facts += facts_of(placement, "layers")
        facts += [fact for fact in options_of(placement, "megatron") if spelled(fact) in LAYOUT]
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


def megatron_options(placement: Placement) -> tuple[dict[str, object], int | None, tuple[Evidence, ...]]:
    """(options of the split, layers of a virtual stage, where they are stated)."""
    options: dict[str, object] = {}
    chunk_layers = None
    evidence = []
    for fact in options_of(placement, "megatron"):
        name, value = spelled(fact), number(fact.value)
        if name in CHUNK_LAYERS and value:
            chunk_layers = value
        elif name in OPTIONS:
            options[OPTIONS[name]] = (
                value if value is not None else fact.value.lower() not in ("false", "none")
            )
        else:
            continue
        evidence.append(read_at(fact.at, f"{fact.name} {fact.value}"))
    return options, chunk_layers, tuple(evidence)


def options_of(placement: Placement, engine: str) -> list[JobFact]:
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
