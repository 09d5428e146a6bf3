"""The record of one measured run: what was run, where, how fast, how well used, and what ruled it.

A conclusion about a pipeline is worth what is recorded with it. Every field has its place, and one that
nothing filled says `not measured` instead of a number. Reading and writing files is
`topocheck.recordfile`, filling from evidence `topocheck.recorded`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from topocheck.figures import (
    NOT_MEASURED,
    Amount,
    Count,
    EachRequest,
    Figure,
    Goodput,
    Limits,
    NotMeasured,
    Part,
    PerfPart,
    Requests,
    Spread,
    UtilizationPart,
    Whole,
    WorkloadPart,
)

__all__ = [
    "NOT_MEASURED",
    "SCHEMA",
    "Capacity",
    "Change",
    "EachRequest",
    "EnginePart",
    "Figure",
    "Goodput",
    "HardwarePart",
    "InputPart",
    "Interconnect",
    "Interval",
    "Limits",
    "Missing",
    "ModelPart",
    "ParallelismPart",
    "PerfPart",
    "Record",
    "Requests",
    "Seat",
    "Spread",
    "StagePart",
    "Unit",
    "UtilizationPart",
    "WorkloadPart",
    "fields",
]

SCHEMA = "topocheck.record/1"


class EnginePart(Part, frozen=True, kw_only=True):
    """The engine that ran the model."""

    name: str = NOT_MEASURED
    """Engine, as a plan names it."""
    version: str = NOT_MEASURED
    """Its version; several if the nodes differ."""


class ModelPart(Part, frozen=True, kw_only=True):
    """The model that was served."""

    name: str = NOT_MEASURED
    """Name or path under which it was loaded."""
    version: str = NOT_MEASURED
    """Revision of its weights."""
    layers: Count = NOT_MEASURED
    """Number of transformer layers."""
    hidden: Count = NOT_MEASURED
    """Hidden size."""
    precision: str = NOT_MEASURED
    """Number format of the weights: bfloat16, fp8."""


class Interconnect(Part, frozen=True, kw_only=True):
    """What the traffic of the job goes over."""

    tensor: str = NOT_MEASURED
    """Links between the GPUs of a TP group: NV18, PIX, SYS, or the transport that was seen."""
    boundary: str = NOT_MEASURED
    """Between stages on different nodes: transport that was seen, else the ports that are there."""


class HardwarePart(Part, frozen=True, kw_only=True):
    """The machines."""

    cards: dict[str, Whole] | NotMeasured = NOT_MEASURED
    """Number of GPUs in use by product name."""
    nodes: tuple[str, ...] | NotMeasured = NOT_MEASURED
    """Nodes that carry ranks, in the order of the plan."""
    driver: str = NOT_MEASURED
    """GPU driver."""
    cuda: str = NOT_MEASURED
    """CUDA that the driver supports."""
    nccl: str = NOT_MEASURED
    """Communication library that the job used."""
    interconnect: Interconnect = Interconnect()
    """Links and transports."""


class ParallelismPart(Part, frozen=True, kw_only=True):
    """How the model was cut."""

    sizes: dict[str, Whole] | NotMeasured = NOT_MEASURED
    """Size of each axis above 1, fastest first: tensor, pipeline, data ..."""
    ranks: Count = NOT_MEASURED
    """Number of ranks."""
    pipeline: Count = NOT_MEASURED
    """Number of stages."""
    microbatches: Count = NOT_MEASURED
    """Microbatches in force, of which a stage takes one at a time."""
    placement: Literal["predicted", "claimed", "observed", "not measured"] = NOT_MEASURED
    """How the mapping is known: by the engine's formula, the ranks' own claims, or the running job."""


class Seat(Part, frozen=True, kw_only=True):
    """Rank -> stage -> node -> GPU."""

    rank: Whole
    """Global rank."""
    stage: Whole
    """Pipeline stage."""
    node: str = NOT_MEASURED
    """Node."""
    gpu: str = NOT_MEASURED
    """GPU by UUID, else bus id, else index."""


class Capacity(Part, frozen=True, kw_only=True):
    """Evidence that a stage fits its GPUs: bytes of one GPU, bounds at their upper end."""

    source: str = NOT_MEASURED
    """What the bytes rest on: the engine's own report, or arithmetic."""
    fits: Literal["yes", "no", "not measured"] = NOT_MEASURED
    """Whether all of it fits."""
    gpu_bytes: Count = NOT_MEASURED
    """Memory of its smallest GPU."""
    weights_bytes: Count = NOT_MEASURED
    """Weights."""
    kv_bytes: Count = NOT_MEASURED
    """KV cache."""
    activations_bytes: Count = NOT_MEASURED
    """Activations at their peak."""
    buffers_bytes: Count = NOT_MEASURED
    """Communication buffers, graphs and the like."""


