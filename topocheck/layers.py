"""Layers and further modules of each stage, by the engine's rule and what the plan says of it."""

from __future__ import annotations

from topocheck.engines import ENGINES
from topocheck.engines.layout import LayerSplit, Layout
from topocheck.engines.modules import Modules
from topocheck.errors import LayoutError
from topocheck.plan import Plan

__all__ = ["layer_split", "modules_of", "options_of", "override_of", "split_of"]


def layer_split(plan: Plan, layout: Layout) -> LayerSplit | None:
    """Which layers each stage holds; None if the plan names no layers or the engine refuses them."""
    if plan.model is None or plan.model.layers is None:
        return None
    try:
        return split_of(plan, layout.size("pipeline"))
    except LayoutError:
        return None  # PP002 says what the engine refuses


def split_of(plan: Plan, stages: int) -> LayerSplit | None:
    """Layers of each stage; None if the plan gives neither their number nor a list of them.

    Raises LayoutError if the engine refuses them.
    """
    layers = plan.model.layers if plan.model is not None else None
    if layers is None and isinstance(plan.layers, tuple):
        layers = sum(plan.layers)
    if layers is None:
        return None
    return ENGINES[plan.engine].split(
        layers, stages, override_of(plan), plan.engine_version, options_of(plan)
    )


def modules_of(plan: Plan, stages: int, split: LayerSplit | None) -> Modules | None:
    """What each stage holds besides layers; None where the script alone says it."""
    tied = plan.model.tied if plan.model is not None else None
    return ENGINES[plan.engine].modules(stages, split, tied, options_of(plan))


def override_of(plan: Plan) -> str | None:
    """The plan's layers as the engine's override string; None without."""
    if plan.layers is None or isinstance(plan.layers, str):
        return plan.layers
    return ",".join(map(str, plan.layers)) if isinstance(plan.layers, tuple) else None


def options_of(plan: Plan) -> dict[str, object]:
    """The plan's options of the layer split, by the engine's own names; {} without."""
    if not isinstance(plan.layers, dict):
        return {}
    names = {option.word or option.name: option.name for option in ENGINES[plan.engine].options}
    return {names.get(word, word): value for word, value in plan.layers.items()}
