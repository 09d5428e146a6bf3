"""Snapshots from JSON, the hardware of equal machines read once.

Hardware is three quarters of a document, and thousands of machines have the same. A document whose
hardware is known byte by byte is decoded with a stand-in in its place.
"""

from __future__ import annotations

import os

import msgspec

from topocheck.snapshot import Snapshot

__all__ = ["SnapshotDecoder"]

KEY = b'"hardware":'
BEGINNING = 192
"""Bytes by which kinds of hardware are told apart at first; those that begin alike are compared."""
MOST_KNOWN = 256
"""Kinds of hardware that are recognised; a cluster has a few dozen."""
SHORTEST = 512
"""Bytes of hardware from which on it is worth the trouble."""


class SnapshotDecoder:
    """Decodes as `msgspec.json.Decoder(Snapshot)` does, and raises what it raises.

    Snapshots with known hardware have the very same object as `hardware`.
    """

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(Snapshot).decode
        self._known: dict[bytes, list[tuple[bytes, msgspec.Raw]]] = {}
        self._free = MOST_KNOWN
        # Not to be guessed: no document can hold it, so where it comes out is where it was put in.
        self._stand_in = f'"{os.urandom(16).hex()}"'.encode()

    def decode(self, document: bytes) -> Snapshot:
        """One document."""
        start = document.find(KEY) + len(KEY)
        for known, raw in self._known.get(document[start : start + BEGINNING], ()):
            if document.startswith(known, start):
                snapshot = self._without(document, start, start + len(known))
                if snapshot is not None:
                    return msgspec.structs.replace(snapshot, hardware=raw)
        return self._learn(self._decode(document))

    def _without(self, document: bytes, start: int, end: int) -> Snapshot | None:
        """The document without these bytes; None if they are not its hardware, or it has a fault."""
        try:
            snapshot = self._decode(b"".join((document[:start], self._stand_in, document[end:])))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None  # what is wrong is said about the document as it is
        return snapshot if bytes(snapshot.hardware) == self._stand_in else None

    def _learn(self, snapshot: Snapshot) -> Snapshot:
        hardware = bytes(snapshot.hardware)
        if not self._free or len(hardware) < SHORTEST or not hardware.startswith(b"{"):
            return snapshot
        self._free -= 1
        raw = msgspec.Raw(hardware)
        self._known.setdefault(hardware[:BEGINNING], []).append((hardware, raw))
        return msgspec.structs.replace(snapshot, hardware=raw)
