"""Order of engine versions, as far as layouts need it."""

from __future__ import annotations

import re

from topocheck.errors import UnknownLayoutError

__all__ = ["before", "release"]

NUMBERS = re.compile(r"v?([0-9]{1,9}(?:\.[0-9]{1,9})+)", re.IGNORECASE)


def release(version: str) -> tuple[int, ...]:
    """Release numbers of a version: `v0.33.0rc1+cu129` -> (0, 33, 0).

    Raises UnknownLayoutError for what has no release numbers, such as a commit.
    """
    match = NUMBERS.match(version.strip())
    if match is None:
        raise UnknownLayoutError(f"engine_version {version[:80]!r} is not a release such as 0.33.0")
    return tuple(int(part) for part in match[1].split("."))


def before(version: str | None, limit: tuple[int, ...]) -> bool:
    """The version is older than a release. No version means the newest known, which is older than none."""
    return version is not None and release(version) < limit
