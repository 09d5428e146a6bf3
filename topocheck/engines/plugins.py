"""Engines of other packages, by the entry point group `topocheck.engines`.

The name of an entry point is the engine's as plans give it, the value its `Engine`. They are looked up only
where a plan names an engine that topocheck does not have.
"""

from __future__ import annotations

from functools import lru_cache

from topocheck.engines.engine import Engine
from topocheck.errors import LayoutError, PluginError
from topocheck.plugins import ENGINES, load, offers

__all__ = ["offered", "third_party"]


def offered() -> tuple[str, ...]:
    """Names of the engines that other packages offer."""
    return tuple(dict.fromkeys(offer.name for offer in offers(ENGINES)))


@lru_cache(maxsize=64)
def third_party(name: str) -> Engine | None:
    """The engine of another package; None if no package offers one of this name.

    Raises LayoutError, which names the package, for one that cannot be imported, that is no Engine, that
    calls itself otherwise, or that two packages offer.
    """
    found = {offer.value: offer for offer in offers(ENGINES) if offer.name == name}
    if not found:
        return None
    if len(found) > 1:
        packages = " and ".join(f"package {offer.package}" for offer in found.values())
        raise LayoutError(f"engine {name!r} is offered twice, by {packages}")
    (offer,) = found.values()
    try:
        engine = load(offer)
    except PluginError as error:
        raise LayoutError(str(error)) from error
    if not isinstance(engine, Engine):
        raise LayoutError(f"{offer} is no Engine: {offer.value} is a {type(engine).__name__}")
    if engine.name != name:
        raise LayoutError(f"{offer} calls itself {engine.name[:80]!r}")
    return engine
