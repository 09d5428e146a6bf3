"""What of a report speaks of the placement: ranks, nodes, shapes and what a drawing marks."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "DeviceReport",
    "GpuReport",
    "GroupReport",
    "NicReport",
    "NodeReport",
    "PlacementReport",
    "Placing",
    "RankReport",
    "ShapeReport",
]


class Placing(msgspec.Struct, frozen=True, kw_only=True):
    """Where one column puts a rank."""

    node: str | None
    """Node, null if not known."""
    gpu: str | None
    """GPU by UUID, else bus id, else index; null if not known."""
    source: str
    """Where that comes from."""


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """One rank: who it is and where it lies."""

    rank: int
    """Global rank."""
    coordinates: dict[str, int]
    """Position along each parallel axis, slowest first."""
    stage: int
    """Pipeline stage."""
    replica: int
    """Which copy of the model."""
    tensor_group: int
    """Index of its tensor-parallel group."""
    node: str | None
    """Node it lies on by the phase's column; null if not known."""
    gpu: str | None
    """GPU it drives, best name known; null if not known."""
    layers: list[int] | None
    """First layer and end (exclusive) of its stage; null if not declared."""
    sources: dict[str, Placing]
    """Columns by name: predicted, claimed, observed; those without an entry are left out."""
    local_rank: int | None = None
    """Local rank that its process claims (LOCAL_RANK and the like); null if none claims it."""


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of a node."""

    ordinal: int
    """Place in the node's list."""
    uuid: str | None
    """UUID."""
    bus: str | None
    """PCI address."""
    index: int | None
    """NVML index."""
    model: str | None
    """Product name."""
    ranks: list[int]
    """Ranks that drive it."""


class NicReport(msgspec.Struct, frozen=True, kw_only=True):
    """One RDMA device of a node."""

    name: str
    """Kernel name."""
    guid: str | None
    """Node GUID; null if not known."""
    bus: str | None
    """PCI address; null if not known."""


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the job."""

    name: str
    """How findings call it."""
    position: int
    """Place in the node order of the plan."""
    bound_by: str
    """How the host was matched to this place: name, alias, node rank, ranks seen ..."""
    seen: bool
    """Some evidence of it is there."""
    shape: int | None
    """Index of its hardware shape in `shapes`; null if not known."""
    domain: str | None
    """NVLink domain beyond the host, cluster UUID and clique; null if none is proven."""
    gpus: list[GpuReport]
    """Its GPUs as far as known."""
    boot: str | None = None
    """Boot id of its host; null if not known."""
    nics: list[NicReport] | None = None
    """Its RDMA devices; null where not all of them are known."""
    versions: dict[str, str] = {}
    """Versions in force by name: driver, nccl, engine ..."""
    switch: str | None = None
    """Switch or block of the network that it hangs on; null where that is not shown, or they are several."""


class GroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """One edge or group worth drawing because a rule says something about it."""

    rule: str
    """Rule that speaks of it."""
    severity: Literal["error", "warning", "info"]
    """How bad."""
    ranks: list[int]
    """Ranks of the wrong group, or the two ends of the wrong edge."""
    kind: Literal["group", "edge", "gpu"]
    """What to mark."""


class PlacementReport(msgspec.Struct, frozen=True, kw_only=True):
    """Rank -> stage -> node -> GPU."""

    phase: Literal["predicted", "claimed", "observed"]
    """Which column the verdict rests on."""
    world: int
    """Number of ranks."""
    axes: dict[str, int]
    """Size of each axis, slowest first."""
    ranks: list[RankReport]
    """All ranks in order."""
    nodes: list[NodeReport]
    """Nodes in the plan's order, then others that carry ranks."""
    unused: list[str]
    """Hosts that were seen and carry no rank of the job."""
    shapes: list[ShapeReport]
    """Distinct hardware shapes of the nodes."""
    marks: list[GroupReport]
    """What the findings mark in the drawing."""


class DeviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One RDMA device of a hardware shape."""

    name: str
    """Kernel name."""
    layer: str | None = None
    """InfiniBand or Ethernet, `both` where its ports differ; null if not known."""
    rate_gbps: float | None = None
    """Gbit/s of its active ports together; null if none is known to be active."""
    state: str | None = None
    """State of its ports in the kernel's word, `ACTIVE`, or all that occur; null if not known."""
    numa: int | None = None
    """NUMA node; null if not known."""
    rail: int | None = None
    """Its rail, the place among the compute NICs in the order of PCI or of policy.expect_rails; null if it is
    on none or that is not known."""


class ShapeReport(msgspec.Struct, frozen=True, kw_only=True):
    """One hardware shape shared by nodes."""

    title: str
    """In words: 8 x NVIDIA H100, 8 NICs."""
    gpus: list[str]
    """Model of each GPU by ordinal, `GPU` where not known."""
    links: list[list[str | None]]
    """Class of each pair of GPUs: NV18, PIX, SYS ...; null if not known."""
    nics: list[str]
    """RDMA devices by name."""
    near: list[list[str]]
    """For each GPU the nearest RDMA devices, () if not known."""
    nodes: int
    """How many nodes have it."""
    numa: list[int | None] = []
    """NUMA node of each GPU; null if not known."""
    devices: list[DeviceReport] = []
    """RDMA devices in the order of `nics`."""
    nic_links: list[list[str | None]] = []
    """Class between each GPU and each RDMA device: PIX, PXB, PHB, NODE, SYS; null if not known."""
    usual: bool = False
    """More than half of the nodes whose hardware is known have it."""
    differs: list[str] = []
    """What is not as on the shape that most nodes have, in words; empty for that shape itself."""
