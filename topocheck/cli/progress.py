"""A wait as its user sees it: on a terminal one line that is written anew, elsewhere a line now and then."""

from __future__ import annotations

import contextlib
import os
import sys

from topocheck.cli.streams import abandon, say
from topocheck.render.text import printable

__all__ = ["Progress"]

ANEW_S, NOW_AND_THEN_S = 1.0, 10.0
"""How often a line is written anew, and how often another one is written."""
CLEAR = "\r\x1b[K"
"""To the beginning of the line, and clear it."""


class Progress:
    """Lines of progress on standard error."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._anew = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")
        self.every_s = ANEW_S if self._anew else NOW_AND_THEN_S
        """How often a line is worth telling, in seconds."""

    def tell(self, line: str) -> None:
        """One line."""
        text = f"{self._who}: {line}"
        if self._anew:
            self._write(CLEAR + printable(text)[: width() - 1])
        else:
            say(text)

    def close(self) -> None:
        """No further line comes: what follows begins on a clean one."""
        if self._anew:
            self._write(CLEAR)

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # the terminal is gone, and the gate waits for others, not for it
            abandon(sys.stderr)
            self._anew = False


def width() -> int:
    """Columns of the terminal that standard error is; 80 where it does not say."""
    with contextlib.suppress(OSError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80
