"""Where a report goes: the terminal, files, standard output; several at once."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from topocheck.errors import UsageError
from topocheck.render.text import printable
from topocheck.report import Report

__all__ = ["colour_wanted", "write_file", "write_outputs"]


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


def write_outputs(report: Report, paths: Mapping[str, str], *, colour: bool, verbose: bool) -> None:
    """Write every output that was asked for; the last line on stderr is always the verdict."""
    for name, path in paths.items():
        text = rendered(report, name)
        if path == "-":
            sys.stdout.write(text)
        else:
            write_file(Path(path), text)
    if "-" not in paths.values():
        from topocheck.render import terminal  # noqa: PLC0415 - only where it is shown

        sys.stdout.write(terminal.render(report, width=terminal_width(), colour=colour, verbose=verbose))
    sys.stdout.flush()
    click.echo(printable(report.sentence), err=True)


def rendered(report: Report, name: str) -> str:
    """The report in one format; its module is imported only here."""
    if name == "json":
        from topocheck.render import json_report  # noqa: PLC0415

        return json_report.render(report)
    from topocheck.render import html  # noqa: PLC0415

    return html.render(report)


def write_file(path: Path, text: str) -> None:
    """Write aside, then rename: a reader sees the old file or the new one, never half of it."""
    try:
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(aside).chmod(0o644)
            Path(aside).replace(path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None
