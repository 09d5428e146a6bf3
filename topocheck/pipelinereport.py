"""What of a report speaks of the pipeline's arithmetic: bubble, balance, boundaries. Nothing is measured."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "BalancePart",
    "BubblePart",
    "CrossingPart",
    "LackingPart",
    "PipelineReport",
    "StageShare",
    "TransferPart",
]


class BubblePart(msgspec.Struct, frozen=True, kw_only=True):
    """Fill and drain of equal stages whose microbatches are all ready at once."""

    schedule: Literal["forward", "interleaved"]
    """Forward only, or interleaved 1F1B where stages have several virtual ones."""
    microbatches: int
    """Microbatches that are ready at once."""
    virtual_stages: int
    """Virtual stages of each stage."""
    idle: float
    """Part of the stages' time in which they wait: a bound by arithmetic, no measurement."""
    limit: float | None
    """Most that policy allows (PP009); null where it sets no limit."""


class StageShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one stage carries."""

    stage: int
    """Index from 0."""
    layers: int
    """Number of its layers."""
    ends: list[str]
    """What it holds beside layers: embedding, norm, head."""
    reads_bytes: int
    """Weights that its fullest rank reads with each token."""
    holds_bytes: int
    """Weights that its fullest rank holds."""


class BalancePart(msgspec.Struct, frozen=True, kw_only=True):
    """How evenly stages share the model."""

    stages: list[StageShare]
    """By stage."""
    imbalance: float
    """Part of all stages' reading that the lighter ones lack of the heaviest: 1 - mean / most."""
    holds_imbalance: float
    """The same of what they hold."""
    limit: float
    """Most that policy allows (PP007)."""
    override: str | None
    """What would give the most even cut of the layers; null where this one is as even."""


class TransferPart(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of microbatch over one link."""

    phase: Literal["prefill", "decode"]
    """Kind of the microbatch."""
    rows: tuple[int, int]
    """Fewest and most rows that it has."""
    rank_bytes: tuple[int, int]
    """Bytes that one rank sends for them."""
    time_ms: tuple[float, float]
    """Bounds of the time by arithmetic."""
    limit_ms: float | None
    """Most that policy allows (PP010); null where it sets no limit."""


class CrossingPart(msgspec.Struct, frozen=True, kw_only=True):
    """Stage boundaries in one situation: equal GPUs, links and load at both ends."""

    about: str
    """The first of them."""
    count: int
    """How many in all."""
    link: str
    """What their data goes over."""
    transfers: list[TransferPart]
    """By kind of microbatch."""
    assumptions: list[str]
    """What the rate of the link rests on."""


class LackingPart(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not computed, and what it lacks."""

    part: Literal["bubble", "balance", "boundary"]
    """What is not computed."""
    need: str
    """What is missing for it."""
    supply: str
    """What gives it."""


class PipelineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The arithmetic of one pipeline by plan and evidence."""

    stages: int
    """Number of pipeline stages."""
    bubble: BubblePart | None
    """Fill and drain; null where it is not computed."""
    balance: BalancePart | None
    """Shares of the model; null where they are not computed."""
    boundaries: list[CrossingPart]
    """Stage boundaries, distinct situations; the first ones if there are very many."""
    boundaries_left: int
    """Situations beyond the first ones, which were not looked at."""
    lacking: list[LackingPart]
    """What is not computed, and why."""
