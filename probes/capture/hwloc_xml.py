"""hwloc's XML (`lstopo topology.xml`), of versions 1 and 2: PCI tree, GPUs, RDMA devices, NVLinks.

hwloc keeps the kernel's bridges, so distances are those of sysfs. A host bridge lies in the objects of
its NUMA node. NVLinks come as a matrix of bandwidths between GPUs and NVSwitches; hwloc makes them of 20
GB/s a link for NVLink 1, of 25 up to NVLink 4 and of 50 from then on (topology-nvml.c), so the number of
links is the quotient. Links whose far end hwloc did not find are not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from topocheck.errors import CaptureError
from topocheck.portreading import GidReading, parted
from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.capture.gpu_block import read_uuid
from topocheck.probes.capture.pci_tree import ENDS, PciFunction, PciTree, build_tree, kind_of, place_of
from topocheck.probes.capture.prompt import extent, section_at, sections
from topocheck.probes.capture.rdma_device import Device, parse_gid, parse_guid, parse_lid
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.probes.capture.xml_element import Element, read_documents
from topocheck.snapshot import (
    SCHEMA,
    Coverage,
    FullSnapshot,
    GpuId,
    GpuShape,
    Hardware,
    Host,
    Identity,
    Network,
    NicId,
    NicShape,
    NvLink,
    Source,
    State,
)

__all__ = ["KIND", "parse"]

KIND = "hwloc XML"

ROOT = "topology"
FIX = "give the file that lstopo wrote"
CLASS = re.compile(r"(?P<code>[0-9a-f]{4}) \[(?P<vendor>[0-9a-f]{4}):[0-9a-f]{4}\].*")
HOST_BRIDGE = "0-"
"""Beginning of the type of a bridge whose upper side is no PCI bus."""
NVML = re.compile(r"nvml(?P<index>[0-9]{1,4})")
STATES = {"1": "DOWN", "2": "INIT", "3": "ARMED", "4": "ACTIVE"}
"""enum ibv_port_state."""
VIRTUAL = re.compile(
    r"QEMU|KVM|VMware|VirtualBox|Bochs|\bXen\b|HVM domU|OpenStack|Virtual|Compute Engine", re.IGNORECASE
)
"""Names of boards that are no boards."""

MOST_PEERS = 4096
LINK_MEGABYTES = ((re.compile(r"P100"), 20_000), (re.compile(r"\bG?B[23]00\b"), 50_000))
OTHER_LINK_MEGABYTES = 25_000
"""MB/s that hwloc counts for one link, by model."""


@dataclass(slots=True)
class Machine:
    """What the objects show, in their order."""

    host: str | None = None
    board: str = ""
    functions: list[PciFunction] = field(default_factory=list)
    gpus: dict[str, dict[str, str]] = field(default_factory=dict)
    """What NVML told hwloc of each GPU, by bus id."""
    nics: list[tuple[Device, str]] = field(default_factory=list)
    """RDMA devices and their bus ids."""
    objects: dict[str, str] = field(default_factory=dict)
    """Bus id by the index that the matrix of bandwidths uses."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object lies."""

    bridge: str | None = None
    """Address of the bridge above it."""
    root: str = ""
    numa: int | None = None
    device: str | None = None
    """Address of the PCI device that it is a part of."""


def parse(text: Text) -> list[Reading]:
    """Read every document. Raises CaptureError for one that is cut, or not well-formed."""
    if not any("<object " in line for line in text.lines):
        return []
    parts = sections(text)
    readings = (
        _reading(text, root, section_at(parts, root.line).host) for root in read_documents(text, ROOT, FIX)
    )
    return [reading for reading in readings if reading]


def _reading(text: Text, root: Element, host: str | None) -> Reading | None:
    if root.end is None:
        raise CaptureError(f"the XML ends before </{ROOT}>", path=text.source, line=len(text.lines), fix=FIX)
    machine = Machine(host=host)
    for child in root.all("object"):
        _walk(machine, child, Place())
    tops = [info for owner in (root, *root.all("object")) for info in owner.all("info")]
    for info in tops:
        _of_machine(machine, info.attributes)
    gpus = sorted((f for f in machine.functions if f.kind == "gpu"), key=lambda f: _order(machine, f))
    if not gpus and not machine.nics:
        return None
    notes: list[Note] = []
    tree = _tree(text, root, machine, notes)
    shapes = _shapes(machine, root, gpus, tree, notes)
    lines = frozenset(range(root.line, root.end + 1))
    facts = len(gpus) + len(machine.nics) + len(tree.nodes)
    snapshot = _snapshot(text, machine, gpus, shapes, tree)
    return Reading(KIND, (snapshot,), lines, facts, tuple(notes))


def _order(machine: Machine, function: PciFunction) -> tuple[int, tuple[int, ...]]:
    """GPUs that NVML counts by its index, then others by address."""
    index = machine.gpus.get(function.bus, {}).get("index")
    return (int(index) if index else 1 << 16, place_of(function.bus))


