"""Lists of devices in snapshots, read without decoding each.

Thousands of hosts list the same devices with other identifiers of the same length: UUIDs, GUIDs, serial
numbers. A list that differs from a known one in nothing else is taken apart at the same places.
"""

from __future__ import annotations

import os
import string
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from topocheck.gpulist import SEPARATOR, Columns, PackedList

__all__ = ["DeviceLists"]

Pieces = Callable[[bytes], tuple[bytes, ...]]
Spans = tuple[tuple[int, int], ...]
"""From the first byte to behind the last of each."""

PLAIN = (string.ascii_letters + string.digits + "-:.").encode()
"""What an identifier is made of. It stands in JSON as it is."""
FEWEST, MOST = 2, 64
"""Identifiers of a list, and lists, that are worth it."""
MOST_ALIKE = 1024
"""What lists have alike that is kept once."""


class Pattern(NamedTuple):
    """Where the identifiers of a list stand."""

    gaps: Pieces
    """Takes the identifiers out of a list."""
    rest: Pieces
    """Takes everything else out of it."""
    separators: bytes
    """What is left of the identifiers, joined, when all that they are made of is taken away."""
    known: dict[tuple[bytes, ...], Columns]
    """What lists have alike, by everything else."""


class DeviceLists:
    """Reads lists of one kind. Decodes those that are not like any before."""

    def __init__(self, kind: type[PackedList[Any]]) -> None:
        self._kind = kind
        entries: Any = tuple[kind.item, ...]  # type: ignore[name-defined]  # a type that a variable holds
        self._decode = msgspec.json.Decoder(entries).decode
        self._patterns: dict[int, dict[Spans, Pattern]] = {}
        """By the length of the list, and where identifiers stand in it."""
        self._alike: dict[Columns, Columns] = {}
        self._free = MOST

    def read(self, raw: msgspec.Raw) -> PackedList[Any]:
        """One list. Raises msgspec.DecodeError."""
        text = bytes(raw)
        for pattern in self._patterns.get(len(text), {}).values():
            alike = pattern.known.get(pattern.rest(text))
            if alike is not None:
                own = SEPARATOR.join(pattern.gaps(text))
                if own.translate(None, PLAIN) == pattern.separators:
                    return self._kind(alike, own)
        return self._learn(text)

    def _learn(self, text: bytes) -> PackedList[Any]:
        """Decode a list, and remember how it is written."""
        found = self._kind.of(self._decode(text))
        if len(self._alike) < MOST_ALIKE:
            found.alike = self._alike.setdefault(found.alike, found.alike)
        spans = spans_of(text, found.identifiers)
        if not self._free or len(spans) < FEWEST:
            return found
        self._free -= 1
        pattern = self._pattern(len(text), spans)
        if self._holds(text, spans, pattern, found.alike):
            pattern.known[pattern.rest(text)] = found.alike
        return found

    def _pattern(self, length: int, spans: Spans) -> Pattern:
        """The pattern of identifiers at these places."""
        order = sorted(spans)
        ends, starts = [0, *[end for _, end in order]], [*[start for start, _ in order], length]
        between = tuple(zip(ends, starts, strict=True))
        gaps, rest = ([slice(*span) for span in each] for each in (spans, between))
        found = Pattern(itemgetter(*gaps), itemgetter(*rest), SEPARATOR * (len(spans) - 1), {})
        return self._patterns.setdefault(length, {}).setdefault(spans, found)

    def _holds(self, text: bytes, spans: Spans, pattern: Pattern, alike: Columns) -> bool:
        """With other identifiers in the gaps, just these are decoded otherwise."""
        other = bytearray(text)
        for start, end in spans:
            other[start:end] = os.urandom(end - start).hex()[: end - start].encode()
        read = self._kind(alike, SEPARATOR.join(pattern.gaps(bytes(other))))
        return bool(self._kind.of(self._decode(bytes(other))) == read)


def spans_of(text: bytes, identifiers: Sequence[bytes]) -> Spans:
    """Where identifiers stand in a list, each from its first to behind its last byte; () if not all do.

    Equal ones stand there one after the other.
    """
    spans: list[tuple[int, int]] = []
    taken: dict[bytes, int] = {}
    for identifier in identifiers:
        start = text.find(b'"%b"' % identifier, taken.get(identifier, 0)) + 1
        if not start or identifier.translate(None, PLAIN):
            return ()
        taken[identifier] = start + len(identifier)
        spans.append((start, start + len(identifier)))
    return tuple(spans)
