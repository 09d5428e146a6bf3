"""Probes kept apart, each in a thread of its own, so that one that hangs or breaks hides only itself."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from topocheck.snapshot import ProbeFault

__all__ = ["Apart"]

T = TypeVar("T")


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
