"""Snapshots from JSON: one document, or one document a line among other lines; plain, gzip or zstd.

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
from functools import lru_cache
from itertools import chain
from typing import IO, Any, cast

import msgspec

from topocheck.errors import SnapshotError
from topocheck.gather.decoder import SnapshotDecoder
from topocheck.gather.relay import MARK, Pieces, begins, untagged
from topocheck.gather.seal import ends_as_it_began, has_its_length
from topocheck.ranges import fold
from topocheck.snapshot import SCHEMA, FullSnapshot, Snapshot

__all__ = [
    "damage",
    "decode_snapshot",
    "encode_snapshot",
    "is_snapshot",
    "open_stream",
    "read_snapshots",
    "undecoded",
]

BUFFER = 1 << 20
PIECE = 1 << 16
"""Packed bytes unpacked at a time."""
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
MAJOR = SCHEMA.rpartition("/")[2]
MOST_AHEAD = 64
"""Lines after the first within which another snapshot begins, if the first one is cut."""
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoder raises; its ValidationError, too, is a DecodeError."""

DECODER = SnapshotDecoder()


def is_snapshot(head: bytes) -> bool:
    """The first bytes of a file are those of a snapshot, or of a stream in which snapshots are."""
    text = head.removeprefix(BOM_UTF8).lstrip()
    if text.startswith(b"{"):
        return MARK in head
    return MARK in head and any(begins(untagged(line)[1]) for line in text.split(b"\n"))


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


def read_snapshots(stream: IO[bytes], path: str, notes: list[str] | None = None) -> Iterator[Snapshot]:
    """Decode every document of a stream.

    Lines that launchers and shells put between them, and snapshots that were cut, are told in `notes`,
    as long as there is a whole one. Raises SnapshotError with the line of the first bad one.
    """
    found = Lines(path)
    number = 0
    try:
        first = stream.readline().removeprefix(BOM_UTF8)
        ahead = [first]
        if not is_whole(first):
            while len(ahead) < MOST_AHEAD and (line := stream.readline()):
                ahead.append(line)
                if begins(untagged(line)[1]):
                    break
            else:
                yield decode_snapshot(b"".join(ahead) + stream.read(), path, None)
                return
        for number, line in enumerate(chain(ahead, stream), 1):
            snapshot = found.take(number, line)
            if snapshot is not None:
                yield snapshot
    except damage() as error:
        raise SnapshotError(f"cannot be read: {error}", path=path, line=number + 1) from None
    found.end()
    if notes is not None:
        notes += found.notes()


def is_whole(line: bytes) -> bool:
    """The first line is not the beginning of one document over several lines."""
    text = line.strip()
    return not text.startswith(b"{") or text.endswith(b"}")


class Lines:
    """Lines of a stream, one after the other."""

    def __init__(self, path: str) -> None:
        """Take the name of the file, for errors."""
        self._path = path
        self._pieces = Pieces()
        self._read = False
        self._torn: list[int] = []
        self._longer: list[int] = []
        self._foreign: list[int] = []
        self._stranger = b""
        self._problem: SnapshotError | None = None

    def take(self, number: int, line: bytes) -> Snapshot | None:
        """The snapshot that ends with this line, if one does. Raises SnapshotError for one that is wrong."""
        tags, body = (b"", line) if line.startswith(b"{") else untagged(line)
        if not begins(body) and self._pieces.more(tags, body):
            whole = self._pieces.whole(tags)
            snapshot = None if whole is None else self._decoded(whole[1], whole[0])
            if snapshot is not None:
                self._pieces.close(tags)
            return snapshot
        if not body.startswith(b"{") or MARK not in body:
            self._pass_by(number, line)
            return None
        snapshot = self._decoded(body, number)
        if snapshot is None and tags:
            self._pieces.begin(tags, number, body)
        elif snapshot is None:
            self._torn.append(number)
            self._problem = self._problem or broken(body, self._path, number)
        return snapshot

    def _decoded(self, document: bytes, number: int) -> Snapshot | None:
        """A document; None if it is cut, or put together from two. Raises SnapshotError if it is wrong."""
        try:
            snapshot = DECODER.decode(document)
        except NOT_JSON:
            if is_json(document):
                decode_snapshot(document, self._path, number)
            return None
        if not ends_as_it_began(snapshot):
            return None
        if not has_its_length(document, snapshot):
            self._longer.append(number)
        self._read = True
        return checked(snapshot, self._path, number)

    def _pass_by(self, number: int, line: bytes) -> None:
        if not line.isspace():
            self._stranger = self._stranger or line
            self._foreign.append(number)

    def end(self) -> None:
        """No further line comes. Raises SnapshotError if there was no snapshot."""
        self._pieces.end()
        self._torn = sorted((*self._torn, *self._pieces.torn))
        if self._torn and not self._read:
            raise self._problem or SnapshotError(
                "is cut: it begins a snapshot and does not end it", path=self._path, line=self._torn[0]
            )
        if self._longer and (self._torn or self._foreign):
            raise SnapshotError(
                "is longer or shorter than it says, among lines that were cut: it is mixed from several",
                path=self._path,
                line=self._longer[0],
                fix="run srun with -l, which marks the pieces of each task",
            )

    def notes(self) -> list[str]:
        """What was passed by, in words."""
        found = []
        if self._torn:
            found.append(
                f"{numbered(self._torn)}: cut: begins a snapshot that does not end as it began. Launchers "
                "mix long lines of several tasks: srun -l marks them, so that they can be told apart"
            )
        if self._foreign:
            words = self._stranger.decode("utf-8", "backslashreplace").strip()[:80]
            found.append(f"{numbered(self._foreign)}: ignored: no snapshot, but {words!r} and the like")
        return found


