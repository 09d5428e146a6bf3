"""Jobs for the rules of capacity and of the pipeline's arithmetic: plans with a workload, GPUs with memory.

Kept apart from the tables of all rules, which take them in. A job is (plan, evidence).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from build import nics, snap

from topocheck.snapshot import FullSnapshot, Port

__all__ = ["CASES", "DENSE", "FAILURES", "GIB", "Made", "plan_of", "rated", "sized"]

Job = tuple[str, Sequence[FullSnapshot]]

GIB = 1 << 30
DENSE = Path(__file__).resolve().parent / "models" / "dense.json"
"""A dense model of 48 layers and 14.5 billion parameters."""


class Made(NamedTuple):
    """Jobs by the verdict that one rule must give, as in `rule_cases`."""

    holds: Job
    broken: Job
    undecided: Job
    absent: Job | None
    severity: str
    names: tuple[str, ...]


def plan_of(hosts: str = "node-a, node-b", **keys: str) -> str:
    """vLLM with TP 4 x PP 2 and further keys, each as it stands in YAML."""
    lines = [f"{key}: {value}\n" for key, value in keys.items()]
    return f"engine: vllm\nparallel: {{tensor: 4, pipeline: 2}}\nnodes: [{hosts}]\n" + "".join(lines)


def sized(snapshot: FullSnapshot, memory: int | None = 80 * GIB, **fields: Any) -> FullSnapshot:
    """The same node, its GPUs with so much memory."""
    hardware = snapshot.hardware
    gpus = tuple(msgspec.structs.replace(gpu, memory_bytes=memory, **fields) for gpu in hardware.gpus)
    return msgspec.structs.replace(snapshot, hardware=msgspec.structs.replace(hardware, gpus=gpus))


def rated(gbps: float | None, count: int = 1) -> Any:
    """NICs with an active port of this rate each."""
    port = Port(state="ACTIVE", physical="LinkUp", layer="InfiniBand", rate_gbps=gbps)
    return tuple(msgspec.structs.replace(nic, ports=(port,)) for nic in nics(count))


def two(
    first: str = "node-a", second: str = "node-b", memory: int | None = 80 * GIB, **parts: Any
) -> list[FullSnapshot]:
    """The job's two nodes, equal but for their names."""
    ranks = {first: range(4), second: range(4, 8)}
    return [sized(snap(name, ranks[name], **parts), memory) for name in (first, second)]


def alone() -> Job:
    """One stage on one node."""
    return "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n", [snap("node-a", range(4))]


SIZES = "{layers: 48, hidden: 5120}"
FITTING = (
    "{max_sequences: 64, input_tokens: 3072, output_tokens: 1024, max_batched_tokens: 8192, "
    "gpu_memory_utilization: 0.9}"
)
CROWDED = FITTING.replace("64", "4096")
OPEN = "{input_tokens: 3072, max_batched_tokens: 8192}"
READY = "{microbatches: 8}"
PREFILL = "{max_batched_tokens: 8192, max_sequences: 256, microbatches: 2}"

CASES: dict[str, Made] = {
    "PP007": Made(
        (plan_of(model=str(DENSE)), two()),
        (plan_of(model=str(DENSE), layers="[38, 10]"), two()),
        (plan_of(model=SIZES), two()),
        alone(),
        "warning",
        ("stage 0", "stage 1", "38 layers", "25,23", "38,10", "20% allowed"),
    ),
    "PP009": Made(
        (plan_of(workload=READY, policy="{bubble: 0.3}"), two()),
        (plan_of(workload="{microbatches: 2}", policy="{bubble: 0.3}"), two()),
        (plan_of(policy="{bubble: 0.3}"), two()),
        (plan_of(workload=READY), two()),
        "warning",
        ("2 stages", "2 microbatches", "33.3%", "30.0%", "at least 3 microbatches"),
    ),
    "PP010": Made(
        (plan_of(model=SIZES, workload=PREFILL, policy="{prefill_boundary_ms: 20}"), two()),
        (plan_of(model=SIZES, workload=PREFILL, policy="{prefill_boundary_ms: 0.5}"), two()),
        (plan_of(model=SIZES, workload=PREFILL, policy="{prefill_boundary_ms: 20}"), two(ports=rated(None))),
        (plan_of(model=SIZES, workload=PREFILL), two()),
        "warning",
        (
            "node-a",
            "node-b",
            "rank 0 -> 4",
            "8,192 rows",
            "160 MiB",
            "40 MiB",
            "mlx5_0 at 400 Gb/s",
            "4 senders",
        ),
    ),
    "CAP002": Made(
        (plan_of(model=str(DENSE), workload=FITTING), two()),
        (plan_of(model=str(DENSE), workload=CROWDED), two()),
        (plan_of(model=str(DENSE), workload=FITTING), two(memory=None)),
        (plan_of(model=str(DENSE)), two()),
        "error",
        ("stage 0", "node-a", "ranks 0..3", "4096 sequences", "80 GiB", "node-a.json"),
    ),
    "CAP003": Made(
        (plan_of(model=str(DENSE), workload=FITTING, policy="{head_room: 0.2}"), two()),
        (plan_of(model=str(DENSE), workload=FITTING, policy="{head_room: 0.85}"), two()),
        (plan_of(model=str(DENSE), workload=OPEN, policy="{head_room: 0.2}"), two()),
        (plan_of(model=str(DENSE), workload=FITTING), two()),
        "warning",
        ("stage 0", "node-a", "ranks 0..3", "80 GiB", "85.0%"),
    ),
}

HOSTS = "alpha, bravo"

FAILURES: dict[str, Job] = {
    "PP007": (plan_of(HOSTS, model=str(DENSE), layers="[38, 10]"), two("alpha", "bravo")),
    "PP009": (plan_of(HOSTS, workload="{microbatches: 2}", policy="{bubble: 0.3}"), two("alpha", "bravo")),
    "PP010": (
        plan_of(HOSTS, model=SIZES, workload=PREFILL, policy="{prefill_boundary_ms: 0.5}"),
        two("alpha", "bravo"),
    ),
    "CAP002": (plan_of(HOSTS, model=str(DENSE), workload=CROWDED), two("alpha", "bravo")),
    "CAP003": (
        plan_of(HOSTS, model=str(DENSE), workload=FITTING, policy="{head_room: 0.85}"),
        two("alpha", "bravo"),
    ),
}
