"""How many microbatches and stages are in force, out of a launch command or a log.

Only what is written is read: a flag's name with its number, and the sentence in which an engine states
its count. Divisibility can rewrite what a flag asked for, so a stated count goes before flags.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from topocheck.errors import CaptureError

__all__ = ["InForce", "Reading", "parse_in_force", "parse_settings"]

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


def parse_settings(text: str, source: str) -> dict[str, tuple[int, int]]:
    """Known settings with their value and line, names with underscores.

    Raises CaptureError where one setting has two values: then two runs lie in one file.
    """
    found: dict[str, tuple[int, int]] = {}
    for line, words in enumerate(text.splitlines(), 1):
        for match in SETTING.finditer(words):
            name, value = match["name"].replace("-", "_"), int(match["value"])
            before = found.setdefault(name, (value, line))
            if before[0] != value:
                raise CaptureError(
                    f"{name} is {value} here and {before[0]} in line {before[1]}",
                    path=source,
                    line=line,
                    fix="give the log or the command of one run",
                )
    return found


def parse_in_force(text: str, source: str) -> InForce:
    """Stages and microbatches that a launch command or a start-up log names. Raises CaptureError."""
    settings = parse_settings(text, source)
    stages = next((Reading(*settings[name], name) for name in PIPELINE if name in settings), None)
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


def _from_flags(settings: Mapping[str, tuple[int, int]]) -> Reading | None:
    """The count that follows from flags, engine by engine."""
    get = settings.get
    depth, stages = get("pp_async_batch_depth"), get("pp_size")
    if depth and stages:  # srt/managers/scheduler_pp_mixin.py: pp_loop_size
        return Reading(stages[0] + depth[0], depth[1], "SGLang: pp_size + pp_async_batch_depth, at most")
    if local := get("local_batch_size"):  # torchtitan distributed/pipeline_parallel.py
        size = get("pipeline_parallel_microbatch_size", (1, 0))[0]
        return _divided(local, size, "local_batch_size / pipeline_parallel_microbatch_size")
    whole, micro, data = (get(name) for name in ("global_batch_size", "micro_batch_size", "data_parallel_size"))
    if whole and micro and data:
        return _divided(whole, micro[0] * data[0], "global_batch_size / (micro_batch_size x data_parallel_size)")
    if steps := get("gradient_accumulation_steps"):
        return Reading(*steps, "gradient_accumulation_steps, which DeepSpeed's pipeline takes as microbatches")
    return _ubatches(settings)


def _ubatches(settings: Mapping[str, tuple[int, int]]) -> Reading | None:
    """`--ubatch-size`: a number of parts in vLLM, a number of tokens in llama.cpp.

    vllm/config/parallel.py: num_ubatches is ubatch_size, default 0 for none. llama.cpp has
    `--batch-size` tokens, cut into pieces of `--ubatch-size`.
    """
    if "ubatch_size" not in settings:
        return None
    size, line = settings["ubatch_size"]
    if "batch_size" in settings:
        tokens = settings["batch_size"][0]
        return Reading(ceil(tokens / size) if size else 0, line, "llama.cpp: batch_size / ubatch_size, rounded up")
    basis = "vLLM: ubatch_size parts of a batch, which each stage overlaps with one another; whether stages"
    return Reading(max(size, 1), line, f"{basis} hand them on one by one is not shown")


def _divided(whole: tuple[int, int], part: int, basis: str) -> Reading | None:
    """A quotient; None where it is none, for then the engine refuses or rewrites it."""
    if part < 1 or whole[0] % part:
        return None
    return Reading(whole[0] // part, whole[1], basis)
