"""A record filled from everything that a run left: plan, evidence, benchmark, client log, utilisation.

Each value is entered with where it was read. Of two sources the stronger one counts, evidence before plan,
and a note tells the other. What nobody gave stays `not measured`, and the record says what would fill it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from topocheck import __version__
from topocheck.equipment import boundary_links, cards, tensor_links, users, version
from topocheck.errors import UsageError
from topocheck.inventory import Inventory
from topocheck.jobfacts import number
from topocheck.ledger import Ledger, supplies
from topocheck.pipeline.bench import Bench, Quantiles, goodput
from topocheck.pipeline.bubble import measure
from topocheck.pipeline.clientlog import ClientArguments
from topocheck.pipeline.memorylog import StartUp
from topocheck.pipeline.microbatches import InForce
from topocheck.pipeline.utilization import Reading
from topocheck.pipeline.waits_report import WaitsReport
from topocheck.placed import placement_report
from topocheck.placement import Placement
from topocheck.plan import Workload
from topocheck.record import (
    NOT_MEASURED,
    SCHEMA,
    EachRequest,
    Figure,
    Goodput,
    InputPart,
    Limits,
    Record,
    Seat,
    Unit,
)
from topocheck.report import PlacementReport
from topocheck.snapshot import At
from topocheck.stagefit import stage_parts
from topocheck.stagework import even_pipeline

__all__ = ["MOST_EACH", "Given", "record_of"]

MOST_EACH = 10_000
"""Requests written out one by one; of more the benchmark's file is the record."""
AT_ONCE = ("--max-num-seqs", "--max-running-requests")
"""Flags that bound the sequences in work: vLLM, SGLang."""
MEANS = {
    "kernel": "part of the time in which some kernel ran, of all GPUs in the file; one busy SM is enough",
    "sm": "part of the time in which an SM had work, mean of all SMs; waiting inside a kernel counts as work",
}
"""What a figure of utilisation says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a record is made of; what was not given is None or empty."""

    inventory: Inventory
    placement: Placement | None = None
    """None without a plan."""
    plan: str = "plan"
    """The plan file."""
    bench: tuple[str, Bench] | None = None
    """Result of a benchmark, with its file."""
    client: tuple[str, ClientArguments] | None = None
    """What the benchmark's client was told, with its log."""
    logs: Sequence[tuple[str, InForce, StartUp]] = ()
    """Sizes in force and memory by start-up logs and commands, with their files."""
    waits: tuple[str, WaitsReport] | None = None
    """Where the stages' time went, with its file."""
    unit: tuple[str, Unit] | None = None
    """A unit of work that was followed, with the files of its trace."""
    limits: Limits | None = None
    """Limits of goodput."""
    utilization: Sequence[tuple[str, Reading]] = ()
    """Figures of utilisation, with their files."""
    stated: Mapping[str, int | float | str] = field(default_factory=dict)
    """Values that the user states, by path."""
    notes: Sequence[str] = ()
    """Why there is no placement."""
    inputs: Sequence[InputPart] = ()
    """All files."""
    report: PlacementReport | None = None
    """The placement as it is shown beside the record, which then leaves the place of each rank to it."""


def record_of(given: Given, at: str) -> Record:
    """The record. Raises UsageError where the user states what the evidence contradicts."""
    ledger = Ledger()
    ledger.notes += given.notes
    take_bench(ledger, given)
    take_client(ledger, given)
    take_facts(ledger, given)
    if given.placement is not None:
        take_placement(ledger, given.placement, given.plan, given.report)
        logs = [(name, told) for name, _, told in given.logs]
        ledger.put("stages", tuple(stage_parts(given.placement, logs)), given.plan)
    take_sizes(ledger, given)
    take_waits(ledger, given)
    take_utilization(ledger, given)
    for path, value in given.stated.items():
        ledger.state(path, value)
    record = msgspec.structs.replace(
        ledger.filled(Record(schema=SCHEMA, tool=f"topocheck {__version__}", at=at)),
        inputs=tuple(given.inputs),
        notes=tuple(ledger.notes),
        sources=ledger.sources,
    )
    record = estimated(record, given.placement)
    return msgspec.structs.replace(record, missing=tuple(supplies(record, given.bench)))


