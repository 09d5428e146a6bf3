"""Two records before and after one change: what was gained, and what the bubble said would be.

Runs compare only under equal conditions: cards, driver, model, requests, seed, warm-up. What differs there is
refused, and what nobody measured there is no equality. What differs otherwise is the change.

What was gained is held against what the arithmetic of bubbles predicts (`topocheck.pipeline.gain`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from topocheck.errors import UsageError
from topocheck.pipeline.gain import Prediction, judged, layer_counts, predict
from topocheck.record import NOT_MEASURED, Goodput, Record, fields

__all__ = ["SCHEMA", "Comparison", "Gain", "compare"]

SCHEMA = "topocheck.comparison/1"

NEEDED = {
    "model.name": "model",
    "hardware.cards": "cards",
    "hardware.driver": "driver",
    "workload.requests": "number of requests",
    "workload.request_rate": "request rate",
    "workload.max_concurrency": "most open requests",
    "workload.seed": "seed",
    "workload.warmups": "number of warm-up requests",
}
"""Conditions that have to be known and equal, in words."""
FURTHER = {
    "model.version": "revision of the weights",
    "model.layers": "number of layers",
    "model.hidden": "hidden size",
    "model.precision": "precision",
    "workload.dataset": "data set",
    "workload.burstiness": "burstiness of the arrivals",
    "workload.max_sequences": "most sequences in work",
    "perf.tool": "benchmark",
}
"""Conditions that have to be equal where both records know them."""
TOKENS, REQUESTS, GOOD = "output tokens/s", "requests/s", "goodput, requests/s"
"""Figures of what was gained. Throughput is what bubbles predict; goodput jumps where times cross a limit."""
KEPT_UP = 0.95
"""Part of the offered rate from which on a run is said to have kept up with it."""


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of both runs."""

    figure: str
    """What it is, with its unit."""
    before: float
    """In the first record."""
    after: float
    """In the second."""
    ratio: float | None
    """After as a multiple of before; null where before is 0."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two records beside each other."""

    schema: str
    """`topocheck.comparison/` and the major version."""
    before: str
    """First record, as the user gave it."""
    after: str
    """Second record."""
    comparable: bool
    """Their conditions are equal as far as asked."""
    unknown: list[str]
    """Conditions that a record does not know."""
    changed: list[str]
    """What was changed."""
    measured_gain: float | None
    """Output tokens a second after as a multiple of those before; null if not measured."""
    predicted_gain: float | None
    """The same by the arithmetic of bubbles; null where a size is not known."""
    prediction: str
    """What the prediction rests on, or why there is none."""
    gains: list[Gain]
    """All figures that both records have."""
    verdict: str
    """The answer in words."""
    notes: list[str]
    """What a reader has to know."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both records with their names."""

    before: Record
    after: Record
    names: tuple[str, str]

    def values(self, path: str) -> tuple[object, object]:
        """One field of both."""
        return fields(self.before)[path], fields(self.after)[path]

    def known(self, path: str) -> bool:
        """Both have measured it."""
        return NOT_MEASURED not in self.values(path)

    def differ(self, path: str) -> bool:
        """Both know it, and it is not the same."""
        first, second = self.values(path)
        return self.known(path) and first != second


def compare(
    before: Record, after: Record, names: tuple[str, str], *, allow_unknown: bool = False
) -> Comparison:
    """Compare two records. `allow_unknown` takes conditions that are not known for equal.

    Raises UsageError, with the field and both values, for conditions that differ.
    """
    pair = _Pair(before, after, names)
    refuse(pair)
    unknown = [words for path, words in _unknown(pair)]
    comparable = allow_unknown or not unknown
    gains = list(_gains(pair)) if comparable else []
    by_figure = {gain.figure: gain for gain in gains}
    decides = by_figure.get(TOKENS) or by_figure.get(REQUESTS)
    prediction = predict(before, after, names)
    changed = list(_changed(pair))
    verdict = (
        _verdict(pair, decides, prediction) + _good(by_figure.get(GOOD))
        if comparable
        else _undecided(unknown)
    )
    return Comparison(
        schema=SCHEMA,
        before=names[0],
        after=names[1],
        comparable=comparable,
        unknown=unknown,
        changed=changed,
        measured_gain=None if decides is None else decides.ratio,
        predicted_gain=None if prediction.ratio is None else round(float(prediction.ratio), 4),
        prediction=prediction.words,
        gains=gains,
        verdict=verdict,
        notes=list(_notes(pair, changed, unknown)) if comparable else [],
    )


