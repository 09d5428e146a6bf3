"""Evidence as the user names it: files, folders, `-`, `LABEL=FILE`.

Every file is recognised by what is in it. One that nothing recognises is an error: evidence that is
silently left out would be a hole in the verdict.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, cast

import msgspec

from topocheck.errors import InputError, SnapshotError, UsageError
from topocheck.gather.stream import damage, is_snapshot, open_stream, read_snapshots, undecoded
from topocheck.inventory import Inventory
from topocheck.merge import labelled
from topocheck.probes.capture.reading import Reading
from topocheck.ranges import first
from topocheck.report import InputReport
from topocheck.snapshot import FullSnapshot, JobFact

__all__ = ["Argument", "arguments", "gather"]

HEAD = 1 << 16
BUFFER = 1 << 20
MOST_HOSTS = 16
MOST_CAPTURE = 256 << 20
"""Captured text larger than this is refused: 256 MiB."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One file to read."""

    name: str
    """As the user gave it, or found in the user's folder."""
    label: str | None
    """Host that the user says it is of."""
    path: str | None = None
    """Where it lies, if not under its name."""


@dataclass(slots=True)
class _Input:
    """What one file gave, while it is read."""

    name: str
    label: str = ""
    kinds: dict[str, None] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    named: dict[str, None] = field(default_factory=dict)
    """Hosts that it names itself, the first ones."""
    notes: list[str] = field(default_factory=list)
    digest: str = ""

    def report(self) -> InputReport:
        """For the report."""
        return InputReport(
            name=self.name,
            kind=", ".join(self.kinds) or "empty",
            digest=self.digest,
            hosts=list(self.hosts)[:MOST_HOSTS],
            notes=self.notes,
            label=self.label,
        )


def arguments(names: list[str]) -> list[Argument]:
    """Expand what the user gave into files, in a stable order.

    Raises UsageError for a missing file, an empty folder, or standard input asked for twice.
    """
    found: list[Argument] = []
    for name in names:
        label, path = split_label(name)
        if path == "-":
            if any(file.name == "-" for file in found):
                raise UsageError("- is given twice: standard input can be read once")
            found.append(Argument("-", label))
            continue
        place = Path(path)
        try:
            if place.is_dir():
                found += [Argument(str(entry), label) for entry in files_of(place)]
                continue
            exists = place.exists()
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: cannot be read: {reason(error)}") from None
        if not exists:
            raise UsageError(
                f"{path}: no such file: give a snapshot, a captured text, a folder of them, or -"
            )
        found.append(Argument(path, label))
    # The order of the arguments says nothing, so that it changes nothing; a file given twice is one file.
    return sorted(dict.fromkeys(found), key=lambda file: (file.name, file.label or ""))


def split_label(name: str) -> tuple[str | None, str]:
    """`LABEL=FILE`; a file whose own name has a `=` is taken as it is."""
    label, sign, path = name.partition("=")
    if not sign or not label or "/" in label:
        return None, name
    try:
        if Path(name).exists():
            return None, name
    except (OSError, ValueError):
        pass
    return label, path


def files_of(folder: Path) -> list[Path]:
    """Files of a folder and its sub-folders in order, hidden ones left out."""
    found: list[Path] = []
    for name, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = [entry for entry in folders if not entry.startswith(".")]
        found += [Path(name, file) for file in files if not file.startswith(".")]
    found = sorted(entry for entry in found if entry.is_file())
    if not found:
        raise UsageError(f"{folder}: the folder is empty: it holds no evidence")
    return found


def unreadable(error: OSError) -> None:
    """A folder that may not be listed may hold evidence: it is not passed over in silence."""
    raise UsageError(f"{error.filename}: cannot be read: {reason(error)}") from None


def gather(files: list[Argument], inventory: Inventory, *, digests: bool = True) -> list[InputReport]:
    """Read every file into the inventory.

    `digests` may be left out where no output shows them. Raises InputError with file and line.
    """
    return [take(file, inventory, digests=digests).report() for file in files]


def take(file: Argument, inventory: Inventory, *, digests: bool) -> _Input:
    """Read one file, whatever it holds."""
    found = _Input(shown(file.name), file.label or "")
    try:
        with opened(file.path or file.name) as raw:
            hashing = Hashing(raw) if digests else None
            packed = cast(
                "io.BufferedReader", io.BufferedReader(cast("io.RawIOBase", hashing or raw), BUFFER)
            )
            stream = open_stream(packed, packed.peek(HEAD), found.name)
            if is_snapshot(stream.peek(HEAD)):
                take_snapshots(stream, file, inventory, found)
            else:
                take_capture(stream.read(MOST_CAPTURE + 1), file, inventory, found)
            found.digest = hashing.digest() if hashing else ""
    except damage() as error:
        raise InputError(f"cannot be read: {reason(error)}", path=found.name) from None
    return found


