"""Where everything of a job stood when somebody looked: nodes, GPUs, links, NICs, versions, ranks.

It is made of evidence, or of a report that an earlier `verify --json` wrote, so that two looks can be
compared whatever each is. None is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from topocheck.claims import UNKNOWN, ClaimColumns
from topocheck.hardware import Shape
from topocheck.inventory import Machine
from topocheck.placement import Placement
from topocheck.plan import BASES, Basis
from topocheck.report import NicReport, NodeReport, PlacementReport
from topocheck.snapshot import Software

__all__ = [
    "Card",
    "Key",
    "NodeStanding",
    "Seat",
    "ShapeStanding",
    "Standing",
    "add_claims",
    "reported_nics",
    "standing_of",
    "standing_of_report",
    "versions_of",
]

Key = tuple[str, int]
"""World and rank."""


class Card(NamedTuple):
    """One GPU by all its names."""

    uuid: str | None
    bus: str | None
    index: int | None
    """NVML index."""

    @property
    def name(self) -> str:
        """The best of its names."""
        return self.uuid or self.bus or ("a GPU" if self.index is None else f"GPU {self.index}")


class Seat(NamedTuple):
    """Where a rank lies."""

    node: str
    """Key of the node."""
    gpu: int | None
    """Place of the GPU in the node's list."""


