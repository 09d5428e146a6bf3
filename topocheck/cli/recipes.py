"""`topocheck manifest --for` what is no manifest: scripts of Slurm, values of NVSentinel's chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import click
from click.core import ParameterSource

from topocheck.errors import UsageError
from topocheck.kubernetes.preflight import Check, checked, values
from topocheck.kubernetes.wanted import Wanted
from topocheck.slurmscript import Batch, Gate, batch_script, task_prolog

__all__ = ["RECIPES", "Recipe", "recipe"]

Recipe = Literal["sbatch", "task-prolog", "nvsentinel"]
RECIPES: tuple[Recipe, ...] = get_args(Recipe)
"""What `--for` takes besides the kinds of Kubernetes."""

STORE = "file:/shared/gates"
"""What stands for the folder that all nodes share, until somebody says which."""
EVERYWHERE = frozenset({"kind", "nothing", "timeout"})
TAKES: Mapping[Recipe, frozenset[str]] = {
    "sbatch": EVERYWHERE | {"plan_path", "name", "gpus", "store", "tasks_per_node"},
    "task-prolog": EVERYWHERE | {"plan_path", "store"},
    "nvsentinel": EVERYWHERE | {"image"},
}
"""Options that each recipe has a use for."""


def recipe(kind: Recipe, context: click.Context, shape: Callable[[], Wanted]) -> str:
    """The text of one recipe; `shape` reads the plan. Raises UsageError for options without a use."""
    options, command = context.params, context.obj
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) in (
            ParameterSource.COMMANDLINE,
            ParameterSource.ENVIRONMENT,
        )
        if given and name not in TAKES[kind]:
            raise UsageError(f"{parameter.opts[-1]} has no place in what --for {kind} prints")
    if kind == "sbatch" and not command:
        raise UsageError("give the command of the job after --: topocheck manifest --for sbatch -- vllm ...")
    if (options["store"] or "").startswith("k8s:"):
        raise UsageError(
            f"--store {options['store']}: expected a folder that all nodes share: file:/shared/gates"
        )
    if kind != "sbatch" and command is not None:
        raise UsageError(f"--for {kind} takes no command: what it prints is for any job")
    if kind == "nvsentinel":
        return values(checked(Check(image=options["image"], timeout_s=options["timeout"])))
    if kind == "sbatch":
        return batch_script(batch_of(options, command, shape()))
    gate = Gate(plan=path_of(options), store=options["store"] or STORE, timeout_s=options["timeout"])
    return task_prolog(gate)


def batch_of(options: Mapping[str, Any], command: Sequence[str], shape: Wanted) -> Batch:
    """The job of a batch script."""
    plan = path_of(options) or "/shared/plan.yaml"
    store = None if shape.nodes == 1 and options["store"] is None else options["store"] or STORE
    return Batch(
        name=shape.name,
        nodes=shape.nodes,
        tasks_per_node=options["tasks_per_node"] or 1,
        gpus=shape.gpus,
        gate=Gate(plan=plan, store=store, timeout_s=shape.timeout_s),
        command=command,
    )


def path_of(options: Mapping[str, Any]) -> str | None:
    """Path of the plan as every node has to find it. Raises UsageError for standard input."""
    path: str | None = options["plan_path"]
    if path == "-":
        raise UsageError("--plan -: give a file that all nodes can read: the script names it")
    return None if path is None else str(Path(path).absolute())
