"""Snapshots from JSON: one document, or one document a line; plain, gzip or zstd.

Documents are decoded one at a time and handed on, so that a stream of 12,500 nodes needs no more
memory than one of them.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import IO, Any, cast

import msgspec

from topocheck.errors import SnapshotError
from topocheck.gather.decoder import SnapshotDecoder
from topocheck.snapshot import SCHEMA, FullSnapshot, Snapshot

__all__ = ["damage", "decode_snapshot", "is_snapshot", "open_stream", "read_snapshots", "undecoded"]

BUFFER = 1 << 20
PIECE = 1 << 16
"""Packed bytes unpacked at a time."""
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
MAJOR = SCHEMA.rpartition("/")[2]

DECODER = SnapshotDecoder()


def is_snapshot(head: bytes) -> bool:
    """The first bytes of a file are those of a snapshot, or of a stream of them."""
    return head.removeprefix(BOM_UTF8).lstrip().startswith(b"{") and b'"topocheck.snapshot/' in head


def open_stream(raw: io.BufferedReader, head: bytes, path: str) -> io.BufferedReader:
    """Unpack gzip and zstd by their first bytes. Raises SnapshotError if zstd support is missing."""
    if head.startswith(GZIP):
        return io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=raw)), BUFFER)
    if head.startswith(ZSTD):
        try:
            import zstandard  # noqa: PLC0415 - an extra, imported only where used
        except ImportError:
            raise SnapshotError(
                "is packed with zstd and the package zstandard is not installed",
                path=path,
                fix="install topocheck-placement[zstd], or unpack it (zstd -d) first",
            ) from None
        return io.BufferedReader(Zstd(zstandard.ZstdDecompressor(), raw), BUFFER)
    return raw


class Zstd(io.RawIOBase):
    """Frames of zstd, one after the other as `cat` leaves them; one that is cut is an error, not an end."""

    def __init__(self, decompressor: Any, packed: IO[bytes]) -> None:
        super().__init__()
        self._decompressor = decompressor
        self._packed = packed
        self._frame: Any = None
        self._unused = b""
        self._data = memoryview(b"")

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Some bytes, or 0 at the end. Raises EOFError in the middle of a frame."""
        while not self._data and self._more():
            pass
        taken = self._data[: len(buffer)]
        buffer[: len(taken)] = taken
        self._data = self._data[len(taken) :]
        return len(taken)

    def _more(self) -> bool:
        """Unpack one more piece; False at the end of the last frame."""
        packed = self._unused or self._packed.read(PIECE)
        if not packed:
            if self._frame is not None:
                raise EOFError("Compressed file ended before the end of its last zstd frame")
            return False
        frame = self._frame or self._decompressor.decompressobj()
        self._data = memoryview(frame.decompress(packed))
        self._unused = frame.unused_data if frame.eof else b""
        self._frame = None if frame.eof else frame
        return True


def damage() -> tuple[type[Exception], ...]:
    """What reading raises where a file is cut, damaged or gone."""
    zstandard = sys.modules.get("zstandard")
    return (OSError, EOFError, zlib.error, *((zstandard.ZstdError,) if zstandard else ()))


def read_snapshots(stream: IO[bytes], path: str) -> Iterator[Snapshot]:
    """Decode every document of a stream. Raises SnapshotError with the line of the first bad one."""
    number = 0
    try:
        for number, text in enumerate(stream, 1):
            line = text.removeprefix(BOM_UTF8) if number == 1 else text
            if number == 1 and not is_whole(line):
                yield decode_snapshot(line + stream.read(), path, None)
                return
            if line and not line.isspace():
                yield decode_snapshot(line, path, number)
    except damage() as error:
        raise SnapshotError(f"cannot be read: {error}", path=path, line=number + 1) from None


def is_whole(line: bytes) -> bool:
    """The first line holds a whole document: otherwise the file is one document over several lines."""
    text = line.strip()
    return not text or (text.startswith(b"{") and text.endswith(b"}"))


def decode_snapshot(document: bytes, path: str, line: int | None) -> Snapshot:
    """One document as a Snapshot. Raises SnapshotError in words.

    Fields that this version does not know are ignored: a newer probe may add some.
    """
    try:
        snapshot = DECODER.decode(document)
    except msgspec.ValidationError as error:
        raise SnapshotError(
            explain(document, error), path=path, line=line, fix="see topocheck schema snapshot"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(
            f"is not JSON: {error}",
            path=path,
            line=line or line_in(document, str(error)),
            fix="one snapshot a line, as topocheck probe prints it",
        ) from None
    name, _, major = snapshot.schema.partition("/")
    if name != "topocheck.snapshot" or major != MAJOR:
        raise SnapshotError(
            f"has schema {snapshot.schema[:60]!r}, this version reads {SCHEMA}",
            path=path,
            line=line,
            fix="use the topocheck of the probe that wrote it",
        )
    check_ordinals(snapshot, path, line)
    return snapshot


def line_in(document: bytes, error: str) -> int:
    """Line of a document at which msgspec says that it breaks; its last one where it is cut."""
    place = re.search(r"\(byte (\d+)\)", error)
    return document.count(b"\n", 0, int(place[1]) if place else len(document.rstrip())) + 1


def explain(document: bytes, error: msgspec.ValidationError) -> str:
    """What a document lacks, in words; a foreign schema first."""
    try:
        schema = json.loads(document).get("schema")
    except (ValueError, AttributeError, RecursionError):
        schema = SCHEMA
    if schema is not None and schema != SCHEMA:
        return f"has schema {str(schema)[:60]!r}, this version reads {SCHEMA}"
    return str(error).replace("Object missing", "missing").replace("Expected", "expected")


def check_ordinals(snapshot: Snapshot, path: str, line: int | None) -> None:
    """Ordinals that name a GPU the snapshot does not list would point anywhere."""
    count = len(snapshot.identity.gpus)
    for claim in snapshot.ranks:
        if claim.gpu is not None and not 0 <= claim.gpu < count:
            raise bad_ordinal(f"rank {claim.rank}", claim.gpu, count, path, line)
    if snapshot.observed is None:
        return
    for member in snapshot.observed.comms:
        if member.gpu is not None and not 0 <= member.gpu < count:
            raise bad_ordinal(f"member {member.rank} of {member.comm}", member.gpu, count, path, line)


def bad_ordinal(about: str, gpu: int, count: int, path: str, line: int | None) -> SnapshotError:
    """The sentence for an ordinal outside the list of GPUs."""
    return SnapshotError(
        f"{about} uses GPU ordinal {gpu} and identity.gpus lists {count}",
        path=path,
        line=line,
        fix="ordinals count from 0 in identity.gpus",
    )


def undecoded(snapshot: FullSnapshot) -> Snapshot:
    """The same snapshot as a stream would give it: its hardware as bytes."""
    return DECODER.decode(msgspec.json.encode(snapshot))
