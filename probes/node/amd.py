"""AMD GPUs as the kernel's compute driver lists them (/sys/class/kfd/kfd/topology; kfd_topology.c).

A node of that list is a processor or a GPU. `properties` has one name and number a line; io_links are
the ways from a node to others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from topocheck.probes.capture.bus import make_bus
from topocheck.probes.node.pci import PciTree
from topocheck.probes.node.pci_function import AMD, read_numa
from topocheck.probes.node.reader import MISSING, Reader
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import GpuId, GpuShape, NvLink, ProbeFault

__all__ = ["AmdGpus", "parse_properties", "read_amd"]

TOPOLOGY = "class/kfd/kfd/topology/nodes"
XGMI = 11
"""CRAT_IOLINK_TYPE_XGMI in kfd_crat.h."""
VIDEO_MEMORY = (1, 2)
"""HSA_MEM_HEAP_TYPE_FB_PUBLIC and _PRIVATE in kfd_crat.h."""
PROPERTY = re.compile(r"([a-z0-9_]{1,64}) ([0-9]{1,20})")
UNIQUE = re.compile(r"[0-9a-f]{1,16}")


class AmdGpus(msgspec.Struct, frozen=True, gc=False):
    """The GPUs of the list by ordinal."""

    ids: tuple[GpuId, ...] = ()
    """For `identity.gpus`; without an index, since the driver's tools count otherwise."""
    shapes: tuple[GpuShape, ...] = ()
    """For `hardware.gpus`; XGMI links stand in the place of NVLinks."""
    whole: bool = False
    """All nodes could be read: a container may see only those of its own devices."""


def parse_properties(text: str) -> dict[str, int]:
    """Numbers by name from a `properties` file; other lines are left out."""
    return {
        found[1]: int(found[2]) for line in text.splitlines() if (found := PROPERTY.fullmatch(line.strip()))
    }


def read_amd(roots: Roots, tree: PciTree) -> tuple[AmdGpus, tuple[ProbeFault, ...]]:
    """GPUs of the compute driver. That it is not there is a fault where the PCI tree has a GPU of AMD's."""
    reader = Reader("gpus")
    folder = roots.sys / TOPOLOGY
    there = any(function.kind == "gpu" and function.vendor == AMD for function in tree.functions.values())
    listed = reader.names(folder, () if there else MISSING)
    numbers = [name for name in listed if re.fullmatch("[0-9]{1,5}", name)]
    texts = {int(number): reader.text(folder / number / "properties") for number in numbers}
    nodes = {number: parse_properties(text) for number, text in texts.items() if text is not None}
    gpus = {number: node for number, node in nodes.items() if node.get("simd_count")}
    ordinals = {number: ordinal for ordinal, number in enumerate(gpus)}
    functions = roots.sys / "bus/pci/devices"
    ids = tuple(_id(node) for node in gpus.values())
    shapes = tuple(
        GpuShape(
            model=_model(reader, functions / (gpu.bus or "none"), gpus[number]),
            memory_bytes=sum(_memory(reader, folder / str(number))) or None,
            numa=read_numa(reader, functions / (gpu.bus or "none")),
            pci=tree.places.get(gpu.bus or ""),
            links=_links(reader, folder / str(number), ordinals),
        )
        for number, gpu in zip(gpus, ids, strict=True)
    )
    return AmdGpus(ids, shapes, whole=bool(numbers) and len(nodes) == len(numbers)), reader.faults()


def _id(node: Mapping[str, int]) -> GpuId:
    """Names of a GPU. `location_id` has bus and function in its 16 lower bits (kfd_fill_gpu_..., bdf)."""
    location, unique, hive = node.get("location_id"), node.get("unique_id"), node.get("hive_id")
    bus = None
    if location is not None:
        bus = make_bus(node.get("domain", 0), location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7)
    return GpuId(
        uuid=f"GPU-{unique:016x}" if unique else None,
        bus=bus,
        hive=f"{hive:016x}" if hive else None,
    )


def _model(reader: Reader, function: Path, node: Mapping[str, int]) -> str | None:
    """Product name, where the board has one; else its architecture: 90402 is gfx942, 90010 gfx90a."""
    name = reader.text(function / "product_name", MISSING)
    if name:
        return name[:100]
    version = node.get("gfx_target_version")
    if not version:
        return None
    return f"AMD gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _memory(reader: Reader, folder: Path) -> Iterator[int]:
    """Bytes of each bank of the GPU's own memory."""
    for bank in _parts(reader, folder / "mem_banks"):
        if bank.get("heap_type") in VIDEO_MEMORY:
            yield bank.get("size_in_bytes", 0)


def _links(reader: Reader, folder: Path, ordinals: Mapping[int, int]) -> tuple[NvLink, ...] | None:
    """XGMI links to other GPUs, some of which may be hidden; None if the list could not be read.

    The driver lists a link only once the hive is joined, so each listed one is up.
    """
    listed = reader.names(folder / "io_links")
    parts = list(_parts(reader, folder / "io_links"))
    if len(parts) < len(listed) or not listed:
        return None
    peers = [ordinals.get(part.get("node_to", -1)) for part in parts if part.get("type") == XGMI]
    return tuple(NvLink(link=n, active=True, remote="gpu", peer=peer) for n, peer in enumerate(peers))


def _parts(reader: Reader, folder: Path) -> Iterable[dict[str, int]]:
    """Properties of each numbered part of a node."""
    for name in reader.names(folder):
        text = reader.text(folder / name / "properties")
        if text is not None:
            yield parse_properties(text)
