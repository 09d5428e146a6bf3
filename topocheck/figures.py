"""The figures of a record: what was asked of the engine, how fast it answered, how well it was used.

A figure that nothing gives says `not measured`. The record around them is `topocheck.record`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

__all__ = [
    "NOT_MEASURED",
    "Amount",
    "Count",
    "EachRequest",
    "Figure",
    "Goodput",
    "Limits",
    "NotMeasured",
    "Part",
    "PerfPart",
    "Requests",
    "Spread",
    "UtilizationPart",
    "Whole",
    "WorkloadPart",
]

NOT_MEASURED: Literal["not measured"] = "not measured"
"""What stands where nothing was measured or shown. It is never zero."""

NotMeasured = Literal["not measured"]
Whole = Annotated[int, msgspec.Meta(ge=0)]
Real = Annotated[float, msgspec.Meta(ge=0)]
Count = Whole | NotMeasured
Amount = Whole | Real | NotMeasured
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything in a record: immutable, and strict, for a misspelt key would hide a figure."""


class WorkloadPart(Part, frozen=True, kw_only=True):
    """What was asked of the engine."""

    dataset: str = NOT_MEASURED
    """Data set that the requests were drawn from."""
    requests: Count = NOT_MEASURED
    """Requests asked for, warm-up left out."""
    input_tokens: Count = NOT_MEASURED
    """Input tokens of the completed requests, all together."""
    input_lengths: str = NOT_MEASURED
    """Digest of all input lengths in their order: equal digests are the same set of lengths."""
    output_tokens: Count = NOT_MEASURED
    """Output tokens of the completed requests, all together."""
    input_length: Amount = NOT_MEASURED
    """Mean input length, in tokens."""
    output_length: Amount = NOT_MEASURED
    """Mean output length, in tokens."""
    request_rate: Amount | Literal["inf", "trace", "not measured"] = NOT_MEASURED
    """Requests a second; `inf` sends all at once, `trace` follows recorded times."""
    burstiness: Amount = NOT_MEASURED
    """Shape of the arrivals: 1 is a Poisson process."""
    max_concurrency: Whole | Literal["unlimited", "not measured"] = NOT_MEASURED
    """Most requests that the client has open at once."""
    max_sequences: Count = NOT_MEASURED
    """Most sequences that the engine has in work at once."""
    seed: Count = NOT_MEASURED
    """Seed of the client."""
    warmups: Count = NOT_MEASURED
    """Warm-up requests in front, which do not count."""


class Requests(Part, frozen=True, kw_only=True):
    """What became of the requests."""

    completed: Count = NOT_MEASURED
    """Completed."""
    failed: Count = NOT_MEASURED
    """Failed, timed out ones included."""
    timed_out: Count = NOT_MEASURED
    """Failed with a time-out."""
    unfinished: Count = NOT_MEASURED
    """Asked for, and neither completed nor failed."""
    single_token: Count = NOT_MEASURED
    """Completed with fewer than two tokens: they have no time per token after the first."""


class Spread(Part, frozen=True, kw_only=True):
    """Distribution of a time in ms."""

    mean: Amount = NOT_MEASURED
    """Mean."""
    median: Amount = NOT_MEASURED
    """Median."""
    p99: Amount = NOT_MEASURED
    """99th percentile."""


class Limits(Part, frozen=True, kw_only=True):
    """Limits agreed on before the run."""

    ttft_ms: Real
    """Time to first token."""
    tpot_ms: Real
    """Time per token after the first."""


class Goodput(Part, frozen=True, kw_only=True):
    """What was completed within both limits."""

    limits: Limits
    """The limits."""
    within: Whole
    """Completed requests of two tokens or more within both."""
    of: Whole
    """Requests of two tokens or more that completed, and those that failed."""
    requests_per_s: Real
    """Requests within both limits, a second."""
    single_token_within: Whole
    """Outputs of fewer than two tokens within the first limit; not counted above."""


class EachRequest(Part, frozen=True, kw_only=True):
    """One request."""

    id: Whole
    """Place in the order in which the client sent them, from 0."""
    input: Whole
    """Input tokens."""
    output: Whole
    """Output tokens."""
    ttft_ms: Amount = NOT_MEASURED
    """Time to first token."""
    tpot_ms: Amount = NOT_MEASURED
    """Mean time per token after the first."""
    end: Literal["completed", "failed", "timed out"]
    """How it ended."""


class PerfPart(Part, frozen=True, kw_only=True):
    """How fast."""

    tool: str = NOT_MEASURED
    """What measured it."""
    duration_s: Amount = NOT_MEASURED
    """Length of the run."""
    requests: Requests = Requests()
    """What became of the requests."""
    ttft_ms: Spread = Spread()
    """Time to first token."""
    tpot_ms: Spread = Spread()
    """Time per token after the first, of outputs of two tokens or more."""
    itl_ms: Spread = Spread()
    """Time from token to token."""
    requests_per_s: Amount = NOT_MEASURED
    """Completed requests a second."""
    output_tokens_per_s: Amount = NOT_MEASURED
    """Output tokens a second."""
    total_tokens_per_s: Amount = NOT_MEASURED
    """Input and output tokens a second."""
    goodput: Goodput | NotMeasured = NOT_MEASURED
    """What was completed within both limits."""


class Figure(Part, frozen=True, kw_only=True):
    """One share of time between 0 and 1, and what it is a share of."""

    share: Share
    """The figure."""
    source: str
    """Who measured or computed it."""
    means: str
    """What it says, and what it does not."""


class UtilizationPart(Part, frozen=True, kw_only=True):
    """How well used. Occupancy (is the device taken?) and effective use (do its units compute?) are two."""

    occupancy: tuple[Figure, ...] | NotMeasured = NOT_MEASURED
    """Part of the time in which the GPUs or the stages had work."""
    effective: tuple[Figure, ...] | NotMeasured = NOT_MEASURED
    """Part of the time in which the units of the GPUs computed."""
    bubble_estimate: Figure | NotMeasured = NOT_MEASURED
    """Idle part by fill and drain, by arithmetic: a bound, not a measurement."""
    stage_imbalance: Figure | NotMeasured = NOT_MEASURED
    """Idle part that is left with ever more microbatches, because stages are uneven."""
