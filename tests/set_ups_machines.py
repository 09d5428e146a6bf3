"""Healthy machines that careless checks accuse: NVLink in pairs, no NVLink, other fabrics, odd names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from boxes import (
    DGX1V,
    GB10,
    GB200,
    GH200,
    H100_NVL,
    HGX_A100_EPYC,
    HGX_H100,
    HGX_H200_ROCE,
    L40S,
    RTX4090,
    Nic,
    Root,
)
from healthy import BARE_METAL, launched, nodes
from msgspec.structs import replace as changed
from set_ups import (
    ALIKE,
    DENSE,
    GROUP,
    KNOWN,
    NVLINK,
    ONE_NODE,
    SEVERAL,
    STAGES,
    TWO,
    SetUp,
    every,
    filled,
    vllm,
)

from topocheck.snapshot import Fabric, FullSnapshot, Library, MigDevice, NcclFile, NicShape, Port

__all__ = ["MACHINES"]


def hgx() -> SetUp:
    """Two HGX H100 with a rail for each GPU."""
    workload = "{max_sequences: 64, input_tokens: 3072, output_tokens: 1024, max_batched_tokens: 8192, "
    keys = {"model": str(DENSE), "workload": workload + "gpu_memory_utilization: 0.9}"}
    passing = SEVERAL | NVLINK | STAGES | {"PP005", "PP007", "CAP002", "NV002", "NV004", "NET012", "GR005"}
    return SetUp(vllm(8, 2, **keys), filled(HGX_H100, 8, 2), passing | {"ID014", "ID016", "ENV003", "VER004"})


def dgx1v() -> SetUp:
    """Hybrid cube mesh: four of seven peers over NVLink, by design."""
    evidence = filled(DGX1V, 8, 1, TWO[:1])
    passing = ONE_NODE | {"NV001", "NV005", "TP004"}
    return SetUp(vllm(8, 1, TWO[:1]), evidence, passing, warns=frozenset({"TP002", "TP008"}))


def bridged() -> SetUp:
    """H100 NVL: twelve of eighteen links, in pairs."""
    return SetUp(vllm(2, 4), filled(H100_NVL, 2, 4), SEVERAL | NVLINK | STAGES)


def geforce() -> SetUp:
    """Boards without NVLink and without peer access, and the variable that says so."""
    hosts, variables = TWO[:1], {"NCCL_P2P_DISABLE": "1"}
    evidence = filled(RTX4090, 4, 2, hosts, variables=variables)
    return SetUp(vllm(4, 2, hosts), evidence, ONE_NODE | {"TP004"}, warns=frozenset({"TP008"}))


def l40s() -> SetUp:
    """Boards without NVLink whose peer access is there and switched off."""
    evidence = filled(L40S, 4, 4, variables={"NCCL_P2P_DISABLE": "1"})
    return SetUp(vllm(4, 4), evidence, SEVERAL | STAGES | {"TP004", "TP008"})


RACK = Fabric(
    cluster_uuid="7c" * 16,
    clique=32766,
    state="Completed",
    status="Success",
    health_mask=0xAA,
    health="Healthy",
)


def in_rack(view: FullSnapshot) -> FullSnapshot:
    """A tray of the rack."""
    return changed(view, fabric=(RACK,))


def nvl72_stages() -> SetUp:
    """A stage boundary that needs no RDMA: both trays lie in one NVLink domain, and have one Ethernet NIC."""
    tray = replace(
        GB200,
        roots=tuple(replace(root, nics=int(place == 0)) for place, root in enumerate(GB200.roots)),
        nic=Nic("Ethernet", rate_gbps=200, model="MT41692"),
    )
    evidence = every(filled(tray, 4, 2), in_rack)
    passing = KNOWN | ALIKE | GROUP | NVLINK | {"PP001", "PP002", "PP003", "NV002"}
    return SetUp(vllm(4, 2), evidence, passing)


def nvl72_tensor() -> SetUp:
    """TP over two trays is right there, and declared."""
    text = vllm(8, 1, policy="{tensor_domain: nvlink}")
    passing = KNOWN | ALIKE | GROUP | {"NV001", "NV002", "NV005", "TP004", "TP008"}
    return SetUp(text, every(filled(GB200, 8, 1), in_rack), passing, undecided=frozenset({"TP002"}))


def pods() -> SetUp:
    """Containers that may lock 64 KiB, and hold CAP_IPC_LOCK."""
    limits = changed(
        BARE_METAL, scope="container", memlock_bytes=64 << 10, ipc_lock=True, container="c4" * 32
    )
    return SetUp(vllm(8, 2), filled(HGX_H100, 8, 2, limits=limits), SEVERAL | NVLINK | STAGES)


def own_names() -> SetUp:
    """Each node calls its NICs, interface and GID by its own names and numbers, and selects the same."""
    names = tuple(f"roce_rail{n}" for n in range(8))
    seats: list[dict[str, Any]] = [
        {"interface": "eth0", "nics": tuple(f"mlx5_{n}" for n in range(8)), "gid_shift": 0},
        {"interface": "ens5", "nics": names, "gid_shift": 2},
    ]
    evidence: list[FullSnapshot] = []
    for number, seat in enumerate(seats):
        variables = {
            "NCCL_IB_HCA": f"={','.join(seat['nics'])}",
            "NCCL_IB_GID_INDEX": f"{3 + seat['gid_shift']}",
        }
        evidence.append(nodes(HGX_H200_ROCE, *TWO, variables=variables, **seat)[number])
    passing = SEVERAL | NVLINK | STAGES | {"NET004"}
    return SetUp(vllm(8, 2), [*evidence, launched(8, 2, 8, 2)], passing)


def epyc() -> SetUp:
    """Four NUMA nodes a socket, and an IOMMU that passes devices through (iommu=pt)."""
    assert HGX_A100_EPYC.iommu == "identity"
    return SetUp(vllm(8, 2), filled(HGX_A100_EPYC, 8, 2), SEVERAL | NVLINK | STAGES | {"NV004"})


def virtual_functions() -> SetUp:
    """Virtual functions that each host numbers its own way."""
    box = replace(HGX_H200_ROCE, nic=Nic("Ethernet", rate_gbps=400, model="MT4126", virtual=True))
    names = [(0, 1, 3, 4, 5, 8, 9, 10), (2, 3, 4, 6, 7, 8, 11, 12)]
    views = [
        nodes(box, *TWO, nics=tuple(f"mlx5_{n}" for n in own))[number] for number, own in enumerate(names)
    ]
    return SetUp(vllm(8, 2), [*views, launched(8, 2, 8, 2)], SEVERAL | NVLINK | STAGES | {"NET004"})


def asleep() -> SetUp:
    """PCIe links of idle devices at their lowest speed."""
    evidence = filled(HGX_H100, 8, 2)
    assert {link.speed_gts for link in evidence[0].state.pci} == {2.5}
    return SetUp(vllm(8, 2), evidence, SEVERAL | NVLINK | STAGES)


def azure() -> SetUp:
    """A virtual machine in which nothing is near anything, and the topology file that the cloud asks for."""
    alone = tuple(Root(n // 4, gpus=1, switch=False) for n in range(8))
    far = tuple(Root(n // 4, gpus=0, nics=1, switch=False) for n in range(8))
    path = "/opt/microsoft/ndv5-topo.xml"

    def cloud(view: FullSnapshot) -> FullSnapshot:
        return changed(
            view,
            environment=view.environment | {"NCCL_TOPO_FILE": path, "NCCL_IB_PCI_RELAXED_ORDERING": "1"},
            files=(NcclFile(path=path, kind="topology"),),
            software=changed(view.software, hypervisor="Microsoft Hyper-V"),
        )

    evidence = every(filled(replace(HGX_H100, roots=alone + far), 8, 2), cloud)
    return SetUp(vllm(8, 2), evidence, (SEVERAL | NVLINK | STAGES | {"ENV003"}) - {"PP004"})


def slice_of_one() -> SetUp:
    """A replica of one rank on a MIG slice."""
    slices = tuple(MigDevice(uuid=f"MIG-0f0f0f0f-1111-2222-3333-{n:012}") for n in range(7))

    def cut(view: FullSnapshot) -> FullSnapshot:
        gpus = tuple(changed(gpu, mig=slices) for gpu in view.identity.gpus)
        return changed(view, identity=changed(view.identity, gpus=gpus))

    evidence = every(
        filled(HGX_H100, 1, 1, TWO[:1], variables={"CUDA_VISIBLE_DEVICES": f"{slices[2].uuid}"}), cut
    )
    return SetUp(vllm(1, 1, TWO[:1]), evidence, KNOWN | {"CAP001", "NV001", "NV002"})


def superchips() -> SetUp:
    """GH200, one GPU a node and no NVLink switch around it: TP has to cross nodes."""
    evidence = every(filled(GH200, 2, 1), lambda view: changed(view, fabric=(Fabric(state="Not Supported"),)))
    passing = (SEVERAL | {"NV002"}) - {"TP001", "TP007", "ENV005"}
    return SetUp(vllm(2, 1), evidence, passing, warns=frozenset({"TP001"}))


def sparks() -> SetUp:
    """Two DGX Spark joined by their two RoCE ports."""
    evidence = filled(GB10, 2, 1, nics=("rocep1s0f0", "rocep1s0f1"))
    passing = (SEVERAL | {"NET004"}) - {"TP001", "TP007", "ENV005"}
    return SetUp(vllm(2, 1), evidence, passing, warns=frozenset({"TP001"}))


def efa() -> SetUp:
    """A fabric of another make, with the plugin that it needs."""
    box = replace(HGX_H100, nic=Nic(None, rate_gbps=100, kind="efa", model=None, provider="efa"))
    plugin = Library(name="libnccl-net.so", folder="/opt/amazon/ofi-nccl/lib")
    names = tuple(f"rdmap{n}s0" for n in range(8))

    def plugged(view: FullSnapshot) -> FullSnapshot:
        assert view.verbs is not None
        return changed(view, verbs=changed(view.verbs, plugins=(plugin,)))

    evidence = every(filled(box, 8, 2, nics=names), plugged)
    return SetUp(vllm(8, 2), evidence, (SEVERAL | NVLINK | STAGES | {"NET011"}) - {"NET003", "NET007"})


def storage() -> SetUp:
    """Storage NICs, a bond of them, and a port without a cable beside the rails."""

    def more(view: FullSnapshot) -> FullSnapshot:
        up = Port(state="ACTIVE", physical="LinkUp", layer="Ethernet", rate_gbps=100)
        down = Port(state="DOWN", physical="Disabled", layer="Ethernet", rate_gbps=40)
        extra = tuple(
            NicShape(name=name, kind=kind, model="MT4125", ports=(port,), numa=0, pci=None)
            for name, kind, port in (("mlx5_bond_0", "bond", up), ("mlx5_8", "rdma", down))
        )
        return changed(view, hardware=changed(view.hardware, nics=(*view.hardware.nics, *extra)))

    variables = {"NCCL_IB_HCA": "=" + ",".join(f"mlx5_{n}" for n in range(8))}
    evidence = every(filled(HGX_H100, 8, 2, variables=variables), more)
    return SetUp(vllm(8, 2), evidence, SEVERAL | NVLINK | {"PP001", "PP003"})


MACHINES: dict[str, Callable[[], SetUp]] = {
    made.__name__: made
    for made in (
        hgx,
        dgx1v,
        bridged,
        geforce,
        l40s,
        nvl72_stages,
        nvl72_tensor,
        pods,
        own_names,
        epyc,
        virtual_functions,
        asleep,
        azure,
        slice_of_one,
        superchips,
        sparks,
        efa,
        storage,
    )
}
