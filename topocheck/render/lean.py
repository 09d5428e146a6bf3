"""A big report without the identities of its parts: what a page holds.

UUIDs, boot ids and GUIDs are random and do not pack: those of 100,000 GPUs are most of a page. Boot ids and
GUIDs are for the JSON report; UUIDs too unless they are asked for. A rank keeps its place, `GPU 3` of its
node instead of a UUID; ranks that findings mark, the first ones, and what differs from where a rank is placed
keep their names. The report of a small job stays what it is.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from topocheck.render.packed import Seat, listed_ranks, number_of, seats_of
from topocheck.render.words import say
from topocheck.report import GpuReport, NicReport, NodeReport, PlacementReport, Placing, RankReport, Report

__all__ = ["as_lean_as", "lean"]

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
    seats = seats_of(placement)
    kinds = {tuple([gpu.bus for gpu in node.gpus]) for node in placement.nodes}
    buses = len(kinds) <= _MOST_BUS_KINDS
    return msgspec.structs.replace(
        placement,
        ranks=[
            rank if rank.rank in listed or not rank.gpu else _rank(rank, seats.get(rank.rank))
            for rank in placement.ranks
        ],
        nodes=[_node(node, listed, buses=buses) for node in placement.nodes],
    )


def _rank(rank: RankReport, seat: Seat | None) -> RankReport:
    """The rank with the place of its GPU as name."""
    name = None if seat is None else say("cell_gpu", number=number_of(seat[1]))
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


def _node(node: NodeReport, listed: Collection[int], *, buses: bool) -> NodeReport:
    """The node with the names of the GPUs that listed ranks drive."""
    gpus = [
        gpu
        if any(rank in listed for rank in gpu.ranks)
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
