"""What each stage of a job holds, and the evidence that it fits its GPUs.

Bytes are the engine's own report where a start-up log has it, else arithmetic over the plan's model and
workload, bounds at their upper end. Which of the two they are is said with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from topocheck.ask import Ask
from topocheck.engines.layout import Group, LayerSplit
from topocheck.equipment import smallest_memory, stage_ranks
from topocheck.layers import layer_split
from topocheck.pipeline.capacity import budget_of
from topocheck.pipeline.memorylog import StartUp
from topocheck.placement import Placement
from topocheck.plan import Workload
from topocheck.ranges import fold
from topocheck.record import NOT_MEASURED, Capacity, StagePart
from topocheck.sizing import StageNeed, needs

__all__ = ["stage_parts"]

ENDS = ("vllm", "sglang", "megatron", "torchtitan")
"""Engines whose embedding is on the first stage and whose final norm and head are on the last."""

FITS: dict[bool | None, Literal["yes", "no", "not measured"]] = {
    True: "yes",
    False: "no",
    None: NOT_MEASURED,
}

Logs = Sequence[tuple[str, StartUp]]
"""Start-up logs with their files."""


def stage_parts(placement: Placement, logs: Logs) -> Iterator[StagePart]:
    """Layers, further modules, ranks and capacity of each stage."""
    layout = placement.layout
    split, count = layer_split(placement.plan, layout), layout.size("pipeline")
    wanted = needs(Ask(placement))
    for stage, members in stage_ranks(placement).items():
        need = None if wanted is None or len(wanted) != count else wanted[stage]
        yield StagePart(
            stage=stage,
            layers=layers_of(split, stage),
            modules=modules(placement.plan.engine, stage, count),
            ranks=fold(members),
            capacity=capacity(placement, stage, members, logs, need),
        )


def layers_of(split: LayerSplit | None, stage: int) -> str:
    """Layers of a stage, both ends included."""
    if split is None:
        return NOT_MEASURED
    return ", ".join(f"{first}..{end - 1}" for first, end in split.held(stage) if end > first) or "none"


def modules(engine: str, stage: int, count: int) -> tuple[str, ...] | Literal["not measured"]:
    """What a stage holds besides its layers, for decoder-only models; not known of the other engines."""
    if engine not in ENDS:
        return NOT_MEASURED
    return (*(["embedding"] if stage == 0 else []), *(["final norm", "head"] if stage == count - 1 else []))


def capacity(
    placement: Placement, stage: int, members: Group, logs: Logs, need: StageNeed | None
) -> Capacity:
    """Evidence that a stage fits: what the engine reported, else what arithmetic asks for."""
    memory = smallest_memory(placement, members)
    for source, told in logs:
        key = None if placement.layout.size("pipeline") == 1 and stage not in told.weights_bytes else stage
        weights, cache = told.weights_bytes.get(key), told.cache_bytes.get(key)
        if weights is not None or cache is not None:
            return reported(source, memory, weights, cache)
    if need is None:
        return Capacity(gpu_bytes=known(memory))
    return reckoned(placement, memory, need)


def reported(source: str, memory: int | None, weights: int | None, cache: int | None) -> Capacity:
    """What an engine says that its workers took. A KV cache of nothing is no fit."""
    fits: Literal["yes", "no", "not measured"] = NOT_MEASURED
    if cache == 0:
        fits = "no"
    elif memory is not None and weights is not None and cache is not None:
        fits = "yes" if weights + cache <= memory else "no"
    return Capacity(
        source=f"{source}: the engine's own report of its workers",
        fits=fits,
        gpu_bytes=known(memory),
        weights_bytes=known(weights),
        kv_bytes=known(cache),
    )


def reckoned(placement: Placement, memory: int | None, wanted: StageNeed) -> Capacity:
    """What the plan's model and workload ask for."""
    need, workload = wanted.need, placement.plan.workload or Workload()
    fits: Literal["yes", "no", "not measured"] = NOT_MEASURED
    if memory is not None:
        budget = budget_of(placement.plan.engine, memory, workload.gpu_memory_utilization)
        fits = FITS[wanted.fits(budget)]
    return Capacity(
        source="arithmetic over the plan's model and workload, upper bounds: computed, not measured",
        fits=fits,
        gpu_bytes=known(memory),
        weights_bytes=int(need.weights.high),
        kv_bytes=NOT_MEASURED if wanted.missing else int(need.cache.high),
        activations_bytes=int(need.activations.high),
        buffers_bytes=int(need.buffers.high),
    )


def known(size: int | None) -> int | Literal["not measured"]:
    """A size, or that there is none."""
    return NOT_MEASURED if size is None else size