def check_label(file: Argument, found: _Input) -> None:
    """A label names one host. Raises InputError for a stream of several: it would make them one."""
    if file.label is not None and len(found.named) > 1:
        raise InputError(
            f"speaks of {first(found.named, 4)} and is given as {file.label} alone",
            path=found.name,
            fix=f"give it without {file.label}=",
        )


def take_snapshots(stream: io.BufferedReader, file: Argument, inventory: Inventory, found: _Input) -> None:
    """A stream of snapshots."""
    found.kinds["topocheck snapshots"] = None
    for number, snapshot in enumerate(read_snapshots(stream, found.name, found.notes), 1):
        try:
            inventory.add(snapshot, file.label)
        except msgspec.MsgspecError as error:
            problem = f"document {number}: hardware, environment or network: {error}"
            raise SnapshotError(problem, path=found.name, fix="see topocheck schema snapshot") from None
        host = snapshot.identity.host
        if len(found.hosts) < MOST_HOSTS and (host.name or host.boot_id):
            found.hosts[host.name or host.boot_id or ""] = None
            found.named[host.boot_id or host.name or ""] = None
    check_label(file, found)


def take_capture(data: bytes, file: Argument, inventory: Inventory, found: _Input) -> None:
    """Text that another tool wrote."""
    if len(data) > MOST_CAPTURE:
        raise InputError(
            f"is larger than {MOST_CAPTURE >> 20} MiB",
            path=found.name,
            fix="keep the lines that matter: grep -E 'NCCL|Init|Channel' FILE",
        )
    if not data.strip():
        raise InputError("is empty", path=found.name, fix="capture it again, or leave it out")
    # Parsers of captured text are imported only where there is some: they take longer than a small job.
    from topocheck.probes.capture.recognise import read_capture  # noqa: PLC0415

    for reading in under_label(read_capture(data, found.name), file.label):
        found.kinds[reading.kind] = None
        found.notes += [spell(note.line, note.kind, note.text) for note in reading.notes]
        for snapshot in reading.snapshots:
            inventory.add(undecoded(snapshot))
            if snapshot.identity.host.name:
                found.hosts[snapshot.identity.host.name] = None
    if not found.hosts:
        found.notes.append(f"names no host: give it as NODE={found.name} to say which node it is of")


def under_label(readings: list[Reading], label: str | None) -> list[Reading]:
    """Readings of one text under the user's label, which is another name of its host.

    In a text that names several hosts itself, it is the host of what names none.
    """
    hosts = {snapshot.identity.host.name for reading in readings for snapshot in reading.snapshots}
    several = len(hosts - {None}) > 1

    def named(snapshot: FullSnapshot) -> FullSnapshot:
        identity = snapshot.identity
        if label is None or (several and identity.host.name is not None):
            return snapshot
        host = labelled(identity.host, label)
        job = tuple(of_host(fact, label) for fact in snapshot.job)
        return msgspec.structs.replace(
            snapshot, identity=msgspec.structs.replace(identity, host=host), job=job
        )

    return [replace(reading, snapshots=tuple(map(named, reading.snapshots))) for reading in readings]


def of_host(fact: JobFact, label: str) -> JobFact:
    """A statement of a text that the user says is of one host: a node rank without a host is that host's."""
    if fact.kind != "node-rank" or fact.host is not None or fact.name:
        return fact
    return msgspec.structs.replace(fact, host=label)


def spell(line: int | None, kind: str, text: str) -> str:
    """A note of a parser in one line."""
    return f"line {line}: {kind}: {text}" if line is not None else f"{kind}: {text}"


def opened(name: str) -> IO[bytes]:
    """The bytes of a file or of standard input."""
    return sys.stdin.buffer if name == "-" else Path(name).open("rb")


def shown(name: str) -> str:
    """A file name as text; bytes that are not UTF-8 as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


class Hashing(io.RawIOBase):
    """A stream that digests what is read from it."""

    def __init__(self, raw: IO[bytes]) -> None:
        super().__init__()
        self._raw = raw
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read and digest."""
        data = self._raw.read(len(buffer))
        self._hash.update(data)
        buffer[: len(data)] = data
        return len(data)

    def digest(self) -> str:
        """Digest of the whole, what a reader left unread included."""
        while data := self._raw.read(BUFFER):
            self._hash.update(data)
        return f"sha256:{self._hash.hexdigest()}"


def reason(error: Exception) -> str:
    """The system's words without its numbers and paths."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
