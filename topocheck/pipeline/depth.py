"""Whether a pipeline is too deep: the same requests served with more and more stages.

Each stage adds its part to the way of the first token; the time per token after it hangs on how many requests
fill the stages. A first token that comes later with each stage while the time per token stays is the price of
depth.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from topocheck.errors import InputError, UsageError
from topocheck.pipeline.bench import parse_bench
from topocheck.pipeline.schedule import MOST_STAGES

__all__ = ["DepthPoint", "DepthReading", "parse_point", "read_depth"]

FLAT = 0.10
"""Up to this part two times are the same."""
STEP = 0.03
"""A first token that comes later by less than this part from one depth to the next has not come later."""
POINT = re.compile(r"([0-9]{1,5})=(.+)", re.DOTALL)
TIMES = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s?(?:ms)?,\s?([0-9]{1,9}(?:\.[0-9]{1,6})?)\s?(?:ms)?")


class DepthPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured with one number of stages."""

    stages: int
    """Pipeline stages."""
    ttft_ms: float
    """Time to first token: the median, or the mean where no median is given."""
    tpot_ms: float
    """Time per token after the first, likewise."""
    source: str
    """Option or file that it comes from."""
    requests: int | None
    """Requests that were completed; None is not known."""


class DepthReading(msgspec.Struct, frozen=True, kw_only=True):
    """What the points say together."""

    points: list[DepthPoint]
    """By number of stages."""
    verdict: Literal["depth", "both rise", "no rise"]
    """`depth`: the first token comes later with each stage, and the time per token stays."""
    ttft_ms_per_stage: float
    """What one more stage adds to the time to first token, from the fewest stages to the most."""
    ttft_change: float
    """Change of the time to first token from the fewest stages to the most, as a part of the first."""
    tpot_change: float
    """The same of the time per token."""
    notes: list[str]
    """What speaks against comparing the points."""


def parse_point(words: str) -> tuple[int, str]:
    """`4=FILE` or `4=310,24` as number of stages and the rest. Raises UsageError."""
    match = POINT.fullmatch(words.strip())
    if match is None or not 1 <= int(match[1]) <= MOST_STAGES:
        raise UsageError(
            f"--bench {words[:60]}: expected STAGES=FILE or STAGES=TTFT,TPOT in ms, such as 4=310,24"
        )
    return int(match[1]), match[2]


def times_of(stages: int, words: str) -> DepthPoint | None:
    """`310,24`, in ms; None if it is a file name."""
    match = TIMES.fullmatch(words.strip())
    if match is None:
        return None
    if not float(match[1]) or not float(match[2]):
        raise UsageError(f"--bench {stages}={words[:60]}: the times must be above zero")
    return DepthPoint(
        stages=stages,
        ttft_ms=float(match[1]),
        tpot_ms=float(match[2]),
        source=f"--bench {stages}={words.strip()}",
        requests=None,
    )


def result_of(stages: int, text: str, path: str) -> DepthPoint:
    """The result file of `vllm bench serve` or SGLang's bench_serving. Raises InputError."""
    bench = parse_bench(text, path)
    ttft = bench.ttft_ms.median or bench.ttft_ms.mean
    tpot = bench.tpot_ms.median or bench.tpot_ms.mean
    if not ttft or not tpot:
        raise InputError(
            "has no time to first token or per token", path=path, fix="bench with outputs of several tokens"
        )
    return DepthPoint(stages=stages, ttft_ms=ttft, tpot_ms=tpot, source=path, requests=bench.completed)


def read_depth(points: Sequence[DepthPoint]) -> DepthReading:
    """What results of growing depth say. Raises UsageError for fewer than two, or one depth twice."""
    ordered = sorted(points, key=lambda point: point.stages)
    twice = next((one.stages for one, other in pairwise(ordered) if one.stages == other.stages), None)
    if twice is not None:
        raise UsageError(f"--bench gives {twice} stages twice: give each depth once")
    if len(ordered) < 2:
        raise UsageError("depth is read from two numbers of stages or more: give --bench once for each")
    first, last = ordered[0], ordered[-1]
    rises = all(other.ttft_ms > one.ttft_ms * (1 + STEP) for one, other in pairwise(ordered))
    ttft, tpot = last.ttft_ms / first.ttft_ms - 1, last.tpot_ms / first.tpot_ms - 1
    per_token = [point.tpot_ms for point in ordered]
    flat = max(per_token) <= min(per_token) * (1 + FLAT)
    deeper = rises and ttft > FLAT
    return DepthReading(
        points=ordered,
        verdict="no rise" if not deeper else "depth" if flat else "both rise" if tpot > FLAT else "no rise",
        ttft_ms_per_stage=(last.ttft_ms - first.ttft_ms) / (last.stages - first.stages),
        ttft_change=ttft,
        tpot_change=tpot,
        notes=[*_doubts(ordered)],
    )


def _doubts(points: Sequence[DepthPoint]) -> list[str]:
    """What speaks against a comparison."""
    known = {point.requests for point in points if point.requests is not None}
    if len(known) > 1:
        span = f"{min(known):,} to {max(known):,}"
        return [f"the results have {span} completed requests: depths compare only with the same requests"]
    return []
