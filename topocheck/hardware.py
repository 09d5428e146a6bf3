"""One node's hardware as a graph, shared by all nodes of the same shape.

A Shape is made from the bytes of a snapshot's `hardware` part. Equal bytes are equal shapes, so a
cluster of thousands of nodes has a few dozen Shape objects, and link classes, NVLink meshes and
nearest NICs are answered once for each.

Vertices are `("gpu", ordinal)`, `("nic", ordinal)`, `("pci", id)` and `("nvswitch", 0)`: the switches
of one node act as one, so they are one vertex. Parallel NVLinks are one edge with a count.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from topocheck.snapshot import GpuShape, Hardware, LinkMatrix, NicShape, NvLink, PciNode

if TYPE_CHECKING:  # 0.1 s of imports that only the graph itself needs
    import networkx as nx

__all__ = ["Link", "Shape", "Vertex", "read_hardware"]

Vertex = tuple[str, int | str]

Nearest = tuple[str, tuple[NicShape, ...]]
"""Class of the nearest RDMA devices, and those devices."""

NEAREST_FIRST = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""PCI classes of nvidia-smi, nearest first."""


@dataclass(frozen=True, slots=True)
class Link:
    """How two devices of one node reach each other."""

    kind: str
    """NV, PIX, PXB, PHB, NODE, SYS, or PCI where only the absence of NVLink is known."""
    count: int = 0
    """Number of bonded NVLinks; 0 without NVLink."""
    switched: bool = False
    """The NVLinks lead through an NVSwitch."""

    @property
    def nvlink(self) -> bool:
        """The two are joined by NVLink."""
        return self.kind == "NV"

    def __str__(self) -> str:
        return f"NV{self.count}" if self.nvlink else self.kind


def parse_link(cell: str | None) -> Link | None:
    """A cell of `nvidia-smi topo -m` as a Link; None for no cell or an unknown word."""
    if cell is None:
        return None
    if cell.startswith("NV") and cell[2:].isdigit():
        return Link("NV", int(cell[2:]))
    return Link(cell) if cell in NEAREST_FIRST else None


def read_hardware(raw: bytes) -> Hardware:
    """The `hardware` part of a snapshot. Raises msgspec.ValidationError if its ordinals point nowhere."""
    hardware = msgspec.json.decode(raw, type=Hardware)
    gpus, nics = len(hardware.gpus), len(hardware.nics)
    matrix = hardware.matrix or LinkMatrix()
    if matrix.gpus and [len(row) for row in matrix.gpus] != [gpus] * gpus:
        raise msgspec.ValidationError(f"`matrix.gpus` is not {gpus} x {gpus}, as `gpus` asks for")
    if matrix.nics and [len(row) for row in matrix.nics] != [nics] * gpus:
        raise msgspec.ValidationError(f"`matrix.nics` is not {gpus} x {nics}, as `gpus` and `nics` ask for")
    ordinals = {ordinal for peer in hardware.peers for ordinal in (peer.a, peer.b)}
    ordinals |= {link.peer for gpu in hardware.gpus for link in gpu.links or () if link.peer is not None}
    beyond = sorted(ordinals - set(range(gpus)))
    if beyond:
        raise msgspec.ValidationError(f"a GPU ordinal is {beyond[0]}, and `gpus` lists {gpus}")
    return hardware


def leads_to_switch(gpu: GpuShape, link: NvLink) -> bool:
    """The far end is a switch: by itself, or hidden on a board whose links are known to lead there."""
    return link.remote == "switch" or (link.remote is None and gpu.nvswitch is True)


