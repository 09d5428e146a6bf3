"""Engines of other packages, by the entry point group `topocheck.engines`.

They are looked up only where a plan names an engine that topocheck does not have: reading what is
installed takes as long as starting Python.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from topocheck.engines.engine import Engine
from topocheck.errors import LayoutError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "offered", "third_party"]

GROUP = "topocheck.engines"
"""Group of entry points. The name is the engine's as plans give it, the value its `Engine`."""


@lru_cache(maxsize=1)
def entries() -> dict[str, list[EntryPoint]]:
    """Entry points by the name of the engine; several where packages offer the same name."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - see above

    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        same = found.setdefault(entry.name, [])
        if all(entry.value != other.value for other in same):
            same.append(entry)
    return found


def offered() -> tuple[str, ...]:
    """Names of the engines that other packages offer."""
    return tuple(entries())


@lru_cache(maxsize=64)
def third_party(name: str) -> Engine | None:
    """The engine of another package; None if no package offers one of this name.

    Raises LayoutError, which names the package, for one that cannot be imported, that is no Engine, that
    calls itself otherwise, or that two packages offer.
    """
    found = entries().get(name, [])
    if not found:
        return None
    if len(found) > 1:
        packages = " and ".join(map(package_of, found))
        raise LayoutError(f"engine {name!r} is offered twice, by {packages}")
    entry = found[0]
    try:
        engine = entry.load()
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise LayoutError(
            f"engine {name!r} of {package_of(entry)} cannot be loaded ({reason[:200]})"
        ) from error
    if not isinstance(engine, Engine):
        raise LayoutError(
            f"engine {name!r} of {package_of(entry)} is no Engine: {entry.value} is a {kind(engine)}"
        )
    if engine.name != name:
        raise LayoutError(f"engine {name!r} of {package_of(entry)} calls itself {engine.name[:80]!r}")
    return engine


def package_of(entry: EntryPoint) -> str:
    """The package in words."""
    return f"package {entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def kind(value: object) -> str:
    """Name of a value's type."""
    return type(value).__name__
