"""The plan that a launch command declares, for commands that take `-- COMMAND...` in place of a plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from topocheck.declared import Order
from topocheck.errors import UsageError
from topocheck.hostlist import MAX_NODES, expand
from topocheck.plan import Plan

__all__ = ["Launched", "TakesCommand", "in_order", "launched", "read_nodes", "split_command"]

Launched = tuple[Plan, int | None, list[str]]
"""Plan, ranks that its launcher starts if it says so, and where each value comes from."""


class TakesCommand(click.Command):
    """Takes the words after `--` as a launch command: click would read them as options and a path."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the command aside."""
        before, ctx.obj = split_command(args)
        return super().parse_args(ctx, before)


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
    return in_order(command, nodes)[0]


def in_order(command: Sequence[str], nodes: str | None) -> tuple[Launched, Order]:
    """The same, and where the command's launcher puts the ranks."""
    if not command:
        raise UsageError("there is no command after --: give the launch command, for instance vllm serve ...")
    # Only where a command is given: to import its parsers takes longer than to verify a small job.
    from topocheck.commands import origins, parse_command, to_plan, world_of  # noqa: PLC0415
    from topocheck.commands.rankorder import rank_order  # noqa: PLC0415
    from topocheck.launchers.allowed import allowed  # noqa: PLC0415

    folder, given = Path(), None if nodes is None else read_nodes(nodes)
    variables = {name: value for name, value in os.environ.items() if allowed(name)}
    launch = parse_command(command, folder, variables)
    plan = to_plan(launch, nodes=given, folder=folder)
    order = partial(rank_order, launch, named=isinstance(given, list), folder=folder)
    return (plan, world_of(launch), origins(launch, nodes=given, folder=folder)), order


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
