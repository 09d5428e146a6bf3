"""PCI functions as sysfs lists them (Documentation/ABI/testing/sysfs-bus-pci)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.node.reader import MISSING, Reader, parse_number
from topocheck.probes.node.roots import Roots

__all__ = [
    "AMD",
    "PciFunction",
    "examined",
    "function_in",
    "list_functions",
    "parse_path",
    "parse_speed",
    "parse_width",
    "place_of",
    "read_numa",
]

DeviceKind = Literal["bridge", "gpu", "nic", "nvswitch"]

NVIDIA, AMD = 0x10DE, 0x1002
VGA, BRIDGE, OTHER_BRIDGE = 0x0300, 0x0604, 0x0680
"""PCI base class and subclass; NVSwitches are of the last."""
GPU_CLASSES = (0x0302, 0x0380)
"""3D controllers and other display controllers: NVIDIA's and AMD's data-centre boards."""
NIC_CLASS, FABRIC_CLASS, ACCELERATOR_CLASS = 0x02, 0x0208, 0x12
"""Network controllers, Omni-Path among them, and processing accelerators (AMD Instinct)."""

ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?) GT/s")
MOST_LANES = 32
"""Lanes of the widest link; 63 and 255 are registers that nobody filled."""


class PciFunction(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One function and what its own files say."""

    bus: str
    """PCI address."""
    path: tuple[str, ...] = ()
    """Root complex, bridges and itself by the kernel's names; () where the tree does not show it."""
    code: int | None = None
    """Base class and subclass: 0x0302."""
    vendor: int | None = None
    """PCI vendor."""
    numa: int | None = None
    """NUMA node; None where the kernel says -1."""
    max_width: int | None = None
    """Lanes that it can drive."""
    max_speed_gts: float | None = None
    """GT/s for each lane that it can drive."""
    width: int | None = None
    """Lanes in use."""
    speed_gts: float | None = None
    """GT/s for each lane now."""
    iommu: str | None = None
    """Type of its IOMMU group."""

    @property
    def kind(self) -> DeviceKind | None:
        """What it is by class and vendor; None for what has no part in the traffic of a job.

        A graphics chip for a console is no GPU: of the VGA class only NVIDIA's and AMD's boards count.
        """
        code, vendor = self.code or 0, self.vendor
        if code == BRIDGE:
            return "bridge"
        if code == OTHER_BRIDGE and vendor == NVIDIA:
            return "nvswitch"
        if code in GPU_CLASSES or code >> 8 == ACCELERATOR_CLASS or (code == VGA and vendor in (NVIDIA, AMD)):
            return "gpu"
        return "nic" if code >> 8 == NIC_CLASS else None


def parse_path(target: tuple[str, ...]) -> tuple[str, ...]:
    """Root complex, bridges and function from the target of a link below /sys/bus/pci/devices.

    The last root complex counts: a VMD controller is a function and a root complex of its own.
    """
    roots = [place for place, part in enumerate(target) if ROOT.fullmatch(part)]
    if not roots:
        return ()
    below = target[roots[-1] + 1 :]
    return (target[roots[-1]], *below) if below and all(map(FUNCTION.fullmatch, below)) else ()


def parse_width(text: str) -> int | None:
    """Lanes from `16`; None for 0, 63 and 255, by which devices say that they do not know."""
    number = parse_number(text)
    return number if number is not None and 0 < number <= MOST_LANES else None


def parse_speed(text: str) -> float | None:
    """GT/s from `16.0 GT/s PCIe`; None for `Unknown` or nothing."""
    found = SPEED.match(text.strip())
    return float(found[1]) if found else None


def function_in(target: Iterable[str]) -> str | None:
    """Address of the innermost function on a path in /sys/devices; None if it leads through none."""
    found = [bus for part in target if FUNCTION.fullmatch(part) and (bus := parse_bus(part)) is not None]
    return found[-1] if found else None


def list_functions(reader: Reader, roots: Roots) -> list[PciFunction]:
    """All functions with their place, class and vendor, by address."""
    folder = roots.sys / "bus/pci/devices"
    found = []
    for name in reader.names(folder):
        bus = parse_bus(name)
        if bus is None:
            continue
        code = _hexadecimal(reader, folder / name / "class")
        path = parse_path(reader.link(folder / name))
        vendor = _hexadecimal(reader, folder / name / "vendor")
        found.append(PciFunction(bus=bus, path=path, code=None if code is None else code >> 8, vendor=vendor))
    return sorted(found, key=lambda function: place_of(function.bus))


def examined(reader: Reader, roots: Roots, function: PciFunction) -> PciFunction:
    """The function with its NUMA node, its link and its IOMMU group.

    Functions without a PCI Express link have no files about one; a machine without IOMMU has no groups.
    """
    folder = roots.sys / "bus/pci/devices" / function.bus

    def text(name: str) -> str:
        return reader.text(folder / name, MISSING) or ""

    return replace(
        function,
        numa=read_numa(reader, folder),
        max_width=parse_width(text("max_link_width")),
        max_speed_gts=parse_speed(text("max_link_speed")),
        width=parse_width(text("current_link_width")),
        speed_gts=parse_speed(text("current_link_speed")),
        iommu=text("iommu_group/type") or None,
    )


def read_numa(reader: Reader, folder: Path) -> int | None:
    """NUMA node of the device in a folder; None for -1, by which the kernel says that it does not know."""
    number = reader.number(folder / "numa_node", MISSING)
    return number if number is not None and number >= 0 else None


def place_of(bus: str) -> tuple[int, ...]:
    """The four numbers of an address, for sorting."""
    return tuple(int(part, 16) for part in re.split("[:.]", bus))


def _hexadecimal(reader: Reader, path: Path) -> int | None:
    """A number as sysfs prints it: `0x030200`."""
    text = reader.text(path)
    if text is None:
        return None
    if re.fullmatch("0x[0-9a-f]{1,8}", text):
        return int(text, 16)
    reader.note("broken", path, f"expected a hexadecimal number, found {text[:40]!r}")
    return None