@dataclass(frozen=True, slots=True, eq=False)
class ShapeStanding:
    """How the devices of equal nodes are joined."""

    links: Sequence[Sequence[str | None]]
    """Class of each pair of GPUs by their places: NV18, PIX ..."""
    near: Sequence[Sequence[str]]
    """Nearest RDMA devices of each GPU; () if not known."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeStanding:
    """One node."""

    name: str
    names: tuple[str, ...]
    """All that it is called."""
    boot: str | None
    cards: tuple[Card, ...]
    shape: ShapeStanding | None
    nics: Mapping[str, NicReport] | None
    """RDMA devices by name; None where not all of them are known."""
    versions: Mapping[str, str]
    domain: str | None
    """NVLink domain beyond the host."""


@dataclass(slots=True)
class Standing:
    """All of a job."""

    name: str
    """What it was made of, as the user gave it."""
    nodes: dict[str, NodeStanding] = field(default_factory=dict)
    ranks: dict[Basis, dict[Key, Seat]] = field(default_factory=dict)
    """Places of ranks by the kind of evidence that shows them."""
    notes: list[str] = field(default_factory=list)
    """What of it could not be used."""


def standing_of(name: str, machines: Iterable[Machine], worlds: Iterable[Placement]) -> Standing:
    """Where machines, and the ranks of these worlds, stand now."""
    found = Standing(name)
    shapes: dict[int, ShapeStanding] = {}
    versions: dict[int, dict[str, str]] = {}
    machines = list(machines)
    keys = keys_of(machines)
    for machine in machines:
        key, shape = keys[called(machine)], machine.shape
        if shape is not None and id(shape) not in shapes:
            shapes[id(shape)] = joined(shape)
        software = versions.setdefault(id(machine.software), versions_of(machine.software))
        found.nodes[key] = NodeStanding(
            name=key,
            names=machine.names or (key,),
            boot=machine.host.boot_id,
            cards=tuple([Card(gpu.uuid, gpu.bus, gpu.nvml) for gpu in machine.gpus]),
            shape=None if shape is None else shapes[id(shape)],
            nics=nics_of(machine),
            versions=software,
            domain=domain_name(machine),
        )
    for world in worlds:
        add_ranks(found, world, keys)
    return found


def called(machine: Machine) -> tuple[str, str | None]:
    """What tells a machine from others of one look."""
    return machine.name, machine.host.boot_id


def keys_of(machines: Iterable[Machine]) -> dict[tuple[str, str | None], str]:
    """Key of each machine: its name, with the boot id where another machine has that name."""
    keys: dict[tuple[str, str | None], str] = {}
    taken: set[str] = set()
    for name, boot in map(called, machines):
        key = name if name not in taken else f"{name} ({boot or 'another host'})"
        taken.add(keys.setdefault((name, boot), key))
    return keys


def joined(shape: Shape) -> ShapeStanding:
    """Links of all pairs, and the nearest NICs of each GPU."""
    count = range(shape.gpus)
    links = [[None if a == b else spelled(shape, a, b) for b in count] for a in count]
    near = [[nic.name for nic in (shape.nearest_nics(gpu) or ("", ()))[1]] for gpu in count]
    return ShapeStanding(links, near)


def spelled(shape: Shape, a: int, b: int) -> str | None:
    """Class of a pair in words."""
    link = shape.link(a, b)
    return None if link is None else str(link)


def versions_of(software: Software) -> dict[str, str]:
    """Versions that are known, by name."""
    names = ("driver", "cuda", "cuda_runtime", "nccl", "torch", "fabric_manager")
    found = {name: value for name in names if (value := getattr(software, name)) is not None}
    if software.engine_version is not None:
        found["engine"] = f"{software.engine or 'engine'} {software.engine_version}"
    return found


def reported_nics(machine: Machine) -> list[NicReport] | None:
    """RDMA devices of a machine; None unless the list of them is whole."""
    if machine.coverage.nics != "all":
        return None
    return [NicReport(name=nic.name, guid=nic.guid, bus=nic.bus) for nic in machine.nics]


def nics_of(machine: Machine) -> dict[str, NicReport] | None:
    """The same by name."""
    nics = reported_nics(machine)
    return None if nics is None else {nic.name: nic for nic in nics}


def domain_name(machine: Machine) -> str | None:
    """Cluster UUID and clique that all entries of the fabric report; None for none beyond the host."""
    told = {
        f"{fabric.cluster_uuid}.{fabric.clique}"
        for fabric, _ in machine.fabric
        if fabric.cluster_uuid is not None and fabric.cluster_uuid.strip("0-") and fabric.clique is not None
    }
    return told.pop() if len(told) == 1 else None


def add_ranks(found: Standing, world: Placement, keys: Mapping[tuple[str, str | None], str]) -> None:
    """Places of the ranks of one world by all that shows them; a prediction only where nothing else does."""
    name = world.facts.name
    names = [
        node.name if node.machine is None else keys.get(called(node.machine), node.name)
        for node in world.nodes
    ]
    for basis in BASES if world.phase == "predicted" else BASES[1:]:
        column = world.columns[basis]
        places = zip(column.node, column.gpu, strict=True) if not column.empty else ()
        seats = found.ranks.setdefault(basis, {})
        for rank, (place, gpu) in enumerate(places):
            if place is not None:
                seats[name, rank] = Seat(names[place], gpu)


def add_claims(found: Standing, claims: Mapping[str, ClaimColumns], machines: Sequence[Machine]) -> None:
    """Places that processes claim, by the names of worlds that they give."""
    seats, keys = found.ranks.setdefault("claimed", {}), keys_of(machines)
    for world, columns in claims.items():
        for rank, machine, gpu in zip(columns.rank, columns.machine, columns.gpu, strict=True):
            place = keys[called(machines[machine])]
            seats.setdefault((world, rank), Seat(place, None if gpu == UNKNOWN else gpu))


def standing_of_report(name: str, worlds: Iterable[tuple[str, PlacementReport]]) -> Standing:
    """Where everything stood by a report: its worlds by name."""
    found = Standing(name)
    for world, placement in worlds:
        shapes = [ShapeStanding(shape.links, shape.near) for shape in placement.shapes]
        gpus: dict[str, dict[str, int]] = {}
        for node in placement.nodes:
            gpus[node.name] = ordinals(node)
            if node.seen:
                found.nodes.setdefault(node.name, node_of_report(node, shapes))
        for rank in placement.ranks:
            for basis in BASES if placement.phase == "predicted" else BASES[1:]:
                placing = rank.sources.get(basis)
                if placing is not None and placing.node is not None:
                    gpu = gpus.get(placing.node, {}).get(placing.gpu or "")
                    found.ranks.setdefault(basis, {})[world, rank.rank] = Seat(placing.node, gpu)
    return found


def ordinals(node: NodeReport) -> dict[str, int]:
    """Place of each GPU of a node by each of its names."""
    found: dict[str, int] = {}
    for gpu in node.gpus:
        index = None if gpu.index is None else f"GPU {gpu.index}"
        for name in (gpu.uuid, gpu.bus, index):
            if name is not None:
                found.setdefault(name, gpu.ordinal)
    for gpu in node.gpus:
        found.setdefault(f"GPU {gpu.ordinal}", gpu.ordinal)
    return found


def node_of_report(node: NodeReport, shapes: Sequence[ShapeStanding]) -> NodeStanding:
    """One node of a report."""
    known = node.shape is not None and 0 <= node.shape < len(shapes)
    return NodeStanding(
        name=node.name,
        names=(node.name,),
        boot=node.boot,
        cards=tuple(Card(gpu.uuid, gpu.bus, gpu.index) for gpu in node.gpus),
        shape=shapes[node.shape or 0] if known else None,
        nics=None if node.nics is None else {nic.name: nic for nic in node.nics},
        versions=node.versions,
        domain=node.domain,
    )
