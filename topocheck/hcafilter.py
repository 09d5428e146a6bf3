"""NCCL_IB_HCA: the devices and ports that NCCL's InfiniBand and RoCE transport may take.

Read as NCCL reads it (parseStringList and matchIfList in src/misc/utils.cc, ncclIbInit in
src/transport/net_ib.cc, 2.4 to 2.30): `^` in front of the whole value leaves out instead of choosing, `=`
behind it asks for exact names where prefixes are meant otherwise, commas part the entries, `:` and a number
choose a port. Blanks belong to the names; later `^` and `=` belong to the names too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["HcaEntry", "HcaFilter", "parse_hca_filter"]

MOST_ENTRIES = 32
"""Entries that NCCL keeps (MAX_IB_DEVS); what follows is ignored in silence."""
PORT = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)", re.ASCII)
"""What atoi(3) takes of a text; 0 where that is nothing."""
ANY = -1


@dataclass(frozen=True, slots=True)
class HcaEntry:
    """One entry of the list."""

    name: str
    """Name of a device, or its beginning."""
    port: int | None = None
    """Port number; None is every port."""

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"

    def names(self, device: str, *, exact: bool) -> bool:
        """The entry is about this device."""
        return device == self.name if exact else device.startswith(self.name)


@dataclass(frozen=True, slots=True)
class HcaFilter:
    """A value of NCCL_IB_HCA."""

    text: str
    """As it was given."""
    exclude: bool
    """What the entries name is left out, and all else taken."""
    exact: bool
    """Entries are names and no prefixes."""
    entries: tuple[HcaEntry, ...]

    def __str__(self) -> str:
        return f"NCCL_IB_HCA={self.text}"

    def may_select(self, device: str) -> bool:
        """False if NCCL takes no port of this device; quick for long lists of devices."""
        if self.exclude or not self.entries:
            return True
        return any([entry.names(device, exact=self.exact) for entry in self.entries])  # noqa: C419 - twice as fast

    def selects(self, device: str, port: int) -> bool:
        """NCCL may take this port. An empty list names every port."""
        named = not self.entries or any(
            entry.names(device, exact=self.exact) and entry.port in (None, port) for entry in self.entries
        )
        return named != self.exclude


def parse_hca_filter(text: str) -> HcaFilter:
    """A value as NCCL reads it; there is none that it refuses."""
    exclude = text.startswith("^")
    exact = text.startswith("=", exclude)
    parts = text[exclude + exact :].split(",")
    entries = [entry for part in parts if (entry := parse_entry(part))]
    return HcaFilter(text, exclude, exact, tuple(entries[:MOST_ENTRIES]))


def parse_entry(part: str) -> HcaEntry | None:
    """One entry; None for one without a name.

    2.30 takes `:rail:plane` behind the port, and a port without digits as any, which matched none before.
    """
    name, *fields = part.split(":")
    if not name:
        return None
    if not (fields and fields[0]):
        return HcaEntry(name)
    found = PORT.match(fields[0])
    port = int(found[1]) if found else 0
    return HcaEntry(name, None if port == ANY else port)
