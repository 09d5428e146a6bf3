"""Cards, versions and links that the ranks of a job use, for its record.

Only what is known of every rank counts: cards of one node of two are no cards of the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator

from topocheck.engines.layout import Group
from topocheck.hardware import Shape
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.report import PlacementReport
from topocheck.subjects import tensor_groups
from topocheck.traffic import Flow, flows

__all__ = ["boundary_links", "cards", "smallest_memory", "stage_ranks", "tensor_links", "users", "version"]


def users(placement: Placement) -> list[Node]:
    """Nodes that carry ranks, or may carry one whose node is not known, in the order of the plan."""
    places = set(placement.ranks_on)
    if placement.unplaced:
        places.update(range(placement.expected))
    return [placement.nodes[place] for place in sorted(places)]


def cards(placement: Placement, report: PlacementReport) -> dict[str, int] | None:
    """GPUs in use by product name; None unless the model of every rank's GPU is known."""
    found: Counter[str] = Counter()
    ranks = 0
    for shown, node in zip(report.nodes, placement.nodes, strict=True):
        models = node.models
        only = next(iter(models)) if len(models) == 1 else None
        for gpu in shown.gpus:
            model = gpu.model or only
            if gpu.ranks and model is not None:
                found[model] += 1
                ranks += len(gpu.ranks)
    return dict(sorted(found.items())) if ranks == placement.world else None


def version(placement: Placement, name: str) -> tuple[str | None, str | None]:
    """One of `Software` on all nodes with ranks, and a note where it is not the same on all.

    Different versions are all told; a version that some node does not show is none.
    """
    found: dict[str | None, list[str]] = {}
    for node in users(placement):
        value = None if node.machine is None else getattr(node.machine.software, name)
        found.setdefault(value, []).append(node.name)
    lacking = found.pop(None, [])
    shown = [value for value in found if value is not None]
    if not shown:
        return None, None
    if lacking:
        return None, f"{name} {' and '.join(shown)} is shown, but not on {first(lacking, 4)}"
    if len(shown) > 1:
        parts = ", ".join(f"{value} on {first(found[value], 4)}" for value in shown)
        return " and ".join(sorted(shown)), f"{name} differs: {parts}"
    return shown[0], None


def ordinal(placement: Placement, rank: int) -> tuple[Node, int] | None:
    """Node and GPU of a rank by the phase's column; None if one is not known."""
    place, gpu = placement.placed.node[rank], placement.placed.gpu[rank]
    if place is None or gpu is None:
        return None
    node = placement.nodes[place]
    if placement.phase == "predicted":  # the formula counts as an unrestricted process does
        gpu = None if node.machine is None else node.machine.at_index(gpu)
    return None if gpu is None else (node, gpu)


def stage_ranks(placement: Placement) -> dict[int, list[int]]:
    """Ranks of each pipeline stage, stages and ranks in their order."""
    layout = placement.layout
    stages, stride = layout.size("pipeline"), layout.strides.get("pipeline", 1)
    return {
        stage: [
            rank
            for start in range(stage * stride, placement.world, stages * stride)
            for rank in range(start, start + stride)
        ]
        for stage in range(stages)
    }


def smallest_memory(placement: Placement, ranks: Group) -> int | None:
    """Bytes of the smallest GPU of these ranks; None unless all are known, and none is cut into slices."""
    sizes = []
    for rank in alike(placement, ranks):
        seat = ordinal(placement, rank)
        shape = None if seat is None else seat[0].shape
        if seat is None or shape is None or seat[1] >= shape.gpus:
            return None
        gpu = shape.hardware.gpus[seat[1]]
        sizes.append(None if gpu.mig else gpu.memory_bytes)
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None


def alike(placement: Placement, ranks: Group) -> Iterable[int]:
    """One rank for all whose GPU is the same one of nodes of the same kind."""
    kinds = placement.keep("numbers of kinds", kind_numbers)
    node, gpu = placement.placed.node, placement.placed.gpu
    found: dict[tuple[int | None, int | None], int] = {}
    for rank in ranks:
        place = node[rank]
        found.setdefault((None if place is None else kinds[place], gpu[rank]), rank)
    return found.values()


def kind_numbers(placement: Placement) -> list[int]:
    """A number for each node, the same for those of one kind."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(node.kind, len(numbers)) for node in placement.nodes]


def tensor_links(placement: Placement) -> str | None:
    """Classes of the links between GPUs of a TP group, over all groups; None unless all are known."""
    groups = tensor_groups(placement)
    if not isinstance(groups, dict):
        return "none: TP is 1"
    found: set[str] = set()
    for members in groups.values():
        links = links_of(placement, members[0].ranks)
        if links is None:
            return None
        found |= links
    return ", ".join(sorted(found))


def links_of(placement: Placement, ranks: Group) -> set[str] | None:
    """Link classes of all pairs of one group; None unless all are known."""
    seats = [seat for rank in ranks if (seat := ordinal(placement, rank)) is not None]
    if len(seats) < len(ranks):
        return None
    if len({node.index for node, _ in seats}) > 1:
        return {"between nodes"}
    shape = seats[0][0].shape
    if shape is None:
        return None
    gpus = [gpu for _, gpu in seats]
    links = {shape.link(a, b) for place, a in enumerate(gpus) for b in gpus[:place]}
    return None if None in links else {str(link) for link in links}


def boundary_links(placement: Placement) -> tuple[str | None, str]:
    """What stages send over and how it is known: transports that were seen, else ports that are up."""
    if placement.layout.size("pipeline") == 1:
        return "none: one stage", "plan"
    seen = {transport(flow) for flow in flows(placement) if joins_stages(placement, flow)}
    if seen:
        return ", ".join(sorted(seen)), "log of the job"
    if len(placement.ranks_on) == 1 and not placement.unplaced:
        return "inside one node", "placement"
    return ports(placement), "ports that are up"


def transport(flow: Flow) -> str:
    """Transport without the device number: NET/IB with GPUDirect RDMA, P2P/CUMEM."""
    return flow.how + (" with GPUDirect RDMA" if flow.edge.gdr else "")


def joins_stages(placement: Placement, flow: Flow) -> bool:
    """Its ends are ranks of two stages."""
    if flow.src is None or flow.dst is None:
        return False
    stages = {placement.layout.coordinate(rank, "pipeline") for rank in (flow.src, flow.dst)}
    return len(stages) == 2


def ports(placement: Placement) -> str | None:
    """Kind and rate of all ports that are up on nodes with ranks; None unless every node shows one."""
    shapes = {id(node.shape): node.shape for node in users(placement)}
    own = [set(active(shape)) for shape in shapes.values()]
    return ", ".join(sorted(set().union(*own))) if own and all(own) else None


def active(shape: Shape | None) -> Iterator[str]:
    """`InfiniBand 400 Gbit/s` for each port of a node that is up."""
    for nic in shape.hardware.nics if shape is not None else ():
        for port in nic.ports:
            if (port.state or "").upper() == "ACTIVE" and port.layer is not None and port.rate_gbps:
                yield f"{port.layer} {port.rate_gbps:g} Gbit/s"
