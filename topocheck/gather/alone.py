"""The store of a job of one node: it has nobody to meet, and what it shows goes nowhere."""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.gather.store import Entry, Refused

__all__ = ["Alone"]


class Alone:
    """Entries and verdict of one process, in its memory."""

    def __init__(self) -> None:
        """Nothing is there."""
        self._entries: dict[str, bytes] = {}
        self._verdict: bytes | None = None
        self._remark: bytes | None = None

    def publish(self, name: str, data: bytes) -> None:
        """Keep an entry."""
        self._entries[name] = data

    def names(self) -> Sequence[str]:
        """Names of the entries."""
        return sorted(self._entries)

    def entry(self, name: str) -> Entry | Refused | None:
        """One entry; None if there is none."""
        return Entry(name, self._entries[name]) if name in self._entries else None

    def verdict(self) -> bytes | None:
        """The verdict, if there is one."""
        return self._verdict

    def decide(self, data: bytes) -> bytes:
        """Make this the verdict unless there is one; gives the one in force."""
        if self._verdict is None:
            self._verdict = data
        return self._verdict

    def remarked(self) -> bytes | None:
        """The remark, if there is one."""
        return self._remark

    def remark(self, data: bytes) -> None:
        """Make this the remark."""
        self._remark = data

    def clean(self, days: float) -> int:
        """Nothing is left of earlier runs."""
        del days
        return 0
