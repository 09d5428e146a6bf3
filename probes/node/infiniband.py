"""RDMA devices (/sys/class/infiniband; Documentation/ABI/stable/sysfs-class-infiniband).

What a device is good for is read from what it is and never from its name: RDMA names are given by udev
rules and clouds as they like.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from topocheck.portreading import PortReading
from topocheck.probes.node.infiniband_port import read_port, read_port_state
from topocheck.probes.node.pci_function import function_in, read_numa
from topocheck.probes.node.reader import MISSING, Reader
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import NicId, NicShape, ProbeFault

__all__ = ["RdmaDevice", "Signs", "judge", "parse_guid", "read_infiniband"]

AMAZON, CORNELIS = 0x1D0F, 0x434E
"""PCI vendors."""
FABRIC_CLASS = 0x0208
"""PCI class of Omni-Path adapters."""
NODE_TYPES = {4: "iwarp", 5: "usnic", 6: "usnic"}
"""node_type by number (RDMA_NODE_* in rdma/ib_verbs.h); 1 is a channel adapter, 7 unspecified."""
LAYERS = ("InfiniBand", "Ethernet")

GUID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){3}")
LAG_NAME = re.compile(r"mlx5_bond_[0-9]+")
"""What the mlx5 driver itself calls a device of two bonded ports (mlx5_ib_stage_ib_reg_init, main.c)."""


class RdmaDevice(msgspec.Struct, frozen=True, gc=False):
    """One device: its names, its shape without a place in the PCI tree, and what is read of its ports."""

    id: NicId
    shape: NicShape
    ports: tuple[PortReading, ...] = ()


class Signs(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What tells kinds of devices apart."""

    virtual: bool = False
    """It lies below /sys/devices/virtual: software over any network device."""
    vendor: int | None = None
    """PCI vendor."""
    code: int | None = None
    """PCI base class and subclass."""
    node_type: int | None = None
    """node_type."""
    board: str = ""
    """board_id."""
    lag: bool = False
    """Several ports of the card are bonded behind it."""
    layers: tuple[str | None, ...] = ()
    """Link layer of each port."""


def judge(signs: Signs) -> str | None:
    """Kind of a device: `rdma` is one that NCCL can use as a rail; None where nothing tells.

    Omni-Path and EFA come before link layers: the one calls itself InfiniBand, the other nothing.
    """
    if signs.virtual:
        return "soft"
    if signs.vendor == AMAZON:
        return "efa"
    if signs.code == FABRIC_CLASS or signs.vendor == CORNELIS or "Omni-Path" in signs.board:
        return "omni-path"
    if signs.node_type in NODE_TYPES:
        return NODE_TYPES[signs.node_type]
    if signs.lag:
        return "bond"
    return "rdma" if any(layer in LAYERS for layer in signs.layers) else None


def parse_guid(text: str) -> str | None:
    """A GUID as sysfs prints it, `0a7f:bc12:45ef:d23b`; None for zeros and other text."""
    text = text.strip().lower()
    return text if GUID.fullmatch(text) and text.strip("0:") else None


def read_infiniband(roots: Roots) -> tuple[tuple[RdmaDevice, ...], tuple[ProbeFault, ...]]:
    """RDMA devices by name, `mlx5_2` before `mlx5_10`."""
    reader = Reader("nics")
    folder = roots.sys / "class/infiniband"
    return tuple(_device(reader, roots, folder / name) for name in reader.names(folder)), reader.faults()


def _device(reader: Reader, roots: Roots, folder: Path) -> RdmaDevice:
    target = reader.link(folder)
    bus = _bus(reader, roots, folder, target)
    function = roots.sys / "bus/pci/devices" / (bus or "none")
    # An excerpt of sysfs, or a driver without the attribute, has no such file: then it is not known.
    board = reader.text(folder / "board_id", MISSING) or None
    ports = [number for name in reader.names(folder / "ports") if (number := _port_number(name))]
    shapes = tuple(read_port(reader, folder, number) for number in ports)
    soft = "virtual" in target
    signs = Signs(
        virtual=soft,
        vendor=None if soft else _hexadecimal(reader, function / "vendor"),
        code=None if soft else (_hexadecimal(reader, function / "class") or 0) >> 8,
        node_type=_node_type(reader, folder),
        board=board or "",
        lag=_is_lag(reader, roots, folder, function),
        layers=tuple(port.layer for port in shapes),
    )
    return RdmaDevice(
        NicId(
            name=folder.name,
            bus=bus,
            guid=_guid(reader, folder / "node_guid"),
            card=_guid(reader, folder / "sys_image_guid"),
        ),
        NicShape(
            name=folder.name,
            kind=judge(signs),
            numa=None if bus is None else read_numa(reader, function),
            ports=shapes,
            model=reader.text(folder / "hca_type", MISSING) or None,
            board=board,
            firmware=reader.text(folder / "fw_ver", MISSING) or None,
            virtual=None if signs.vendor is None else bool(reader.link(function / "physfn")),
        ),
        tuple(read_port_state(reader, folder, number) for number in ports),
    )


def _port_number(name: str) -> int | None:
    return int(name) if re.fullmatch("[1-9][0-9]{0,2}", name) else None


def _bus(reader: Reader, roots: Roots, folder: Path, target: tuple[str, ...]) -> str | None:
    """PCI address of a device: the function that it lies below, else the one that `device` leads to.

    A soft device lies nowhere: `parent` names the network device that carries it.
    """
    carrier = reader.text(folder / "parent", MISSING) if "virtual" in target else None
    if carrier and "/" not in carrier:
        target = reader.link(roots.sys / "class/net" / carrier)
    return function_in(target) or function_in(reader.link(folder / "device"))


def _is_lag(reader: Reader, roots: Roots, folder: Path, function: Path) -> bool:
    """Ports of a card are bonded behind this one device.

    Its network device is a member of a bond, and another member has no RDMA device of its own. A bond
    whose members all have theirs is one in software. Where the network devices belong to another
    namespace only the name remains that the driver itself gives.
    """
    net = roots.sys / "class/net"
    members = [
        member
        for netdev in reader.names(function / "net", MISSING)
        for member in (reader.text(net / netdev / "master/bonding/slaves", MISSING) or "").split()
    ]
    if members:
        return not all(reader.names(net / member / "device/infiniband", MISSING) for member in members)
    return LAG_NAME.fullmatch(folder.name) is not None


def _guid(reader: Reader, path: Path) -> str | None:
    text = reader.text(path, MISSING)
    guid = parse_guid(text or "")
    if guid is None and text and text.strip("0:"):
        reader.note("broken", path, f"expected a GUID, found {text[:40]!r}")
    return guid


def _node_type(reader: Reader, folder: Path) -> int | None:
    """Number in `1: CA`."""
    number = (reader.text(folder / "node_type", MISSING) or "").partition(":")[0]
    return int(number) if re.fullmatch("[0-9]", number) else None


def _hexadecimal(reader: Reader, path: Path) -> int | None:
    text = reader.text(path, MISSING) or ""
    return int(text, 16) if re.fullmatch("0x[0-9a-f]{1,8}", text) else None
