"""A process that is asked something which may never be answered.

A call into a driver may never return and cannot be cancelled, so drivers are asked in a process of their
own, which can be ended. One that not even SIGKILL ends, because it waits inside the kernel, is left behind
and named.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["Child", "run_child"]

PIECE = 1 << 16
MOST_OUTPUT = 64 << 20
"""Bytes that are kept of one stream: a child that never stops talking fills no memory."""
GRACE_S = 0.5
"""How long a process that was killed may take to be gone."""


class Child(NamedTuple):
    """What a process said until it ended, was ended or was left behind."""

    out: bytes
    """Its standard output."""
    err: bytes
    """Its standard error."""
    code: int | None
    """Exit code, negative for a signal; None if it was still running at the deadline."""
    left: int | None = None
    """Its pid, if it could not be ended and was left behind."""

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.code is None:
            return (
                "was ended" if self.left is None else f"cannot be ended: process {self.left} is left behind"
            )
        if self.code < 0:
            return f"ended by {signal_name(-self.code)}"
        return f"ended with exit code {self.code}"


def signal_name(number: int) -> str:
    """SIGSEGV of 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run_child(command: Sequence[str], deadline: float, env: Mapping[str, str] | None = None) -> Child:
    """Run a process until it ends, at most until `deadline` (time.monotonic()), and take what it says.

    Both streams are drained all the time. Raises OSError if it cannot be started.
    """
    process = subprocess.Popen(  # noqa: S603 - the command is the caller's, and no shell reads it
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    said = {process.stdout: bytearray(), process.stderr: bytearray()}
    code = None
    try:
        with selectors.DefaultSelector() as open_streams:
            for stream in said:
                open_streams.register(stream, selectors.EVENT_READ)  # type: ignore[arg-type]
            while open_streams.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in open_streams.select(left):
                    more = os.read(key.fd, PIECE)
                    taken = said[key.fileobj]  # type: ignore[index]
                    taken += more[: MOST_OUTPUT - len(taken)]
                    if not more:
                        open_streams.unregister(key.fileobj)
        code = ended_by(process, deadline)
    finally:
        gone = code is not None or end(process)
        for stream in said:
            stream.close()  # type: ignore[union-attr]
    out, err = (bytes(text) for text in said.values())
    return Child(out, err, code, None if gone else process.pid)


def ended_by(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Exit code; None if it runs still. Both streams closed, a process ends at once."""
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def end(process: subprocess.Popen[bytes]) -> bool:
    """Kill; False if it is there still. A process that waits inside a driver ends when the driver lets it."""
    try:
        process.kill()
        process.wait(GRACE_S)
    except (OSError, subprocess.TimeoutExpired):  # OSError: it is another user's by now
        return False
    return True
