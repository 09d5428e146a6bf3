"""What other packages add to topocheck, by entry points: rules, probes, engines.

Entry points are read from the metadata that lies beside the packages on `sys.path`, as
`importlib.metadata` does it, whose import alone takes as long as starting Python. A package that is no
folder there, in a zip file for instance, is not found.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from topocheck.errors import PluginError

__all__ = ["ENGINES", "PROBES", "RULES", "Offer", "load", "names", "offers", "reason_of"]

ENGINES, PROBES, RULES = "topocheck.engines", "topocheck.probes", "topocheck.rules"
"""Groups of entry points."""
WHAT = {ENGINES: "engine", PROBES: "probe", RULES: "rules"}
"""What one entry point of a group is."""
METADATA = (".dist-info", ".egg-info")
"""Endings of the folders in which installers write what a package is."""
MOST_BYTES = 1 << 20
LONGEST_REASON = 200


class Offer(NamedTuple):
    """One entry point of another package."""

    group: str
    name: str
    """The name that the package gives it."""
    value: str
    """`module:attribute`, what it stands for."""
    package: str
    """The package and its version: `acme-checks 1.0`."""

    def __str__(self) -> str:
        return f"{WHAT.get(self.group, self.group)} {self.name!r} of package {self.package}"


def offers(group: str) -> tuple[Offer, ...]:
    """Everything that other packages offer in one group, in the order of names; topocheck's own left out."""
    return read_offers(tuple(sys.path)).get(group, ())


def names(group: str) -> frozenset[str]:
    """Names of all offers in one group."""
    return frozenset(offer.name for offer in offers(group))


@lru_cache(maxsize=4)
def read_offers(path: tuple[str, ...]) -> dict[str, tuple[Offer, ...]]:
    """Offers by group, of the packages in these folders; of two of one name the first one counts."""
    found: dict[str, list[Offer]] = {}
    known: set[str] = set()
    for folder in path:
        for name in metadata_in(folder):
            package = name.partition("-")[0].removesuffix(".egg-info").lower().replace("_", "-")
            if package in known:
                continue
            known.add(package)
            for offer in read_entries(os.path.join(folder, name)):  # noqa: PTH118 - pathlib costs a fifth of a start
                same = found.setdefault(offer.group, [])
                if offer not in same and not offer.value.startswith("topocheck."):
                    same.append(offer)
    return {group: tuple(sorted(same)) for group, same in found.items()}


def metadata_in(folder: str) -> list[str]:
    """Folders of metadata in one folder of packages, in the order of names."""
    try:
        return sorted(name for name in os.listdir(folder or ".") if name.endswith(METADATA))  # noqa: PTH208 - as above
    except OSError:  # a zip file, or not there
        return []


def read_entries(metadata: str) -> Iterator[Offer]:
    """Entry points of one package in topocheck's groups."""
    text = read_text(f"{metadata}/entry_points.txt")
    if "[topocheck." not in text:
        return
    package, group = "", ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif group.startswith("topocheck.") and "=" in line and line[0] not in "#;":
            name, _, value = map(str.strip, line.partition("="))
            package = package or package_of(metadata)
            yield Offer(group, name, value.partition("[")[0].strip(), package)


def package_of(metadata: str) -> str:
    """Name and version of a package, as its metadata has them."""
    text = read_text(f"{metadata}/METADATA") or read_text(f"{metadata}/PKG-INFO")
    fields: dict[str, str] = {}
    for line in text.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.lower(), value.strip())
    folder = metadata.replace("\\", "/").rpartition("/")[2].rpartition(".")[0]
    return f"{fields.get('name') or folder} {fields.get('version', '')}".strip()


def read_text(path: str) -> str:
    """Text of a small file; empty where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(descriptor, MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def load(offer: Offer) -> Any:
    """What an offer stands for. Raises PluginError, which names the package, if it cannot be imported."""
    module, _, attributes = offer.value.partition(":")
    try:
        found: Any = import_module(module)
        for attribute in filter(None, attributes.split(".")):
            found = getattr(found, attribute)
    except (Exception, SystemExit) as error:
        raise PluginError(f"{offer} cannot be loaded ({reason_of(error)})") from error
    return found


def reason_of(error: BaseException) -> str:
    """An exception of somebody else's code in one short line."""
    lines = f"{type(error).__name__}: {error}".splitlines()
    return lines[0][:LONGEST_REASON]
