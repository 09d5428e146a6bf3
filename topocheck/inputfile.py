"""Files that a user names, read whole up to a size; `-` is standard input."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from topocheck.errors import InputError

__all__ = [
    "digest_of",
    "file_digest",
    "is_regular",
    "name_of",
    "read_bytes",
    "read_config_json",
    "read_text",
    "text_in",
]

BLOCK = 1 << 20
MOST_CONFIG = 10_000_000
"""A config.json has some kilobytes; the largest, with per-layer quantisation lists, a few megabytes."""


def name_of(path: str | Path) -> str:
    """What messages call the file."""
    return "<stdin>" if str(path) == "-" else str(path)


def read_bytes(
    path: str | Path,
    most_bytes: int,
    larger: str,
    error: type[InputError] = InputError,
    *,
    name: str | None = None,
    fix: str = "",
) -> bytes:
    """The bytes of a file. `larger` says what is wrong with one of more than `most_bytes`. Raises `error`.

    `name` is what messages call it, where that is not the path, and `fix` what they say to do.
    """
    source = name_of(path) if name is None else name
    try:
        if name_of(path) == "<stdin>":
            data = sys.stdin.buffer.read(most_bytes + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(most_bytes + 1)
    except (OSError, ValueError) as found:  # ValueError: a NUL in the path
        reason = getattr(found, "strerror", None) or str(found)
        raise error(f"cannot be read ({reason})", path=source, fix=fix) from None
    if len(data) > most_bytes:
        raise error(larger, path=source, fix=fix)
    return data


def is_regular(path: Path, name: str, error: type[InputError] = InputError, *, fix: str = "") -> bool:
    """There is a file, and no device or pipe, which untrusted text may name. Raises `error`."""
    try:
        return path.is_file()
    except (OSError, ValueError) as found:  # ValueError: a NUL in the path, before Python 3.14
        reason = getattr(found, "strerror", None) or str(found)
        raise error(f"cannot be read ({reason})", path=name, fix=fix) from None


def read_text(path: str | Path, most_bytes: int, larger: str, error: type[InputError] = InputError) -> str:
    """The same as text, which has to be UTF-8. Raises `error`, with the line of what is not."""
    return text_in(read_bytes(path, most_bytes, larger, error), path, error)


def read_config_json(path: Path, fix: str, error: type[InputError] = InputError) -> tuple[str, bytes]:
    """Name and bytes of a model's config.json, or of the one in a folder. Raises `error`."""
    try:
        file = path / "config.json" if path.is_dir() else path
    except (OSError, ValueError):  # `is_regular` says what is wrong with it
        file = path
    if not is_regular(file, str(file), error, fix=fix):
        raise error("there is no such file", path=str(file), fix=fix)
    larger = "is larger than 10 MB and no config.json of a model"
    return str(file), read_bytes(file, MOST_CONFIG, larger, error, fix=fix)


def digest_of(data: bytes) -> str:
    """`sha256:` and the hex digest."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def file_digest(path: str | Path) -> str:
    """The same of a file of any size. Raises InputError."""
    found = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            while block := file.read(BLOCK):
                found.update(block)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read ({reason})", path=str(path)) from None
    return f"sha256:{found.hexdigest()}"


def text_in(data: bytes, path: str | Path, error: type[InputError] = InputError) -> str:
    """The bytes of a file as text, which has to be UTF-8. Raises `error`, with the line of what is not."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as found:
        line = data.count(b"\n", 0, found.start) + 1
        raise error("is not UTF-8 text", path=name_of(path), line=line, fix="save it as UTF-8") from None
