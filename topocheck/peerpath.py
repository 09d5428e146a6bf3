"""Whether traffic between two devices below one PCIe switch stays there, by the PCI tree of a node.

A switch passes it on directly unless the ports on the way redirect it to the root complex: access control
(ACS) at a bridge, or addresses that only the IOMMU can translate. Between two root ports it goes through the
root complex anyway, and access control there changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topocheck.snapshot import Hardware, PciNode

__all__ = ["PeerPath", "peer_path"]

REDIRECTS = ("ReqRedir", "CmpltRedir", "UpstreamFwd")
"""Controls that send requests or their answers up to the root complex."""
VALIDATES, DIRECT = "SrcValid", "DirectTrans"
"""Control that alone redirects nothing, and the one that lets translated addresses pass directly."""


@dataclass(frozen=True, slots=True)
class PeerPath:
    """The bridges between two devices that have a switch in common, without that switch's upstream port."""

    bridges: tuple[PciNode, ...]

    @property
    def known(self) -> bool:
        """Access control of all bridges was read."""
        return all(bridge.acs is not None for bridge in self.bridges)

    @property
    def redirecting(self) -> tuple[PciNode, ...]:
        """Bridges that redirect whatever the devices do."""
        return tuple(b for b in self.bridges if redirects(b) and DIRECT not in (b.acs or ()))

    @property
    def translating(self) -> tuple[PciNode, ...]:
        """Bridges that redirect what the devices have not translated themselves (ATS)."""
        return tuple(b for b in self.bridges if redirects(b) and DIRECT in (b.acs or ()))

    @property
    def validating(self) -> tuple[PciNode, ...]:
        """Bridges that only check who sends."""
        return tuple(b for b in self.bridges if VALIDATES in (b.acs or ()) and not redirects(b))


def redirects(bridge: PciNode) -> bool:
    """A control that redirects is on at a bridge."""
    return any(control in REDIRECTS for control in bridge.acs or ())


def ancestors(nodes: dict[str, PciNode], place: str) -> list[str]:
    """A node of the tree, what is above it, and its root complex last."""
    found: list[str] = []
    at: str | None = place
    while at is not None and at in nodes and at not in found:
        found.append(at)
        at = nodes[at].parent
    return found


def peer_path(hardware: Hardware, a: str | None, b: str | None) -> PeerPath | None:
    """The way between two nodes of the PCI tree; None if they have no switch in common, or no place there."""
    nodes = {node.id: node for node in hardware.pci}
    ways = [ancestors(nodes, place) if place is not None else [] for place in (a, b)]
    shared = next((place for place in ways[0] if place in ways[1]), None)
    if shared is None or nodes[shared].parent is None:
        return None
    below: Sequence[str] = [place for way in ways for place in way[1 : way.index(shared)]]
    return PeerPath(tuple(nodes[place] for place in below))
