"""Files that a user names, read whole up to a size; `-` is standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from topocheck.errors import InputError

__all__ = ["name_of", "read_bytes", "read_text"]


def name_of(path: str | Path) -> str:
    """What messages call the file."""
    return "<stdin>" if str(path) == "-" else str(path)


def read_bytes(path: str | Path, most_bytes: int, larger: str, error: type[InputError] = InputError) -> bytes:
    """The bytes of a file. `larger` says what is wrong with one of more than `most_bytes`. Raises `error`."""
    source = name_of(path)
    try:
        if source == "<stdin>":
            data = sys.stdin.buffer.read(most_bytes + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(most_bytes + 1)
    except (OSError, ValueError) as found:  # ValueError: a NUL in the path
        reason = getattr(found, "strerror", None) or str(found)
        raise error(f"cannot be read ({reason})", path=source) from None
    if len(data) > most_bytes:
        raise error(larger, path=source)
    return data


def read_text(path: str | Path, most_bytes: int, larger: str, error: type[InputError] = InputError) -> str:
    """The same as text, which has to be UTF-8. Raises `error`, with the line of what is not."""
    data = read_bytes(path, most_bytes, larger, error)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as found:
        line = data.count(b"\n", 0, found.start) + 1
        raise error("is not UTF-8 text", path=name_of(path), line=line, fix="save it as UTF-8") from None