def refuse(pair: _Pair) -> None:
    """Raise UsageError if a condition of the two records differs."""
    paths = {**NEEDED, **FURTHER}
    differ = [(path, words) for path, words in paths.items() if pair.differ(path)]
    differ += [(path, words) for path, words in _inputs(pair) if pair.differ(path)]
    if not differ:
        return
    path, words = differ[0]
    first, second = (
        _cards(value) if path == "hardware.cards" else _spell(value) for value in pair.values(path)
    )
    rest = ", ".join(words for _, words in differ[1:])
    raise UsageError(
        f"the records do not compare: the {words} ({path}) is {first} in {pair.names[0]} and {second} in "
        f"{pair.names[1]}" + (f"; the {rest} also" if rest else "") + ". Change one thing, and measure again"
    )


def _inputs(pair: _Pair) -> Iterator[tuple[str, str]]:
    """The condition that the inputs are the same: by their lengths one by one, else by their sum.

    The sum is over completed requests, so that it speaks only where all of them completed.
    """
    if pair.known("workload.input_lengths"):
        yield "workload.input_lengths", "digest of the input lengths"
    elif _whole(pair.before) and _whole(pair.after):
        yield "workload.input_tokens", "number of input tokens"


def _whole(record: Record) -> bool:
    return record.workload.requests == record.perf.requests.completed != NOT_MEASURED


def _unknown(pair: _Pair) -> Iterator[tuple[str, str]]:
    """Conditions that a record does not know, with the records."""
    inputs = [path for path, _ in _inputs(pair) if pair.known(path)]
    for path in (*NEEDED, *([] if inputs else ["workload.input_lengths"])):
        values = zip(pair.names, pair.values(path), strict=True)
        lacking = [name for name, value in values if value == NOT_MEASURED]
        if lacking:
            yield path, f"{path} not measured in {' and '.join(lacking)}"


def _undecided(unknown: list[str]) -> str:
    them = "it" if len(unknown) == 1 else "them"
    return (
        f"not comparable: {'; '.join(unknown)}. Supply {them}, or take {them} for equal with --allow-unknown"
    )


def _changed(pair: _Pair) -> Iterator[str]:
    """What was changed, the cut first. What follows from another cut is not told again."""
    before, after = pair.before, pair.after
    old, new = layer_counts(before), layer_counts(after)
    cut = pair.differ("parallelism.sizes")
    if cut:
        yield f"sizes: {_spell(before.parallelism.sizes)} -> {_spell(after.parallelism.sizes)}"
    elif None not in (old, new) and old != new:
        yield f"layers of the stages: {_spell(old)} -> {_spell(new)}"
    if not cut and pair.differ("parallelism.microbatches"):
        yield f"microbatches: {before.parallelism.microbatches} -> {after.parallelism.microbatches}"
    for path in ("engine.name", "engine.version", "hardware.cuda", "hardware.nccl"):
        if pair.differ(path):
            first, second = pair.values(path)
            yield f"{path}: {first} -> {second}"
    for path in ("hardware.interconnect.tensor", "hardware.interconnect.boundary"):
        if not cut and pair.differ(path):
            first, second = pair.values(path)
            yield f"{path}: {first} -> {second}"


def _gains(pair: _Pair) -> Iterator[Gain]:
    """Figures that both have measured."""
    first, second = pair.before.perf.goodput, pair.after.perf.goodput
    if isinstance(first, Goodput) and isinstance(second, Goodput) and first.limits == second.limits:
        yield _gain(GOOD, first.requests_per_s, second.requests_per_s)
    for path, words in (
        ("perf.output_tokens_per_s", TOKENS),
        ("perf.requests_per_s", REQUESTS),
        ("perf.ttft_ms.median", "TTFT, median, ms"),
        ("perf.ttft_ms.p99", "TTFT, p99, ms"),
        ("perf.tpot_ms.median", "TPOT, median, ms"),
        ("perf.tpot_ms.p99", "TPOT, p99, ms"),
        ("perf.itl_ms.median", "ITL, median, ms"),
    ):
        values = [value for value in pair.values(path) if isinstance(value, (int, float))]
        if len(values) == 2:
            yield _gain(words, *values)