def _walk(machine: Machine, element: Element, place: Place) -> None:
    """Take one object and all below it."""
    get = element.attributes.get
    kind, numa = get("type", ""), _numa(element)
    place = Place(place.bridge, place.root, place.numa if numa is None else numa, place.device)
    bus = parse_bus(get("pci_busid", ""))
    if kind == "Bridge" and get("bridge_type", "").startswith(HOST_BRIDGE):
        place = Place(None, f"pci{get('bridge_pci', '')}", place.numa)
    elif kind in {"Bridge", "PCIDev"} and bus:
        machine.functions.append(_function(element, bus, place))
        machine.objects[f"PCIDev:{get('gp_index', '')}"] = bus
        place = Place(bus, place.root, place.numa, bus)
    elif kind == "OSDev" and place.device:
        _take_device(machine, element, place.device)
        machine.objects[f"OSDev:{get('gp_index', '')}"] = place.device
    for child in element.all("object"):
        _walk(machine, child, place)


def _function(element: Element, bus: str, place: Place) -> PciFunction:
    match = CLASS.fullmatch(element.attributes.get("pci_type", ""))
    kind = kind_of(int(match["code"], 16), int(match["vendor"], 16)) if match else None
    if element.attributes.get("subtype") == "NVSwitch":
        kind = "nvswitch"
    if element.attributes["type"] == "Bridge":
        kind = "bridge"
    return PciFunction(bus=bus, kind=kind, above=place.bridge, root=place.root, numa=place.numa)


def _numa(element: Element) -> int | None:
    """The NUMA node of an object that belongs to one alone, by its bit mask (`0x00000001,0x00000000`)."""
    words = element.attributes.get("nodeset", "").split(",")
    if not all(re.fullmatch("0x[0-9a-f]{1,8}", word) for word in words) or len(words) > 64:
        return None
    mask = int("".join(word[2:].zfill(8) for word in words), 16)
    return mask.bit_length() - 1 if mask and mask & (mask - 1) == 0 else None


def _take_device(machine: Machine, element: Element, bus: str) -> None:
    """A device of the operating system: a GPU as NVML knows it, or an RDMA device."""
    infos = {
        info.attributes.get("name", ""): info.attributes.get("value", "") for info in element.all("info")
    }
    name = element.attributes.get("name", "")
    nvml = NVML.fullmatch(name)
    if nvml:
        machine.gpus[bus] = {**infos, "index": nvml["index"]}
    elif "NodeGUID" in infos and re.fullmatch(r"[\w.:-]{1,64}", name):
        machine.nics.append((_nic(element.line, name, infos), bus))


def _nic(line: int, name: str, infos: dict[str, str]) -> Device:
    device = Device(line, name, parse_guid(infos["NodeGUID"]), parse_guid(infos.get("SysImageGUID", "")))
    for key, value in infos.items():
        match = re.fullmatch(r"Port(?P<port>[0-9]{1,3})(?P<what>State|LID|GID(?P<index>[0-9]{1,4}))", key)
        if match is None:
            continue
        port = device.port(int(match["port"]))
        gid = parse_gid(value) if match["index"] else None
        if match["what"] == "State":
            port.state = STATES.get(value)
        elif match["what"] == "LID":
            port.lid = parse_lid(value)
        elif gid:
            port.add_gid(GidReading(index=int(match["index"]), digits=gid))
            port.gids_cut = True  # hwloc lists those of the port's own subnet alone
    return device


def _of_machine(machine: Machine, info: dict[str, str]) -> None:
    name, value = info.get("name", ""), info.get("value", "")
    if name == "HostName" and machine.host is None and re.fullmatch(r"[A-Za-z0-9][\w.-]{0,252}", value):
        machine.host = value
    elif name in {"DMIProductName", "DMISysVendor", "DMIBoardVendor"}:
        machine.board += f"{value} "


def _tree(text: Text, root: Element, machine: Machine, notes: list[Note]) -> PciTree:
    """The tree; none for a virtual machine, whose hypervisor makes it up."""
    try:
        tree = build_tree(machine.functions)
    except (ValueError, KeyError) as error:
        problem = f"the bridges above {error} form no tree"
        raise CaptureError(problem, path=text.source, line=root.line, fix=FIX) from error
    virtual = VIRTUAL.search(machine.board)
    if virtual or (not tree.nodes and any(function.kind in ENDS for function in machine.functions)):
        reason = f"a virtual machine ({machine.board.strip()[:60]})" if virtual else "no bridges are above"
        words = f"{reason}: the PCI tree shows no distances and was not taken"
        notes.append(Note(root.line, "ignored", words))
        return PciTree()
    return tree


