"""What is entered into a record: values by their path, each with its source, and what is still open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from topocheck.errors import UsageError
from topocheck.pipeline.bench import DETAILS, Bench
from topocheck.record import NOT_MEASURED, Missing, Record, fields

__all__ = ["STATED", "Ledger", "supplies"]

Filled = TypeVar("Filled", bound=msgspec.Struct)

STATED: dict[str, type[int | str]] = {
    "engine.version": str,
    "model.name": str,
    "model.version": str,
    "model.precision": str,
    "hardware.driver": str,
    "hardware.cuda": str,
    "hardware.nccl": str,
    "hardware.interconnect.tensor": str,
    "hardware.interconnect.boundary": str,
    "parallelism.microbatches": int,
    "workload.dataset": str,
    "workload.requests": int,
    "workload.max_sequences": int,
    "workload.seed": int,
    "workload.warmups": int,
}
"""What a user may state where no file shows it."""

CLIENT = "--bench-log LOG, what the benchmark's client printed, or --set {path}=N"
SUPPLY = {
    "engine": "--plan PLAN and the engine's start-up log",
    "model": "--set {path}=...",
    "model.precision": "--from-log LOG, the engine's start-up log, or --set {path}=bfloat16",
    "model.name": "--bench FILE",
    "model.layers": "`model:` in the plan",
    "model.hidden": "`model:` in the plan",
    "hardware": "--plan PLAN and the output of topocheck probe on every node",
    "hardware.nccl": "the job's log under NCCL_DEBUG=INFO",
    "hardware.interconnect.boundary": "the job's log under NCCL_DEBUG=INFO, or topocheck probe on every node",
    "parallelism": "--plan PLAN",
    "parallelism.microbatches": "--from-log LOG, workload.microbatches in the plan, or --set {path}=N",
    "workload": "--bench FILE",
    "workload.dataset": "--bench-log LOG, or --set {path}=NAME",
    "workload.seed": CLIENT,
    "workload.warmups": CLIENT,
    "workload.requests": CLIENT,
    "workload.max_sequences": "the engine's start-up log, or workload.max_sequences in the plan",
    "perf": "--bench FILE",
    "utilization.occupancy": "--waits FILE, or --utilization FILE: nvidia-smi --query-gpu=utilization.gpu",
    "utilization.effective": "--utilization FILE: dcgmi dmon -e 1002, or the text of dcgm-exporter",
    "utilization.bubble_estimate": "the number of stages and of microbatches",
    "utilization.stage_imbalance": "--waits FILE: topocheck waits TRACE --json",
    "status": "--waits FILE: topocheck waits TRACE --json",
    "unit": "--trace FILE, as for topocheck waits",
    "stages": "--plan PLAN",
    "stages[].layers": "`model:` in the plan",
    "stages[].modules": "nothing yet for this engine",
    "stages[].capacity": "--from-log LOG, the engine's start-up log; or model: PATH/config.json in the plan",
    "stages[].capacity.kv_bytes": "--from-log LOG, or workload: {max_sequences, input_tokens} in the plan",
    "stages[].capacity.activations_bytes": "model: PATH/config.json in the plan, for arithmetic",
    "stages[].capacity.buffers_bytes": "model: PATH/config.json in the plan, for arithmetic",
    "stages[].capacity.gpu_bytes": "topocheck probe on every node",
    "mapping": "--plan PLAN",
    "mapping[].node": "node names in the plan, topocheck probe on every node, or the job's log",
    "mapping[].gpu": "topocheck probe on every node, or the job's log under NCCL_DEBUG=INFO",
    "change": "--before RECORD, of the run before the change",
}
"""What would fill a field, by its path or the start of it."""
LISTED = ("perf.goodput", "perf.requests", "workload.input_lengths", "requests")
"""What only the lists by request can give."""


class Ledger:
    """Values by path, those of the strongest source first."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.notes: list[str] = []

    def put(self, path: str, value: Any, source: str) -> None:
        """Enter a value; None is none. One that a weaker source gives otherwise becomes a note."""
        if value is None:
            return
        known = self.values.setdefault(path, value)
        here = self.sources.setdefault(path, source)
        if known != value:
            self.notes.append(f"{path}: {known} by {here} is taken, {value} by {source} is not")

    def state(self, path: str, value: float | str) -> None:
        """Enter what the user states. Raises UsageError if a file shows something else."""
        known = self.values.get(path, value)
        if known != value:
            raise UsageError(f"--set {path}={value}: it is {known} by {self.sources[path]}")
        self.put(path, value, "--set")

    def filled(self, record: Record) -> Record:
        """The record with all values entered."""
        return self._filled(record, "")

    def _filled(self, part: Filled, path: str) -> Filled:
        changes = {}
        for name in part.__struct_fields__:
            value, place = getattr(part, name), f"{path}{name}"
            if place in self.values:
                changes[name] = self.values[place]
            elif isinstance(value, msgspec.Struct):
                changes[name] = self._filled(value, f"{place}.")
        return msgspec.structs.replace(part, **changes)


def supplies(record: Record, bench: tuple[str, Bench] | None) -> Iterator[Missing]:
    """Every field that says `not measured`, and what would fill it."""
    for path in dict.fromkeys(_open(record)):
        yield Missing(field=path, supply=_listed(path, record, bench) or _supply(path))


def _open(record: Record) -> Iterator[str]:
    """Paths of the fields that nothing filled; those inside lists once for all items."""
    for path, value in fields(record).items():
        if value == NOT_MEASURED:
            yield path
        if path in ("stages", "mapping") and not isinstance(value, str):
            for item in value if isinstance(value, tuple) else ():
                yield from (
                    f"{path}[].{name}" for name, inner in fields(item).items() if inner == NOT_MEASURED
                )


def _listed(path: str, record: Record, bench: tuple[str, Bench] | None) -> str | None:
    """What supplies a field that rests on the lists by request, where a benchmark without them was given."""
    if bench is None or not path.startswith(LISTED):
        return None
    _, result = bench
    if path == "perf.goodput" and result.each is not None:
        return "--bench-limits ttft=500ms,tpot=50ms, as agreed on before the run"
    if result.each is None:
        return f"{result.tool} with {DETAILS[result.tool]}" + " and --bench-limits" * (path == "perf.goodput")
    if path == "perf.requests.unfinished":
        return CLIENT.replace("{path}", "workload.requests")
    return f"{bench[0]}, which holds them"


def _supply(path: str) -> str:
    """By the longest start of the path that is known."""
    steps = path.split(".")
    starts = (".".join(steps[:count]) for count in range(len(steps), 0, -1))
    words = next((SUPPLY[start] for start in starts if start in SUPPLY), "--bench FILE")
    return words.replace("{path}", path)
