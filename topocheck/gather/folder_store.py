"""A folder that all nodes share, as the store of their gates: files only, no locks (NFS-safe).

    FOLDER/RUN/entries/NAME.json.gz   one for each gate
    FOLDER/RUN/verdict.json.gz        made once, by a link: link(2) fails if it is there, on NFS too
    FOLDER/RUN/remark.json.gz         what is undecided; the last one is in force

Everything is written aside and then renamed or linked, so that nobody reads half a file, and who is killed
leaves at most a file whose name begins with a dot.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import re
import secrets
import shutil
import stat
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from topocheck.errors import UsageError
from topocheck.gather.store import MOST_BYTES, Entry, Refused

__all__ = ["FolderStore"]

MOST_ENTRIES = 200_000
"""Files in a run's folder; more are no entries of gates."""
PACKED = ".json.gz"
ENTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,230}")
VERDICT, REMARK = f"verdict{PACKED}", f"remark{PACKED}"
DECIDED = "deciding"
"""Folder that stands in for the link where a file system has none."""
WORLD_WRITABLE = 0o002


class FolderStore:
    """Entries and verdict of one run below a folder."""

    def __init__(self, folder: Path, run: str) -> None:
        """Raises UsageError for a folder that is no folder, cannot be written, or belongs to everybody."""
        self.folder = folder
        self.run = folder / run
        self.entries = self.run / "entries"
        self._check(folder)
        with self._words("cannot be written"):
            self.entries.mkdir(parents=True, exist_ok=True)
        for part in (self.run, self.entries):
            self._check(part)
        with self._words("cannot be written"):
            self._owners = os.geteuid(), 0, self._owner()

    def publish(self, name: str, data: bytes) -> None:
        """Write aside, then rename."""
        with self._words("cannot be written"), self._aside(self.entries, data) as aside:
            aside.replace(self.entries / f"{name}{PACKED}")

    def names(self) -> Sequence[str]:
        """Entries by name, in order; what is no entry is left out."""
        found = []
        with self._words("cannot be listed"), os.scandir(self.entries) as listing:
            for number, file in enumerate(listing):
                if number > MOST_ENTRIES:
                    raise UsageError(
                        f"{self.entries}: holds more than {MOST_ENTRIES:,} files, which no job has: empty it"
                    )
                if file.name.endswith(PACKED) and ENTRY.fullmatch(file.name):
                    found.append(file.name.removesuffix(PACKED))
        return sorted(found)

    def entry(self, name: str) -> Entry | Refused | None:
        """One entry, unless it is a link, another user's or too large."""
        data = self._read(self.entries / f"{name}{PACKED}")
        return data if isinstance(data, Refused) or data is None else Entry(name, data)

    def verdict(self) -> bytes | None:
        """The verdict of this run. Raises UsageError for one that somebody else put there."""
        data = self._read(self.run / VERDICT)
        if isinstance(data, Refused):
            raise UsageError(f"{self.run / VERDICT}: {data.reason}")
        return data

    def decide(self, data: bytes) -> bytes:
        """Link the verdict to its name: the first link wins, and all others read what it says."""
        with self._words("cannot be written"), self._aside(self.run, data) as aside:
            link(aside, self.run / VERDICT)
        found = self.verdict()
        if found is None:
            raise UsageError(f"{self.run / VERDICT}: is gone again: somebody empties the store")
        return found

    def remarked(self) -> bytes | None:
        """The remark. One of somebody else's, a link or half a file is none: then each gate finds it out."""
        data = self._read(self.run / REMARK)
        return None if isinstance(data, Refused) else data

    def remark(self, data: bytes) -> None:
        """Write aside, then rename."""
        with self._words("cannot be written"), self._aside(self.run, data) as aside:
            aside.replace(self.run / REMARK)

    def clean(self, days: float) -> int:
        """Remove folders of runs that nothing was written to for so many days; this run's is left."""
        oldest, removed = time.time() - days * 86_400, 0
        with self._words("cannot be listed"):
            for run in sorted(self.folder.iterdir()):
                entries = run / "entries"
                if run == self.run or run.is_symlink() or not entries.is_dir():
                    continue
                if max(run.stat().st_mtime, entries.stat().st_mtime) < oldest:
                    shutil.rmtree(run, ignore_errors=True)
                    removed += 1
        return removed

    def _check(self, folder: Path) -> None:
        """Refuse a link, a file, and a folder in which anybody may replace files."""
        try:
            status = folder.lstat()
        except OSError as error:
            raise UsageError(
                f"{folder}: {error.strerror}: make it, on storage that all nodes share"
            ) from None
        if stat.S_ISLNK(status.st_mode):
            raise UsageError(f"{folder}: is a link: name the folder itself")
        if not stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{folder}: is no folder")
        if status.st_mode & WORLD_WRITABLE and not status.st_mode & stat.S_ISVTX:
            raise UsageError(f"{folder}: everybody may replace files in it: chmod o-w, or set the sticky bit")

    def _owner(self) -> int:
        """Whose files the gates of this run are: where a server takes root for nobody, nobody's.

        Raises UsageError for a run that somebody else began, who would have the verdict to give.
        """
        owner = self.entries.lstat().st_uid
        if owner in (os.geteuid(), 0):
            return owner
        with self._aside(self.entries, b"") as aside:
            if aside.lstat().st_uid != owner:
                raise UsageError(f"{self.run}: belongs to another user (uid {owner}): give another --run-id")
        return owner

    def _read(self, path: Path) -> bytes | Refused | None:
        """A file unpacked; why it is refused; None if there is none."""
        packed = b""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                reason = self._unusable(os.fstat(descriptor))
                packed = b"" if reason else file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:  # also while it is read: a server may let go what was replaced (ESTALE)
            reason = "is a link" if error.errno == errno.ELOOP else error.strerror or str(error)
        return Refused(path.name, reason) if reason else unpacked(path.name, packed)

    def _unusable(self, status: os.stat_result) -> str:
        """Why a file is not even read; empty if it is."""
        if not stat.S_ISREG(status.st_mode):
            return "is no file"
        if status.st_uid not in self._owners:
            return f"belongs to another user (uid {status.st_uid})"
        return f"is larger than {MOST_BYTES >> 20} MiB" if status.st_size > MOST_BYTES else ""

    @contextlib.contextmanager
    def _aside(self, folder: Path, data: bytes) -> Iterator[Path]:
        """A finished file of another name, gone afterwards unless it was renamed."""
        aside = folder / f".{os.getpid()}-{secrets.token_hex(8)}"
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                file.write(gzip.compress(data, compresslevel=6, mtime=0))
                file.flush()
                os.fsync(descriptor)
            yield aside
        finally:
            aside.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _words(self, what: str) -> Iterator[None]:
        """Errors of the file system as one sentence."""
        try:
            yield
        except OSError as error:
            raise UsageError(f"{error.filename or self.run}: {what}: {error.strerror or error}") from None


