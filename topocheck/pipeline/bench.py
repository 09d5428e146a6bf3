"""Results of serving benchmarks: `vllm bench serve` and SGLang's `bench_serving`, as one form.

Read in source: vLLM vllm/benchmarks/serve.py (0.11 to 0.33) and SGLang python/sglang/bench_serving.py (0.4,
0.5), python/sglang/benchmark/serving.py (later 0.5). Both write one JSON object a run; SGLang, and vLLM with
--append-result, add a line to the file for each run. SGLang writes `Infinity` and `NaN`, which is no JSON.

Lists by request are there with --save-detailed (vLLM) or --output-details (SGLang), failed requests among
them: those have an output of 0 and mostly an error text. Neither writes seed or warm-up into its result;
`topocheck.pipeline.clientlog` reads them out of what the client printed.

A mean of no values is 0 in both, so that a time of 0 ms is absence.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topocheck.errors import CaptureError

__all__ = ["Bench", "EachOutput", "Quantiles", "goodput", "parse_bench", "runs_of"]

MOST_REQUESTS = 1_000_000
LISTS = ("input_lens", "output_lens", "ttfts", "itls")
DETAILS = {"vllm bench serve": "--save-detailed", "sglang bench_serving": "--output-details"}
"""The option of each tool that writes the lists by request."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A time in ms over all requests; None is not known."""

    mean: float | None
    median: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class EachOutput:
    """One request of the lists."""

    input: int
    """Input tokens."""
    output: int
    """Output tokens; 0 where it failed."""
    ttft_ms: float | None
    """Time to first token; None where none came."""
    tpot_ms: float | None
    """Time per token after the first; None for outputs of fewer than two tokens, and if not streamed."""
    failed: bool
    timed_out: bool

    @property
    def single(self) -> bool:
        """Completed with fewer than two tokens: a time per token after the first has no meaning."""
        return not self.failed and self.output < 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One run of a benchmark. None is not in the file."""

    tool: str
    """vllm bench serve, or sglang bench_serving."""
    model: str | None
    engine: str | None
    """Engine that answered, where the file shows it."""
    engine_version: str | None
    dataset: str | None
    asked: int | None
    """Requests asked for; of the lists, where only they show it."""
    completed: int
    failed: int | None
    timed_out: int | None
    single_token: int | None
    duration_s: float
    input_tokens: int | None
    output_tokens: int | None
    input_lengths: str | None
    """Digest of all input lengths in their order."""
    request_rate: float | str | None
    """Requests a second, `inf` or `trace`."""
    burstiness: float | None
    max_concurrency: int | None
    """Requests that are open at once at most; 0 is no limit."""
    seed: int | None
    """Only where the user added it: --metadata seed=N."""
    warmups: int | None
    """Only where the user added it: --metadata num_warmups=N."""
    requests_per_s: float | None
    output_tokens_per_s: float | None
    total_tokens_per_s: float | None
    own_goodput_per_s: float | None
    """The tool's own goodput, whose limits are not in the file."""
    ttft_ms: Quantiles
    tpot_ms: Quantiles
    itl_ms: Quantiles
    each: tuple[EachOutput, ...] | None
    """Every request; None without the lists."""

    @property
    def unfinished(self) -> int | None:
        """Requests asked for that neither completed nor failed."""
        if self.asked is None or self.failed is None:
            return None
        return max(0, self.asked - self.completed - self.failed)


class _Run:
    """One JSON object, asked by key and type."""

    def __init__(self, values: Mapping[str, Any], source: str, line: int | None) -> None:
        self.values, self.source, self.line = values, source, line

    def error(self, problem: str, fix: str = "") -> CaptureError:
        return CaptureError(problem, path=self.source, line=self.line, fix=fix)

    def number(self, *keys: str) -> float | None:
        """The first of these keys that holds a number; None where none does: null and NaN are absence."""
        for key in keys:
            value = self.values.get(key)
            if value is None or (isinstance(value, float) and not math.isfinite(value)):
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e18:
                raise self.error(f"expected a number from 0 for {key}, got {_short(value)}")
            return float(value)
        return None

    def whole(self, *keys: str) -> int | None:
        """The same as a whole number."""
        value = self.number(*keys)
        if value is not None and value != int(value):
            raise self.error(f"expected a whole number for {keys[0]}, got {value:g}")
        return None if value is None else int(value)

    def needed(self, key: str) -> float:
        value = self.number(key)
        if value is None:
            raise self.error(f"has no {key}", "give the result of one finished run")
        return value

    def text(self, *keys: str) -> str | None:
        """The first of these keys that holds text, fit to be written down."""
        found = (self.values.get(key) for key in keys)
        return next((_clean(value) for value in found if isinstance(value, str) and value.strip()), None)

    def metadata(self, *keys: str) -> int | None:
        """A whole number that the user added to the file as text."""
        value = next((self.values[key] for key in keys if key in self.values), None)
        text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
        return int(text) if text.isdecimal() and len(text) < 18 else None

    def time(self, name: str) -> Quantiles:
        """A time as the tool summed it up; 0 is what it writes for none."""
        keys = [f"{kind}_{name}_ms" for kind in ("mean", "median", "p99")]
        return Quantiles(*(self.number(key) or None for key in keys))

    def items(self, key: str, kind: type | tuple[type, ...]) -> list[Any] | None:
        """A list by request; None if the file has none. Raises CaptureError for other items."""
        found = self.values.get(key)
        if found is None:
            return None
        if not isinstance(found, list) or len(found) > MOST_REQUESTS:
            raise self.error(f"{key} is no list of at most {MOST_REQUESTS:,} requests")
        bad = next((i for i, item in enumerate(found) if not _fits(item, kind)), None)
        if bad is not None:
            raise self.error(f"{key}[{bad}] is {_short(found[bad])}")
        return found


