"""`topocheck.waits/1`: where the time of a pipeline's stages went, and what to do about it."""

from __future__ import annotations

from typing import Literal

import msgspec

from topocheck.pipeline.depth import DepthPoint, DepthReading

__all__ = [
    "SCHEMA",
    "BoundaryWaits",
    "BubbleCheck",
    "ClockReport",
    "DepthPoint",
    "DepthReading",
    "Kind",
    "StageWaits",
    "Status",
    "WaitFinding",
    "WaitsReport",
]

SCHEMA = "topocheck.waits/1"

Kind = Literal["work", "neighbour", "boundary", "depth"]
Status = Literal["nothing named", "bubble", "work", "imbalance", "boundary", "depth", "unknown"]


class StageWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of one stage went; the parts from `computing` to `unknown` add up to 1."""

    stage: int
    """Pipeline stage, from 0."""
    rank: int | None
    """Global rank that was traced; null if the trace names none."""
    host: str | None
    """Machine; null if the trace names none."""
    units: int
    """Units of work that it computed."""
    window_ns: int
    """Time that is split: from the first computing to the last, of all stages whose clocks compare."""
    unit_ns: float
    """Median time that it computes on one unit, forward and backward pass together."""
    computing: float
    """Part in which it computed. Whether its units were in use is not measured."""
    work: float
    """Part in which it waited for work: no input was there, or the pipeline filled or drained."""
    neighbour: float
    """Part in which it waited for a stage that computes longer on a unit."""
    boundary: float
    """Part in which it waited for a transfer between stages, its own or one that holds another stage."""
    unknown: float
    """Part of which the trace does not say why it did not compute."""
    ends: float
    """Part before its first unit and after its last: fill and drain, whatever they are counted as above."""
    by_stage: dict[str, float]
    """`neighbour` by the stage that was waited for."""
    by_boundary: dict[str, float]
    """`boundary` by sender and receiver: `0>1`."""
    by_evidence: dict[str, float]
    """`work` by its evidence: arrival, nothing recorded, drain, no other unit."""
    by_reason: dict[str, float]
    """`unknown` by its reason."""


class BoundaryWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Transfers from one stage to another."""

    source: int
    """Stage that sends."""
    target: int
    """Stage that receives."""
    transfers: int
    """Transfers of which both ends are known."""
    transfer_ns: float | None
    """Median time of a transfer once both ends are ready; null where no end's times are known."""
    bound: bool
    """The time is an upper bound: the clocks of the two ends do not compare."""
    waited: float
    """Part of all stages' time that was spent waiting for it."""


class BubbleCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What the bubble explains: estimated as by `topocheck bubble`, against what was measured."""

    stages: int
    """Pipeline stages."""
    units: int
    """Units of work in all."""
    rounds: int
    """How often the pipeline ran empty: each time it fills and drains anew."""
    estimated_idle: float
    """Idle part of equal stages that take these units in these rounds, transfers without time."""
    measured_idle: float
    """Part of all stages' time in which they did not compute."""
    imbalance: float
    """Idle part that the stages' measured times alone would leave with ever more units."""
    verdict: Literal["agree", "worse"]
    """`agree`: the bubble explains what is idle. `worse`: look at balance, then at the boundary."""


class ClockReport(msgspec.Struct, frozen=True, kw_only=True):
    """One clock, and how it stands to the first stage's."""

    name: str
    """Host, or the file where no host is named."""
    stages: list[int]
    """Stages whose times it took."""
    shift_ns: int | None
    """What was added to its times; null where it does not compare."""
    error_ns: int | None
    """How far that may be off."""
    basis: str
    """Why it is known, or `unknown`."""


class WaitFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that stages waited for. Findings do not exclude each other."""

    kind: Kind
    """`work`, `neighbour` (an uneven stage), `boundary` (a slow link) or `depth` (too many stages)."""
    where: str
    """Stage or boundary that is meant."""
    share: float | None
    """Part of all stages' time; null for depth."""
    sentence: str
    """What it is."""
    evidence: list[str]
    """Facts that it rests on."""
    action: str
    """What to do."""
    cost: str
    """What that costs, or needs."""
    no_cure: str
    """What does not help."""


class WaitsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a pipeline went."""

    schema: str
    """`topocheck.waits/` and the major version."""
    source: Literal["units", "torch", "none"]
    """Units that a program wrote down, traces of the PyTorch profiler, or benchmark results alone."""
    status: Status
    """What dominates."""
    sentence: str
    """The result in one sentence."""
    findings: list[WaitFinding]
    """What is named, the largest part first."""
    stages: list[StageWaits]
    """All stages from 0."""
    boundaries: list[BoundaryWaits]
    """Pairs of stages between which something was sent."""
    bubble: BubbleCheck | None
    """Null without a trace, for one stage, and where no unit shows in all stages."""
    depth: DepthReading | None
    """Null without results of several depths."""
    clocks: list[ClockReport]
    """The first stage's first."""
    inputs: list[str]
    """Files that were read."""
    gaps: list[str]
    """What is unknown, and what would tell it."""
    notes: list[str]
    """What was left out, assumed, or is odd."""