def unpacked(name: str, packed: bytes) -> bytes | Refused:
    """An entry's bytes, never more than MOST_BYTES of them."""
    unpack = zlib.decompressobj(wbits=31)
    try:
        data = unpack.decompress(packed, MOST_BYTES + 1)
    except zlib.error:
        return Refused(name, "is damaged")
    if len(data) > MOST_BYTES:
        return Refused(name, f"unpacks to more than {MOST_BYTES >> 20} MiB")
    return data if unpack.eof else Refused(name, "is cut")


def link(aside: Path, place: Path) -> None:
    """A second name, unless it is taken; where a file system has no links, a folder wins or loses instead."""
    try:
        with contextlib.suppress(FileExistsError):
            os.link(aside, place)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
            raise
        move(aside, place)


def move(aside: Path, place: Path) -> None:
    """The same by rename(2), which fails on a folder that holds something.

    What the folder holds is the verdict from then on. Whoever finds it there moves the same to its place, so
    that one who dies in between keeps nobody waiting.
    """
    own, decided = aside.with_name(f"{aside.name}.d"), place.with_name(DECIDED)
    own.mkdir()
    try:
        shutil.copyfile(aside, own / place.name)
        with contextlib.suppress(FileExistsError):  # ENOTEMPTY is none of its kinds
            own.rename(decided)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
    finally:
        shutil.rmtree(own, ignore_errors=True)
    if not place.exists():
        shutil.copyfile(decided / place.name, aside)
        aside.replace(place)