def _snapshot(
    text: Text, machine: Machine, gpus: Sequence[PciFunction], shapes: tuple[GpuShape, ...], tree: PciTree
) -> FullSnapshot:
    numa = {function.bus: function.numa for function in machine.functions}
    networks, ports = parted(
        (n, [port.reading() for port in device.ports.values()]) for n, (device, _) in enumerate(machine.nics)
    )
    indexes = [machine.gpus.get(function.bus, {}).get("index") for function in gpus]
    counted = indexes == [str(place) for place in range(len(gpus))]
    return FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        coverage=Coverage(
            gpus=extent(counted) if gpus else None,  # NVML counts all, the PCI bus some that compute nothing
            links="part" if gpus else None,
            nics="all" if machine.nics else None,
        ),
        identity=Identity(
            host=Host(name=machine.host),
            gpus=tuple(_gpu(machine, function) for function in gpus),
            nics=tuple(
                NicId(name=nic.name, bus=bus, guid=nic.guid, card=nic.card) for nic, bus in machine.nics
            ),
        ),
        hardware=Hardware(
            gpus=shapes,
            nics=tuple(_nic_shape(nic, bus, numa, tree) for nic, bus in machine.nics),
            pci=tree.nodes,
        ),
        network=Network(nics=networks),
        state=State(ports=ports),
    )


def _gpu(machine: Machine, function: PciFunction) -> GpuId:
    told = machine.gpus.get(function.bus, {})
    return GpuId(
        uuid=read_uuid(told.get("NVIDIAUUID", "")),
        bus=function.bus,
        nvml=int(told["index"]) if "index" in told else None,
        model=told.get("GPUModel") or None,
        serial=told.get("NVIDIASerial") or None,
    )


def _nic_shape(nic: Device, bus: str, numa: dict[str, int | None], tree: PciTree) -> NicShape:
    shape = nic.shape()
    return NicShape(
        name=shape.name, kind=shape.kind, numa=numa.get(bus), pci=tree.places.get(bus), ports=shape.ports
    )


def _shapes(
    machine: Machine, root: Element, gpus: Sequence[PciFunction], tree: PciTree, notes: list[Note]
) -> tuple[GpuShape, ...]:
    """GPUs with their NVLinks, where the matrix has them."""
    ordinals = {function.bus: place for place, function in enumerate(gpus)}
    switches = {function.bus for function in machine.functions if function.kind == "nvswitch"}
    rows = _bandwidths(machine, root)
    shapes = []
    for function in gpus:
        model = machine.gpus.get(function.bus, {}).get("GPUModel") or None
        shape = GpuShape(model=model, numa=function.numa, pci=tree.places.get(function.bus))
        row = rows.get(function.bus, {})
        unit = next((size for name, size in LINK_MEGABYTES if name.search(model or "")), OTHER_LINK_MEGABYTES)
        if any(value % unit for value in row.values()):
            words = f"the bandwidths of {function.bus} are no multiple of a link's: NVLinks were not counted"
            notes.append(Note(root.line, "ignored", words))
        elif row:
            shape = _linked(shape, {bus: value // unit for bus, value in row.items()}, ordinals, switches)
        shapes.append(shape)
    return tuple(shapes)


def _linked(
    shape: GpuShape, counts: dict[str, int], ordinals: dict[str, int], switches: set[str]
) -> GpuShape:
    """The GPU with links to these addresses."""
    if set(counts) <= switches:
        return GpuShape(
            model=shape.model, numa=shape.numa, pci=shape.pci, nvlinks=sum(counts.values()), nvswitch=True
        )
    links: list[NvLink] = []
    for bus, count in sorted(counts.items(), key=lambda pair: place_of(pair[0])):
        peer = ordinals.get(bus)
        remote: Literal["gpu", "switch"] | None
        remote = "gpu" if peer is not None else "switch" if bus in switches else None
        links += [NvLink(link=len(links) + n, active=True, remote=remote, peer=peer) for n in range(count)]
    return GpuShape(model=shape.model, numa=shape.numa, pci=shape.pci, links=tuple(links))


def _bandwidths(machine: Machine, root: Element) -> dict[str, dict[str, int]]:
    """MB/s of the NVLinks from each object to each other that it has some to, by bus ids."""
    found: dict[str, dict[str, int]] = {}
    for matrix in (child for child in root.children if child.attributes.get("name") == "NVLinkBandwidth"):
        names = list(_words(matrix, "indexes"))
        values = list(_words(matrix, "u64values"))
        if len(names) > MOST_PEERS or len(values) != len(names) ** 2:
            continue
        prefix = matrix.attributes.get("type", "")
        buses = [machine.objects.get(name if ":" in name else f"{prefix}:{name}") for name in names]
        for place, text in enumerate(values):
            row, column = buses[place // len(names)], buses[place % len(names)]
            value = int(text) if re.fullmatch("[0-9]{1,9}", text) else 0
            if row and column and row != column and value:
                found.setdefault(row, {})[column] = value
    return found


def _words(matrix: Element, tag: str) -> Iterator[str]:
    return (word for child in matrix.all(tag) for word in child.text.split())
