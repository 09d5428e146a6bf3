"""Trace files as the user names them: files of units, or traces of the PyTorch profiler, plain or gzip."""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import IO, cast

from topocheck.errors import InputError, UsageError
from topocheck.pipeline.trace import Trace
from topocheck.pipeline.trace_events import is_profile
from topocheck.pipeline.trace_ranks import put_together
from topocheck.pipeline.trace_torch import Profile, read_profile
from topocheck.pipeline.trace_units import UnitTraces, is_units

__all__ = ["read_traces"]

HEAD_BYTES = 1 << 16
GZIP = b"\x1f\x8b"
LABELLED = re.compile(r"([0-9]{1,9})=(.+)", re.DOTALL)


class _Files:
    """What the files gave so far."""

    def __init__(self) -> None:
        self.profiles: list[Profile] = []
        self.units = UnitTraces()
        self.of_units: list[str] = []

    def read(self, name: str) -> None:
        """Take one file. Raises InputError."""
        rank, path = _split(name)
        try:
            with ExitStack() as stack:
                raw = stack.enter_context(Path(path).open("rb")) if path != "-" else sys.stdin.buffer
                stream = _unpacked(cast("BufferedReader", raw))
                self._take(stream, path, rank)
        except (OSError, EOFError, zlib.error, ValueError) as error:  # ValueError: a NUL in the path
            words = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise InputError(f"cannot be read ({words})", path=path) from None

    def _take(self, stream: BufferedReader, path: str, rank: int | None) -> None:
        head = stream.peek(HEAD_BYTES)[:HEAD_BYTES]
        if is_profile(head):
            self.profiles.append(read_profile(cast("IO[bytes]", stream), path, rank))
        elif is_units(head):
            self.of_units.append(path)
            self.units.read(cast("IO[bytes]", stream), path)
        else:
            raise InputError(
                "is neither units of work nor a trace of the PyTorch profiler"
                if head.strip()
                else "is empty",
                path=path,
                fix="topocheck waits --help shows both forms",
            )


def read_traces(names: Sequence[str], chains: Sequence[Sequence[int]] | None = None) -> Trace:
    """One pipeline out of its files. A name is a path, `-`, a folder, or `RANK=PATH`.

    `chains` are the ranks of each pipeline, first stage first, where they are known. Raises InputError for
    what cannot be read, UsageError for files that do not belong together.
    """
    files = _Files()
    for name in chain.from_iterable(map(_expanded, names)):
        files.read(name)
    if files.profiles and files.of_units:
        raise UsageError(
            f"{files.of_units[0]} is a file of units and {files.profiles[0].source} a trace of the profiler: "
            "give one kind"
        )
    return put_together(files.profiles, chains) if files.profiles else files.units.finish()


def _split(name: str) -> tuple[int | None, str]:
    """`RANK=PATH`, unless a file has that name itself."""
    match = LABELLED.fullmatch(name)
    return (int(match[1]), match[2]) if match and not Path(name).exists() else (None, name)


def _expanded(name: str) -> list[str]:
    """Files of a folder in order; any other name as it is."""
    try:
        place = Path(name)
        if not place.is_dir():
            return [name]
        found = sorted(str(entry) for entry in place.iterdir() if entry.is_file() and entry.name[0] != ".")
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not found:
        raise UsageError(f"{name}: the folder holds no trace")
    return found


def _unpacked(raw: BufferedReader) -> BufferedReader:
    """The stream itself, or what gzip has packed in it; its beginning can be peeked at."""
    if raw.peek(2)[:2] == GZIP:
        return BufferedReader(cast("BufferedReader", gzip.GzipFile(fileobj=raw)), HEAD_BYTES)
    return raw