class StagePart(Part, frozen=True, kw_only=True):
    """One pipeline stage."""

    stage: Whole
    """Index from 0."""
    layers: str = NOT_MEASURED
    """Layers that it holds, both ends included: `0..15`, `0..3, 8..11`."""
    modules: tuple[str, ...] | NotMeasured = NOT_MEASURED
    """What it holds besides layers: embedding, final norm, head."""
    ranks: str
    """Its ranks: `0..3`."""
    capacity: Capacity = Capacity()
    """Evidence that it fits."""


class Interval(Part, frozen=True, kw_only=True):
    """What one stage did with the unit of work."""

    stage: Whole
    """Stage."""
    kind: str
    """input ready, compute, send or receive."""
    start_ms: Amount = NOT_MEASURED
    """Start, from the start of the unit's first interval."""
    end_ms: Amount = NOT_MEASURED
    """End, from the same moment."""


class Unit(Part, frozen=True, kw_only=True):
    """One unit of work that was followed through the stages."""

    id: str = NOT_MEASURED
    """Request, iteration or microbatch id."""
    intervals: tuple[Interval, ...] | NotMeasured = NOT_MEASURED
    """Intervals by stage."""


class Change(Part, frozen=True, kw_only=True):
    """The result of the one change that led here."""

    before: str
    """Record of the run before it, and its digest."""
    changed: tuple[str, ...]
    """What was changed."""
    measured_gain: Amount = NOT_MEASURED
    """Output tokens a second after it as a multiple of those before it."""
    predicted_gain: Amount = NOT_MEASURED
    """The same by the arithmetic of bubbles."""
    verdict: str
    """Both in one sentence."""


class Missing(Part, frozen=True, kw_only=True):
    """A field that says `not measured`, and what would fill it."""

    field: str
    """Path of the field."""
    supply: str
    """What to give, or to run."""


class InputPart(Part, frozen=True, kw_only=True):
    """One file that the record rests on."""

    name: str
    """File as the user gave it."""
    kind: str
    """What it was recognised as."""
    digest: str
    """`sha256:` and the hex digest of its bytes."""


class Record(Part, frozen=True, kw_only=True):
    """One run as it was measured. A field that nothing filled says `not measured`."""

    schema: str
    """`topocheck.record/` and the major version."""
    tool: str
    """topocheck and its version."""
    at: str
    """When the record was written, RFC 3339."""
    status: Literal["bubble", "work", "imbalance", "boundary", "depth", "nothing named", "not measured"] = (
        NOT_MEASURED
    )
    """What dominates the waiting of the stages, as `topocheck waits` names it."""
    engine: EnginePart = EnginePart()
    """Engine and version."""
    model: ModelPart = ModelPart()
    """Model."""
    hardware: HardwarePart = HardwarePart()
    """Cards, nodes, driver, interconnect."""
    parallelism: ParallelismPart = ParallelismPart()
    """Sizes and microbatches."""
    workload: WorkloadPart = WorkloadPart()
    """Requests."""
    perf: PerfPart = PerfPart()
    """Times, throughput, goodput."""
    utilization: UtilizationPart = UtilizationPart()
    """Occupancy, effective use, bubble, imbalance, each with its source."""
    stages: tuple[StagePart, ...] | NotMeasured = NOT_MEASURED
    """Layers, modules and capacity of each stage."""
    mapping: tuple[Seat, ...] | NotMeasured = NOT_MEASURED
    """Rank -> stage -> node -> GPU."""
    unit: Unit = Unit()
    """One unit of work followed through the stages."""
    change: Change | NotMeasured = NOT_MEASURED
    """The result of changing one thing."""
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    """Where the value of a field was read, by its path."""
    missing: tuple[Missing, ...] = ()
    """Every field that says `not measured`, with what would fill it."""
    notes: tuple[str, ...] = ()
    """What a reader has to know: assumptions, and what was left out."""
    inputs: tuple[InputPart, ...] = ()
    """Files that it rests on."""
    requests: tuple[EachRequest, ...] | NotMeasured = NOT_MEASURED
    """Every request, in the order in which they were sent."""


def fields(part: msgspec.Struct, path: str = "") -> dict[str, object]:
    """Every single value of a part by its path, parts of parts in order; lists are one value."""
    found: dict[str, object] = {}
    for name in part.__struct_fields__:
        value, place = getattr(part, name), f"{path}.{name}" if path else name
        found |= fields(value, place) if isinstance(value, msgspec.Struct) else {place: value}
    return found
