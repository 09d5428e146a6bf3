"""What a benchmark client was told, out of the arguments that it prints when it starts.

`vllm bench serve` prints `Namespace(..., seed=0, num_prompts=160, num_warmups=16, ...)` and SGLang's
bench_serving `benchmark_args=Namespace(..., warmup_requests=1, seed=1, ...)`. The result file of neither has
seed or warm-up, and two runs compare only if both are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from topocheck.errors import CaptureError

__all__ = ["ClientArguments", "Told", "parse_client_log"]

NAMES: Mapping[str, str] = {
    "seed": "seed",
    "num_prompts": "requests",
    "num_warmups": "warmups",  # vLLM
    "warmup_requests": "warmups",  # SGLang
    "dataset_name": "dataset",
}
ARGUMENT = re.compile(
    rf"(?<![\w'\"])(?P<name>{'|'.join(NAMES)})=(?:'(?P<text>[^']{{0,200}})'|(?P<number>[0-9]{{1,17}})(?![\w.]))"
)


@dataclass(frozen=True, slots=True)
class Told:
    """One argument and the line it stands in."""

    value: int | str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientArguments:
    """Arguments of one run; None is not printed."""

    seed: Told | None = None
    requests: Told | None = None
    warmups: Told | None = None
    dataset: Told | None = None


def parse_client_log(text: str, source: str) -> ClientArguments:
    """Arguments that a client printed. Raises CaptureError for none, and for those of two runs."""
    found: dict[str, Told] = {}
    for number, line in enumerate(text.splitlines(), 1):
        at = line.find("Namespace(")
        for match in ARGUMENT.finditer(line, at) if at >= 0 else ():
            name, value = NAMES[match["name"]], _value(match)
            known = found.setdefault(name, Told(value, number))
            if known.value != value:
                problem = f"{match['name']} is {value} here and {known.value} in line {known.line}"
                raise CaptureError(problem, path=source, line=number, fix="give the log of one run")
    if not found:
        raise CaptureError(
            "holds no arguments of a benchmark client",
            path=source,
            fix="vllm bench serve and SGLang's bench_serving print them in a line with `Namespace(`",
        )
    return ClientArguments(**found)


def _value(match: re.Match[str]) -> int | str:
    if match["number"] is not None:
        return int(match["number"])
    return "".join(char if char.isprintable() else "?" for char in match["text"])
