"""The pipeline's arithmetic as the report shows it: the same figures that PP007, PP009 and PP010 judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from topocheck.ask import Ask
from topocheck.errors import UsageError
from topocheck.pipeline.balance import balance
from topocheck.pipeline.boundary import transfer_seconds
from topocheck.pipeline.bounds import Bounds
from topocheck.pipeline.bubble import measure
from topocheck.placement import Placement
from topocheck.plan import Model, Workload
from topocheck.report import (
    BalancePart,
    BubblePart,
    CrossingPart,
    LackingPart,
    PipelineReport,
    StageShare,
    TransferPart,
)
from topocheck.sizing import balance_job
from topocheck.stagelinks import Crossing, StageLink, find_crossings, stage_link
from topocheck.stagework import IMBALANCE, decode_rows, even_pipeline, payload_of, prefill_part

__all__ = ["pipeline_report"]

MOST_RANKS = 4096
"""Ranks whose boundaries are sorted into situations for the picture alone."""
MOST_CROSSINGS = 12
"""Situations whose times are computed."""


@dataclass(slots=True)
class _Lacking:
    """What is not computed."""

    found: list[LackingPart] = field(default_factory=list)

    def add(self, part: Literal["bubble", "balance", "boundary"], need: str, supply: str) -> None:
        """Note it once."""
        lacking = LackingPart(part=part, need=need, supply=supply)
        if lacking not in self.found:
            self.found.append(lacking)

    def ask(self, part: Literal["bubble", "balance", "boundary"], ask: Ask) -> None:
        """Note the gaps of a question."""
        for gap in ask.gaps:
            self.add(part, gap.need, gap.supply)


def pipeline_report(placement: Placement) -> PipelineReport | None:
    """The arithmetic of the job's stages; None for one stage."""
    stages = placement.layout.size("pipeline")
    if stages == 1:
        return None
    lacking = _Lacking()
    bubble = bubble_part(placement, stages, lacking)
    shares = balance_part(placement, lacking)
    batches, found = batches_of(placement, lacking), list[Sequence[Crossing]]()
    if batches:
        found = situations(placement, batches, lacking)
    return PipelineReport(
        stages=stages,
        bubble=bubble,
        balance=shares,
        boundaries=list(crossing_parts(placement, batches, found[:MOST_CROSSINGS], lacking)),
        boundaries_left=max(0, len(found) - MOST_CROSSINGS),
        lacking=lacking.found,
    )


def bubble_part(placement: Placement, stages: int, lacking: _Lacking) -> BubblePart | None:
    """Fill and drain; None where the workload leaves it open."""
    try:
        pipeline = even_pipeline(stages, placement.plan.workload or Workload())
        if pipeline is None:
            lacking.add(
                "bubble", "microbatches that are ready at once", "workload: {microbatches: N} in the plan"
            )
            return None
        idle = float(measure(pipeline).idle)
    except UsageError as error:
        lacking.add("bubble", str(error), "microbatches and virtual_stages that the schedule takes")
        return None
    return BubblePart(
        schedule="interleaved" if pipeline.chunks > 1 else "forward",
        microbatches=pipeline.microbatches,
        virtual_stages=pipeline.chunks,
        idle=idle,
        limit=placement.plan.policy.bubble,
    )


def balance_part(placement: Placement, lacking: _Lacking) -> BalancePart | None:
    """What each stage carries; None where the model or its split is not known."""
    ask = Ask(placement)
    job = balance_job(ask)
    if job is None:
        lacking.ask("balance", ask)
        return None
    try:
        read, held = balance(job, "read"), balance(job, "bytes").current
    except UsageError as error:
        lacking.add("balance", str(error), "layers: in the plan")
        return None
    if read.current is None or held is None:
        lacking.add("balance", job.refusal, "layers: in the plan")
        return None
    return BalancePart(
        stages=[
            StageShare(
                stage=number,
                layers=stage.layers,
                ends=list(stage.ends),
                reads_bytes=int(stage.load),
                holds_bytes=whole.rank_bytes,
            )
            for number, (stage, whole) in enumerate(zip(read.current.stages, held.stages, strict=True))
        ],
        imbalance=float(read.current.imbalance),
        holds_imbalance=float(held.imbalance),
        limit=placement.plan.policy.imbalance or IMBALANCE,
        override=None if read.override is None else read.override.line,
    )


@dataclass(frozen=True, slots=True)
class _Batch:
    """One kind of microbatch."""

    phase: Literal["prefill", "decode"]
    rows: Bounds
    hidden: int
    limit_ms: float | None


def batches_of(placement: Placement, lacking: _Lacking) -> list[_Batch]:
    """What the workload sends over a boundary; none where model or workload leave it open."""
    workload, policy = placement.plan.workload or Workload(), placement.plan.policy
    hidden = (placement.plan.model or Model()).hidden
    prefill, decode = prefill_part(placement), decode_rows(workload)
    if hidden is None:
        supply = "model: {hidden: N} or model: PATH/config.json in the plan"
        lacking.add("boundary", "the model's hidden size", supply)
    if prefill is None and decode is None:
        supply = "workload: {max_batched_tokens: N, max_sequences: N} in the plan"
        lacking.add("boundary", "rows of a microbatch", supply)
    found = []
    if hidden is not None and prefill is not None:
        found.append(_Batch("prefill", prefill, hidden, policy.prefill_boundary_ms))
    if hidden is not None and decode is not None:
        found.append(_Batch("decode", decode, hidden, policy.decode_boundary_ms))
    return found


def situations(
    placement: Placement, batches: Sequence[_Batch], lacking: _Lacking
) -> list[Sequence[Crossing]]:
    """Boundaries that are alike together; none of a large job whose policy bounds no time."""
    if placement.world > MOST_RANKS and all(batch.limit_ms is None for batch in batches):
        need = f"a limit, without which the boundaries of more than {MOST_RANKS} ranks are not looked at"
        lacking.add("boundary", need, "policy: {prefill_boundary_ms: N} in the plan (PP010)")
        return []
    return list(placement.keep("stage crossings", find_crossings).values())


def crossing_parts(
    placement: Placement, batches: Sequence[_Batch], found: Sequence[Sequence[Crossing]], lacking: _Lacking
) -> Iterator[CrossingPart]:
    """Each situation with the times of what the workload sends over its boundaries."""
    for alike in found:
        ask = Ask(placement)
        known = stage_link(ask, alike[0])
        lacking.ask("boundary", ask)
        if known is not None:
            yield CrossingPart(
                about=str(alike[0]),
                count=len(alike),
                link=known.link.name,
                transfers=[transfer(placement, batch, known) for batch in batches],
                assumptions=list(known.link.assumptions),
            )


def transfer(placement: Placement, batch: _Batch, known: StageLink) -> TransferPart:
    """One kind of microbatch over one link."""
    least, most = (payload_of(placement, batch.hidden, count) for count in (batch.rows.low, batch.rows.high))
    return TransferPart(
        phase=batch.phase,
        rows=(least.rows, most.rows),
        rank_bytes=(least.rank_bytes, most.rank_bytes),
        time_ms=(
            round(transfer_seconds(least.rank_bytes, known.link).low * 1e3, 6),
            round(transfer_seconds(most.rank_bytes, known.link).high * 1e3, 6),
        ),
        limit_ms=batch.limit_ms,
    )
