"""PP: the pipeline's arithmetic stays within policy: balance, bubble, boundary times."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from topocheck.ask import Ask
from topocheck.errors import LayoutError, UsageError
from topocheck.pipeline.balance import Balance, Cut, Measure, Stage, balance
from topocheck.pipeline.boundary import Payload, form_of, transfer_seconds
from topocheck.pipeline.bounds import Bounds, exactly
from topocheck.pipeline.bubble import measure
from topocheck.pipeline.capacity import gib
from topocheck.placement import Placement
from topocheck.plan import Model, Workload
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, rule, the
from topocheck.sizing import balance_job
from topocheck.stagelinks import Crossing, StageLink, find_crossings, stage_link
from topocheck.stagework import IMBALANCE, decode_rows, even_pipeline, payload_of, prefill_part

__all__ = ["RULES"]

SAYS: dict[Measure, tuple[str, str, str]] = {
    "read": ("reads", "the others wait for it with every microbatch", "time"),
    "bytes": (
        "holds",
        "the fullest stage bounds the KV cache of all, and the others leave memory unused",
        "memory",
    ),
}
"""Measures by which stages are compared, and how a finding says it."""
MEBIBYTE = 1 << 20


def staged(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, where stages divide a model that the plan names."""
    if placement.layout.size("pipeline") == 1:
        return NotApplicable("one pipeline stage")
    if placement.plan.model is None:
        return NotApplicable("the plan names no model")
    return the(placement)


