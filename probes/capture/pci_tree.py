"""A PCI tree from the functions that a listing shows, in the form that a probe gives it.

Only what lies on the way of a job's traffic is kept: root complexes, bridges, GPUs, NICs and NVSwitches.
Ids are places, `root0/0/1`, counted among what is kept, so that equal machines have equal trees. A tree
without bridges is that of a virtual machine and no evidence of distance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from topocheck.snapshot import PciLink, PciNode

__all__ = ["ENDS", "PciFunction", "PciTree", "build_tree", "kind_of", "place_of"]

NVIDIA, AMD = 0x10DE, 0x1002
VGA, BRIDGE, OTHER_BRIDGE = 0x0300, 0x0604, 0x0680
"""PCI base class and subclass; NVSwitches are of the last."""
GPU_CLASSES = (0x0302, 0x0380)
NIC_CLASS, ACCELERATOR_CLASS = 0x02, 0x12

ENDS = ("gpu", "nic", "nvswitch")
DEEPEST = 40
"""Bridges above one device; real trees have less than 12."""


@dataclass(slots=True, kw_only=True)
class PciFunction:
    """One function of a listing."""

    bus: str
    """PCI address."""
    kind: str | None
    """`bridge`, `gpu`, `nic`, `nvswitch`; None for what has no part in the traffic of a job."""
    above: str | None = None
    """Address of the bridge above it; None for what hangs on a root complex."""
    root: str = ""
    """Root complex of a function without a bridge above."""
    numa: int | None = None
    width: int | None = None
    speed_gts: float | None = None
    max_width: int | None = None
    max_speed_gts: float | None = None
    acs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PciTree:
    """The tree, and where each function has its place in it."""

    nodes: tuple[PciNode, ...] = ()
    """For `hardware.pci`: parents before children; () where there is no evidence of distance."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Node id by bus id."""
    links: tuple[PciLink, ...] = ()
    """For `state.pci`."""


def kind_of(code: int, vendor: int | None) -> str | None:
    """What a function is by base class, subclass and vendor.

    Of the VGA class only NVIDIA's and AMD's boards count: other chips draw the console.
    """
    if code == BRIDGE:
        return "bridge"
    if code == OTHER_BRIDGE and vendor == NVIDIA:
        return "nvswitch"
    if code in GPU_CLASSES or code >> 8 == ACCELERATOR_CLASS or (code == VGA and vendor in (NVIDIA, AMD)):
        return "gpu"
    return "nic" if code >> 8 == NIC_CLASS else None


def place_of(bus: str) -> tuple[int, ...]:
    """The four numbers of an address, for sorting."""
    return tuple(int(part, 16) for part in re.split("[:.]", bus))


def build_tree(functions: Iterable[PciFunction]) -> PciTree:
    """The tree above all ends. Empty if there are none, or no bridge is above any of them.

    Raises ValueError where bridges hang below each other in a circle.
    """
    known = {function.bus: function for function in functions}
    paths = {bus: _path(known, bus) for bus, function in known.items() if function.kind in ENDS}
    if not any(len(path) > 2 for path in paths.values()):
        return PciTree()
    below: dict[str, set[str]] = {}
    for path in paths.values():
        for upper, under in pairwise(path):
            below.setdefault(upper, set()).add(under)
    nodes: list[PciNode] = []
    places: dict[str, str] = {}
    roots = sorted({path[0] for path in paths.values()})
    stack = [(name, f"root{place}", "") for place, name in reversed(list(enumerate(roots)))]
    while stack:
        name, node, parent = stack.pop()
        children = sorted(below.get(name, ()), key=place_of)
        if parent:
            places[name] = node
            nodes.append(_node(known[name], node, parent))
        else:
            numa = {known[bus].numa for bus in _under(below, name)}
            nodes.append(PciNode(id=node, kind="root", numa=numa.pop() if len(numa) == 1 else None))
        stack += [(child, f"{node}/{place}", node) for place, child in reversed(list(enumerate(children)))]
    links = (
        PciLink(node=node, width=known[bus].width, speed_gts=known[bus].speed_gts)
        for bus, node in places.items()
        if known[bus].width is not None or known[bus].speed_gts is not None
    )
    return PciTree(tuple(nodes), places, tuple(links))


def _path(known: Mapping[str, PciFunction], bus: str) -> tuple[str, ...]:
    """Root complex, bridges and the function itself."""
    path: list[str] = []
    here: str | None = bus
    while here is not None:
        path.append(here)
        if len(path) > DEEPEST:
            raise ValueError(bus)
        function = known[here]
        here = function.above
    return (function.root, *reversed(path))


def _under(below: Mapping[str, set[str]], root: str) -> list[str]:
    """All functions below a root complex that have none below themselves."""
    found, waiting = [], [root]
    while waiting:
        name = waiting.pop()
        children = below.get(name, set())
        waiting += children
        if not children:
            found.append(name)
    return found


def _node(function: PciFunction, node: str, parent: str) -> PciNode:
    return PciNode(
        id=node,
        parent=parent,
        kind=function.kind,
        numa=function.numa,
        max_width=function.max_width,
        max_speed_gts=function.max_speed_gts,
        acs=function.acs if function.kind == "bridge" else None,
    )