def take_bench(ledger: Ledger, given: Given) -> None:
    """What a benchmark measured."""
    if given.bench is None:
        return
    source, bench = given.bench
    ledger.put("engine.name", bench.engine, source)
    ledger.put("engine.version", bench.engine_version, source)
    ledger.put("model.name", bench.model, source)
    for path, value in bench_values(bench):
        ledger.put(path, value, source)
    if bench.own_goodput_per_s is not None:
        own = f"{bench.own_goodput_per_s:g} requests/s"
        ledger.notes.append(
            f"the goodput that {bench.tool} gives, {own}, is left out: its limits are not in {source}"
        )
    take_requests(ledger, given, source, bench)


def bench_values(bench: Bench) -> Iterator[tuple[str, int | float | str | None]]:
    """Path and value of each figure of a benchmark."""
    yield from {
        "perf.tool": bench.tool,
        "perf.duration_s": rounded(bench.duration_s),
        "perf.requests.completed": bench.completed,
        "perf.requests.failed": bench.failed,
        "perf.requests.timed_out": bench.timed_out,
        "perf.requests.unfinished": bench.unfinished,
        "perf.requests.single_token": bench.single_token,
        "perf.requests_per_s": rounded(bench.requests_per_s),
        "perf.output_tokens_per_s": rounded(bench.output_tokens_per_s),
        "perf.total_tokens_per_s": rounded(bench.total_tokens_per_s),
        "workload.dataset": bench.dataset,
        "workload.requests": bench.asked,
        "workload.input_tokens": bench.input_tokens,
        "workload.input_lengths": bench.input_lengths,
        "workload.output_tokens": bench.output_tokens,
        "workload.input_length": mean(bench.input_tokens, bench.completed),
        "workload.output_length": mean(bench.output_tokens, bench.completed),
        "workload.request_rate": bench.request_rate,
        "workload.burstiness": bench.burstiness,
        "workload.max_concurrency": "unlimited" if bench.max_concurrency == 0 else bench.max_concurrency,
        "workload.seed": bench.seed,
        "workload.warmups": bench.warmups,
    }.items()
    for name, time in (("ttft", bench.ttft_ms), ("tpot", bench.tpot_ms), ("itl", bench.itl_ms)):
        yield from quantiles(name, time)


def quantiles(name: str, time: Quantiles) -> Iterator[tuple[str, float | None]]:
    """Mean, median and 99th percentile of a time."""
    for kind in ("mean", "median", "p99"):
        yield f"perf.{name}_ms.{kind}", rounded(getattr(time, kind))


def rounded(value: float | None) -> float | None:
    """To the microsecond, where the unit is ms: a client's clock knows no more."""
    return None if value is None else round(value, 3)


def mean(total: int | None, count: int) -> float | None:
    """Mean of a sum; None without anything to share it by."""
    return round(total / count, 1) if total is not None and count else None


def take_requests(ledger: Ledger, given: Given, source: str, bench: Bench) -> None:
    """Every request, and what of them was within both limits."""
    if bench.each is None:
        return
    if len(bench.each) <= MOST_EACH:
        rows = tuple(
            EachRequest(
                id=place,
                input=one.input,
                output=one.output,
                ttft_ms=NOT_MEASURED if one.ttft_ms is None else round(one.ttft_ms, 3),
                tpot_ms=NOT_MEASURED if one.tpot_ms is None else round(one.tpot_ms, 3),
                end="timed out" if one.timed_out else "failed" if one.failed else "completed",
            )
            for place, one in enumerate(bench.each)
        )
        ledger.put("requests", rows, source)
    else:
        ledger.notes.append(
            f"{len(bench.each)} requests are not written out one by one: they stand in {source}"
        )
    if given.limits is None:
        return
    found = goodput(bench.each, given.limits.ttft_ms, given.limits.tpot_ms)
    if found is None:
        ledger.notes.append(
            f"some requests of {source} show no times (no streaming?), so goodput is not known"
        )
    elif bench.duration_s:
        within, of, single = found
        rate = round(within / bench.duration_s, 3)
        good = Goodput(
            limits=given.limits, within=within, of=of, requests_per_s=rate, single_token_within=single
        )
        ledger.put("perf.goodput", good, source)


