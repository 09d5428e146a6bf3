"""What the page shows of a placement: the map, the first rows of the table, all rows packed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from markupsafe import Markup

from topocheck.render import text
from topocheck.render.map import Drawing, draw
from topocheck.render.marks import worst_marks
from topocheck.render.overview import Overview, overview, worst_nodes
from topocheck.render.packed import BASES, MOST_ROWS, differs, listed_ranks, pack
from topocheck.render.words import say
from topocheck.report import GpuReport, PlacementReport, Placing, RankReport, Report

__all__ = ["PlacementView", "Row", "views_of"]

_MOST_NODES = 64
_MOST_CELLS = 1024
_MOST_IN_DETAIL = 8
_MOST_WORLDS = 8


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of the table."""

    rank: RankReport
    gpu: GpuReport | None
    """The GPU as its node lists it, None if it is not listed."""
    nics: list[str]
    """RDMA devices nearest to it."""
    severity: str
    """Worst mark, else empty."""
    columns: list[tuple[Placing | None, bool]]
    """What each column says, and whether that differs from where the rank is placed."""


class PlacementView(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows of the placement, of one world if there are several."""

    name: str | None
    """Name of the world; None if it is the only one."""
    world: str
    """Its place in the report's worlds; empty if it is the only one."""
    report: PlacementReport
    axes: str
    """Sizes in words."""
    overview: Overview | None
    drawing: Drawing | None
    columns: list[str]
    """Columns of the table for which any row has something to say."""
    rows: list[Row]
    packed: Markup
    """All rows, for the script."""


def views_of(report: Report) -> list[PlacementView]:
    """What is shown of the placement; of several worlds those that fail first, up to a few."""
    if report.placement:
        return [_view(None, "", report.placement)]
    worst = sorted(report.worlds or (), key=lambda world: ("fail", "unknown", "pass").index(world.verdict))
    chosen = {world.name for world in worst[:_MOST_WORLDS]}
    return [
        _view(world.name, str(place), world.placement)
        for place, world in enumerate(report.worlds or ())
        if world.name in chosen and world.placement is not None
    ]


def _view(name: str | None, world: str, placement: PlacementReport) -> PlacementView:
    """The map or the overview, and the rows of the table."""
    cells = sum(len(node.gpus) for node in placement.nodes)
    many = len(placement.nodes) > _MOST_NODES or cells > _MOST_CELLS
    names = worst_nodes(placement, _MOST_IN_DETAIL) if many else None
    chosen = listed_ranks(placement)
    listed = [rank for rank in placement.ranks if rank.rank in chosen][:MOST_ROWS]
    shown = {basis for rank in listed for basis in rank.sources}
    columns = [basis for basis in BASES if basis in shown]
    return PlacementView(
        name=name,
        world=world,
        report=placement,
        axes=say("times").join(f"{axis} {size}" for axis, size in placement.axes.items()),
        overview=overview(placement) if many else None,
        drawing=draw(placement, names) if names is None or names else None,
        columns=columns,
        rows=list(_rows(placement, listed, columns)),
        packed=Markup(pack(placement)),  # noqa: S704  base64 has no letter that means anything to HTML
    )


def _rows(placement: PlacementReport, ranks: list[RankReport], columns: list[str]) -> Iterable[Row]:
    """Rows of these ranks."""
    marked = worst_marks(placement.marks)
    gpus = text.gpus_of(placement, ranks)
    shapes = {node.name: node.shape for node in placement.nodes}
    for rank in ranks:
        gpu, shape = gpus.get(rank.rank), shapes.get(rank.node or "")
        near = [] if shape is None else placement.shapes[shape].near
        yield Row(
            rank=rank,
            gpu=gpu,
            nics=near[gpu.ordinal] if gpu is not None and gpu.ordinal < len(near) else [],
            severity=marked.get(rank.rank, ("", ""))[0],
            columns=[_column(rank, basis) for basis in columns],
        )


def _column(rank: RankReport, basis: str) -> tuple[Placing | None, bool]:
    """What one column says of a rank, and whether it contradicts the place the verdict rests on."""
    placing = rank.sources.get(basis)
    return placing, placing is not None and differs(placing, rank)