def _fits(item: object, kind: type | tuple[type, ...]) -> bool:
    if kind is list:
        return isinstance(item, list) and all(_fits(part, (int, float)) for part in item)
    if not isinstance(item, kind) or isinstance(item, bool):
        return False
    return not isinstance(item, (int, float)) or 0 <= item < 1e15


def _short(value: object) -> str:
    return ascii(value)[:60]


def _clean(text: str) -> str:
    """Foreign text as it may stand in a record: printable, and not without end."""
    return (
        "".join(char if char.isprintable() else "?" for char in text[:300])
        .encode("utf-8", "replace")
        .decode()
    )


def runs_of(text: str, source: str) -> list[tuple[int | None, dict[str, Any]]]:
    """(line, result) of each run in a file: one JSON object, or one a line. Raises CaptureError."""
    try:
        whole = _decode(text)
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2:
            raise CaptureError(f"is no JSON ({_reason(error)})", path=source) from None
        return [(number, _line(line, number, source)) for number, line in lines]
    if not isinstance(whole, dict):
        raise CaptureError("expected one JSON object, or one a line", path=source)
    return [(None, whole)]


def _line(line: str, number: int, source: str) -> dict[str, Any]:
    try:
        found = _decode(line)
    except ValueError as error:
        raise CaptureError(f"is no JSON ({_reason(error)})", path=source, line=number) from None
    if not isinstance(found, dict):
        raise CaptureError("expected a JSON object", path=source, line=number)
    return found


