"""Where a report goes: the terminal, files, standard output; several at once."""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from topocheck.cli.streams import say, show
from topocheck.errors import UsageError
from topocheck.render.text import VERDICT
from topocheck.report import Report

__all__ = [
    "colour_wanted",
    "one_each",
    "output_options",
    "rendered",
    "terminal_width",
    "write_file",
    "write_outputs",
]

FORMATS = {
    "json": "Write the report as JSON; - is standard output.",
    "html": "Write the report as one HTML file.",
    "markdown": "Write it as Markdown, for a ticket or a CI summary.",
    "junit": "Write it as JUnit XML, one test case a rule.",
}
"""Formats of a report for files, and what the option of each says."""


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """One option a format, with the path as its value."""
    for name, words in reversed(FORMATS.items()):
        command = click.option(f"--{name}", name, metavar="PATH", help=words)(command)
    return command


def colour_wanted(asked: bool | None) -> bool:
    """Colour: as asked, else only on a terminal that does not object (NO_COLOR)."""
    if asked is not None:
        return asked
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def terminal_width() -> int:
    """Columns of the terminal; 80 where there is none."""
    if not sys.stdout.isatty():
        return 80
    with contextlib.suppress(OSError):
        return max(40, os.get_terminal_size(sys.stdout.fileno()).columns)
    return 80


def write_outputs(
    report: Report, paths: Mapping[str, str], *, colour: bool, verbose: bool, uuids: bool = False
) -> None:
    """Write every output that was asked for; the last line on stderr is always the verdict."""
    for name, path in paths.items():
        gc.disable()  # a report has no cycles: collecting it again and again only costs
        try:
            text = rendered(report, name, uuids=uuids)
        finally:
            gc.enable()
        if path == "-":
            show(text, exact=True)
        else:
            write_file(Path(path), text)
    if "-" not in paths.values():
        from topocheck.render import terminal  # noqa: PLC0415 - only where it is shown

        show(terminal.render(report, width=terminal_width(), colour=colour, verbose=verbose))
    say(f"{VERDICT[report.verdict].upper()}: {report.sentence}")


def one_each(paths: Mapping[str, str | None]) -> dict[str, str]:
    """The outputs that were asked for. Raises UsageError if two would go to one place."""
    wanted = {name: path for name, path in paths.items() if path is not None}
    for name, path in wanted.items():
        other = next((other for other, place in wanted.items() if place == path), name)
        if other != name:
            place = "standard output" if path == "-" else path
            raise UsageError(f"--{other} and --{name} both write to {place}: give each a place of its own")
    return wanted


def rendered(report: Report, name: str, *, uuids: bool = False) -> str:
    """The report in one format; its module is imported only here.

    The page of a big job has the UUIDs of all GPUs only with `uuids`; a JSON report always has them.
    """
    if name == "json":
        from topocheck.render import json_report  # noqa: PLC0415

        return json_report.render(report)
    if name == "markdown":
        from topocheck.render import markdown  # noqa: PLC0415

        return markdown.render(report)
    if name == "junit":
        from topocheck.render import junit  # noqa: PLC0415

        return junit.render(report)
    from topocheck.render import html  # noqa: PLC0415
    from topocheck.render.lean import lean  # noqa: PLC0415

    return html.render(lean(report, uuids=uuids))


def write_file(path: Path, text: str) -> None:
    """Write aside, then rename: a reader sees the old file or the new one, never half of it.

    A link, a pipe or a device (`/dev/null`) is written through: renaming would put a file in its place.
    Raises UsageError if it cannot be written.
    """
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
            return
        aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            aside.write_text(text, encoding="utf-8")
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:  # ValueError: a path without a name
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path}: cannot be written: {reason}") from None