@rule("PP007", "stages are balanced", over=staged, severity="warning")
def stages_are_balanced(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """What the fullest rank of each stage reads with each token, and what it holds: both within the limit."""
    job = balance_job(ask)
    if job is None:
        return
    limit = placement.plan.policy.imbalance or IMBALANCE
    try:
        found = {kind: balance(job, kind) for kind in SAYS}
    except UsageError as error:  # LayoutError too
        because = "TP005" if isinstance(error, LayoutError) else "PP002"
        ask.gap(f"what each stage holds ({error})", ["plan"], "layers: in the plan", because=because)
        return
    ask.know()
    for kind, known in found.items():
        if known.current is not None and known.current.imbalance > limit:
            yield uneven_stages(kind, known, known.current, limit)
            return


def uneven_stages(kind: Measure, found: Balance, current: Cut, limit: float) -> Finding:
    """The finding: the heaviest stage, what it has, and the override of a more even cut if there is one."""
    heaviest, stages = current.heaviest, current.stages
    does, why, what = SAYS[kind]
    mean = gib(exactly(float(sum(stage.load for stage in stages)) / len(stages)))
    better = found.best is not None and found.override is not None and found.best.imbalance <= limit
    return Finding(
        message=f"a rank of stage {heaviest} {does} {words_of(stages[heaviest], kind)} and one of the mean "
        f"stage {mean}: {why} ({float(current.imbalance):.0%} of all stages' {what}, {limit:.0%} allowed)",
        fix=f"set {found.override.line} in place of {','.join(map(str, current.counts))}, if each stage's "
        "weights, KV cache and activations still fit (CAP002)"
        if better and found.override is not None
        else "use fewer stages: no cut of these layers is within the limit",
        cause="uneven stages",
        subjects=(f"stage {heaviest}",),
        evidence=(
            Evidence(source="plan", fact=f"layers {','.join(map(str, current.counts))}: {current.rule}"),
            *(
                Evidence(source="plan", fact=f"stage {n}: {words_of(s, kind)}")
                for n, s in enumerate(stages[:8])
            ),
            Evidence(source="assumption", fact="weights that a rank reads stand for its time"),
        ),
    )


def words_of(stage: Stage, kind: Measure) -> str:
    """`4.87 GiB (38 layers, head)`, in bytes of the measure; rows are looked up in an embedding, not read."""
    ends = [end for end in stage.ends if kind == "bytes" or end != "embedding"]
    return f"{gib(exactly(float(stage.load)))} ({', '.join([f'{stage.layers} layers', *ends])})"


def bubbled(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, where policy bounds its bubble."""
    if placement.layout.size("pipeline") == 1:
        return NotApplicable("one pipeline stage")
    if placement.plan.policy.bubble is None:
        return NotApplicable("policy.bubble sets no limit")
    return the(placement)


@rule("PP009", "the bubble is within policy", over=bubbled, severity="warning")
def bubble_within_policy(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Fill and drain of equal stages with the microbatches that are ready."""
    stages, limit = placement.layout.size("pipeline"), placement.plan.policy.bubble or 1
    workload = placement.plan.workload or Workload()
    chunks = workload.virtual_stages or 1
    ask.know()
    try:
        pipeline = even_pipeline(stages, workload)
        if pipeline is None:
            ask.gap(
                "microbatches that are ready at once", ["plan"], "workload: {microbatches: N} in the plan"
            )
            return
        count, idle = pipeline.microbatches, float(measure(pipeline).idle)
    except UsageError as error:
        ask.gap(f"the bubble ({error})", ["plan"], "microbatches and virtual_stages that the schedule takes")
        return
    if idle > limit:
        most = ceil((stages - 1) * (1 / limit - 1) / chunks)
        virtual = f", {chunks} virtual stages in each" if chunks > 1 else ""
        yield Finding(
            message=f"{stages} stages with {count} microbatches ready at once{virtual} spend up to "
            f"{idle:.1%} of their time on fill and drain, and the policy allows {limit:.1%}",
            fix=f"keep at least {most} microbatches or requests ready, or use fewer stages (with data "
            "replicas in their place)",
            cause="bubble beyond policy",
            subjects=(f"pipeline size {stages} with {count} microbatches",),
            evidence=(
                Evidence(source="plan", fact=f"pipeline {stages}, workload.microbatches {count}{virtual}"),
                Evidence(source="plan", fact=f"policy.bubble {limit:g}"),
            ),
        )


class Batch(NamedTuple):
    """One kind of microbatch and its limit."""

    phase: str
    rows: Bounds
    limit_ms: float


def crossed(placement: Placement) -> Situations[Crossing] | NotApplicable:
    """Stage boundaries, where policy bounds their time."""
    if placement.layout.size("pipeline") == 1:
        return NotApplicable("one pipeline stage")
    policy = placement.plan.policy
    if policy.prefill_boundary_ms is None and policy.decode_boundary_ms is None:
        return NotApplicable("policy.prefill_boundary_ms and policy.decode_boundary_ms set no limit")
    return placement.keep("stage crossings", find_crossings)


@rule("PP010", "boundary transfer time is within policy", over=crossed, severity="warning")
def boundary_within_policy(ask: Ask, crossing: Crossing) -> Iterator[Finding]:
    """One microbatch of prefill, and one of decode, over the link that the placement really uses."""
    placement = ask.placement
    ask.rest_on(placement.placed.basis)
    known = stage_link(ask, crossing)
    batches = list(batches_of(ask))
    hidden = (placement.plan.model or Model()).hidden
    if hidden is None:
        ask.gap(
            "the model's hidden size", ["plan"], "model: {hidden: N} or model: PATH/config.json in the plan"
        )
    if known is None or hidden is None:
        return
    for batch in batches:
        least = payload_of(placement, hidden, batch.rows.low)
        most = payload_of(placement, hidden, batch.rows.high)
        low = transfer_seconds(least.rank_bytes, known.link).low * 1e3
        high = transfer_seconds(most.rank_bytes, known.link).high * 1e3
        if low > batch.limit_ms:
            yield slow_boundary(crossing, known, batch, least, form_of(placement.plan.engine).source)
        elif high > batch.limit_ms:
            logged = "" if known.link.copies.exact else ", or a log of the job with NCCL_DEBUG=INFO"
            ask.gap(
                f"the measured time of a {batch.phase} microbatch between stages: "
                f"{spelled(Bounds(low, high))} by arithmetic over {known.link.name}, and the policy allows "
                f"{batch.limit_ms:g} ms",
                [str(crossing.a)],
                f"sendrecv_perf of nccl-tests between the GPUs, with {most.rank_bytes:,} bytes{logged}",
            )


def batches_of(ask: Ask) -> Iterator[Batch]:
    """Rows of the microbatches that policy bounds; the gap for those that the workload does not give."""
    placement = ask.placement
    policy, workload = placement.plan.policy, placement.plan.workload or Workload()
    if policy.prefill_boundary_ms is not None:
        rows = prefill_part(placement)
        if rows is None:
            ask.gap("rows of a prefill microbatch", ["plan"], "workload: {max_batched_tokens: N} in the plan")
        else:
            yield Batch("prefill", rows, policy.prefill_boundary_ms)
    if policy.decode_boundary_ms is not None:
        rows = decode_rows(workload)
        if rows is None:
            ask.gap("rows of a decode microbatch", ["plan"], "workload: {max_sequences: N} in the plan")
        else:
            yield Batch("decode", rows, policy.decode_boundary_ms)


def slow_boundary(crossing: Crossing, known: StageLink, batch: Batch, payload: Payload, form: str) -> Finding:
    """The finding of one kind of microbatch; `form` says how the engine sends it."""
    time = transfer_seconds(payload.rank_bytes, known.link)
    whole = f"{payload.bytes / MEBIBYTE:.4g} MiB"
    part = f", {payload.rank_bytes / MEBIBYTE:.4g} MiB from each rank" if payload.parts > 1 else ""
    between = crossing.a is not crossing.b
    return Finding(
        message=f"a {batch.phase} microbatch of {payload.rows:,} rows ({whole}{part}) takes "
        f"{spelled(time.scaled(1e3))} across the stage boundary {crossing} over {known.link.name}, and the "
        f"policy allows {batch.limit_ms:g} ms",
        fix="give the boundary a faster way: each rank the NIC nearest to its GPU, all rails up, GPUDirect; "
        "or fewer rows in a microbatch"
        if between
        else "use GPUs of one NVLink group for neighbouring stages, or fewer rows in a microbatch",
        cause=f"slow boundary in {batch.phase}",
        subjects=(str(crossing),),
        evidence=(
            *known.evidence,
            Evidence(
                source="plan",
                fact=f"{payload.rows:,} rows x {payload.hidden:,} hidden x {payload.element_bytes} bytes x "
                f"{payload.tensors} tensors: {payload.bytes:,} bytes; {form}",
            ),
            *(Evidence(source="assumption", fact=fact) for fact in known.link.assumptions),
        ),
        ranks=tuple(end for rank in crossing.ranks[:16] for end in (rank, rank + crossing.stride)),
        mark="edge",
    )


def spelled(time: Bounds) -> str:
    """`2.68 to 4.1 ms`."""
    return f"{time.low:.3g} to {time.high:.3g} ms"


RULES = (stages_are_balanced, bubble_within_policy, boundary_within_policy)
