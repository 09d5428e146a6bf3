"""Elements of a topology XML as hardware: PCI tree, GPUs with their links, network devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.etree.ElementTree import Element

from msgspec.structs import replace

from topocheck.errors import CaptureError
from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.capture.prompt import extent
from topocheck.snapshot import Coverage, GpuId, GpuShape, Hardware, NicId, NicShape, NvLink, PciNode, Port

__all__ = ["Machine", "read_machine"]

Refuse = Callable[[str], CaptureError]
"""Makes the error that names the file."""

DEEPEST = 32
"""Nested `pci` elements; real trees have less than 8."""
MOST_LINKS = 144
"""NVLinks of one GPU; real ones have up to 36."""

GPU_CLASSES = ("0x03", "0x12")
"""Display controllers, and processing accelerators (AMD Instinct)."""
SWITCH_CLASS, CPU_CLASS = "0x068000", "0x068001"
"""Far ends of NVLinks: NVSwitch, and IBM's NVLink bridge to the processor."""
GPU_VENDORS = ("", "0x10de", "0x1002")
KINDS = {"0x17db": "slingshot", "0x1d0f": "efa"}
"""Network devices by PCI vendor; others that NCCL lists are RDMA devices, or sockets."""


@dataclass(frozen=True, slots=True)
class Device:
    """A `gpu`, `net` or bare `pci` element and its place in the tree."""

    element: Element
    bus: str | None
    vendor: str
    pci: str | None
    numa: int | None


@dataclass(slots=True)
class Tree:
    """The PCI tree of one host and what hangs on it."""

    nodes: list[PciNode] = field(default_factory=list)
    gpus: list[Device] = field(default_factory=list)
    nets: list[Device] = field(default_factory=list)
    bare: list[Device] = field(default_factory=list)
    """PCI devices without a `gpu` or `net` in them: switches, or everything in a hint file."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One host of the file."""

    hardware: Hardware
    gpu_ids: tuple[GpuId, ...]
    nic_ids: tuple[NicId, ...]
    coverage: Coverage
    notes: tuple[tuple[Literal["cut", "ignored"], str], ...]

    @property
    def facts(self) -> int:
        """Number of devices and links taken."""
        links = sum(len(gpu.links) if gpu.links else gpu.nvlinks or 0 for gpu in self.hardware.gpus)
        return len(self.hardware.gpus) + len(self.hardware.nics) + links


def read_machine(cpus: Sequence[Element], refuse: Refuse) -> Machine:
    """One host from its `cpu` elements. Raises what `refuse` makes for values that cannot be."""
    tree = _tree(cpus, refuse)
    notes: list[tuple[Literal["cut", "ignored"], str]] = []
    gpus = tree.gpus
    hint = not gpus
    if hint:
        gpus = [device for device in tree.bare if _is_gpu(device)]
        notes.append(("cut", "a hint for a machine type: it names no GPU that NCCL found on this machine"))
    gpus = sorted(gpus, key=lambda gpu: (_number(gpu.element, "dev") or 0, gpu.bus or ""))
    devs = [dev for gpu in gpus if (dev := _number(gpu.element, "dev")) is not None]
    twice = sorted({dev for dev in devs if devs.count(dev) > 1})
    if twice:
        raise refuse(f"has two GPUs with dev {twice[0]} on one host")
    sockets = [net.element.get("name", "") for net in tree.nets if _is_socket(net)]
    if sockets:
        notes.append(("ignored", f"{', '.join(sockets)}: used through sockets, no RDMA device"))
    shapes = tuple(_shapes(gpus, refuse, hint=hint))
    known = all(shape.links is not None or shape.nvlinks is not None for shape in shapes)
    nics = _nics(net for net in tree.nets if net.element.get("name") and not _is_socket(net))
    return Machine(
        hardware=Hardware(
            gpus=shapes,
            nics=nics,
            pci=tuple(tree.nodes) if gpus or nics else (),
        ),
        gpu_ids=tuple(GpuId(bus=gpu.bus, nvml=_number(gpu.element, "dev")) for gpu in gpus),
        nic_ids=tuple(NicId(name=nic.name) for nic in nics),
        coverage=Coverage(
            gpus=extent(not hint) if gpus else None,
            links=None if hint else extent(known),
            nics=extent(bool(nics) and not hint) if tree.nets else None,
        ),
        notes=tuple(notes),
    )


def _tree(cpus: Sequence[Element], refuse: Refuse) -> Tree:
    """CPUs by NUMA node and devices by bus id, so that equal machines have equal trees."""
    tree = Tree()
    for place, cpu in enumerate(sorted(cpus, key=lambda cpu: _number(cpu, "numaid") or 0)):
        root, numa = f"root{place}", _number(cpu, "numaid")
        tree.nodes.append(PciNode(id=root, numa=numa))
        tree.nets += [Device(net, None, "", None, numa) for net in cpu.findall("nic/net")]
        _walk(tree, cpu, root, numa, refuse)
    return tree


