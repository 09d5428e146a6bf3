"""HPE Slingshot NICs, which are no RDMA devices to the kernel (/sys/class/cxi).

They are used through libfabric's cxi provider. Their state is that of the network device that each of
them has as well; `properties/link` is the driver's own word (cass_sysfs.c of HPE's shs-cxi-driver).
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

from topocheck.probes.node.infiniband import RdmaDevice
from topocheck.probes.node.pci_function import function_in, read_numa
from topocheck.probes.node.reader import MISSING, Reader
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import NicId, NicShape, Port, ProbeFault

__all__ = ["read_slingshot"]

CLASSES = ("class/cxi", "class/cxi_user")
"""The driver's class, and that of its interface for user space, which alone libcxi reads."""

PHYSICAL = {"1": ("ACTIVE", "LinkUp"), "0": ("DOWN", "Disabled")}
"""`properties/link` in the words that the kernel has for ports of RDMA devices."""


def read_slingshot(roots: Roots) -> tuple[tuple[RdmaDevice, ...], tuple[ProbeFault, ...]]:
    """Slingshot NICs by name. A machine without the driver has no such class, which is no fault."""
    reader = Reader("nics")
    folders = [
        roots.sys / name / device
        for name in CLASSES
        for device in reader.names(roots.sys / name, MISSING)
        if re.fullmatch("cxi[0-9]{1,9}", device)
    ]
    first = {folder.name: folder for folder in reversed(folders)}
    return tuple(_device(reader, roots, first[name]) for name in sorted(first, key=_number)), reader.faults()


def _number(name: str) -> int:
    return int(name.removeprefix("cxi"))


def _device(reader: Reader, roots: Roots, folder: Path) -> RdmaDevice:
    bus = function_in(reader.link(folder)) or function_in(reader.link(folder / "device"))
    function = roots.sys / "bus/pci/devices" / (bus or "none")
    state, physical = PHYSICAL.get(reader.text(function / "properties/link") or "", (None, None))
    return RdmaDevice(
        NicId(name=folder.name, bus=bus),
        NicShape(
            name=folder.name,
            kind="slingshot",
            numa=None if bus is None else read_numa(reader, function),
            ports=(
                Port(state=state, physical=physical, layer="Ethernet", rate_gbps=_rate(reader, function)),
            ),
            model=_model(reader, function),
            virtual=None if bus is None else bool(reader.link(function / "physfn")),
        ),
    )


def _model(reader: Reader, function: Path) -> str | None:
    """`Cassini 2.0`, by the version of the chip."""
    version = reader.text(function / "properties/cassini_version", MISSING)
    return f"Cassini {version}" if version and version != "unknown" else None


def _rate(reader: Reader, function: Path) -> float | None:
    """Gbit/s of its network device; None while that is down, or in another network namespace."""
    for netdev in reader.names(function / "net", MISSING):
        speed = reader.number(function / "net" / netdev / "speed", {*MISSING, errno.EINVAL})
        if speed is not None and speed > 0:
            return speed / 1000
    return None
