"""Standard streams as they are met: closed, full, in ASCII only, or left by their reader."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO

from topocheck.errors import UsageError

__all__ = ["abandon", "open_streams", "say", "show"]


def open_streams() -> None:
    """Make the three streams usable.

    One that the caller closed (`>&-`) is the null device. A character that the locale lacks is shown
    as its escape, for a host name in another script must not end a run.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - open to the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def show(text: str, *, exact: bool = False) -> None:
    """Write to standard output; `exact` is UTF-8 whatever the locale, for formats that are read by programs.

    A reader that left (`| head -1`) has what it wanted: the verdict and its exit code stand. Raises
    UsageError where the text cannot be written for another reason.
    """
    try:
        if exact:
            sys.stdout.flush()
            sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        else:
            sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        abandon(sys.stdout)
    except OSError as error:
        abandon(sys.stdout)
        raise UsageError(f"standard output cannot be written: {error.strerror or error}") from None


def say(text: str) -> None:
    """Words on stderr, without what a terminal would take as commands."""
    from topocheck.render.text import printable  # noqa: PLC0415 - only when there is something to say

    try:
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()
    except OSError:  # nobody listens, and the exit code says the same
        abandon(sys.stderr)


def abandon(stream: TextIO) -> None:
    """Let what a stream still holds go nowhere: the interpreter flushes it once more at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
