"""What a process has at hand for RDMA and GPUDirect: device nodes, libraries, kernel modules, plugins.

Names of RDMA devices are visible in every container; whether they can be used is decided by the device
nodes below /dev/infiniband, which a container has only if it was given them.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path

from topocheck.probes.node.container import read_container
from topocheck.probes.node.libraries import find_libraries, library_folders
from topocheck.probes.node.reader import MISSING, Reader
from topocheck.probes.node.roots import Roots
from topocheck.probes.node.software import parse_driver
from topocheck.snapshot import ProbeFault, Verbs, VerbsDevice

__all__ = ["VERBS_LIBRARY", "parse_modules", "parse_release", "read_verbs"]

VERBS_LIBRARY = "libibverbs.so.1"
"""What NCCL opens (src/misc/ibvsymbols.cc)."""

PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
"""Modules that let a NIC reach GPU memory, the present one first."""

DMA_BUF_KERNEL = (5, 12)
"""First kernel whose RDMA devices accept a dma-buf."""

PROVIDERS = re.compile(r"lib([a-z0-9_]{1,32})-rdmav[0-9]{1,3}\.so")
DRIVERS = "libibverbs"
"""Folder of the providers, beside the libraries."""
PLUGINS = re.compile(
    r"lib(?:nccl|rccl)-net[A-Za-z0-9_.-]{0,64}|libfabric\.so\.1|lib(?:nccl|rccl)-tuner[\w.-]{0,64}|libibverbs"
)
RELEASE = re.compile(r"([0-9]{1,3})\.([0-9]{1,4})")


def parse_modules(text: str) -> frozenset[str]:
    """Names of the loaded kernel modules (/proc/modules)."""
    return frozenset(line.split(maxsplit=1)[0] for line in text.splitlines() if line.strip())


def parse_release(text: str) -> tuple[int, int] | None:
    """Version of a kernel, (5, 15) of `5.15.0-1053-generic`; None for other text."""
    found = RELEASE.match(text.strip())
    return (int(found[1]), int(found[2])) if found else None


def read_verbs(roots: Roots) -> tuple[Verbs, tuple[ProbeFault, ...]]:
    """Means of RDMA. Device nodes are opened and closed again, on a live machine alone."""
    reader = Reader("verbs")
    folders = library_folders(reader, roots)
    plugins = find_libraries(reader, roots, folders, PLUGINS)
    drivers = {f"{found.folder}/{DRIVERS}": found.searched for found in plugins if found.name == DRIVERS}
    providers = find_libraries(reader, roots, drivers, PROVIDERS)
    listed = reader.text(roots.proc / "modules")
    modules = parse_modules(listed or "")
    none_loaded = None if listed is None else ""
    container, _ = read_container(roots)  # what went wrong there is told with the limits
    verbs = Verbs(
        scope=container.scope,
        devices=_listed(reader, roots),
        library=_loads(reader, VERBS_LIBRARY) if roots.live else None,
        providers=tuple(dict.fromkeys(PROVIDERS.sub(r"\1", library.name) for library in providers)),
        peer_memory=next((module for module in PEER_MODULES if module in modules), none_loaded),
        dma_buf=_dma_buf(reader, roots),
        plugins=tuple(library for library in plugins if library.name != DRIVERS),
    )
    return verbs, reader.faults()


def _listed(reader: Reader, roots: Roots) -> tuple[VerbsDevice, ...] | None:
    """Device nodes; None where they cannot be listed, or a recording may have left them out."""
    found, folder = tuple(_devices(reader, roots)), roots.dev / "infiniband"
    refused = any(fault.path == str(folder) and fault.kind != "absent" for fault in reader.faults())
    return found if found or (roots.live and not refused) else None


def _devices(reader: Reader, roots: Roots) -> Iterator[VerbsDevice]:
    """Device nodes with the RDMA device that each belongs to (/sys/class/infiniband_verbs/*/ibdev)."""
    for name in reader.names(roots.dev / "infiniband"):
        if re.fullmatch("uverbs[0-9]{1,5}", name):
            nic = reader.text(roots.sys / "class/infiniband_verbs" / name / "ibdev", MISSING)
            reason = _open(reader, roots.dev / "infiniband" / name) if roots.live else None
            openable = None if reason is None else not reason
            yield VerbsDevice(name=name, nic=nic or None, openable=openable, reason=reason or "")


def _open(reader: Reader, path: Path) -> str:
    """Why the device cannot be opened; an empty text if it can.

    Permission bits do not tell: the device cgroup of a container refuses what they allow.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        reader.refused(path, error)
        return error.strerror or str(error)
    return ""


def _loads(reader: Reader, library: str) -> bool:
    """Whether the loader finds a library and all that it needs."""
    try:
        ctypes.CDLL(library)
    except OSError as error:
        reader.note("absent", library, str(error))
        return False
    return True


def _dma_buf(reader: Reader, roots: Roots) -> bool | None:
    """Whether driver and kernel can share GPU memory; None without an NVIDIA driver."""
    driver = reader.text(roots.proc / "driver/nvidia/version", MISSING)
    release = parse_release(reader.text(roots.proc / "sys/kernel/osrelease") or "")
    opened = None if driver is None else parse_driver(driver)[1]
    if opened is None or release is None:
        return None
    return opened and release >= DMA_BUF_KERNEL
