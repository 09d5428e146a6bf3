"""Memory and number format that an engine reports when it starts: what a stage really took.

vLLM (v1/worker/gpu_model_runner.py, gpu_worker.py): `Model loading took 15.2 GiB memory and ...`, older
without `memory`, and `Available KV cache memory: 30.2 GiB`, below zero where nothing is left. SGLang
(model_runner.py, memory_pool.py): `Load weight end. ... mem usage=15.11 GB.` and `KV Cache is allocated. ...
K size: 27.02 GB, V size: 27.02 GB`, later `KV size: 17.16 GB`; its GB are GiB. Each worker reports its own;
of a stage the largest counts. The stage stands in the name of the worker (`Worker_PP1_TP0`) or in the prefix
of the line (`[... PP1 TP0]`); without one there is one stage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["StartUp", "parse_start_up"]

SIZE = r"(-?[0-9]{1,6}(?:\.[0-9]{1,6})?)"
WEIGHTS = re.compile(rf"Model loading took {SIZE} GiB|Load weight end\..{{0,300}}?\bmem usage={SIZE} GB")
CACHE = re.compile(
    rf"Available KV cache memory: {SIZE} GiB"
    rf"|KV Cache is allocated\..{{0,200}}?(?:K size: {SIZE} GB, V size: {SIZE} GB|KV size: {SIZE} GB)"
)
STAGE = re.compile(
    r"\(\w*Worker\w*?_PP([0-9]{1,4})(?![0-9])|\[[-0-9 :.,]{10,30}(?: [A-Z_]+[0-9]+)*? PP([0-9]{1,4})[ \]]"
)
FORMAT = re.compile(
    r"(?:LLM engine \(.{0,80}?with config: .{0,4000}?|Load weight end\..{0,300}?)\bdtype=torch\.(\w{1,20})"
)
QUANTIZED = re.compile(r"LLM engine \(.{0,80}?with config: .{0,4000}?\bquantization='?(\w{1,40})'?")


@dataclass(frozen=True, slots=True)
class StartUp:
    """What a start-up log reports."""

    weights_bytes: Mapping[int | None, int] = field(default_factory=dict)
    """Largest weights of one worker by stage; None is a stage that is not named."""
    cache_bytes: Mapping[int | None, int] = field(default_factory=dict)
    """Smallest KV cache of one worker by stage; 0 where nothing was left for it."""
    precision: str | None = None
    """Quantisation, else the number format of the weights."""


def parse_start_up(text: str) -> StartUp:
    """What of memory and number format a log reports; nothing of it is an empty answer."""
    weights: dict[int | None, int] = {}
    caches: dict[int | None, int] = {}
    precision = quantized = None
    for line in text.splitlines():
        if (size := _bytes(WEIGHTS.search(line))) is not None:
            stage = _stage(line)
            weights[stage] = max(size, weights.get(stage, 0))
        if (size := _bytes(CACHE.search(line))) is not None:
            stage = _stage(line)
            caches[stage] = min(size, caches.get(stage, size))
        if precision is None and (match := FORMAT.search(line)):
            precision = match[1]
        if quantized is None and (match := QUANTIZED.search(line)) and match[1] != "None":
            quantized = match[1]
    return StartUp(weights, caches, quantized or precision)


def _bytes(match: re.Match[str] | None) -> int | None:
    """All sizes of a match together; below zero is nothing."""
    if match is None:
        return None
    return max(0, round(sum(float(size) for size in match.groups() if size is not None) * (1 << 30)))


def _stage(line: str) -> int | None:
    match = STAGE.search(line)
    return None if match is None else int(match[1] or match[2])
