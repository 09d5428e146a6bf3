"""The end of the process.

A job of 12,500 nodes leaves a million objects behind. To take them apart one by one takes longer than most
rules; the system takes them back as a whole.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

__all__ = ["keep", "leave"]

_KEPT: list[object] = []


def keep(thing: object) -> None:
    """Keep something large until the process ends, or until the next such thing comes."""
    _KEPT[:] = [thing]


def leave(code: int) -> NoReturn:
    """End the process with this exit code, after all that was written is out."""
    if _KEPT:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
