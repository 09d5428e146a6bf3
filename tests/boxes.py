"""Models of machine as they are sold: GPUs and NICs on their PCIe roots, NVLinks, the make of the NIC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from topocheck.snapshot import NvLink, PciNode

__all__ = [
    "DGX1V",
    "GB10",
    "GB200",
    "GH200",
    "H100_NVL",
    "HGX_A100_EPYC",
    "HGX_H100",
    "HGX_H200_ROCE",
    "L40S",
    "RTX4090",
    "Box",
    "Nic",
    "Root",
    "Tree",
    "links_of",
    "tree_of",
]


@dataclass(frozen=True)
class Root:
    """One PCIe root complex, and what hangs on it."""

    numa: int
    gpus: int
    nics: int = 0
    switch: bool = True
    """All of it on one PCIe switch; otherwise each device has a root port of its own."""


@dataclass(frozen=True)
class Nic:
    """The make of the NICs of a box."""

    layer: Literal["InfiniBand", "Ethernet"] | None = "InfiniBand"
    rate_gbps: float = 400
    kind: str = "rdma"
    model: str | None = "MT4129"
    virtual: bool = False
    provider: str = "mlx5"


@dataclass(frozen=True)
class Box:
    """A model of machine."""

    model: str
    gib: int
    sm: int
    roots: tuple[Root, ...]
    nic: Nic = Nic()
    links: int = 0
    """NVLinks of each GPU."""
    bonds: Callable[[int, int], int] | None = None
    """NVLinks between two GPUs; None where all links lead to NVSwitches."""
    far: Literal["switch"] | None = "switch"
    """What a link to a switch shows of its far end: nothing on NVL72."""
    peers: bool = True
    """The driver grants peer access to pairs without NVLink."""
    fabric: bool = False
    """NVML reports an NVLink fabric."""
    iommu: str = "identity"
    acs: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return sum(root.gpus for root in self.roots)

    @property
    def nics(self) -> int:
        """Number of NICs."""
        return sum(root.nics for root in self.roots)

    def joined(self, a: int, b: int) -> bool:
        """NVLink joins two GPUs."""
        return self.links > 0 and (self.bonds is None or self.bonds(a, b) > 0)


def cube(a: int, b: int) -> int:
    """NVLinks between two GPUs of a DGX-1V: two quads, each GPU joined to its mate in the other one."""
    low, high = sorted((a, b))
    if high - low == 4:
        return 2
    double = {(0, 3), (1, 2), (4, 7), (5, 6), (2, 3), (6, 7)}
    return 0 if low // 4 != high // 4 else 2 if (low, high) in double - {(2, 3), (6, 7)} else 1


def bridge(a: int, b: int) -> int:
    """NVLinks between two H100 NVL: three bridges of four links for each pair."""
    return 12 if a // 2 == b // 2 else 0


def quad(first_numa: int = 0, second_numa: int = 1) -> tuple[Root, ...]:
    """Four switches with two GPUs and two NICs each, on two sockets."""
    return tuple(Root(numa, gpus=2, nics=2) for numa in (first_numa, first_numa, second_numa, second_numa))


HGX_H100 = Box("NVIDIA H100 80GB HBM3", 80, 90, quad(), links=18, fabric=True)
HGX_H200_ROCE = Box("NVIDIA H200", 141, 90, quad(), Nic("Ethernet"), links=18, fabric=True)
HGX_A100_EPYC = Box(
    "NVIDIA A100-SXM4-80GB",
    80,
    80,
    tuple(Root(numa, gpus=2, nics=2) for numa in (3, 1, 7, 5)),
    Nic(rate_gbps=200, model="MT4123"),
    links=12,
)
"""EPYC with four NUMA nodes a socket: no two pairs of GPUs share one."""
DGX1V = Box(
    "Tesla V100-SXM2-32GB",
    32,
    70,
    tuple(Root(numa, gpus=2, nics=1) for numa in (0, 0, 1, 1)),
    Nic(rate_gbps=100, model="MT4115"),
    links=6,
    bonds=cube,
    peers=False,
)
"""Hybrid cube mesh: NVLink joins each GPU to four others."""
H100_NVL = Box(
    "NVIDIA H100 NVL",
    94,
    90,
    (Root(0, gpus=2, nics=1), Root(1, gpus=2, nics=1)),
    links=12,
    bonds=bridge,
)
"""Bridged pairs: 12 of the chip's 18 links by design."""
RTX4090 = Box(
    "NVIDIA GeForce RTX 4090",
    24,
    89,
    tuple(Root(n // 4, gpus=1, nics=0, switch=False) for n in range(8)),
    peers=False,
)
L40S = Box(
    "NVIDIA L40S",
    48,
    89,
    (Root(0, gpus=4, nics=1), Root(1, gpus=4, nics=1)),
    Nic("Ethernet", rate_gbps=200, model="MT41692"),
)
GB200 = Box(
    "NVIDIA GB200",
    186,
    100,
    tuple(Root(numa, gpus=1, nics=1, switch=False) for numa in (0, 0, 1, 1)),
    links=18,
    far=None,
    fabric=True,
)
"""A tray of NVL72: the far end of a link is not shown."""
GH200 = Box("NVIDIA GH200 480GB", 96, 90, (Root(0, gpus=1, nics=1),), fabric=False)
GB10 = Box("NVIDIA GB10", 120, 121, (Root(0, gpus=1, nics=2, switch=False),), Nic("Ethernet", rate_gbps=200))
"""DGX Spark."""


@dataclass
class Tree:
    """The PCI tree of a box."""

    parts: list[PciNode] = field(default_factory=list)
    gpus: list[PciNode] = field(default_factory=list)
    nics: list[PciNode] = field(default_factory=list)

    def add(self, kind: str, name: str, parent: str | None, numa: int, **more: Any) -> PciNode:
        """One part of it."""
        speed: dict[str, Any] = {} if kind == "root" else {"max_width": 16, "max_speed_gts": 32.0}
        part = PciNode(id=name, parent=parent, kind=kind, numa=numa, **speed, **more)
        self.parts.append(part)
        return part


def tree_of(box: Box) -> Tree:
    """Root complex, root ports, a switch where there is one, devices."""
    tree = Tree()
    for number, root in enumerate(box.roots):
        bus = 0x10 + 0x18 * number
        top = tree.add("root", f"pci0000:{bus:02x}", None, root.numa)
        above = top.id
        if root.switch:
            port = tree.add("bridge", f"0000:{bus:02x}:01.0", top.id, root.numa, acs=box.acs)
            above = tree.add("bridge", f"0000:{bus + 1:02x}:00.0", port.id, root.numa, acs=box.acs).id
        for slot in range(root.gpus + root.nics):
            place = bus + 2 if root.switch else bus
            below = tree.add("bridge", f"0000:{place:02x}:{slot + 2:02x}.0", above, root.numa, acs=box.acs)
            kind, found = ("gpu", tree.gpus) if slot < root.gpus else ("nic", tree.nics)
            name = f"0000:{bus + 3 + slot:02x}:00.0"
            found.append(tree.add(kind, name, below.id, root.numa, iommu=box.iommu))
    return tree


def links_of(box: Box, gpu: int) -> tuple[NvLink, ...]:
    """NVLinks of one GPU, one by one."""
    if box.bonds is None:
        return tuple(NvLink(link=n, active=True, remote=box.far) for n in range(box.links))
    mates = [other for other in range(box.gpus) if other != gpu for _ in range(box.bonds(gpu, other))]
    return tuple(NvLink(link=n, active=True, remote="gpu", peer=mate) for n, mate in enumerate(mates))