def _walk(tree: Tree, above: Element, at: str, numa: int | None, refuse: Refuse, *, depth: int = 0) -> None:
    """PCI devices below a `cpu` (depth 0) or a PCIe switch."""
    if depth > DEEPEST:
        raise refuse(f"nests PCI devices deeper than {DEEPEST}")
    for place, pci in enumerate(sorted(above.findall("pci"), key=_bus_order)):
        parent, node = at, f"{at}/{place}"
        if depth > 0:  # the downstream port of this branch, which NCCL leaves out
            tree.nodes.append(PciNode(id=node, parent=parent))
            parent, node = node, f"{node}/0"
        tree.nodes.append(
            PciNode(
                id=node,
                parent=parent,
                max_width=_number(pci, "link_width", most=32) or None,
                max_speed_gts=_speed(pci.get("link_speed", "")),
            )
        )
        bus, vendor = parse_bus(pci.get("busid", "")), pci.get("vendor", "").lower()
        gpus, nets = pci.findall("gpu"), pci.findall("nic/net")
        tree.gpus += [Device(gpu, bus, vendor, node, numa) for gpu in gpus]
        tree.nets += [Device(net, bus, vendor, node, numa) for net in nets]
        if not gpus and not nets:
            tree.bare.append(Device(pci, bus, vendor, node, numa))
        _walk(tree, pci, node, numa, refuse, depth=depth + 1)


def _bus_order(pci: Element) -> str:
    printed = pci.get("busid", "")
    return parse_bus(printed) or printed


def _is_gpu(device: Device) -> bool:
    """A PCI device that is a GPU by class; a board's own graphics chip is of another vendor."""
    return device.element.get("class", "").startswith(GPU_CLASSES) and device.vendor in GPU_VENDORS


def _shapes(gpus: Sequence[Device], refuse: Refuse, *, hint: bool) -> Iterator[GpuShape]:
    ordinals = {gpu.bus: n for n, gpu in reversed(list(enumerate(gpus))) if gpu.bus is not None}
    for gpu in gpus:
        sm = None if gpu.element.get("gcn") else _number(gpu.element, "sm")  # RCCL counts units there
        shape = GpuShape(sm=sm, numa=gpu.numa, pci=gpu.pci)
        elements = [*gpu.element.findall("nvlink"), *gpu.element.findall("xgmi")]
        ends = [end for link in elements for end in _far_ends(link, gpu.bus, ordinals, refuse)]
        if hint or (elements and not ends):  # a link to the GPU itself is a trick of a cloud's file
            yield shape
        elif all(remote == "switch" for remote, _ in ends):
            yield replace(shape, nvlinks=len(ends), nvswitch=True if ends else None)
        else:
            numbered = (NvLink(link=n, active=True, remote=r, peer=p) for n, (r, p) in enumerate(ends))
            yield replace(shape, links=tuple(numbered))


def _far_ends(
    link: Element, own: str | None, ordinals: dict[str, int], refuse: Refuse
) -> list[tuple[Literal["gpu", "switch", "cpu"] | None, int | None]]:
    """Far end of each link of one `nvlink` or `xgmi` element: its kind, and its ordinal if it is a GPU.

    A target that is no PCI address is NCCL's `fffffff:ffff:ff`, a switch that the driver hides.
    """
    target, kind = parse_bus(link.get("target", "")), link.get("tclass", "")
    count = _number(link, "count")
    if count is None or count > MOST_LINKS:
        raise refuse(f"has an NVLink with count={link.get('count')!r:.20}, expected 1 to {MOST_LINKS}")
    if target is not None and target == own:
        return []
    if kind == SWITCH_CLASS or target is None:
        return [("switch", None)] * count
    if kind == CPU_CLASS:
        return [("cpu", None)] * count
    if target in ordinals or kind.startswith(GPU_CLASSES):
        return [("gpu", ordinals.get(target))] * count
    return [(None, None)] * count


def _is_socket(net: Device) -> bool:
    """What NCCL's socket transport reports: port 0, 65536 connections, no GPUDirect (net_socket.cc)."""
    get = net.element.get
    return get("port") == "0" and get("maxconn") == "65536" and get("gdr", "0") == "0"


def _nics(nets: Iterable[Device]) -> tuple[NicShape, ...]:
    """Network devices by NCCL's number; several ports of one name are one device."""
    nics: dict[str, NicShape] = {}
    for net in sorted(nets, key=lambda net: (_number(net.element, "dev") or 0, net.element.get("name", ""))):
        name, speed = net.element.get("name", "")[:64], _number(net.element, "speed", most=10**8)
        number = _number(net.element, "port")
        port = Port(port=1 if number is None else number, rate_gbps=speed / 1000 if speed else None)
        kind = KINDS.get(net.vendor, "rdma")
        known = nics.setdefault(name, NicShape(name=name, kind=kind, numa=net.numa, pci=net.pci))
        if all(port.port != other.port for other in known.ports):
            nics[name] = replace(known, ports=(*known.ports, port))
    return tuple(nics.values())


def _number(element: Element, attribute: str, *, most: int = 10**6) -> int | None:
    """A number of at most `most`; None for -1, nothing or text."""
    value = element.get(attribute, "")
    found = int(value) if re.fullmatch("[0-9]{1,9}", value) else None
    return found if found is not None and found <= most else None


def _speed(text: str) -> float | None:
    """GT/s from `16.0 GT/s PCIe` and its variants; None for an empty or unknown one."""
    match = re.match(r"([0-9]{1,3}(?:\.[0-9])?) GT/s", text)
    return float(match[1]) if match else None
