"""`topocheck capacity`: what one rank of each stage must hold, against the memory of its GPU."""

from __future__ import annotations

from collections.abc import Iterator

import click

from topocheck.ask import Ask
from topocheck.claims import claimed_size
from topocheck.cli.bubble import labelled, pretty
from topocheck.cli.streams import show
from topocheck.equipment import smallest_memory, stage_ranks
from topocheck.errors import UsageError
from topocheck.formula import derive
from topocheck.gather.files import arguments, gather
from topocheck.inventory import Inventory
from topocheck.pipeline.bounds import Bounds
from topocheck.pipeline.bytesize import parse_bytes
from topocheck.pipeline.capacity import (
    GIB,
    SCHEMA,
    Budget,
    CapacityReport,
    StageReport,
    assumptions,
    budget_of,
    gib,
)
from topocheck.placement import Placement, place
from topocheck.plan import Workload
from topocheck.planfile import read_plan
from topocheck.sizing import StageNeed, layer_counts, model_weights, needs

__all__ = ["capacity"]


@click.command()
@click.option("--from-plan", metavar="PLAN", required=True, help="Plan with model and workload; - is stdin.")
@click.option("--gpu-memory", metavar="SIZE", help="Memory of each GPU, such as 80GiB, in place of evidence.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.argument("evidence", nargs=-1, metavar="[EVIDENCE...]")
def capacity(from_plan: str, gpu_memory: str | None, as_json: bool, evidence: tuple[str, ...]) -> None:
    """Compute weights, KV cache, activations and buffers of each stage, and whether they fit its GPUs.

    The memory of the GPUs is that of the evidence, as for verify, unless --gpu-memory gives it.
    """
    memory = None if gpu_memory is None else parse_bytes(gpu_memory)
    plan, inventory = read_plan(from_plan), Inventory()
    if plan.worlds != 1:
        raise UsageError(f"{from_plan}: capacity computes one world: give a plan of that world alone")
    if evidence:
        gather(arguments(list(evidence)), inventory, digests=False)
    placement = place(derive(plan, claimed_size(inventory.claims)), inventory)
    ask = Ask(placement)
    wanted, weights, layers = needs(ask), model_weights(ask), layer_counts(ask)
    if wanted is None or weights is None or layers is None:
        gaps = "; ".join(dict.fromkeys(f"{gap.need}: give {gap.supply}" for gap in ask.gaps))
        raise UsageError(f"{from_plan}: not known: {gaps}")
    found = memory_by_stage(placement)
    document = CapacityReport(
        schema=SCHEMA,
        engine=plan.engine,
        weights=weights.source,
        stages=[
            stage_report(placement, stage, layers[stage], need, found[stage] if memory is None else memory)
            for stage, need in enumerate(wanted)
        ],
        assumptions=[*assumptions(), *weights.notes],
    )
    if as_json:
        return show(pretty(document), exact=True)
    return show("".join(f"{line}\n" for line in words(document)))


def memory_by_stage(placement: Placement) -> dict[int, int | None]:
    """Memory of the smallest GPU under each stage; None where one of its GPUs is not shown."""
    return {stage: smallest_memory(placement, ranks) for stage, ranks in stage_ranks(placement).items()}


def stage_report(
    placement: Placement, stage: int, layers: int, wanted: StageNeed, memory: int | None
) -> StageReport:
    """One stage as a document."""
    need, workload = wanted.need, placement.plan.workload or Workload()
    budget = budget_of(placement.plan.engine, memory or 0, workload.gpu_memory_utilization)
    return StageReport(
        stage=stage,
        layers=layers,
        weights_bytes=int(need.weights.low),
        cache_bytes=None if wanted.missing else whole(need.cache),
        activation_bytes=whole(need.activations),
        buffer_bytes=whole(need.buffers),
        total_bytes=whole(need.total),
        memory_bytes=memory,
        usable=(budget.share.low, budget.share.high),
        sequences=None if memory is None else sequences(budget, wanted),
        fits=None if memory is None else wanted.fits(budget),
    )


def sequences(budget: Budget, wanted: StageNeed) -> tuple[int, int] | None:
    """Sequences of the workload's length that fit beside the rest, at least and at most."""
    each = wanted.sequence_bytes
    if not each.low:
        return None
    least = (budget.least_free(wanted.need) + wanted.need.cache.high) // each.high
    most = (budget.most_free(wanted.need) + wanted.need.cache.low) // each.low
    return max(0, int(least)), max(0, int(most))


def whole(size: Bounds) -> tuple[int, int]:
    """Bounds in bytes."""
    return int(size.low), int(size.high)


def words(document: CapacityReport) -> Iterator[str]:
    """The stages, a paragraph each, and what they rest on."""
    for stage in document.stages:
        yield f"stage {stage.stage}: {stage.layers} layers, a rank of it"
        yield from labelled("weights", f"{stage.weights_bytes / GIB:.3g} GiB")
        yield from labelled("KV cache", spelled(stage.cache_bytes) if stage.cache_bytes else "not known")
        yield from labelled("activations", spelled(stage.activation_bytes))
        yield from labelled("buffers", spelled(stage.buffer_bytes))
        yield from labelled("in all", spelled(stage.total_bytes))
        yield from labelled("GPU", of_memory(stage))
        if stage.sequences is not None:
            low, high = stage.sequences
            yield from labelled("room for", f"{low:,} to {high:,} sequences of the workload's length")
    yield from labelled("weights by", document.weights)
    for number, assumption in enumerate(document.assumptions):
        yield from labelled("" if number else "assumed", assumption)


def of_memory(stage: StageReport) -> str:
    """What the GPU has, and the verdict."""
    if stage.memory_bytes is None:
        return "its memory is not known: give evidence or --gpu-memory"
    low, high = (share * stage.memory_bytes for share in stage.usable)
    verdict = {True: "fits", False: "does not fit", None: "fits or not: the bounds leave it open"}[stage.fits]
    return f"{gib(Bounds(low, high))} usable of {stage.memory_bytes / GIB:.3g} GiB: {verdict}"


def spelled(size: tuple[int, int]) -> str:
    """`8 to 9.1 GiB`."""
    return gib(Bounds(*size))
