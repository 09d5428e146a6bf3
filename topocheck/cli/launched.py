"""The plan that a launch command declares, for commands that take `-- COMMAND...` in place of a plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from topocheck.commands import origins, parse_command, to_plan, world_of
from topocheck.errors import UsageError
from topocheck.hostlist import MAX_NODES, expand
from topocheck.launchers.allowed import allowed
from topocheck.plan import Plan

__all__ = ["Launched", "launched", "split_command"]

Launched = tuple[Plan, int | None, list[str]]
"""Plan, ranks that its launcher starts if it says so, and where each value comes from."""


def split_command(arguments: list[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """(arguments before `--`, command after it); None without `--`."""
    if "--" not in arguments:
        return arguments, None
    place = arguments.index("--")
    return arguments[:place], tuple(arguments[place + 1 :])


def launched(command: Sequence[str], nodes: str | None) -> Launched:
    """Read a launch command as the shell of this process would run it: in this folder, with its variables.

    `nodes` is what the command leaves open: a number, or names as Slurm lists them. Raises UsageError.
    """
    if not command:
        raise UsageError("there is no command after --: give the launch command, for instance vllm serve ...")
    folder, given = Path(), None if nodes is None else read_nodes(nodes)
    variables = {name: value for name, value in os.environ.items() if allowed(name)}
    launch = parse_command(command, folder, variables)
    plan = to_plan(launch, nodes=given, folder=folder)
    return plan, world_of(launch), origins(launch, nodes=given, folder=folder)


def read_nodes(text: str) -> int | list[str]:
    """`2` or `node-[1-2]`. Raises UsageError."""
    if text.isdecimal():
        if len(text) < 8 and 0 < int(text) <= MAX_NODES:
            return int(text)
        raise UsageError(f"--nodes {text[:20]}: expected a number from 1 to {MAX_NODES}")
    try:
        names = expand(text)
    except ValueError as error:
        raise UsageError(f"--nodes {text[:80]}: {error}") from None
    if len(set(names)) < len(names):
        raise UsageError(f"--nodes {text[:80]}: a node stands twice")
    return names
