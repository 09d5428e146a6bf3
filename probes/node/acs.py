"""PCI access control services: whether bridges send traffic between two devices up to the root complex.

The register lies in extended configuration space, of which sysfs shows a process without CAP_SYS_ADMIN
nothing: it gets the first 64 bytes and no error (drivers/pci/pci-sysfs.c, pci_read_config).
"""

from __future__ import annotations

from collections.abc import Iterable

from topocheck.probes.node.reader import Reader
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import ProbeFault

__all__ = ["parse_acs", "read_acs"]

CONTROLS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
"""Bits of the ACS control register from bit 0, in lspci's words (PCI_ACS_SV ... in pci_regs.h)."""

EXTENDED = 0x100
"""Where extended capabilities begin."""
WHOLE = 4096
"""Bytes of a PCI Express device's configuration space."""
UNPRIVILEGED = 64
"""Bytes that everybody may read."""
ACS = 0x000D
"""PCI_EXT_CAP_ID_ACS."""
CONTROL = 6
"""PCI_ACS_CTRL: its offset in the capability."""
NOTHING = (0x0000_0000, 0xFFFF_FFFF)
"""Headers where there is no capability: none at all, or a device that does not answer."""


def parse_acs(config: bytes) -> tuple[str, ...] | None:
    """Controls that are on, by a device's configuration space; () for none and for no such capability.

    None if the bytes end before that is known.
    """
    at, seen = EXTENDED, set[int]()
    while at >= EXTENDED and at not in seen:
        if at + CONTROL + 2 > len(config):
            return None
        seen.add(at)
        header = int.from_bytes(config[at : at + 4], "little")
        if header in NOTHING:
            return ()
        if header & 0xFFFF == ACS:
            control = int.from_bytes(config[at + CONTROL : at + CONTROL + 2], "little")
            return tuple(name for bit, name in enumerate(CONTROLS) if control >> bit & 1)
        at = header >> 20 & ~3
    return ()


def read_acs(roots: Roots, buses: Iterable[str]) -> tuple[dict[str, tuple[str, ...]], tuple[ProbeFault, ...]]:
    """Access control of bridges by bus id (/sys/bus/pci/devices/*/config); unknown ones are left out."""
    reader = Reader("links")
    found = {}
    for bus in buses:
        path = roots.sys / "bus/pci/devices" / bus / "config"
        config = reader.data(path, most=WHOLE)
        controls = None if config is None else parse_acs(config)
        if controls is not None:
            found[bus] = controls
        elif config is not None and len(config) <= UNPRIVILEGED:
            reason = "only 64 bytes can be read: what lies beyond needs CAP_SYS_ADMIN"
            reader.note("not-permitted", path, reason)
        elif config is not None:
            reader.note("not-supported", path, "the extended configuration space is not reachable")
    return found, reader.faults()
