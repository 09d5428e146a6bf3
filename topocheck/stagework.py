"""What stages are given to do: the pipeline of a workload, the rows of its microbatches, what crosses."""

from __future__ import annotations

from fractions import Fraction

from topocheck.pipeline.boundary import ELEMENT_BYTES, Payload, form_of
from topocheck.pipeline.bounds import Bounds
from topocheck.pipeline.schedule import Pipeline
from topocheck.placement import Placement
from topocheck.plan import Workload
from topocheck.sizing import prefill_rows

__all__ = ["IMBALANCE", "decode_rows", "even_pipeline", "payload_of", "prefill_part"]

IMBALANCE = 0.2
"""Most of the stages' time that may go to waiting for the largest stage, where policy does not say."""


def even_pipeline(stages: int, workload: Workload) -> Pipeline | None:
    """Equal stages with the microbatches that are ready at once; None where their number is not given.

    Raises UsageError for sizes that no schedule takes.
    """
    if workload.microbatches is None:
        return None
    chunks = workload.virtual_stages or 1
    return Pipeline(
        forward=(Fraction(1),) * stages,
        microbatches=workload.microbatches,
        schedule="interleaved" if chunks > 1 else "forward",
        chunks=chunks,
    )


def prefill_part(placement: Placement) -> Bounds | None:
    """Rows of a prefill microbatch that one context rank has; None where the workload gives none."""
    rows = prefill_rows(placement.plan.workload or Workload())
    return None if rows is None else rows.scaled(1 / placement.layout.size("context"))


def decode_rows(workload: Workload) -> Bounds | None:
    """Rows of a decode microbatch: a share of the sequences in work, or all of them; None where not given."""
    if workload.max_sequences is None:
        return None
    part = -(-workload.max_sequences // (workload.microbatches or workload.max_sequences))
    return Bounds(part, workload.max_sequences)


def payload_of(placement: Placement, hidden: int, rows: float) -> Payload:
    """What one microbatch hands on, by the workload, else by the engine."""
    workload, form = placement.plan.workload or Workload(), form_of(placement.plan.engine)
    split = workload.boundary_split or form.split
    return Payload(
        rows=int(rows),
        hidden=hidden,
        element_bytes=ELEMENT_BYTES[workload.dtype],
        tensors=workload.boundary_tensors or form.tensors,
        parts=placement.layout.size("tensor") if split == "tensor" else 1,
    )
