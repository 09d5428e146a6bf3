"""GR: groups other than tensor and pipeline, and what the job leaves unused."""

from __future__ import annotations

from collections.abc import Iterator

from topocheck.allotment import allotment
from topocheck.ask import Ask
from topocheck.jobfacts import the_job
from topocheck.placement import Placement
from topocheck.rule import Finding, rule

__all__ = ["RULES"]


@rule("GR005", "no GPU of the job is idle", over=the_job, severity="warning")
def no_gpu_is_idle(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """GPUs that the job was given and no rank uses. What a node has beyond its allocation is not asked."""
    given = allotment(placement)
    idle = 0 if given is None else given.gpus - placement.world - placement.inventory.others
    if given is not None and idle > 0:
        ask.know()
        yield Finding(
            message=f"the job was given {given.gpus} GPUs and has {placement.world} ranks: {idle} stay idle",
            fix="raise data parallelism, or ask for fewer GPUs",
            cause="idle GPUs",
            subjects=(f"{idle} GPUs",),
            evidence=given.evidence,
        )
    elif given is None or not given.whole:
        ask.gap(
            "how many GPUs the job was given",
            ["job"],
            "the launch script or manifest, or the scheduler's variables by topocheck probe",
        )
    else:
        ask.know()


RULES = (no_gpu_is_idle,)
