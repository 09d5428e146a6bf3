"""Scripts for Slurm with a gate: a batch script, and a TaskProlog. No value of a user can become shell.

What Slurm does with them was tried on 22.05 (tests/test_recipes_slurm.py).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment

from topocheck.errors import UsageError
from topocheck.quotedtemplates import quoted_templates

__all__ = ["Batch", "Gate", "batch_script", "task_prolog"]

CONTROL = re.compile(r"[\0-\x1f\x7f]")
"""What can stand in no line of a script: an #SBATCH line ends where the line does, quoted or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate of a Slurm job."""

    plan: str | None
    """Path of the plan file on all nodes; None where each job names its own."""
    store: str | None
    """URL of the folder in which gates meet; None for a job of one node."""
    timeout_s: int

    def __post_init__(self) -> None:
        """Raises UsageError for text that no script can hold."""
        for what, text in (("--plan", self.plan), ("--store", self.store)):
            check(what, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch job with a gate. Text of it may come from anybody: it is checked here, and quoted later."""

    name: str
    nodes: int
    tasks_per_node: int
    """Processes that srun starts on each node: one launcher, or one rank a GPU."""
    gpus: int
    """GPUs a node; 0 asks for none."""
    gate: Gate
    command: Sequence[str]

    def __post_init__(self) -> None:
        """Raises UsageError for text that no script can hold."""
        check("--name", self.name)
        for word in self.command:
            if "\0" in word or not is_utf8(word):
                raise UsageError(f"the command's word {word[:80]!r} is not UTF-8 text: no script can hold it")


def check(what: str, text: str | None) -> None:
    """Raises UsageError unless `text` stays one line of a script."""
    if text and (CONTROL.search(text) or not is_utf8(text)):
        raise UsageError(f"{what} {text[:80]!r}: expected text of one line")


class Quoted(str):
    """Text that is quoted already."""

    __slots__ = ()


def is_utf8(text: str) -> bool:
    """False for names of files that no encoding gave."""
    return text == text.encode("utf-8", "replace").decode()


def quoted(value: Any) -> Any:
    """A value as one word of the shell."""
    return shlex.quote(value) if isinstance(value, str) and not isinstance(value, Quoted) else value


def directive(value: str) -> Quoted:
    """A value of an #SBATCH line: sbatch takes quotes as a shell, but each backslash is to be doubled."""
    return Quoted(shlex.quote(value.replace("\\", "\\\\")))


@cache
def templates() -> Environment:
    """Templates whose every value passes `quoted`."""
    environment = quoted_templates(quoted)
    environment.filters["directive"] = directive
    return environment


def batch_script(batch: Batch) -> str:
    """A script for sbatch: gates in a step of their own, and behind them the job's step."""
    return templates().get_template("gate_sbatch.sh.j2").render(batch=batch, gate=batch.gate)


def task_prolog(gate: Gate) -> str:
    """A script for `srun --task-prolog` or TaskProlog of slurm.conf: a gate in front of each task."""
    return templates().get_template("gate_task_prolog.sh.j2").render(gate=gate)
