"""SIGTERM while something is under way: clear away what is half done, then end by the signal."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

from topocheck.cli.streams import say

__all__ = ["ended_by_sigterm"]


class Ended(BaseException):
    """SIGTERM came. No Exception: nobody who mends errors may take it for one."""


@contextlib.contextmanager
def ended_by_sigterm(who: str) -> Iterator[None]:
    """SIGTERM ends what is done inside as an exception, so that what was written aside is removed."""

    def stop(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough: nothing may end the clearing away
        raise Ended

    alone = threading.current_thread() is threading.main_thread()
    if not alone or signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except Ended:
        say(f"{who}: ended by SIGTERM: no verdict")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(128 + signal.SIGTERM)  # process 1 of a container does not end by its own signal
    finally:
        signal.signal(signal.SIGTERM, before)