def _gain(words: str, before: float, after: float) -> Gain:
    ratio = round(after / before, 4) if before else None
    return Gain(figure=words, before=before, after=after, ratio=ratio)


def _verdict(pair: _Pair, decides: Gain | None, prediction: Prediction) -> str:
    """The answer in words: measured, predicted, and what both say together."""
    if decides is None or decides.ratio is None:
        return "the gain is not measured: output tokens/s do not stand in both records"
    said = (
        f"{pair.names[1]} has {_times(decides.ratio)} the {decides.figure} of {pair.names[0]} "
        f"({decides.before:.6g} -> {decides.after:.6g})"
    )
    if (offer := _offer(pair)) is not None:
        return (
            f"{said}; both kept up with the {offer:g} requests/s that they were offered, so that throughput "
            "can show no gain: offer more, or compare TTFT and TPOT"
        )
    if prediction.ratio is None:
        return f"{said}; {prediction.words}"
    ratio = float(prediction.ratio)
    answer = judged(decides.ratio, ratio, recut=pair.differ("parallelism.sizes"))
    return f"{said}, and {_times(ratio)} is predicted: {answer}"


def _good(gain: Gain | None) -> str:
    """What became of goodput, for throughput that comes too late is none."""
    if gain is None or gain.ratio is None:
        return ""
    return f"; goodput is {_times(gain.ratio)} that before ({gain.before:.6g} -> {gain.after:.6g} requests/s)"


def _offer(pair: _Pair) -> float | None:
    """Requests a second that both were offered and completed; None where one was behind or is not known."""
    rate = pair.after.workload.request_rate
    done = [one.perf.requests_per_s for one in (pair.before, pair.after)]
    if isinstance(rate, str) or any(isinstance(one, str) or one < KEPT_UP * rate for one in done):
        return None
    return rate


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times"


def _notes(pair: _Pair, changed: list[str], unknown: list[str]) -> Iterator[str]:
    """What a reader has to know before believing the gain."""
    before, after = pair.before, pair.after
    if unknown:
        yield f"taken for equal, as asked: {'; '.join(unknown)}"
    if not changed:
        yield "no change is recorded: what differs is noise, or was not recorded"
    if len(changed) > 1:
        yield f"{len(changed)} things changed: the gain is theirs together"
    if pair.differ("hardware.nodes"):
        first, second = map(_spell, pair.values("hardware.nodes"))
        yield f"the runs were on different nodes: {first} and {second}"
    limits = [one.perf.goodput.limits for one in (before, after) if isinstance(one.perf.goodput, Goodput)]
    if len(limits) == 2 and limits[0] != limits[1]:
        yield "goodput is left out: its limits differ"
    yield from _losses(pair)
    tokens = [one.workload.output_tokens for one in (before, after)]
    counts = [count for count in tokens if isinstance(count, int)]
    if len(counts) == 2 and abs(counts[1] - counts[0]) * 100 > counts[0]:
        yield f"the outputs have {counts[0]} and {counts[1]} tokens: the work was not quite the same"
    yield "one run each: how far runs differ by themselves is not measured"


def _losses(pair: _Pair) -> Iterator[str]:
    """Requests that one run lost and the other did not."""
    for path, words in (
        ("perf.requests.failed", "failed"),
        ("perf.requests.unfinished", "were left unfinished"),
    ):
        if pair.differ(path):
            first, second = pair.values(path)
            yield f"{first} requests {words} before and {second} after: what is lost is no gain"


def _cards(value: object) -> str:
    """`8 NVIDIA H200`."""
    return (
        ", ".join(f"{count} {name}" for name, count in value.items()) if isinstance(value, dict) else "none"
    )


def _spell(value: object) -> str:
    """A value in a sentence."""
    if isinstance(value, dict):
        return " x ".join(f"{name} {size}" for name, size in value.items()) or "one rank"
    if isinstance(value, tuple):
        return ", ".join(map(str, value[:8])) + (" ..." if len(value) > 8 else "")
    return f"{value:g}" if isinstance(value, float) else str(value)
