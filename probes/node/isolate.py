"""Parts of a probe kept apart, so that one that hangs or breaks hides nothing but itself.

Files are read in threads. A call into a driver may never return and cannot be cancelled, so drivers are
asked in a process of their own, which can be ended; one that not even SIGKILL ends, because it waits
inside the kernel, is left behind and named.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from topocheck.snapshot import ProbeFault

__all__ = ["Apart", "Child", "run_child"]

T = TypeVar("T")

PIECE = 1 << 16
MOST_OUTPUT = 64 << 20
"""Bytes that are kept of one stream: a child that never stops talking fills no memory."""
GRACE_S = 0.5
"""How long a process that was killed may take to be gone."""


class Apart(Generic[T]):
    """One piece of work in a thread of its own, and what came of it.

    The thread is a daemon: one that waits for a file that never answers does not keep the process alive.
    """

    def __init__(self, name: str, part: str, work: Callable[[], tuple[T, tuple[ProbeFault, ...]]]) -> None:
        """Start. `name` is the probe's, `part` what of the snapshot is missing if it fails."""
        self.name = name
        self.part = part
        self._work = work
        self._done = threading.Event()
        self._found: tuple[T, tuple[ProbeFault, ...]] | None = None
        self._broken: Exception | None = None
        self._started = time.monotonic()
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as error:  # no further thread may be started here
            self._broken = error
            self._done.set()

    def _run(self) -> None:
        try:
            self._found = self._work()
        except Exception as error:  # noqa: BLE001 - whatever breaks in a probe is told as that probe's fault
            self._broken = error
        self._done.set()

    def result(self, deadline: float, nothing: T) -> tuple[T, tuple[ProbeFault, ...]]:
        """What was found and what could not be read, by `deadline` (time.monotonic()).

        `nothing` stands for what a probe that broke or did not answer would have found.
        """
        if not self._done.wait(max(0.0, deadline - time.monotonic())):
            waited = f"no answer within {time.monotonic() - self._started:.1f} s"
            return nothing, (self._fault("timeout", waited),)
        if self._found is None:
            return nothing, (self._fault("broken", told(self._broken)),)
        return self._found

    @property
    def succeeded(self) -> bool:
        """It has come to its end, and did not break."""
        return self._done.is_set() and self._found is not None

    def _fault(self, kind: str, reason: str) -> ProbeFault:
        path = f"probe {self.name}"
        return ProbeFault(
            part=self.part, kind="timeout" if kind == "timeout" else "broken", path=path, reason=reason
        )


def told(error: BaseException | None) -> str:
    """An exception in one line, with the place that raised it: this is a bug, and will be reported."""
    trace = None if error is None else error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = ""
    if trace is not None:
        code = trace.tb_frame.f_code
        where = f" ({os.path.basename(code.co_filename)}, line {trace.tb_lineno})"  # noqa: PTH119 - not a path here
    return f"{type(error).__name__}: {error}{where}"


@dataclass(frozen=True, slots=True)
class Child:
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
