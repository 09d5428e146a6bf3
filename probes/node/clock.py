"""How well the clock is kept, as the kernel knows it (adjtimex(2)). It is one clock for all containers."""

from __future__ import annotations

import ctypes
import os

from topocheck.probes.node.reader import Reader
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import Clock, ProbeFault

__all__ = ["Timex", "parse_timex", "read_clock"]

CALL = "adjtimex"
UNSYNCHRONISED = 0x0040
"""STA_UNSYNC in linux/timex.h."""
TIME_ERROR = 5
"""What adjtimex returns for a clock that is not synchronised."""


class Timex(ctypes.Structure):
    """struct timex; with `modes` 0 nothing is changed."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("rest", ctypes.c_char * 144),
    )


def parse_timex(state: int, timex: Timex) -> Clock:
    """The answer of adjtimex; errors are given in microseconds."""
    return Clock(
        synchronised=state != TIME_ERROR and not timex.status & UNSYNCHRONISED,
        error_seconds=timex.esterror / 1e6,
        most_error_seconds=timex.maxerror / 1e6,
    )


def read_clock(roots: Roots) -> tuple[Clock | None, tuple[ProbeFault, ...]]:
    """The clock of the running kernel; None for a machine that was recorded elsewhere."""
    reader = Reader("state")
    if not roots.live:
        reader.note("absent", CALL, "the file tree is not of the running machine, whose clock alone answers")
        return None, reader.faults()
    adjtimex = getattr(ctypes.CDLL(None, use_errno=True), CALL, None)
    if adjtimex is None:
        reader.note("not-supported", CALL, "the C library has no such function")
        return None, reader.faults()
    timex = Timex()
    state = adjtimex(ctypes.byref(timex))
    if state < 0:
        code = ctypes.get_errno()
        reader.refused(CALL, OSError(code, os.strerror(code)))
        return None, reader.faults()
    return parse_timex(state, timex), reader.faults()