def take_client(ledger: Ledger, given: Given) -> None:
    """What the benchmark's client was told."""
    if given.client is None:
        return
    source, told = given.client
    for name in ("seed", "warmups", "requests", "dataset"):
        found = getattr(told, name)
        if found is not None:
            ledger.put(f"workload.{name}", found.value, f"{source}:{found.line}")


def take_facts(ledger: Ledger, given: Given) -> None:
    """What logs and commands state about the job, where they all state the same."""
    paths = {"engine": "engine.name", "engine-version": "engine.version"}
    found: dict[str, dict[str | int, At | None]] = {}
    for fact in given.inventory.job:
        if fact.kind in paths:
            found.setdefault(paths[fact.kind], {}).setdefault(fact.value, fact.at)
        elif fact.kind == "option" and fact.name in AT_ONCE and (count := number(fact.value)):
            found.setdefault("workload.max_sequences", {}).setdefault(count, fact.at)
    for path, values in found.items():
        if len(values) == 1:
            [(value, at)] = values.items()
            ledger.put(path, value, spell(at))
        else:
            ledger.notes.append(f"{path} is left out: the evidence has {' and '.join(map(str, values))}")


def spell(at: At | None) -> str:
    """Where a fact was read."""
    if at is None:
        return "evidence"
    return at.source if at.line is None else f"{at.source}:{at.line}"


def take_placement(ledger: Ledger, placement: Placement, source: str, shown: PlacementReport | None) -> None:
    """Cards, links, sizes and places of the ranks, unless they are `shown` elsewhere."""
    plan, layout = placement.plan, placement.layout
    report = shown or placement_report(placement, [])
    for path, name in (
        ("hardware.driver", "driver"),
        ("hardware.cuda", "cuda"),
        ("hardware.nccl", "nccl"),
        ("engine.version", "engine_version"),
    ):
        value, note = version(placement, name)
        ledger.put(path, value, "evidence of the nodes")
        ledger.notes += [] if note is None else [note]
    ledger.put("hardware.nccl", library(placement), "log of the job")
    ledger.put("hardware.cards", cards(placement, report), "evidence of the nodes")
    nodes = tuple(node.name for node in users(placement))
    ledger.put("hardware.nodes", nodes or None, f"placement, {placement.phase}")
    ledger.put("hardware.interconnect.tensor", tensor_links(placement), "evidence of the nodes")
    ledger.put("hardware.interconnect.boundary", *boundary_links(placement))
    ledger.put("engine.name", plan.engine, source)
    ledger.put("engine.version", plan.engine_version, source)
    if plan.model is not None:
        ledger.put("model.layers", plan.model.layers, source)
        ledger.put("model.hidden", plan.model.hidden, source)
    sizes = {name: size for name, size in reversed(layout.axes) if size > 1}
    ledger.put("parallelism.sizes", sizes, source)
    ledger.put("parallelism.ranks", placement.world, source)
    ledger.put("parallelism.pipeline", layout.size("pipeline"), source)
    ledger.put("parallelism.placement", placement.phase, "placement")
    seats = tuple(
        Seat(rank=one.rank, stage=one.stage, node=one.node or NOT_MEASURED, gpu=one.gpu or NOT_MEASURED)
        for one in (report.ranks if shown is None else ())
    )
    ledger.put("mapping", seats, f"placement, {placement.phase}")
    ledger.notes += [f"assumed: {words}" for words in placement.assumptions]


def library(placement: Placement) -> str | None:
    """NCCL as all logs of the job name it."""
    found = {
        seen.library
        for node in users(placement)
        if node.machine is not None
        for seen, _ in node.machine.observed
    } - {None}
    words = found.pop() if len(found) == 1 else None
    return words.removeprefix("NCCL ") if words else None


