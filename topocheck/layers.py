"""Layers of each stage, by the engine's rule and the plan's override."""

from __future__ import annotations

from topocheck.engines import ENGINES
from topocheck.engines.layout import LayerSplit, Layout
from topocheck.errors import LayoutError
from topocheck.plan import Plan

__all__ = ["layer_split", "override_of"]


def layer_split(plan: Plan, layout: Layout) -> LayerSplit | None:
    """Which layers each stage holds; None if the plan names no layers or the engine refuses them."""
    if plan.model is None or plan.model.layers is None:
        return None
    try:
        return ENGINES[plan.engine].split(
            plan.model.layers, layout.size("pipeline"), override_of(plan), plan.engine_version, {}
        )
    except LayoutError:
        return None  # PP002 says what the engine refuses


def override_of(plan: Plan) -> str | None:
    """The plan's layers as the engine's override string; None without."""
    if plan.layers is None or isinstance(plan.layers, str):
        return plan.layers
    return ",".join(map(str, plan.layers))
