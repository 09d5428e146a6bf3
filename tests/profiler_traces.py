"""Traces in the form of the PyTorch profiler, made from runs with known waits.

Keys and their order are those of torch 2.13 (gloo) and, for NCCL, of kineto's output_json.cpp.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pipeline_runs import Line

__all__ = ["BASE_NS", "write_profiles"]

Event = dict[str, Any]
BASE_NS = 1_700_000_000_000_000_000


def write_profiles(
    folder: Path,
    lines: Sequence[Line],
    backend: Literal["gloo", "nccl"] = "gloo",
    *,
    stage_ranks: Sequence[int] = (),
    hosts: Mapping[int, str] | None = None,
    indent: int | None = None,
) -> list[Path]:
    """One trace a stage. Stage s is rank `stage_ranks[s]`, on host `hosts[s]`."""
    stages = max(line["stage"] for line in lines) + 1
    ranks = list(stage_ranks) or list(range(stages))
    paths = []
    for stage, rank in enumerate(ranks):
        mine = [line for line in lines if line["stage"] == stage]
        make = _on_gpu if backend == "nccl" else _on_cpu
        events = [event for line in mine for event in make(line, ranks)]
        document = {
            "schemaVersion": 1,
            "distributedInfo": {
                "backend": backend,
                "rank": rank,
                "world_size": max(ranks) + 1,
                "pg_config": [
                    {"pg_name": "0", "pg_desc": "default_pg", "ranks": list(range(max(ranks) + 1))}
                ],
            },
            "host_name": (hosts or {}).get(stage, "blue-1"),
            "baseTimeNanoseconds": BASE_NS,
            "traceEvents": [{"ph": "M", "name": "process_name", "ts": 0, "pid": 1, "args": {}}, *events],
            "traceName": f"rank{rank}.json",
        }
        path = folder / f"rank{rank}.json"
        path.write_text(json.dumps(document, indent=indent))
        paths.append(path)
    return paths


def _event(cat: str, name: str, start_ns: int, end_ns: int, **args: object) -> Event:
    times = {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000}
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, **times, "args": args}


def _on_cpu(line: Line, ranks: Sequence[int]) -> list[Event]:
    """gloo: operators, and waits inside the calls that name the peer."""
    start, end = line["compute_start_ns"], line["compute_end_ns"]
    middle = (start + end) // 2
    events = [
        _event("cpu_op", "aten::linear", start, middle),
        _event("cpu_op", "aten::addmm", start, (start + middle) // 2),
        _event("cpu_op", "aten::relu", middle, end),
    ]
    for side, call, wait, step in (("receive", "recv_", "recv", -1), ("send", "send", "send", 1)):
        if f"{side}_end_ns" in line:
            begun, done = line[f"{side}_start_ns"], line[f"{side}_end_ns"]
            back = -1 if line.get("pass") == "backward" else 1
            inputs = ["", "", str(ranks[line["stage"] + step * back]), "0"]
            events.append(
                _event("cpu_op", f"c10d::{call}", begun, begun + 1000, **{"Concrete Inputs": inputs})
            )
            events.append(_event("user_annotation", f"gloo:{wait}", begun + 500, done))
    return sorted(events, key=lambda event: float(event["ts"]))


def _on_gpu(line: Line, ranks: Sequence[int]) -> list[Event]:
    """NCCL: kernels of two streams, a tensor parallel collective inside, launches on the host."""
    start, end = line["compute_start_ns"], line["compute_end_ns"]
    third, rank = (end - start) // 3, ranks[line["stage"]]
    pair = {"Process Group Name": "1", "Process Group Ranks": f"[{rank}, {rank + 100}]"}
    reduce = {"Collective name": "allreduce", "dtype": "BFloat16", **pair}
    kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    events = [
        _event("cpu_op", "aten::mm", start - 5000, start - 2000),
        _event("cuda_runtime", "cudaLaunchKernel", start - 4000, start - 3000),
        _event("kernel", "ampere_bf16_s16816gemm", start, start + third),
        _event(
            "kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", start + third, start + 2 * third, **reduce
        ),
        _event("kernel", "vectorized_elementwise_kernel", start + 2 * third, end),
    ]
    world = {"Process Group Name": "0", "Process Group Ranks": str(list(ranks)), "Group size": len(ranks)}
    if "receive_end_ns" in line:
        peer = {"Collective name": "recv", "Src Rank": ranks[line["stage"] - 1], **world}
        events.append(_event("kernel", kernel, line["receive_start_ns"], line["receive_end_ns"], **peer))
    if "send_end_ns" in line:
        peer = {"Collective name": "send", "Dst Rank": ranks[line["stage"] + 1], **world}
        events.append(_event("kernel", kernel, line["send_start_ns"], line["send_end_ns"], **peer))
    return events
