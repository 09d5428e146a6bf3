"""Parts of snapshots that many hosts have alike, each read once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

__all__ = ["Recognised"]

Value = TypeVar("Value")

MOST_RAW = 256
"""Parts that are recognised by the object that a decoder hands out again and again."""


class Recognised(Generic[Value]):
    """What the bytes of a part stand for. To hash them takes longer than to decode the rest of a snapshot."""

    def __init__(self, read: Callable[[bytes], Value]) -> None:
        self.values: dict[bytes, Value] = {}
        """What was read, by its bytes."""
        self._read = read
        self._by_object: dict[int, tuple[msgspec.Raw, Value]] = {}

    def __call__(self, part: msgspec.Raw) -> Value:
        """What a part stands for: one object for equal parts. Raises what reading it raises."""
        known = self._by_object.get(id(part))
        if known is not None and known[0] is part:
            return known[1]
        raw = bytes(part)
        if raw not in self.values:
            self.values[raw] = self._read(raw)
            if len(self._by_object) < MOST_RAW:
                self._by_object[id(part)] = part, self.values[raw]
        return self.values[raw]
