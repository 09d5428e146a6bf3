"""A made server as `topocheck probe` would show it: GPUs, NVLink, PCI tree, RDMA devices.

Nothing here was read from a machine. Equal servers give equal bytes, and identities are derived from
the host's name, so that made evidence is the same each time. `topocheck.demo.state` has what changes
by itself.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from topocheck.snapshot import (
    Coverage,
    Fabric,
    GpuId,
    GpuShape,
    Hardware,
    Host,
    Identity,
    Limits,
    NicId,
    NicShape,
    NvLink,
    PciNode,
    PeerAccess,
    Port,
    Software,
    Verbs,
    VerbsDevice,
)

__all__ = [
    "COVERAGE",
    "FABRIC",
    "LIMITS",
    "SOFTWARE",
    "Server",
    "guid_of",
    "hardware_of",
    "identity_of",
    "made_hex",
    "pci_tree",
    "verbs_of",
]

NVLINK_4 = 6
"""nvmlNvlinkVersion_enum: NVLink 4.0."""
BUSES_A_ROOT = 0x1A
"""Bus numbers that the firmware keeps for each root complex."""

COVERAGE = Coverage(gpus="all", links="all", nics="all", ranks="all")
"""Every probe succeeded; the job was not looked at while it ran."""
FABRIC = Fabric(
    cluster_uuid="0" * 32,
    clique=0,
    state="Completed",
    status="Success",
    health_mask=0xAA,
    health="Healthy",
)
"""A board with NVSwitches whose domain ends at the host."""
LIMITS = Limits(
    scope="task",
    memlock_bytes=-1,
    ipc_lock=True,
    shm_bytes=64 << 30,
    nofile=1 << 20,
    shm_free_bytes=63 << 30,
    memory_bytes=-1,
)
SOFTWARE = Software(
    driver="570.172.08",
    cuda="12.8",
    nccl="2.27.5",
    engine="vllm",
    engine_version="0.11.2",
    torch="2.9.0",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server model: GPUs on NVSwitches, and below each PCIe switch as many NICs as GPUs."""

    gpus: int = 8
    """GPUs; a multiple of `switches`."""
    switches: int = 4
    """PCIe switches, half of them on each of two sockets."""
    storage_nics: int = 0
    """Ethernet NICs on root ports of their own, in turn on each socket."""
    links: int = 18
    """NVLinks of each GPU, all to NVSwitches."""
    dark: tuple[tuple[int, int], ...] = ()
    """(GPU, link) of the NVLinks that are down."""
    first_bus: int = 0x15
    """Bus number of the first root complex; firmware versions differ in it."""
    rate_gbps: float = 400
    """Rate of the NICs of the compute fabric."""
    model: str = "NVIDIA H100 80GB HBM3"
    memory_bytes: int = 85_520_809_984
    sm: int = 90

    @property
    def nics(self) -> int:
        """All NICs, those of the compute fabric first."""
        return self.gpus + self.storage_nics


@dataclass(slots=True)
class Tree:
    """A PCI tree while it grows, and where GPUs and NICs hang in it."""

    nodes: list[PciNode] = field(default_factory=list)
    gpus: list[tuple[str, int]] = field(default_factory=list)
    """PCI address and NUMA node of each GPU."""
    nics: list[tuple[str, int]] = field(default_factory=list)
    """The same of each NIC."""

    def root(self, bus: int, numa: int) -> str:
        """A root complex."""
        self.nodes.append(PciNode(id=f"pci0000:{bus:02x}", kind="root", numa=numa))
        return self.nodes[-1].id

    def bridge(self, name: str, parent: str, numa: int) -> str:
        """A root port, or a port of a switch; no traffic is redirected at it."""
        self.nodes.append(
            PciNode(
                id=name, parent=parent, kind="bridge", numa=numa, max_width=16, max_speed_gts=32.0, acs=()
            )
        )
        return name

    def device(self, kind: str, name: str, parent: str, numa: int) -> None:
        """A GPU or a NIC."""
        self.nodes.append(
            PciNode(
                id=name,
                parent=parent,
                kind=kind,
                numa=numa,
                max_width=16,
                max_speed_gts=32.0,
                iommu="identity",
            )
        )
        (self.gpus if kind == "gpu" else self.nics).append((name, numa))


def pci_tree(server: Server) -> Tree:
    """Root complex, root port, switch, its ports, devices; then root ports with storage NICs."""
    tree = Tree()
    half = server.gpus // server.switches
    for number in range(server.switches):
        numa, bus = number * 2 // server.switches, server.first_bus + number * BUSES_A_ROOT
        port = tree.bridge(f"0000:{bus:02x}:01.0", tree.root(bus, numa), numa)
        switch = tree.bridge(f"0000:{bus + 1:02x}:00.0", port, numa)
        for slot in range(2 * half):
            below = tree.bridge(f"0000:{bus + 2:02x}:{slot:02x}.0", switch, numa)
            tree.device("gpu" if slot < half else "nic", f"0000:{bus + 3 + slot:02x}:00.0", below, numa)
    storage_roots(tree, server)
    return tree


