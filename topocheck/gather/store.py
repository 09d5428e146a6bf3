"""Where gates leave what their nodes show, and find what the others left: the interface of all stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = ["MOST_BYTES", "Entry", "Refused", "Store"]

MOST_BYTES = 16 << 20
"""Longest entry, unpacked: a snapshot of a large node has some 100 kB."""


class Entry(NamedTuple):
    """What one gate left."""

    name: str
    """Host, boot and task that it is of."""
    data: bytes
    """A snapshot."""


class Refused(NamedTuple):
    """Something in the store that is not used, and why."""

    name: str
    reason: str


class Store(Protocol):
    """Entries, one verdict and one remark for each run.

    All methods raise UsageError where the store cannot be used, and UndecidedError where it does not answer.
    Who is killed in the middle of one leaves it
    done or not done, never half. A verdict is for ever; a remark is the last one that somebody made, is no
    verdict, and says to other gates what they would find themselves.
    """

    def publish(self, name: str, data: bytes) -> None:
        """Leave an entry, whole or not at all; one of the same name is replaced."""

    def names(self) -> Sequence[str]:
        """Names of the entries that are there."""

    def entry(self, name: str) -> Entry | Refused | None:
        """One entry; None if it is gone."""

    def verdict(self) -> bytes | None:
        """The verdict of this run, if there is one."""

    def decide(self, data: bytes) -> bytes:
        """Make this the verdict of the run unless there is one; gives the one that is in force."""

    def remarked(self) -> bytes | None:
        """The remark, if there is one; None also for one that cannot be used."""

    def remark(self, data: bytes) -> None:
        """Make this the remark, whole or not at all, in place of the one before."""

    def clean(self, days: float) -> int:
        """Remove what runs of so many days ago left. Gives their number."""
