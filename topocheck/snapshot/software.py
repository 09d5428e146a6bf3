"""Versions, limits and libraries in force on a node."""

from __future__ import annotations

from typing import Literal

import msgspec

from topocheck.snapshot.record import Record, Scope

__all__ = ["Library", "Limits", "ModelFiles", "NcclFile", "Software", "Verbs", "VerbsDevice"]


class Software(Record, frozen=True, kw_only=True):
    """Versions in force on the node."""

    driver: str | None = None
    """GPU driver."""
    cuda: str | None = None
    """CUDA version that the driver supports."""
    nvml: str | None = None
    """NVML library."""
    cuda_runtime: str | None = None
    """CUDA version that the job's libraries are of."""
    nccl: str | None = None
    """NCCL that the job loads."""
    engine: str | None = None
    """Engine name."""
    engine_version: str | None = None
    """Engine version."""
    torch: str | None = None
    """PyTorch version."""
    hypervisor: str | None = None
    """What the machine is a virtual machine of, `unnamed` where it does not say; None if it shows none."""
    fabric_manager: str | None = None
    """NVIDIA's fabric manager, which has to be of the driver's version."""
    open_driver: bool | None = None
    """The NVIDIA kernel module is the open one, which can share GPU memory as dma-buf."""


class Limits(Record, frozen=True, kw_only=True):
    """Limits of the process that was looked at."""

    scope: Scope = "unknown"
    """Whose limits these are."""
    memlock_bytes: int | None = None
    """RLIMIT_MEMLOCK; -1 is unlimited."""
    ipc_lock: bool | None = None
    """CAP_IPC_LOCK is effective."""
    shm_bytes: int | None = None
    """Size of /dev/shm."""
    nofile: int | None = None
    """RLIMIT_NOFILE."""
    shm_free_bytes: int | None = None
    """Free part of /dev/shm."""
    memory_bytes: int | None = None
    """Memory that its cgroups allow; -1 is unlimited."""
    hugepages_bytes: int | None = None
    """Huge pages that are set aside on the machine, whole pool."""
    container: str | None = None
    """Container that it runs in, 64 hex digits."""


class VerbsDevice(Record, frozen=True, kw_only=True):
    """One /dev/infiniband/uverbsN: what a process opens to use an RDMA device."""

    name: str
    """uverbsN; empty where only the RDMA device is shown."""
    nic: str | None = None
    """Kernel name of its RDMA device."""
    openable: bool | None = None
    """The process that was looked at can open it; None where that was not tried."""
    reason: str = ""
    """The system's words where it cannot."""


class Library(Record, frozen=True, kw_only=True):
    """A shared library found by its file name; it was not loaded."""

    name: str
    """File name: libnccl-net-ofi.so."""
    folder: str
    """Where it lies."""
    searched: bool = True
    """The loader looks there: LD_LIBRARY_PATH, ld.so.conf or a standard folder."""


class Verbs(Record, frozen=True, kw_only=True):
    """What the process that was looked at has to work with for RDMA and GPUDirect."""

    scope: Scope = "unknown"
    """Whose view this is."""
    devices: tuple[VerbsDevice, ...] | None = None
    """Device nodes that are there; None if nobody looked."""
    library: bool | None = None
    """libibverbs.so.1 can be loaded, as NCCL does; None where that was not tried."""
    providers: tuple[str, ...] = ()
    """Drivers of libibverbs that are installed: mlx5, efa."""
    peer_memory: str | None = None
    """Kernel module that gives NICs access to GPU memory: nvidia_peermem or nv_peer_mem; empty if all
    modules were listed and neither is loaded."""
    dma_buf: bool | None = None
    """Kernel and NVIDIA driver can share GPU memory as dma-buf instead; None without such a driver."""
    plugins: tuple[Library, ...] = ()
    """Network plugins of NCCL and RCCL, and libfabric."""


class NcclFile(Record, frozen=True, kw_only=True):
    """A file by which NCCL is told something that the environment does not show."""

    path: str
    """Where NCCL looks."""
    kind: Literal["settings", "topology", "graph"]
    """nccl.conf, a topology file or a graph file."""
    exists: bool = True
    """It is there; None of what it should say holds if it is not."""
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables that it sets where the environment does not, by allow-list."""


class ModelFiles(Record, frozen=True, kw_only=True):
    """The files of a model on one node, told by digests: weights by their names and sizes, not read."""

    path: str
    """Folder that was looked at."""
    config_digest: str | None = None
    """`sha256:` and the hex digest of config.json; None if there is none."""
    weights_digest: str | None = None
    """The same of names and sizes of the weight files and of their index; None if there is none."""
    weights_bytes: int | None = None
    """Size of all weight files."""
    weights_files: int | None = None
    """Number of weight files."""