def storage_roots(tree: Tree, server: Server) -> None:
    """One root complex on each socket with a port for each storage NIC."""
    for numa in range(min(2, server.storage_nics)):
        bus = server.first_bus + (server.switches + numa) * BUSES_A_ROOT
        root = tree.root(bus, numa)
        for slot, _ in enumerate(range(numa, server.storage_nics, 2)):
            port = tree.bridge(f"0000:{bus:02x}:{slot + 1:02x}.0", root, numa)
            tree.device("nic", f"0000:{bus + 1 + slot:02x}:00.0", port, numa)


def hardware_of(server: Server) -> Hardware:
    """The shape of the server."""
    tree = pci_tree(server)
    pairs = [(a, b) for a in range(server.gpus) for b in range(server.gpus) if a != b]
    return Hardware(
        gpus=tuple(gpu_shape(server, gpu, bus, numa) for gpu, (bus, numa) in enumerate(tree.gpus)),
        nics=tuple(nic_shape(server, nic, bus, numa) for nic, (bus, numa) in enumerate(tree.nics)),
        pci=tuple(tree.nodes),
        peers=tuple(PeerAccess(a=a, b=b, status="OK") for a, b in pairs),
    )


def gpu_shape(server: Server, gpu: int, bus: str, numa: int) -> GpuShape:
    """One GPU, link by link."""
    links = tuple(
        NvLink(link=link, active=(gpu, link) not in server.dark, remote="switch", version=NVLINK_4)
        for link in range(server.links)
    )
    return GpuShape(
        model=server.model,
        memory_bytes=server.memory_bytes,
        sm=server.sm,
        numa=numa,
        pci=bus,
        links=links,
        nvswitch=True,
    )


def nic_shape(server: Server, nic: int, bus: str, numa: int) -> NicShape:
    """One NIC with its port: InfiniBand for compute, Ethernet for storage."""
    compute = nic < server.gpus
    port = Port(
        state="ACTIVE",
        physical="LinkUp",
        layer="InfiniBand" if compute else "Ethernet",
        rate_gbps=server.rate_gbps if compute else 100,
    )
    return NicShape(
        name=f"mlx5_{nic}",
        kind="rdma",
        numa=numa,
        pci=bus,
        ports=(port,),
        model="MT4129" if compute else "MT4125",
        board="MT_0000000838" if compute else "MT_0000000436",
        firmware="28.43.2026" if compute else "22.43.2026",
        virtual=False,
    )


def identity_of(server: Server, host: str) -> Identity:
    """Names of everything in `hardware_of`, derived from the host's name."""
    tree = pci_tree(server)
    return Identity(
        host=Host(name=host, boot_id=made_uuid(f"{host} boot"), machine_id=made_hex(f"{host} machine", 32)),
        gpus=tuple(gpu_id(host, gpu, bus) for gpu, (bus, _) in enumerate(tree.gpus)),
        nics=tuple(
            NicId(name=f"mlx5_{nic}", bus=bus, guid=guid_of(host, nic), card=guid_of(host, nic))
            for nic, (bus, _) in enumerate(tree.nics)
        ),
    )


def gpu_id(host: str, gpu: int, bus: str) -> GpuId:
    """Names of one GPU."""
    return GpuId(
        uuid=f"GPU-{made_uuid(f'{host} GPU {gpu}')}",
        bus=bus,
        nvml=gpu,
        scope="host",
        serial=str(1_650_000_000_000 + int(made_hex(f"{host} board {gpu}", 9), 16)),
        module=gpu + 1,
        minor=gpu,
    )


def verbs_of(server: Server) -> Verbs:
    """What a process of the job has to work with for RDMA and GPUDirect: everything."""
    return Verbs(
        scope="task",
        devices=tuple(
            VerbsDevice(name=f"uverbs{nic}", nic=f"mlx5_{nic}", openable=True) for nic in range(server.nics)
        ),
        library=True,
        providers=("mlx5",),
        peer_memory="nvidia_peermem",
        dma_buf=True,
    )


def made_hex(text: str, digits: int) -> str:
    """Hex digits that depend on the text alone."""
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def made_uuid(text: str) -> str:
    """A UUID of version 4 by its form."""
    digits = made_hex(text, 32)
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"


def guid_of(host: str, nic: int) -> str:
    """A node GUID of the vendor's range."""
    whole = "b83fd2" + made_hex(f"{host} NIC {nic}", 10)
    return ":".join(whole[place : place + 4] for place in range(0, 16, 4))
