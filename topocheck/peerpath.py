"""Whether traffic between two devices below one PCIe switch stays there, by the PCI tree of a node.

A switch passes it on directly unless the ports on the way redirect it to the root complex: access control
(ACS) at a bridge, or addresses that only the IOMMU can translate. Between two root ports it goes through the
root complex anyway, and access control there changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from topocheck.ask import Device
from topocheck.hardware import Shape
from topocheck.needed import needed
from topocheck.placement import Node, Placement
from topocheck.snapshot import PciNode

__all__ = ["PeerPath", "Way", "gpu_pairs", "gpu_ways", "nic_ways", "peer_path"]

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


def peer_path(shape: Shape, a: str | None, b: str | None) -> PeerPath | None:
    """The way between two nodes of the PCI tree; None if they have no switch in common, or no place there."""
    first, second = (shape.ancestors.get(place or "", ()) for place in (a, b))
    shared = next((place for place in first if place in second), None)
    if shared is None or shape.tree[shared].parent is None:
        return None
    below = *first[1 : first.index(shared)], *second[1 : second.index(shared)]
    return PeerPath(tuple([shape.tree[place] for place in below]))


@dataclass(frozen=True, slots=True)
class Way:
    """Two devices of a node that send to each other."""

    words: str
    """Both by name."""
    a: str
    """Node of the PCI tree."""
    b: str
    senders: tuple[str, ...]
    """Those of the two that send or fetch by themselves."""


def gpu_ways(node: Node, shape: Shape, gpus: tuple[int, ...]) -> Iterator[Way]:
    """Pairs of GPUs in use that reach each other over PCIe."""
    for a, b in gpu_pairs(node, gpus):
        ends = shape.hardware.gpus[a].pci, shape.hardware.gpus[b].pci
        if ends[0] is not None and ends[1] is not None:
            yield Way(
                f"GPU{Device(node, a).index} - GPU{Device(node, b).index}",
                ends[0],
                ends[1],
                (ends[0], ends[1]),
            )


def nic_ways(placement: Placement, node: Node, shape: Shape, gpus: tuple[int, ...]) -> Iterator[Way]:
    """Each GPU in use and the NICs below the same switch that the job needs, or all if that is not known."""
    need = needed(placement, node)
    wanted = {hca.name for hca in need.devices} if need and need.whole else None
    nics = {nic.pci: nic.name for nic in shape.hardware.nics if wanted is None or nic.name in wanted}
    if not shape.hardware.nics:
        nics = {part.id: f"NIC {part.id}" for part in shape.hardware.pci if part.kind == "nic"}
    for gpu in gpus:
        for place, name in nics.items():
            own = shape.hardware.gpus[gpu].pci
            if own is not None and place is not None and peer_path(shape, own, place) is not None:
                yield Way(f"GPU{Device(node, gpu).index} - {name}", own, place, (place,))


def gpu_pairs(node: Node, gpus: tuple[int, ...]) -> list[tuple[int, int]]:
    """Pairs of GPUs in use that NVLink does not join."""
    shape = node.shape
    if shape is None:
        return [(0, 1)] if len(gpus) > 1 else []
    links = {pair: shape.link(*pair) for pair in combinations(sorted(gpus), 2) if pair[1] < shape.gpus}
    return [pair for pair, link in links.items() if link is None or not link.nvlink]
