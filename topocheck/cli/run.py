"""`topocheck run -- COMMAND`: the gate, and behind it the command itself, in this very process."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Literal

import click

from topocheck.cli.gate import asked_for, gate_options, passed, tell
from topocheck.cli.launched import TakesCommand, launched
from topocheck.cli.streams import say
from topocheck.errors import TopocheckError, UsageError
from topocheck.plan import Plan

__all__ = ["run_command"]


@click.command("run", cls=TakesCommand)
@gate_options
@click.option(
    "--on-fail",
    type=click.Choice(["stop", "warn"]),
    default="stop",
    show_default=True,
    help="What a shut or undecided gate does: keep the command from starting, or tell and start it.",
)
@click.argument("nothing", nargs=-1, metavar="-- COMMAND...")
@click.pass_context
def run_command(
    context: click.Context, /, *, on_fail: Literal["stop", "warn"], nothing: tuple[str, ...], **options: Any
) -> int:
    """Pass the gate, then become COMMAND: same process id, signals and exit code.

    With a shut or undecided gate COMMAND does not start. Without --plan the plan is what COMMAND declares.
    """
    command: tuple[str, ...] | None = context.obj
    if nothing or not command:
        raise UsageError(
            "give the command after --: topocheck run --store file:/shared/gates -- python train.py"
        )
    try:
        plan = None if options["plan_path"] is not None else declared(command, options["expect"])
        decision, name = passed(asked_for(options, plan), os.environ)
    except TopocheckError as error:
        if on_fail == "stop":
            raise
        say(f"topocheck run: no verdict ({error}): starting all the same")
        become(command)
    else:
        tell(decision, name)
        if decision.exit_code and on_fail == "stop":
            say(f"topocheck run: {command[0]} is not started")
            return decision.exit_code
        if decision.exit_code:
            say(f"topocheck run: starting {command[0]} all the same (--on-fail warn)")
        become(command)
    return 0


def declared(command: tuple[str, ...], expect: int | None) -> Plan:
    """The plan that the command declares."""
    plan, _, _ = launched(command, None if expect is None else str(expect))
    return plan


def become(command: tuple[str, ...]) -> None:
    """Replace this process by the command. Raises UsageError if it cannot be started."""
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and exec would hand that on
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's own command, no shell
    except OSError as error:
        raise UsageError(f"{command[0]}: cannot be started: {error.strerror}") from None
