"""The shape of a node: no identity, no counters, equal for equal machines."""

from __future__ import annotations

from typing import Literal

from topocheck.snapshot.record import Record

__all__ = ["GpuShape", "Hardware", "LinkMatrix", "NicShape", "NvLink", "PciNode", "PeerAccess", "Port"]


class NvLink(Record, frozen=True, kw_only=True):
    """One NVLink of one GPU."""

    link: int
    """Link number on this GPU."""
    active: bool | None = None
    """Up (active or asleep); None where the driver did not say."""
    remote: Literal["gpu", "switch", "cpu"] | None = None
    """What the other end is; None where it is hidden (virtual machines, NVL72)."""
    peer: int | None = None
    """Ordinal of the GPU at the other end, if it is a GPU of this node."""
    version: int | None = None
    """nvmlDeviceGetNvLinkVersion: an enum, 5 is NVLink 3.1."""


class GpuShape(Record, frozen=True, kw_only=True):
    """One GPU without its identity."""

    model: str | None = None
    """Product name as NVML gives it."""
    memory_bytes: int | None = None
    """Total memory."""
    sm: int | None = None
    """CUDA compute capability without its dot: 90 is 9.0."""
    numa: int | None = None
    """NUMA node; None where the machine says -1 or N/A."""
    pci: str | None = None
    """Id of its node in the PCI tree of this snapshot."""
    links: tuple[NvLink, ...] | None = None
    """All NVLinks that the board has; () is proven to have none, None is not known."""
    nvlinks: int | None = None
    """Number of active links, where only the number is known."""
    nvswitch: bool | None = None
    """The links lead to NVSwitches."""
    mig: bool | None = None
    """MIG mode is on; None on boards without it."""
    cpu_affinity: str | None = None
    """CPUs near it as the driver says, `0-31,64-95`; in virtual machines often all of them."""
    memory_affinity: str | None = None
    """NUMA nodes near it as the driver says, `0` or `0-1`."""
    own_numa: int | None = None
    """NUMA node that its own memory is (Grace)."""


class Port(Record, frozen=True, kw_only=True):
    """One port of an RDMA device."""

    port: int = 1
    """Port number, counted from 1."""
    state: str | None = None
    """Logical state in the kernel's word: ACTIVE, DOWN, INIT, ARMED."""
    physical: str | None = None
    """Physical state in the kernel's word: LinkUp, Disabled, Polling."""
    layer: str | None = None
    """InfiniBand or Ethernet."""
    rate_gbps: float | None = None
    """Rate in Gbit/s; meaningless unless the port is up."""


class NicShape(Record, frozen=True, kw_only=True):
    """One RDMA device without its identity."""

    name: str
    """Kernel name; repeated here because NCCL selects devices by name."""
    kind: str | None = None
    """`rdma`, `bond`, `efa`, `slingshot` ..., by evidence and not by name."""
    numa: int | None = None
    """NUMA node."""
    pci: str | None = None
    """Id of its node in the PCI tree of this snapshot."""
    ports: tuple[Port, ...] = ()
    """Its ports as the probe or the capture found them."""
    model: str | None = None
    """Chip as the driver names it (hca_type): MT4129."""
    board: str | None = None
    """Board as the driver names it (board_id), a product and no serial: MT_0000000838."""
    firmware: str | None = None
    """Firmware version."""
    virtual: bool | None = None
    """A virtual function of a card that it shares."""


class PciNode(Record, frozen=True, kw_only=True):
    """One node of the PCI tree: a root complex, a bridge or a device."""

    id: str
    """Name inside this snapshot; equal machines have equal names."""
    parent: str | None = None
    """Id of the node above; None for a root complex."""
    kind: str | None = None
    """`root`, `bridge`, `gpu`, `nic` or `nvswitch`, by PCI class and vendor."""
    numa: int | None = None
    """NUMA node; of a root complex that of all its devices."""
    max_width: int | None = None
    """Lanes that it can drive; a link has those of its narrower end."""
    max_speed_gts: float | None = None
    """GT/s for each lane that it can drive."""
    acs: tuple[str, ...] | None = None
    """Access control that is on at a bridge, in lspci's words (ReqRedir sends peer traffic through the
    root complex); () is none."""
    iommu: str | None = None
    """Type of its IOMMU group: `identity` leaves peer traffic alone, `DMA` and `DMA-FQ` translate; `none`
    on a machine that has no groups."""


class LinkMatrix(Record, frozen=True, kw_only=True):
    """Classes between devices as `nvidia-smi topo -m` prints them, or as NVML tells. Not a PCI tree.

    A cell is NV and the number of links, PIX, PXB, PHB, NODE, SYS, or None if the row was not shown.
    """

    gpus: tuple[tuple[str | None, ...], ...] = ()
    """Square over `hardware.gpus`; the diagonal is `X`."""
    nics: tuple[tuple[str | None, ...], ...] = ()
    """One row a GPU, one column an entry of `hardware.nics`."""


class PeerAccess(Record, frozen=True, kw_only=True):
    """Peer access between two GPUs as the driver reports it."""

    a: int
    """Ordinal of the reading GPU."""
    b: int
    """Ordinal of the GPU that is read."""
    status: str
    """OK, or NVML's reason: CNS, GNS, TNS, NS, U, DISABLED."""
    nvlink: str | None = None
    """The same for access by NVLink; hidden far ends do not hide it."""


class Hardware(Record, frozen=True, kw_only=True):
    """The shape of a node: equal for equal machines, no identity, no counters."""

    gpus: tuple[GpuShape, ...] = ()
    """GPUs by ordinal."""
    nics: tuple[NicShape, ...] = ()
    """RDMA devices by ordinal."""
    pci: tuple[PciNode, ...] = ()
    """PCI tree, parents before children; () if not read."""
    matrix: LinkMatrix | None = None
    """Table of link classes, if such a table was captured."""
    peers: tuple[PeerAccess, ...] = ()
    """Peer access as reported; pairs that were not asked are absent."""
