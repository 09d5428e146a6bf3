"""GR: groups other than tensor and pipeline, and what the job leaves unused."""

from __future__ import annotations

from collections.abc import Iterator

from topocheck.ask import Ask
from topocheck.jobfacts import facts_of, number, the_job
from topocheck.placement import Placement
from topocheck.rule import Finding, read_at, rule
from topocheck.snapshot import At

__all__ = ["RULES"]


@rule("GR005", "no GPU of the job is idle", over=the_job, severity="warning")
def no_gpu_is_idle(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """GPUs that the job was given and no rank uses. What a node has beyond its allocation is not asked."""
    given = allocation(placement)
    if given is None:
        ask.gap(
            "how many GPUs the job was given",
            ["job"],
            "the launch script or command, or the scheduler's variables by topocheck probe",
        )
        return
    ask.know()
    count, words = given
    if count > placement.world:
        yield Finding(
            message=f"the job was given {count} GPUs and has {placement.world} ranks: "
            f"{count - placement.world} stay idle",
            fix="raise data parallelism, or ask for fewer GPUs",
            cause="idle GPUs",
            subjects=(f"{count - placement.world} GPUs",),
            evidence=tuple(read_at(at, text) for text, at in words),
        )


def allocation(placement: Placement) -> tuple[int, list[tuple[str, At | None]]] | None:
    """GPUs that launcher or scheduler gave to the job, and the statements that say so."""
    slots = facts_of(placement, "host-slots")
    counts = [value for fact in slots if (value := number(fact.value)) is not None]
    if slots and len(counts) == len(slots):
        return sum(counts), [(f"{fact.name}: {fact.value} slots", fact.at) for fact in slots]
    nodes = [value for fact in facts_of(placement, "nodes") if (value := number(fact.value))]
    gpus = [value for fact in facts_of(placement, "gpus-per-node") if (value := number(fact.value))]
    if nodes and gpus:
        facts = facts_of(placement, "nodes", "gpus-per-node")
        return max(nodes) * max(gpus), [(f"{fact.kind}: {fact.value}", fact.at) for fact in facts]
    return None


RULES = (no_gpu_is_idle,)
