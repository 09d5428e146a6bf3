"""Lines as launchers hand them on: with tags in front, and cut into pieces.

`srun -l` writes `3: ` before each line, mpirun `[1,3]<stdout>: `, `kubectl logs --prefix` `[pod/a/b] `,
pdsh and clush `host: `, collectors a time. srun passes on 1024 bytes at a time: with `-l` each piece is a
line with the tag of its task, so that the pieces of a long line can be put together again; without it
pieces of several tasks end up in one line, and what was whole cannot be told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["MARK", "Pieces", "begins", "untagged"]

MARK = b'"topocheck.snapshot/'
"""What every snapshot has, mostly right at its beginning."""
BEGINNING = 200
"""Bytes within which a piece that begins a snapshot shows the mark."""
MOST_PIECES = 256 << 20
"""Bytes that wait for their end: 256 MiB."""

TAGS = re.compile(
    rb"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? "  # a collector's time
    rb"|[ ]{0,8}\d{1,9}: "  # srun -l
    rb"|(?:\[[^\[\]{}\"]{1,300}\]){1,3}(?:<std(?:out|err)>)?:? ?"  # mpirun, kubectl, Hydra
    rb"|[A-Za-z0-9][A-Za-z0-9_.@/-]{0,300}(?:: | \| )"  # pdsh, clush, compose
    rb"){1,4}"
)


def untagged(line: bytes) -> tuple[bytes, bytes]:
    """The tags of a line and what follows them; blanks of what follows count, since a piece may begin so."""
    found = TAGS.match(line)
    return (found[0], line[found.end() :]) if found else (b"", line)


def begins(body: bytes) -> bool:
    """A snapshot begins here."""
    return body.startswith(b"{") and MARK in body[:BEGINNING]


@dataclass(slots=True)
class Piece:
    """What one task has said of its snapshot so far."""

    line: int
    """Where it begins."""
    text: bytearray


class Pieces:
    """Snapshots that have begun, by the tags of their lines."""

    def __init__(self) -> None:
        self._open: dict[bytes, Piece] = {}
        self._size = 0
        self.torn: list[int] = []
        """Lines at which snapshots begin that never came to their end."""

    def begin(self, tags: bytes, line: int, body: bytes) -> None:
        """A snapshot begins; one that was open under the same tags will have no end."""
        self.drop(tags)
        self._open[tags] = Piece(line, bytearray())
        self._add(tags, body)

    def more(self, tags: bytes, body: bytes) -> bool:
        """Take a further piece of an open snapshot; False if none is open under these tags."""
        if tags not in self._open:
            return False
        self._add(tags, body)
        return True

    def whole(self, tags: bytes) -> tuple[int, bytes] | None:
        """Line and text of the open snapshot if it may be whole."""
        piece = self._open.get(tags)
        return None if piece is None or not piece.text.endswith(b"}") else (piece.line, bytes(piece.text))

    def close(self, tags: bytes) -> None:
        """The snapshot is whole."""
        self._size -= len(self._open.pop(tags).text)

    def drop(self, tags: bytes) -> None:
        """The snapshot will never be whole."""
        piece = self._open.pop(tags, None)
        if piece is not None:
            self._size -= len(piece.text)
            self.torn.append(piece.line)

    def end(self) -> None:
        """No further line comes."""
        for tags in list(self._open):
            self.drop(tags)

    def _add(self, tags: bytes, body: bytes) -> None:
        text = body.rstrip(b"\r\n")
        self._open[tags].text += text
        self._size += len(text)
        if self._size > MOST_PIECES:
            self.end()
