"""How many microbatches and stages are in force, out of a launch command or a log.

Only what is written is read: a flag's name with its number, and the sentence in which an engine states
its count. Divisibility can rewrite what a flag asked for, so a stated count goes before flags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil

from topocheck.errors import CaptureError

__all__ = ["InForce", "Reading", "parse_in_force"]

PIPELINE = (
    "pipeline_parallel_size",  # vLLM
    "pipeline_model_parallel_size",  # Megatron
    "pp_size",  # SGLang, TensorRT-LLM
    "pipeline_parallel_degree",  # torchtitan
)
SETTINGS = (
    *PIPELINE,
    "ubatch_size",  # vLLM, llama.cpp
    "batch_size",  # llama.cpp
    "pp_async_batch_depth",  # SGLang
    "gradient_accumulation_steps",  # DeepSpeed
    "global_batch_size",  # Megatron
    "micro_batch_size",  # Megatron
    "data_parallel_size",  # Megatron states it in its log
    "local_batch_size",  # torchtitan
    "pipeline_parallel_microbatch_size",  # torchtitan
)
SETTING = re.compile(
    r"(?<![\w-])(?:--?)?(?:(?:training|parallelism)\.)?"
    rf"(?P<name>{'|'.join(name.replace('_', '[-_]') for name in SETTINGS)})"
    r"['\"]?(?:\s{0,4}[=:]\s{0,4}|\s{1,4}|\s{1,4}\.{2,80}\s)['\"]?(?P<value>[0-9]{1,9})(?![\w.])"
)
"""`--ubatch-size 2`, `--ubatch-size=2`, `ubatch_size=2`, `'ubatch_size': 2`, Megatron's `name ..... 2`."""
STATED = re.compile(
    r"setting number of micro-?batches to constant (?P<megatron>[0-9]{1,9})\b"
    r"|CONFIG: (?:global_batch_size=[0-9]+, )?micro_batches=(?P<deepspeed>[0-9]{1,9})\b"
)
"""Megatron core/num_microbatches_calculator.py; DeepSpeed runtime/pipe/engine.py."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A number, the line it comes from, and what it is."""

    value: int
    line: int
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """What a command or a log says; None is not said."""

    stages: Reading | None = None
    microbatches: Reading | None = None


class Settings:
    """Known settings of a text: each value with its line, in order, names with underscores."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.found: dict[str, dict[int, int]] = {}
        for line, words in enumerate(text.splitlines(), 1):
            for match in SETTING.finditer(words):
                values = self.found.setdefault(match["name"].replace("-", "_"), {})
                values.setdefault(int(match["value"]), line)

    def get(self, name: str) -> tuple[int, int] | None:
        """Value and line of one setting. Raises CaptureError if it has two values: two runs in one file."""
        values = list(self.found.get(name, {}).items())
        if len(values) > 1:
            (first, before), (second, line) = values[:2]
            raise CaptureError(
                f"{name} is {second} here and {first} in line {before}",
                path=self.source,
                line=line,
                fix="give the log or the command of one run",
            )
        return values[0] if values else None


def parse_in_force(text: str, source: str) -> InForce:
    """Stages and microbatches that a launch command or a start-up log names. Raises CaptureError."""
    settings = Settings(text, source)
    stages = next(
        (Reading(*value, name) for name in PIPELINE if (value := settings.get(name)) is not None), None
    )
    counted = _stated(text, source) or _from_flags(settings)
    for reading in (stages, counted):
        if reading is not None and reading.value < 1:
            raise CaptureError(f"{reading.basis} gives 0", path=source, line=reading.line)
    return InForce(stages=stages, microbatches=counted)


def _stated(text: str, source: str) -> Reading | None:
    """The count that the engine itself states."""
    found: Reading | None = None
    for line, words in enumerate(text.splitlines(), 1):
        match = STATED.search(words)
        if match is None:
            continue
        engine = "Megatron" if match["megatron"] else "DeepSpeed"
        value = int(match["megatron"] or match["deepspeed"])
        if found is not None and found.value != value:
            problem = f"{engine} states {value} microbatches here and {found.value} in line {found.line}"
            raise CaptureError(problem, path=source, line=line, fix="give the log of one run")
        found = found or Reading(value, line, f"stated by {engine}")
    return found


def _from_flags(settings: Settings) -> Reading | None:
    """The count that follows from flags, engine by engine."""
    get = settings.get
    if (depth := get("pp_async_batch_depth")) and (stages := get("pp_size")):
        # srt/managers/scheduler_pp_mixin.py: pp_loop_size
        return Reading(stages[0] + depth[0], depth[1], "SGLang: pp_size + pp_async_batch_depth, at most")
    if local := get("local_batch_size"):  # torchtitan/distributed/pipeline_parallel.py
        size = get("pipeline_parallel_microbatch_size") or (1, 0)
        return _divided(local, size[0], "local_batch_size / pipeline_parallel_microbatch_size")
    if (whole := get("global_batch_size")) and (micro := get("micro_batch_size")):
        data = get("data_parallel_size") or (0, 0)
        basis = "global_batch_size / (micro_batch_size x data_parallel_size)"
        return _divided(whole, micro[0] * data[0], basis)
    if steps := get("gradient_accumulation_steps"):
        return Reading(*steps, "gradient_accumulation_steps, which DeepSpeed's pipeline takes for them")
    return _ubatches(settings)


def _ubatches(settings: Settings) -> Reading | None:
    """`--ubatch-size`: a number of parts in vLLM, a number of tokens in llama.cpp.

    vllm/config/parallel.py: num_ubatches is ubatch_size, 0 by default, which is none. llama.cpp cuts
    `--batch-size` tokens into pieces of `--ubatch-size`.
    """
    found = settings.get("ubatch_size")
    if found is None:
        return None
    size, line = found
    if size and (tokens := settings.get("batch_size")):
        return Reading(ceil(tokens[0] / size), line, "llama.cpp: batch_size / ubatch_size, rounded up")
    basis = (
        "vLLM: ubatch_size, the parts of a batch that a stage overlaps; that stages hand them on one by one "
        "is an assumption"
    )
    return Reading(max(size, 1), line, basis)


def _divided(whole: tuple[int, int], part: int, basis: str) -> Reading | None:
    """A quotient; None where it is none, for then the engine refuses or rewrites it."""
    if part < 1 or whole[0] % part:
        return None
    return Reading(whole[0] // part, whole[1], basis)
