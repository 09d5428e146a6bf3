"""The PCI tree between GPUs, NICs and NVSwitches (/sys/bus/pci/devices, /sys/devices/pci*).

Only what lies on the way of a job's traffic is kept: root complexes, bridges, GPUs, NICs and NVSwitches.
Ids are places, `root0/0/1`, counted among what is kept, so that equal machines have equal trees whatever
their bus numbers are and however many disks they have.

The tree of a virtual machine shows what its hypervisor makes up and is no evidence of distance: only a
file from the vendor (NCCL_TOPO_FILE) is. Such a tree is left out, and a fault says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from topocheck.probes.node.acs import read_acs
from topocheck.probes.node.hypervisor import read_hypervisor
from topocheck.probes.node.pci_function import PciFunction, examined, list_functions, place_of
from topocheck.probes.node.reader import Reader, is_folder
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import PciLink, PciNode, ProbeFault

__all__ = ["PciTree", "build_tree", "made_up", "read_pci"]

ENDS = ("gpu", "nic", "nvswitch")


class PciTree(msgspec.Struct, frozen=True, gc=False):
    """The tree, and where each function has its place in it."""

    nodes: tuple[PciNode, ...] = ()
    """For `hardware.pci`: parents before children; () where the tree is no evidence."""
    places: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Node id by bus id, for `pci` of GPUs and NICs."""
    links: tuple[PciLink, ...] = ()
    """For `state.pci`."""
    functions: Mapping[str, PciFunction] = msgspec.field(default_factory=dict)
    """GPUs, NICs and NVSwitches by bus id; in a virtual machine too, where NUMA nodes may still be right."""


def read_pci(roots: Roots) -> tuple[PciTree, tuple[ProbeFault, ...]]:
    """The PCI tree of the machine."""
    reader = Reader("links")
    listed = list_functions(reader, roots)
    ends = {function.bus for function in listed if function.kind in ENDS}
    wanted = ends | {part for function in listed if function.bus in ends for part in function.path[1:]}
    kept = [examined(reader, roots, function) for function in listed if function.bus in wanted]
    functions = {function.bus: function for function in kept if function.bus in ends}
    hypervisor, _ = read_hypervisor(roots)  # what went wrong there is told with the software
    reason = made_up(functions.values(), hypervisor)
    if reason is not None:
        reader.note("not-supported", roots.sys / "bus/pci/devices", reason)
        return PciTree(functions=functions), reader.faults()
    if not any(function.iommu for function in kept) and _without_iommu(reader, roots):
        kept = [replace(function, iommu="none") for function in kept]
    bridges = [function.bus for function in kept if function.kind == "bridge"]
    acs, refused = read_acs(roots, bridges)
    nodes, places = build_tree(kept, acs)
    links = tuple(_links(kept, places))
    return PciTree(nodes, places, links, functions), (*reader.faults(), *refused)


def _without_iommu(reader: Reader, roots: Roots) -> bool:
    """The kernel lists its IOMMU groups, and there is none: nothing translates addresses of devices."""
    groups = roots.sys / "kernel/iommu_groups"
    return is_folder(groups) and not reader.names(groups)


def made_up(ends: Iterable[PciFunction], hypervisor: str | None) -> str | None:
    """Why the tree is no evidence of distance; None if it is, or if there is nothing to measure."""
    devices = list(ends)
    if not devices:
        return None
    if hypervisor is not None:
        return f"a virtual machine ({hypervisor}): its hypervisor makes the PCI tree up"
    if not any(function.path for function in devices):
        return "the devices show no place in a tree: /sys/bus/pci/devices holds no links"
    if not any(len(function.path) > 2 for function in devices):
        return "a flat tree, as only virtual machines have: no GPU or NIC hangs below a bridge"
    if not any(function.max_width for function in devices):
        return "no GPU or NIC shows the width of its PCIe link, as in virtual machines"
    return None


def build_tree(
    functions: Sequence[PciFunction], acs: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[PciNode, ...], dict[str, str]]:
    """Nodes of the tree, parents first, and the id of each function's node by bus id.

    `functions` are the ends and the bridges above them. A bridge that is not among them but on a path
    has a node about which nothing more is known.
    """
    known = {function.bus: function for function in functions}
    below = _below(functions)
    nodes: list[PciNode] = []
    places: dict[str, str] = {}
    roots = sorted((name for name in below if name.startswith("pci")), key=_order)
    waiting = [(name, f"root{place}", None) for place, name in reversed(list(enumerate(roots)))]
    stack: list[tuple[str, str, str | None]] = [*waiting]
    while stack:
        name, node, parent = stack.pop()
        children = sorted(below.get(name, ()), key=_order)
        if parent is None:
            nodes.append(PciNode(id=node, kind="root", numa=_common_numa(known.get(c) for c in children)))
        else:
            places[name] = node
            nodes.append(_node(known.get(name), node, parent, acs.get(name)))
        stack += [(child, f"{node}/{place}", node) for place, child in reversed(list(enumerate(children)))]
    return tuple(nodes), places


def _below(functions: Iterable[PciFunction]) -> dict[str, set[str]]:
    """Names of what hangs directly below each root complex and bridge."""
    below: dict[str, set[str]] = {}
    for function in functions:
        for above, under in zip(function.path, function.path[1:], strict=False):
            below.setdefault(above, set()).add(under)
    return below


def _node(function: PciFunction | None, node: str, parent: str, acs: tuple[str, ...] | None) -> PciNode:
    if function is None:
        return PciNode(id=node, parent=parent, acs=acs)
    return PciNode(
        id=node,
        parent=parent,
        kind=function.kind,
        numa=function.numa,
        max_width=function.max_width,
        max_speed_gts=function.max_speed_gts,
        acs=acs,
        iommu=function.iommu,
    )


def _common_numa(children: Iterable[PciFunction | None]) -> int | None:
    """The NUMA node that all children name; None if one of them names none or another."""
    found = {None if child is None else child.numa for child in children}
    return found.pop() if len(found) == 1 else None


def _links(functions: Iterable[PciFunction], places: Mapping[str, str]) -> Iterator[PciLink]:
    """Links as they are now, of all functions that show one."""
    for function in functions:
        node = places.get(function.bus)
        if node is not None and (function.width is not None or function.speed_gts is not None):
            yield PciLink(node=node, width=function.width, speed_gts=function.speed_gts)


def _order(name: str) -> tuple[int, ...]:
    """Sorts kernel names of root complexes and functions by their numbers."""
    return place_of(name.removeprefix("pci"))
