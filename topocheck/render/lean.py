"""A big report without the identities of its parts: what a page holds.

UUIDs, boot ids and GUIDs are random and do not pack: those of 100,000 GPUs are most of a page. Boot ids and
GUIDs are for the JSON report; UUIDs too unless they are asked for. A rank keeps its place, `GPU 3` of its
node instead of a UUID; ranks that findings mark, the first ones, and what differs from where a rank is placed
keep their names. The report of a small job stays what it is.
"""

from __future__ import annotations

from functools import cache

import msgspec

from topocheck.render.packed import MOST_ROWS, listed_ranks, number_of
from topocheck.render.words import say
from topocheck.report import GpuReport, NicReport, NodeReport, PlacementReport, Placing, RankReport, Report

__all__ = ["as_lean_as", "is_lean", "lean"]

_MOST_BUS_KINDS = 512


def lean(report: Report, *, uuids: bool = False) -> Report:
    """The report without most identities; the same report where it is small. Applied twice it is the same.

    `uuids` keeps those of all GPUs.
    """
    changes: dict[str, object] = {}
    if report.placement is not None:
        changes["placement"] = _placement(report.placement, uuids=uuids)
    if report.worlds:
        changes["worlds"] = [
            world
            if world.placement is None
            else msgspec.structs.replace(world, placement=_placement(world.placement, uuids=uuids))
            for world in report.worlds
        ]
    return msgspec.structs.replace(report, **changes)


def is_lean(report: Report) -> bool:
    """Some placement has so many ranks that identities are left out of it, and has none of nodes."""
    placements = [report.placement, *(world.placement for world in report.worlds or ())]
    return any(
        placement is not None and len(placement.ranks) > MOST_ROWS and all(map(_is_bare, placement.nodes))
        for placement in placements
    )


def as_lean_as(kept: Report, report: Report) -> Report:
    """The report with what `kept` has of identities, so that the two can be held against each other."""
    if kept == lean(kept):
        return lean(report)
    return lean(report, uuids=True) if kept == lean(kept, uuids=True) else report


def _placement(placement: PlacementReport, *, uuids: bool) -> PlacementReport:
    """One placement."""
    listed = listed_ranks(placement)
    if len(listed) == len(placement.ranks):
        return placement
    if uuids:
        return msgspec.structs.replace(placement, nodes=[_bare(node) for node in placement.nodes])
    names = _seats(placement)
    kinds = {tuple([gpu.bus for gpu in node.gpus]) for node in placement.nodes}
    buses = len(kinds) <= _MOST_BUS_KINDS
    return msgspec.structs.replace(
        placement,
        ranks=[
            rank if rank.rank in listed or not rank.gpu else _rank(rank, names.get(rank.rank))
            for rank in placement.ranks
        ],
        nodes=[_node(node, listed, buses=buses) for node in placement.nodes],
    )


def _seats(placement: PlacementReport) -> dict[int, str]:
    """Place of the GPU of each rank in words, `GPU 3`."""
    return {
        rank: _cell(number_of(gpu)) for node in placement.nodes for gpu in node.gpus for rank in gpu.ranks
    }


@cache
def _cell(number: int) -> str:
    """A GPU by its number in words."""
    return say("cell_gpu", number=number)


def _rank(rank: RankReport, name: str | None) -> RankReport:
    """The rank with the place of its GPU as name."""
    sources = {
        basis: Placing(node=placing.node, gpu=name, source=placing.source)
        if placing.gpu == rank.gpu
        else placing
        for basis, placing in rank.sources.items()
    }
    return RankReport(
        rank=rank.rank,
        coordinates=rank.coordinates,
        stage=rank.stage,
        replica=rank.replica,
        tensor_group=rank.tensor_group,
        node=rank.node,
        gpu=name,
        layers=rank.layers,
        sources=sources,
        local_rank=rank.local_rank,
    )


def _node(node: NodeReport, listed: frozenset[int], *, buses: bool) -> NodeReport:
    """The node with the names of the GPUs that listed ranks drive."""
    gpus = [
        gpu
        if not listed.isdisjoint(gpu.ranks)
        else GpuReport(
            ordinal=gpu.ordinal,
            uuid=None,
            bus=gpu.bus if buses else None,
            index=gpu.index,
            model=gpu.model,
            ranks=gpu.ranks,
        )
        for gpu in node.gpus
    ]
    return msgspec.structs.replace(_bare(node), gpus=gpus)


def _bare(node: NodeReport) -> NodeReport:
    """The node without its boot id and the GUIDs of its RDMA devices."""
    nics = node.nics and [NicReport(name=nic.name, guid=None, bus=nic.bus) for nic in node.nics]
    return msgspec.structs.replace(node, boot=None, nics=nics)


def _is_bare(node: NodeReport) -> bool:
    """The node has neither a boot id nor a GUID."""
    return node.boot is None and all(nic.guid is None for nic in node.nics or ())
