"""Where everything of a job stood when somebody looked: nodes, GPUs, links, NICs, versions, ranks.

It is made of evidence, or of a report that an earlier `verify --json` wrote, so that two looks can be
compared whatever each is. None is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from topocheck.claims import UNKNOWN, ClaimColumns
from topocheck.column import observed_column
from topocheck.communicators import DUPLICATE, sightings
from topocheck.errors import TwoJobsError
from topocheck.hardware import Shape
from topocheck.inventory import Inventory, Machine
from topocheck.placement import Placement
from topocheck.plan import BASES, Basis
from topocheck.report import NicReport, NodeReport, PlacementReport
from topocheck.snapshot import Software

__all__ = [
    "Card",
    "Key",
    "NodeView",
    "Seat",
    "ShapeView",
    "Whereabouts",
    "add_claims",
    "add_observed",
    "reported_nics",
    "reported_whereabouts",
    "versions_of",
    "whereabouts_of",
]

Key = tuple[str, int]
"""World and rank."""


class Card(NamedTuple):
    """One GPU by all its names."""

    uuid: str | None
    bus: str | None
    nvml: int | None
    """NVML index."""

    @property
    def name(self) -> str:
        """The best of its names."""
        return self.uuid or self.bus or ("a GPU" if self.nvml is None else f"GPU {self.nvml}")

    @property
    def words(self) -> str:
        """Its index and the best of its names: `GPU 3 (GPU-...)`."""
        return (
            self.name
            if self.nvml is None or not (self.uuid or self.bus)
            else f"GPU {self.nvml} ({self.name})"
        )


class Seat(NamedTuple):
    """Where a rank lies."""

    node: str
    """Key of the node."""
    gpu: int | None
    """Place of the GPU in the node's list."""


@dataclass(frozen=True, slots=True, eq=False)
class ShapeView:
    """How the devices of equal nodes are joined."""

    links: Sequence[Sequence[str | None]]
    """Class of each pair of GPUs by their places: NV18, PIX ..."""
    near: Sequence[Sequence[str]]
    """Nearest RDMA devices of each GPU; () if not known."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """One node."""

    name: str
    names: tuple[str, ...]
    """All that it is called."""
    boot: str | None
    cards: tuple[Card, ...]
    shape: ShapeView | None
    nics: Mapping[str, NicReport] | None
    """RDMA devices by name; None where not all of them are known."""
    versions: Mapping[str, str]
    domain: str | None
    """NVLink domain beyond the host."""


@dataclass(slots=True)
class Whereabouts:
    """All of a job."""

    name: str
    """What it was made of, as the user gave it."""
    nodes: dict[str, NodeView] = field(default_factory=dict)
    ranks: dict[Basis, dict[Key, Seat]] = field(default_factory=dict)
    """Places of ranks by the kind of evidence that shows them."""
    notes: list[str] = field(default_factory=list)
    """What of it could not be used."""


def whereabouts_of(name: str, machines: Iterable[Machine], worlds: Iterable[Placement]) -> Whereabouts:
    """Where machines, and the ranks of these worlds, stand now."""
    found = Whereabouts(name)
    shapes: dict[int, ShapeView] = {}
    versions: dict[int, dict[str, str]] = {}
    machines = list(machines)
    keys = keys_of(machines)
    for machine in machines:
        key, shape = keys[called(machine)], machine.shape
        if shape is not None and id(shape) not in shapes:
            shapes[id(shape)] = joined(shape)
        software = versions.setdefault(id(machine.software), versions_of(machine.software))
        found.nodes[key] = NodeView(
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


def joined(shape: Shape) -> ShapeView:
    """Links of all pairs, and the nearest NICs of each GPU."""
    count = range(shape.gpus)
    links = [[None if a == b else spelled(shape, a, b) for b in count] for a in count]
    near = [[nic.name for nic in (shape.nearest_nics(gpu) or ("", ()))[1]] for gpu in count]
    return ShapeView(links, near)


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


def add_ranks(found: Whereabouts, world: Placement, keys: Mapping[tuple[str, str | None], str]) -> None:
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


def add_claims(found: Whereabouts, claims: Mapping[str, ClaimColumns], machines: Sequence[Machine]) -> None:
    """Places that processes claim, by the names of worlds that they give."""
    seats, keys = found.ranks.setdefault("claimed", {}), keys_of(machines)
    for world, columns in claims.items():
        for rank, machine, gpu in zip(columns.rank, columns.machine, columns.gpu, strict=True):
            place = keys[called(machines[machine])]
            seats.setdefault((world, rank), Seat(place, None if gpu == UNKNOWN else gpu))


def add_observed(found: Whereabouts, inventory: Inventory) -> None:
    """Places of the ranks of the largest communicator, where nothing says how many ranks the job has."""
    seen = sightings(inventory)
    sizes = [
        comm.size for comm in seen.communicators.values() if comm.size and not comm.id.startswith(DUPLICATE)
    ]
    try:
        column = observed_column(seen, max(sizes, default=1)) if sizes else None
    except TwoJobsError:
        found.notes.append(f"{found.name}: its communicators are of several worlds: their ranks are left out")
        return
    if column is None or column.empty:
        return
    keys = keys_of(inventory.machines)
    seats = found.ranks.setdefault("observed", {})
    for rank, (machine, gpu) in enumerate(zip(column.node, column.gpu, strict=True)):
        if machine is not None:
            seats["", rank] = Seat(keys[called(inventory.machines[machine])], gpu)
    found.notes.append(f"{found.name}: ranks are those of its largest communicator, of {max(sizes)} ranks")


def reported_whereabouts(name: str, worlds: Iterable[tuple[str, PlacementReport]]) -> Whereabouts:
    """Where everything stood by a report: its worlds by name."""
    found = Whereabouts(name)
    for world, placement in worlds:
        shapes = [ShapeView(shape.links, shape.near) for shape in placement.shapes]
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


def node_of_report(node: NodeReport, shapes: Sequence[ShapeView]) -> NodeView:
    """One node of a report."""
    known = node.shape is not None and 0 <= node.shape < len(shapes)
    return NodeView(
        name=node.name,
        names=(node.name,),
        boot=node.boot,
        cards=tuple(Card(gpu.uuid, gpu.bus, gpu.index) for gpu in node.gpus),
        shape=shapes[node.shape or 0] if known else None,
        nics=None if node.nics is None else {nic.name: nic for nic in node.nics},
        versions=node.versions,
        domain=node.domain,
    )