class Shape:
    """One hardware shape. Questions take ordinals and answer None where the evidence is silent."""

    def __init__(self, raw: bytes) -> None:
        """Decode the bytes of a snapshot's `hardware`. Raises msgspec.ValidationError on other bytes."""
        self.raw = raw
        self.__dict__["hardware"] = read_hardware(raw)
        self.alike = self
        """The first shape wired alike (`topocheck.wiring`), where what joins devices is worked out."""

    @cached_property
    def hardware(self) -> Hardware:
        """Its devices."""
        return read_hardware(self.raw)

    def take_after(self, alike: Shape) -> None:
        """Answer by another shape that is wired alike; the own devices are decoded again if somebody asks."""
        self.alike = alike
        if alike is not self:
            del self.__dict__["hardware"]

    @property
    def gpus(self) -> int:
        """Number of GPUs in the shape."""
        return len(self.hardware.gpus)

    @cached_property
    def memory(self) -> tuple[int | None, ...]:
        """Bytes of memory of each GPU; None where it is not shown."""
        return tuple([gpu.memory_bytes for gpu in self.hardware.gpus])

    @cached_property
    def spread(self) -> tuple[int | None, ...]:
        """The same; () where all GPUs have the same, whatever it is."""
        return () if None not in self.memory and len(set(self.memory)) == 1 else self.memory

    @cached_property
    def models(self) -> frozenset[str | None]:
        """Models of its GPUs, None among them where one is not shown."""
        return frozenset(gpu.model for gpu in self.hardware.gpus)

    @cached_property
    def active_nics(self) -> tuple[str, ...]:
        """RDMA devices with a port that is ACTIVE, and LinkUp where its physical state is shown."""
        return tuple(
            nic.name
            for nic in self.hardware.nics
            if any(port.state == "ACTIVE" and port.physical in {None, "LinkUp"} for port in nic.ports)
        )

    @cached_property
    def ports_known(self) -> bool:
        """Every RDMA device shows the state of its ports."""
        nics = self.hardware.nics
        return bool(nics) and all(nic.ports and all(port.state for port in nic.ports) for nic in nics)

    @cached_property
    def graph(self) -> nx.Graph[Vertex]:
        """The node as a networkx graph: NVLink edges carry `nvlinks`, PCI edges carry `pci`."""
        import networkx as nx  # noqa: PLC0415 - see above

        graph: nx.Graph[Vertex] = nx.Graph()
        for ordinal, gpu in enumerate(self.hardware.gpus):
            graph.add_node(("gpu", ordinal), model=gpu.model)
        for a, b, count in self._nvlinks():
            graph.add_edge(a, b, nvlinks=count)
        for node in self.hardware.pci:
            graph.add_node(("pci", node.id))
            if node.parent is not None:
                graph.add_edge(("pci", node.parent), ("pci", node.id), pci=True)
        places = [(("gpu", n), gpu.pci) for n, gpu in enumerate(self.hardware.gpus)]
        places += [(("nic", n), nic.pci) for n, nic in enumerate(self.hardware.nics)]
        for device, place in places:
            graph.add_node(device)
            if place is not None:
                graph.add_edge(("pci", place), device, pci=True)
        return graph

    def _nvlinks(self) -> list[tuple[Vertex, Vertex, int]]:
        """NVLink edges from the links of each GPU; a GPU-GPU edge counts what the lower end sees."""
        edges: dict[tuple[Vertex, Vertex], int] = {}
        for ordinal, gpu in enumerate(self.hardware.gpus):
            if gpu.links is None:
                if gpu.nvswitch and gpu.nvlinks:
                    edges[("gpu", ordinal), ("nvswitch", 0)] = gpu.nvlinks
                continue
            for link in gpu.links:
                if not link.active:  # a state that the driver did not give is no link
                    continue
                if link.peer is not None and link.peer > ordinal:
                    edge: tuple[Vertex, Vertex] = ("gpu", ordinal), ("gpu", link.peer)
                elif link.peer is None and leads_to_switch(gpu, link):
                    edge = ("gpu", ordinal), ("nvswitch", 0)
                else:
                    continue
                edges[edge] = edges.get(edge, 0) + 1
        return [(a, b, count) for (a, b), count in edges.items()]

    def link(self, a: int, b: int) -> Link | None:
        """How GPU a reaches GPU b: NVLink, or the PCI class, or None if nothing shows it."""
        return self.links.get((min(a, b), max(a, b)))

    @cached_property
    def links(self) -> dict[tuple[int, int], Link]:
        """All pairs that any evidence of this shape shows."""
        if self.alike is not self:
            return self.alike.links
        links = {}
        for b in range(self.gpus):
            for a in range(b):
                link = self._table_link(a, b) or self._wired_link(a, b)
                if link is not None:
                    links[a, b] = link
        self.__dict__.pop("graph", None)  # its answers are kept; the graph of each shape would not be small
        return links

    def _table_link(self, a: int, b: int) -> Link | None:
        matrix = self.hardware.matrix
        if matrix is None:
            return None
        rows = matrix.gpus
        cells = [rows[x][y] for x, y in ((a, b), (b, a)) if x < len(rows) and y < len(rows[x])]
        link = next((found for cell in cells if (found := parse_link(cell))), None)
        if link is not None and link.nvlink:
            return Link("NV", link.count, switched=self.nvswitch(a) is True)
        return link

    def _wired_link(self, a: int, b: int) -> Link | None:
        """From the links of both GPUs and the PCI tree."""
        graph = self.graph
        if graph.has_edge(("gpu", a), ("gpu", b)):
            return Link("NV", graph.edges[("gpu", a), ("gpu", b)].get("nvlinks", 0))
        through = [
            graph.edges[("gpu", gpu), ("nvswitch", 0)]["nvlinks"]
            for gpu in (a, b)
            if graph.has_edge(("gpu", gpu), ("nvswitch", 0))
        ]
        if len(through) == 2:
            return Link("NV", min(through), switched=True)
        dark = 0 in (self.nvlinks(a), self.nvlinks(b))  # NVLink needs a link at both ends
        if not (dark or all(self._links_known(gpu) for gpu in (a, b))):
            return None
        gpus = self.hardware.gpus
        return Link(self._pci_class(gpus[a].pci, gpus[b].pci) or "PCI")

    def _links_known(self, gpu: int) -> bool:
        """Every link of this GPU is known by number, state and far end, so absence is a fact.

        A hidden far end (`remote` None) may be any GPU.
        """
        links = self.hardware.gpus[gpu].links
        if links is None:
            return self.hardware.gpus[gpu].nvlinks == 0
        return all(link.active is not None and (not link.active or link.remote) for link in links)

    @cached_property
    def ancestors(self) -> dict[str, tuple[str, ...]]:
        """PCI path of each tree node, itself first, root complex last."""
        paths: dict[str, tuple[str, ...]] = {}
        for node in self.hardware.pci:
            paths[node.id] = (node.id, *(paths.get(node.parent, ()) if node.parent else ()))
        return paths

    @cached_property
    def tree(self) -> dict[str, PciNode]:
        """The PCI tree by the ids of its nodes."""
        return {node.id: node for node in self.hardware.pci}

    @cached_property
    def bridges(self) -> dict[str, str]:
        """Bridge right above each device of the PCI tree: functions of one card share it."""
        kinds = {node.id: node.kind for node in self.hardware.pci}
        return {
            node.id: node.parent
            for node in self.hardware.pci
            if node.parent is not None and kinds.get(node.parent) == "bridge"
        }

    @cached_property
    def _numa(self) -> dict[str, int | None]:
        """NUMA node of each node of the PCI tree."""
        return {node.id: node.numa for node in self.hardware.pci}

    def _pci_class(self, a: str | None, b: str | None) -> str | None:
        """PCI class of two tree nodes by nvidia-smi's rule; None without a tree or with unknown NUMA.

        One PCIe switch is two bridges on a path (facts/hardware.md 3.3): PIX if the two hang on the
        same switch, PXB if a common switch exists further up.
        """
        if a is None or b is None or a not in self.ancestors or b not in self.ancestors:
            return None
        path_a, path_b = self.ancestors[a], self.ancestors[b]
        if path_a[-1] != path_b[-1]:
            numa = self._numa
            first, second = numa.get(path_a[-1]), numa.get(path_b[-1])
            if first is None or second is None:
                return None
            return "NODE" if first == second else "SYS"
        common = next(node for node in path_a if node in path_b)
        if common == path_a[-1]:
            return "PHB"
        climbs = path_a.index(common), path_b.index(common)
        return "PIX" if max(climbs) <= 2 else "PXB"

    def nic_link(self, gpu: int, nic: int) -> Link | None:
        """PCI class between a GPU and an RDMA device; None if nothing shows it."""
        known = self.alike.nic_links
        if (gpu, nic) not in known:
            known[gpu, nic] = self._nic_link(gpu, nic)
        return known[gpu, nic]

    @cached_property
    def nic_links(self) -> dict[tuple[int, int], Link | None]:
        """What `nic_link` has answered so far."""
        return {}

    def _nic_link(self, gpu: int, nic: int) -> Link | None:
        """The same, worked out."""
        matrix = self.hardware.matrix
        if matrix is not None and gpu < len(matrix.nics) and nic < len(matrix.nics[gpu]):
            found = parse_link(matrix.nics[gpu][nic])
            if found is not None:
                return found
        kind = self._pci_class(self.hardware.gpus[gpu].pci, self.hardware.nics[nic].pci)
        return None if kind is None else Link(kind)

    def nearest_nics(self, gpu: int, among: Collection[str] | None = None) -> Nearest | None:
        """Class of the nearest RDMA devices of a GPU and those devices, all that tie; None if not known.

        `among` are the names of the devices that count; all unless given.
        """
        names = None if among is None else frozenset(among)
        known, key = self.alike.nearest_known, (gpu, names)
        if key not in known:
            known[key] = self._nearest_nics(gpu, names)
        found = known[key]
        return None if found is None else (found[0], tuple([self.hardware.nics[nic] for nic in found[1]]))

    @cached_property
    def nearest_known(self) -> dict[tuple[int, frozenset[str] | None], tuple[str, list[int]] | None]:
        """What `nearest_nics` has answered, by GPU and by the devices that count: class and ordinals."""
        return {}

    def _nearest_nics(self, gpu: int, among: frozenset[str] | None) -> tuple[str, list[int]] | None:
        """The same, worked out."""
        if gpu >= self.gpus:
            return None
        found: dict[str, list[int]] = {}
        for ordinal, nic in enumerate(self.hardware.nics):
            if among is not None and nic.name not in among:
                continue
            link = self.nic_link(gpu, ordinal)
            if link is None:
                return None
            found.setdefault(link.kind, []).append(ordinal)
        kind = next((kind for kind in NEAREST_FIRST if kind in found), None)
        return None if kind is None else (kind, found[kind])

    def peer(self, a: int, b: int) -> str | None:
        """Peer access of GPU a to GPU b: OK or the driver's reason; None if it was not asked."""
        return self._peers.get((a, b))

    @cached_property
    def _peers(self) -> dict[tuple[int, int], str]:
        return {(peer.a, peer.b): peer.status for peer in self.hardware.peers}

    def nvswitch(self, gpu: int) -> bool | None:
        """The GPU's links lead to NVSwitches; None if it cannot be told."""
        shape = self.hardware.gpus[gpu]
        if shape.nvswitch is not None:
            return shape.nvswitch
        if shape.links is not None and any(link.remote for link in shape.links):
            return any(link.remote == "switch" for link in shape.links)
        return None

    def nvlinks(self, gpu: int) -> int | None:
        """Active NVLinks of a GPU; None if not known."""
        shape = self.hardware.gpus[gpu]
        if shape.links is not None:
            states = [link.active for link in shape.links]
            return None if None in states else sum(map(bool, states))
        return shape.nvlinks

    def table_row(self, gpu: int) -> list[Link] | None:
        """Links of a GPU to all others by the captured table; None where a cell is missing."""
        row = [
            self._table_link(min(gpu, other), max(gpu, other)) for other in range(self.gpus) if other != gpu
        ]
        return None if not row or None in row else [link for link in row if link is not None]

    @cached_property
    def build(self) -> tuple[str | None, str | None, str | None]:
        """What two machines are compared by: GPUs, their NVLinks, how they are joined; None is not known."""
        gpus = self.hardware.gpus
        models = sorted({gpu.model for gpu in gpus if gpu.model is not None})
        links = [gpu.nvlinks for gpu in gpus]
        pairs = [self.link(a, b) for a in range(len(gpus)) for b in range(a)]
        known = gpus and None not in self.models
        return (
            f"{len(gpus)} x {', '.join(models)}" if known else None,
            f" with {'/'.join(sorted(map(str, set(links))))} NVLinks" if gpus and None not in links else None,
            f", joined by {'/'.join(sorted(set(map(str, pairs))))}" if pairs and None not in pairs else None,
        )

    def title(self) -> str:
        """The shape in words: `8 x NVIDIA H100, 8 NICs`."""
        models = {gpu.model or "GPU" for gpu in self.hardware.gpus}
        gpus = f"{self.gpus} x {' / '.join(sorted(models))}" if self.gpus else "no GPU shown"
        nics = len(self.hardware.nics)
        return gpus + (f", {nics} NIC{'s' if nics != 1 else ''}" if nics else "")
