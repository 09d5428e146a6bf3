"""Records in a line each: made runs with made values."""

from __future__ import annotations

from typing import Any

from topocheck.record import SCHEMA, Goodput, Limits, Record, StagePart

__all__ = ["good", "run", "stages"]

CONDITIONS: dict[str, Any] = {
    "model": {"name": "acme/Blue-7B", "layers": 61},
    "hardware": {"cards": {"NVIDIA H200": 8}, "driver": "570.86.10", "nodes": ("blue-1", "blue-2")},
    "parallelism": {"sizes": {"tensor": 4, "pipeline": 2}, "pipeline": 2, "microbatches": 2},
    "workload": {
        "requests": 100,
        "input_tokens": 5000,
        "output_tokens": 2000,
        "input_lengths": "sha256:aa",
        "request_rate": "inf",
        "max_concurrency": 32,
        "seed": 7,
        "warmups": 4,
    },
    "perf": {"output_tokens_per_s": 200.0, "requests_per_s": 10.0},
}


def run(**changes: dict[str, Any] | Any) -> Record:
    """A measured run; a keyword changes fields of one part: `workload={"seed": 8}`."""
    found = Record(schema=SCHEMA, tool="topocheck 0", at="2026-01-02T03:04:05Z")
    values: dict[str, Any] = {}
    for name in {**CONDITIONS, **changes}:
        given = changes.get(name, {})
        if not isinstance(given, dict):
            values[name] = given
            continue
        part = type(getattr(found, name))
        values[name] = part(**{**CONDITIONS.get(name, {}), **given})
    return Record(schema=found.schema, tool=found.tool, at=found.at, **values)


def stages(*layers: str) -> tuple[StagePart, ...]:
    """Stages with these layers."""
    return tuple(StagePart(stage=place, layers=words, ranks=str(place)) for place, words in enumerate(layers))


def good(rate: float, ttft_ms: float = 500.0) -> Goodput:
    """Goodput under limits."""
    limits = Limits(ttft_ms=ttft_ms, tpot_ms=50.0)
    return Goodput(limits=limits, within=9, of=10, requests_per_s=rate, single_token_within=0)
