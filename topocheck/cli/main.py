"""The `topocheck` command: where errors become words and exit codes."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence

import click

from topocheck import __version__
from topocheck.cli.leaving import leave
from topocheck.cli.streams import abandon, open_streams, say
from topocheck.errors import TopocheckError

__all__ = ["COMMANDS", "cli", "main"]

COMMANDS = {
    "demo": "topocheck.cli.demo:demo",
    "probe": "topocheck.cli.probe:probe",
    "import": "topocheck.cli.import_captures:import_captures",
    "plan": "topocheck.cli.plan:plan",
    "verify": "topocheck.cli.verify:verify",
    "gate": "topocheck.cli.gate:gate",
    "run": "topocheck.cli.run:run_command",
    "manifest": "topocheck.cli.manifest:manifest_command",
    "verify-manifest": "topocheck.cli.verify_manifest:verify_manifest",
    "diff": "topocheck.cli.diff:diff",
    "report": "topocheck.cli.report:report",
    "bubble": "topocheck.cli.bubble:bubble",
    "boundary": "topocheck.cli.boundary:boundary",
    "capacity": "topocheck.cli.capacity:capacity",
    "balance": "topocheck.cli.balance:balance_stages",
    "waits": "topocheck.cli.waits:waits",
    "record": "topocheck.cli.record:record",
    "rules": "topocheck.cli.rules:rules",
    "explain": "topocheck.cli.explain:explain",
    "schema": "topocheck.cli.schema:schema",
}
"""Command -> function. Each is imported only when it runs, so that each starts fast."""


class Lazy(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """In the order in which a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(cmd_name)
        gc.freeze()  # what was imported so far is no garbage
        gc.enable()
        return command


@click.group(
    cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TOPOCHECK"}
)
@click.version_option(__version__, "--version", prog_name="topocheck")
def cli() -> None:
    """Prove where the ranks of a distributed LLM job lie and which path their traffic takes.

    Exit codes: 0 gate open, 1 gate shut by a finding, 2 usage or unreadable input,
    3 could not decide, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and leave: the entry point of the package."""
    leave(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; every error is one sentence on stderr."""
    open_streams()
    try:
        code = cli.main(args=None if arguments is None else list(arguments), standalone_mode=False)
        sys.stdout.flush()
    except SystemExit:  # click's own answer to a closed pipe: exit 1, which would read as a shut gate
        return reader_left()
    except BrokenPipeError:
        return reader_left()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last door: a bug is never a verdict
        return explain(error)
    return code if isinstance(code, int) else 0


def explain(error: BaseException) -> int:
    """Say what went wrong in one sentence; gives the exit code that it means."""
    if isinstance(error, click.ClickException):
        error.show()
        return 2
    if isinstance(error, (click.exceptions.Abort, KeyboardInterrupt)):
        say("topocheck: interrupted: no verdict")
        return 130
    if isinstance(error, TopocheckError):
        say(f"topocheck: {error}")
        return error.exit_code
    say(internal(error))
    return 3


def reader_left() -> int:
    """The reader of standard output left (`topocheck rules | head -1`): as if SIGPIPE had ended the run."""
    abandon(sys.stdout)
    return 141


def internal(error: BaseException) -> str:
    """A bug of topocheck in one line; the trace only where the user asks for it."""
    if os.environ.get("TOPOCHECK_TRACEBACK"):
        import traceback  # noqa: PLC0415 - only for a bug report

        return traceback.format_exc()
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f" in {frame.tb_frame.f_code.co_name}, line {frame.tb_lineno}" if frame else ""
    return (
        f"topocheck: internal error{where}: {type(error).__name__}: {error}. This is a bug of topocheck and "
        "no verdict over the job; set TOPOCHECK_TRACEBACK=1 for the trace"
    )