def take_sizes(ledger: Ledger, given: Given) -> None:
    """Stages and microbatches in force, by a log; by the plan's workload where no log says."""
    for source, force, told in given.logs:
        ledger.put("model.precision", told.precision, source)
        for path, reading in (
            ("parallelism.pipeline", force.stages),
            ("parallelism.microbatches", force.microbatches),
        ):
            if reading is not None:
                ledger.put(path, reading.value, f"{source}:{reading.line}: {reading.basis}")
    workload = None if given.placement is None else given.placement.plan.workload
    if workload is not None:
        ledger.put("parallelism.microbatches", workload.microbatches, given.plan)
        ledger.put("workload.max_sequences", workload.max_sequences, given.plan)


def take_waits(ledger: Ledger, given: Given) -> None:
    """What dominates, the balance of the stages, and one unit of work that was followed."""
    if given.unit is not None:
        source, unit = given.unit
        ledger.put("unit.id", unit.id, source)
        ledger.put("unit.intervals", unit.intervals, source)
    if given.waits is None:
        return
    source, waits = given.waits
    ledger.put("status", None if waits.status == "unknown" else waits.status, source)
    ledger.notes.append(f"{source}: {waits.sentence}")
    if waits.bubble is not None:
        imbalance = Figure(
            share=round(waits.bubble.imbalance, 4),
            source=f"topocheck waits, {source}, by the stages' measured times",
            means="idle part that is left with ever more microbatches, because stages are uneven",
        )
        ledger.put("utilization.stage_imbalance", imbalance, source)


def take_utilization(ledger: Ledger, given: Given) -> None:
    """Figures of utilisation, what is taken and what computes apart."""
    for kind, path in (("kernel", "utilization.occupancy"), ("sm", "utilization.effective")):
        figures = [
            Figure(
                share=round(reading.share, 4),
                source=f"{reading.tool}, mean of {reading.samples} samples, {source}",
                means=MEANS[kind],
            )
            for source, reading in given.utilization
            if reading.kind == kind
        ]
        figures += traced(given) if kind == "kernel" else []
        ledger.put(path, tuple(figures) or None, "each figure names its own")


def traced(given: Given) -> list[Figure]:
    """Occupancy of the stages by a trace."""
    if given.waits is None or not given.waits[1].stages:
        return []
    source, waits = given.waits
    parts = [stage.computing for stage in waits.stages]
    each = ", ".join(f"stage {stage.stage} {stage.computing:.4g}" for stage in waits.stages[:16])
    figure = Figure(
        share=round(sum(parts) / len(parts), 4),
        source=f"topocheck waits, {source}: {each}{' ...' if len(parts) > 16 else ''}",
        means="part of the time in which a stage computed, mean of all stages; how full is not measured",
    )
    return [figure]


def estimated(record: Record, placement: Placement | None) -> Record:
    """The record with the bubble that arithmetic gives for its sizes, and for the plan's virtual stages."""
    stages, count = record.parallelism.pipeline, record.parallelism.microbatches
    if not isinstance(stages, int) or (stages > 1 and not isinstance(count, int)):
        return record
    batches = count if isinstance(count, int) and stages > 1 else 1
    workload = (None if placement is None or stages == 1 else placement.plan.workload) or Workload()
    try:
        pipeline = even_pipeline(stages, msgspec.structs.replace(workload, microbatches=batches))
        idle = None if pipeline is None else measure(pipeline).idle
    except UsageError:  # sizes that are no pipeline's; they stand in the record as they were given
        return record
    if pipeline is None or idle is None:
        return record
    virtual = f", {pipeline.chunks} virtual stages in each" if pipeline.chunks > 1 else ""
    figure = Figure(
        share=round(float(idle), 4),
        source=f"own arithmetic: {stages} equal stages, {batches} microbatches{virtual}",
        means="idle part by fill and drain, all microbatches ready at once: a bound, not a measurement",
    )
    use = msgspec.structs.replace(record.utilization, bubble_estimate=figure)
    return msgspec.structs.replace(record, utilization=use)