def numbered(lines: list[int]) -> str:
    """`line 3` or `lines 3..7, 12`."""
    return f"line {lines[0]}" if len(lines) == 1 else f"lines {fold(lines)}"


def is_json(document: bytes) -> bool:
    """Whether it is JSON at all."""
    try:
        msgspec.json.decode(document)
    except NOT_JSON:
        return False
    return True


def broken(document: bytes, path: str, line: int) -> SnapshotError:
    """The error of a document that is cut or mixed."""
    try:
        decode_snapshot(document, path, line)
    except SnapshotError as error:
        return error
    return SnapshotError("begins as one snapshot and ends as another", path=path, line=line)


def decode_snapshot(document: bytes, path: str, line: int | None) -> Snapshot:
    """One document as a Snapshot. Raises SnapshotError in words.

    Fields that this version does not know are ignored: a newer probe may add some.
    """
    try:
        return checked(DECODER.decode(document), path, line)
    except msgspec.ValidationError as error:
        raise SnapshotError(
            explain(document, error), path=path, line=line, fix="see topocheck schema snapshot"
        ) from None
    except NOT_JSON as error:
        raise SnapshotError(
            f"is not JSON: {error}",
            path=path,
            line=line or line_in(document, str(error)),
            fix="one snapshot a line, as topocheck probe prints it",
        ) from None


def checked(snapshot: Snapshot, path: str, line: int | None) -> Snapshot:
    """The snapshot, if it is of a version that is read and points at nothing that it lacks."""
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
    # Nearly always all of them are in range, and then that is seen at once.
    shown = [claim.gpu for claim in snapshot.ranks]
    shown += [gpu.gpu for gpu in snapshot.state.gpus]
    for fabric in snapshot.fabric:
        shown += fabric.gpus
    if snapshot.observed is None and ordinals(count).issuperset(shown):
        return
    for claim in snapshot.ranks:
        if claim.gpu is not None and not 0 <= claim.gpu < count:
            raise bad_ordinal(f"rank {claim.rank}", claim.gpu, count, path, line)
    named = [("state", gpu.gpu) for gpu in snapshot.state.gpus]
    named += [("fabric", gpu) for fabric in snapshot.fabric for gpu in fabric.gpus]
    for part, gpu in named:
        if not 0 <= gpu < count:
            raise bad_ordinal(part, gpu, count, path, line)
    if snapshot.observed is None:
        return
    for member in snapshot.observed.comms:
        if member.gpu is not None and not 0 <= member.gpu < count:
            raise bad_ordinal(f"member {member.rank} of {member.comm}", member.gpu, count, path, line)


@lru_cache(maxsize=64)
def ordinals(count: int) -> frozenset[int | None]:
    """Ordinals of so many GPUs, and none."""
    return frozenset((None, *range(count)))


def bad_ordinal(about: str, gpu: int, count: int, path: str, line: int | None) -> SnapshotError:
    """The sentence for an ordinal outside the list of GPUs."""
    return SnapshotError(
        f"{about} uses GPU ordinal {gpu} and identity.gpus lists {count}",
        path=path,
        line=line,
        fix="ordinals count from 0 in identity.gpus",
    )


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """A snapshot that was read as JSON again, without what is not read of it."""
    return msgspec.json.encode(snapshot, enc_hook=tuple)  # packed lists of devices


def undecoded(snapshot: FullSnapshot) -> Snapshot:
    """The same snapshot as a stream would give it: its hardware as bytes."""
    return DECODER.decode(msgspec.json.encode(snapshot))
