"""Layers of each stage, by the engine's rule and the plan's override."""

from __future__ import annotations

from topocheck.engines import ENGINES
from topocheck.engines.layout import LayerSplit, Layout
from topocheck.errors import LayoutError
from topocheck.plan import Plan

__all__ = ["layer_split"]


def layer_split(plan: Plan, layout: Layout) -> LayerSplit | None:
    """Which layers each stage holds; None if the plan names no layers or the engine refuses them."""
    if plan.model is None or plan.model.layers is None:
        return None
    override = (
        plan.layers
        if plan.layers is None or isinstance(plan.layers, str)
        else ",".join(map(str, plan.layers))
    )
    try:
        return ENGINES[plan.engine].split(
            plan.model.layers, layout.size("pipeline"), override, plan.engine_version, {}
        )
    except LayoutError:
        return None  # PP002 says what the engine refuses
