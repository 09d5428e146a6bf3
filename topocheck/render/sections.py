"""What the page shows beyond findings, map and ranks: hardware, pipeline, record, audit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from topocheck.render.acceptance import record_view
from topocheck.render.audit import audit_view
from topocheck.render.shapes import shapes_view
from topocheck.render.stages import milliseconds, pipeline_view, size
from topocheck.report import PipelineReport, PlacementReport, Report

__all__ = ["sections"]

MOST_WORLDS = 4
"""Worlds whose hardware and pipeline are shown."""


def sections(report: Report) -> dict[str, Any]:
    """What the templates of the sections are filled with, by name."""
    shown = list(_worlds(report))[:MOST_WORLDS]
    hardware = [shapes_view(table, name) for name, table, _ in shown if table is not None]
    pipelines = [
        pipeline_view(arithmetic, name, place)
        for place, (name, _, arithmetic) in enumerate(shown)
        if arithmetic is not None
    ]
    return {
        "hardware": [view for view in hardware if view is not None],
        "pipelines": pipelines,
        "record": record_view(report),
        "audit": audit_view(report),
        "size": size,
        "milliseconds": milliseconds,
    }


def _worlds(report: Report) -> Iterator[tuple[str | None, PlacementReport | None, PipelineReport | None]]:
    """Name, placement and pipeline of each world; the name is None of the only one."""
    if not report.worlds:
        yield None, report.placement, report.pipeline
        return
    for world in report.worlds:
        yield world.name, world.placement, world.pipeline
