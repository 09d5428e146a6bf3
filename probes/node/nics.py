"""All devices that ranks of different nodes can reach each other by, with their places in the PCI tree."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from topocheck.portreading import parted
from topocheck.probes.node.infiniband import read_infiniband
from topocheck.probes.node.pci import PciTree
from topocheck.probes.node.reader import is_folder
from topocheck.probes.node.roots import Roots
from topocheck.probes.node.slingshot import read_slingshot
from topocheck.snapshot import NicId, NicNetwork, NicShape, PortState, ProbeFault

__all__ = ["Nics", "read_nics"]


class Nics(msgspec.Struct, frozen=True, gc=False):
    """The same devices, by ordinal."""

    ids: tuple[NicId, ...] = ()
    """For `identity.nics`."""
    shapes: tuple[NicShape, ...] = ()
    """For `hardware.nics`."""
    networks: tuple[NicNetwork, ...] = ()
    """For `network.nics`."""
    ports: tuple[PortState, ...] = ()
    """For `state.ports`."""
    whole: bool = False
    """Both lists could be read, so that there are no others: a kernel without RDMA lists none."""


def read_nics(roots: Roots, tree: PciTree) -> tuple[Nics, tuple[ProbeFault, ...]]:
    """RDMA devices, then Slingshot NICs, each with its place in the PCI tree."""
    rdma, refused = read_infiniband(roots)
    slingshot, faults = read_slingshot(roots)
    devices = [*rdma, *slingshot]
    networks, ports = parted((ordinal, device.ports) for ordinal, device in enumerate(devices))
    nics = Nics(
        ids=tuple(device.id for device in devices),
        shapes=tuple(replace(device.shape, pci=tree.places.get(device.id.bus or "")) for device in devices),
        networks=networks,
        ports=ports,
        whole=is_folder(roots.sys / "class") and not any(map(_hides, (*refused, *faults))),
    )
    return nics, (*refused, *faults)


def _hides(fault: ProbeFault) -> bool:
    """The fault may hide a device: a list that is there and could not be read."""
    return fault.kind != "absent" and fault.path.rpartition("/")[2] in ("infiniband", "cxi", "cxi_user")
