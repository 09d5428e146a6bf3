"""Files of a machine, read so that three kinds of nothing stay apart.

A file that is not there, one that may not be read and one that the hardware or the kernel does not
support are different facts. Each is kept as a fault with its path and the system's own words; the same
fault of many devices is told once.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from topocheck.snapshot import ProbeFault

__all__ = ["MISSING", "Kind", "Reader", "is_folder", "kind_of", "parse_number", "printable"]

Kind = Literal["absent", "not-permitted", "not-supported", "timeout", "broken"]

MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
"""What the system answers for a path that is not there."""

KINDS: dict[int, Kind] = {
    **dict.fromkeys((*MISSING, errno.ENODEV, errno.ENXIO), "absent"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "not-permitted"),
    **dict.fromkeys((errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA, errno.ENOSYS), "not-supported"),
    errno.ETIMEDOUT: "timeout",
}
"""Kind of fault by errno; any other is a broken part."""

MOST_BYTES = 1 << 20
"""Longest file that is read whole; those of sysfs and procfs are far shorter."""

NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def kind_of(error: OSError) -> Kind:
    """Which kind of nothing an error of the system is."""
    return KINDS.get(error.errno or 0, "broken")


def parse_number(text: str) -> int | None:
    """A decimal number as the kernel prints it; None for any other text."""
    text = text.strip()
    return int(text) if NUMBER.fullmatch(text) else None


def printable(text: str) -> str:
    """Text that JSON can hold: names of files and variables may be any bytes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def is_folder(path: Path) -> bool:
    """Whether a path is a folder, so far as this process may look."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises where it may not look


class Reader:
    """Reads files for one part of a snapshot and keeps what went wrong."""

    def __init__(self, part: str) -> None:
        """Take the part of the snapshot that is missing where a file cannot be read."""
        self.part = part
        self._faults: dict[tuple[str, Kind, str, str], list[str]] = {}
        """Paths by part, kind, reason and name of the file without its numbers."""

    def data(self, path: Path, expected: Collection[int] = (), most: int = MOST_BYTES) -> bytes | None:
        """The bytes of a file, `most` at most; None if it cannot be read.

        An error with one of the `expected` numbers is the caller's to judge and leaves no fault. A pipe
        in the place of a file does not block.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return _whole(descriptor, most)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno not in expected:
                self.refused(path, error)
            return None

    def text(self, path: Path, expected: Collection[int] = ()) -> str | None:
        """The text of a file without the blanks around it; None if it cannot be read.

        Zero bytes, which no path may hold, are shown as damage.
        """
        content = self.data(path, expected)
        return None if content is None else content.decode("utf-8", "replace").replace("\0", "\ufffd").strip()

    def number(self, path: Path, expected: Collection[int] = ()) -> int | None:
        """The decimal number in a file; None, and a fault, for other text."""
        text = self.text(path, expected)
        found = None if text is None else parse_number(text)
        if text is not None and found is None:
            self.note("broken", path, f"expected a number, found {text[:40]!r}")
        return found

    def names(
        self, folder: Path, expected: Collection[int] = (), like: re.Pattern[str] | None = None
    ) -> tuple[str, ...]:
        """Names in a folder, `mlx5_2` before `mlx5_10`; () if it cannot be listed.

        `like` keeps those that match as a whole: to sort thousands of libraries costs more than to read them.
        """
        try:
            found = os.listdir(folder)  # noqa: PTH208 - the names are wanted, not paths
        except OSError as error:
            if error.errno not in expected:
                self.refused(folder, error)
            return ()
        return tuple(sorted(found if like is None else filter(like.fullmatch, found), key=_natural))

    def link(self, path: Path) -> tuple[str, ...]:
        """Parts of a symbolic link's target; () where there is none, which is an answer and no fault."""
        try:
            return Path(os.readlink(path)).parts  # noqa: PTH115 - the raw target, not a path to follow
        except OSError as error:
            if error.errno not in (*MISSING, errno.EINVAL):  # EINVAL: it is no link
                self.refused(path, error)
            return ()

    def refused(self, path: Path | str, error: OSError, part: str | None = None) -> None:
        """Keep an error of the system as a fault."""
        self.note(kind_of(error), path, error.strerror or str(error), part)

    def note(self, kind: Kind, path: Path | str, reason: str, part: str | None = None) -> None:
        """Keep a fault; of another part than the reader's if `part` is given."""
        name = re.sub(r"[0-9]+", "", Path(path).name)
        paths = self._faults.setdefault((part or self.part, kind, printable(reason), name), [])
        paths.append(printable(str(path)))

    def faults(self) -> tuple[ProbeFault, ...]:
        """What went wrong, in the order in which it did."""
        return tuple(
            ProbeFault(part=part, kind=kind, path=_first(paths), reason=reason)
            for (part, kind, reason, _), paths in self._faults.items()
        )


def _whole(descriptor: int, most: int) -> bytes:
    """Read to the end: one call gives a page at most of some files of the kernel."""
    content = b""
    while len(content) < most:
        more = os.read(descriptor, most - len(content))
        if not more:
            break
        content += more
    return content


def _first(paths: list[str]) -> str:
    """`/sys/... and 7 more`: the path of a fault."""
    others = len(dict.fromkeys(paths)) - 1
    return paths[0] + (f" and {others} more" if others else "")


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sorts numbers inside names by value."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+|[0-9]+", name)
    return [(0, int(part), "") if part.isdecimal() and len(part) < 19 else (1, 0, part) for part in parts]