def _decode(text: str) -> Any:
    """JSON with Python's `NaN` and `Infinity`. Raises ValueError."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {_short(next(key for key in keys if keys.count(key) > 1))} stands twice")
    return found


def _reason(error: ValueError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


def parse_bench(text: str, source: str, run: int | None = None) -> Bench:
    """The result of one run. `run` chooses among several in one file, from 1. Raises CaptureError."""
    runs = runs_of(text, source)
    if run is None and len(runs) > 1:
        raise CaptureError(
            f"holds {len(runs)} runs", path=source, fix=f"choose one with --bench-run 1 to {len(runs)}"
        )
    if run is not None and not 1 <= run <= len(runs):
        raise CaptureError(f"has no run {run}: it holds {len(runs)}", path=source)
    line, values = runs[(run or 1) - 1]
    found = _Run(values, source, line)
    tool = "sglang bench_serving" if "total_output_tokens_retokenized" in values else "vllm bench serve"
    if "completed" not in values or "duration" not in values:
        problem = "is no result of vllm bench serve or of SGLang's bench_serving"
        raise found.error(problem, "both have `completed` and `duration`")
    return _bench(found, tool)


def _bench(run: _Run, tool: str) -> Bench:
    """The result in our form."""
    server = run.values.get("server_info")  # SGLang of late: the answer of /server_info
    info = _Run(server if isinstance(server, dict) else {}, run.source, run.line)
    completed = int(run.needed("completed"))
    each = _each(run, completed)
    failed = run.whole("failed")
    if each is not None:
        shown = sum(one.failed for one in each)
        if failed is not None and failed != shown:
            raise run.error(f"{shown} requests of its lists failed, and `failed` is {failed}")
        failed = shown
    length = None if each is None else len(each)
    return Bench(
        tool=tool,
        model=run.text("model_id") or info.text("model_path"),
        engine="sglang" if info.values.get("version") else None,
        engine_version=info.text("version"),
        dataset=run.text("dataset_name"),
        asked=run.whole("num_prompts") if "num_prompts" in run.values else length,
        completed=completed,
        failed=failed,
        timed_out=None if each is None else sum(one.timed_out for one in each),
        single_token=None if each is None else sum(one.single for one in each),
        duration_s=run.needed("duration"),
        input_tokens=run.whole("total_input_tokens"),
        output_tokens=run.whole("total_output_tokens"),
        input_lengths=None if each is None else _digest([one.input for one in each]),
        request_rate=_rate(run),
        burstiness=run.number("burstiness"),
        max_concurrency=_concurrency(run),
        seed=run.metadata("seed"),
        warmups=run.metadata("num_warmups", "warmup_requests"),
        requests_per_s=run.number("request_throughput"),
        output_tokens_per_s=run.number("output_throughput"),
        total_tokens_per_s=run.number("total_token_throughput", "total_throughput"),
        own_goodput_per_s=run.number("request_goodput", "request_goodput:"),  # the colon is vLLM's, long kept
        ttft_ms=run.time("ttft"),
        tpot_ms=run.time("tpot"),
        itl_ms=run.time("itl"),
        each=each,
    )


def _rate(run: _Run) -> float | str | None:
    """Requests a second: a number, or `inf` however it is spelled."""
    value = run.values.get("request_rate")
    if value in ("inf", "trace") or value == math.inf:
        return "trace" if value == "trace" else "inf"
    return run.number("request_rate")


def _concurrency(run: _Run) -> int | None:
    """0 where the tool writes null: no limit; None where it writes nothing."""
    if "max_concurrency" not in run.values:
        return None
    return run.whole("max_concurrency") or 0


def _digest(lengths: Sequence[int]) -> str:
    words = ",".join(map(str, lengths)).encode()
    return f"sha256:{hashlib.sha256(words).hexdigest()}"


def _each(run: _Run, completed: int) -> tuple[EachOutput, ...] | None:
    """All requests of the lists; None without them. Raises CaptureError if they do not agree."""
    inputs, outputs = run.items("input_lens", int), run.items("output_lens", int)
    firsts, gaps = run.items("ttfts", (int, float)), run.items("itls", list)
    if inputs is None or outputs is None or firsts is None or gaps is None:
        return None
    count = len(outputs)
    errors = run.items("errors", str) or [""] * count
    latencies = run.items("latencies", (int, float)) or [None] * count
    lists = (inputs, outputs, firsts, gaps, errors, latencies)
    if {len(one) for one in lists} != {count}:
        lengths = ", ".join(f"{name} {len(one)}" for name, one in zip(LISTS, lists[:4], strict=True))
        raise run.error(f"its lists are of different lengths ({lengths}): requests cannot be aligned")
    failed = _failures(run, outputs, firsts, errors, completed)
    return tuple(map(_output, zip(inputs, outputs, firsts, gaps, errors, latencies, failed, strict=True)))


def _failures(
    run: _Run, outputs: list[int], firsts: list[float], errors: list[str], completed: int
) -> list[bool]:
    """Which requests failed. One without error text, output and first token failed if the count says so."""
    named = [bool(error) for error in errors]
    empty = [
        not (error or output or first) for error, output, first in zip(errors, outputs, firsts, strict=True)
    ]
    for failed in (named, [a or b for a, b in zip(named, empty, strict=True)]):
        if len(failed) - sum(failed) == completed:
            return failed
    shown = len(named) - sum(named)
    raise run.error(f"{shown} requests of its lists completed, and `completed` is {completed}")


def _output(values: tuple[int, int, float, list[float], str, float | None, bool]) -> EachOutput:
    """One request. An output of several tokens in one piece was not streamed: it has no first token."""
    tokens, output, first, gaps, error, latency, failed = values
    streamed = not failed and bool(gaps or output < 2)
    rest = sum(gaps) if latency is None else max(0.0, latency - first)
    return EachOutput(
        input=tokens,
        output=output,
        ttft_ms=first * 1000 if streamed and first else None,
        tpot_ms=rest / (output - 1) * 1000 if streamed and output > 1 else None,
        failed=failed,
        timed_out=failed and "timeout" in error.lower().replace(" ", ""),
    )


def goodput(each: Sequence[EachOutput], ttft_ms: float, tpot_ms: float) -> tuple[int, int, int] | None:
    """(within both limits, of how many, single-token outputs within the first limit).

    Outputs of fewer than two tokens have no second figure and stand apart; failed requests are within no
    limit. None if some request shows no times, for then nobody knows.
    """
    if any(
        not one.failed and (one.ttft_ms is None or (one.tpot_ms is None and not one.single)) for one in each
    ):
        return None
    first = [one for one in each if not one.failed and (one.ttft_ms or 0) <= ttft_ms]
    within = sum((one.tpot_ms or 0) <= tpot_ms for one in first if not one.single)
    return within, sum(not one.single for one in each), sum(one.single for one in first)
