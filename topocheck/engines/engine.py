"""What topocheck knows of one engine. Each engine is a module of this folder with one `ENGINE`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from topocheck.engines.layout import LayerSplit, Layout, Slot

__all__ = ["Engine", "block_slots"]

Sizes = Mapping[str, int]
"""Sizes by topocheck's names, those that are not given left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The rules of one engine, by version. All functions raise LayoutError in the engine's terms."""

    name: str
    """As the plan names it."""
    title: str
    """As people write it: `vLLM`, `Megatron-Core`."""
    sizes: tuple[str, ...]
    """Keys of `parallel:` that it takes."""
    newest: str
    """Newest version whose source was read; assumed, and said, where the plan names none."""
    orders: bool = False
    """The user may give the order of the axes."""
    layout: Callable[[Sizes, str | None, str | None], Layout]
    """(sizes, version, order) -> Layout."""
    split: Callable[[int, int, str | None, str | None, Mapping[str, object]], LayerSplit]
    """(layers, stages, override, version, options) -> LayerSplit."""
    slots: Callable[[Layout, Sequence[int]], list[Slot] | None]
    """(layout, ranks a node by position) -> where each rank will be; None if the engine has no rule."""


def block_slots(layout: Layout, ranks_per_node: Sequence[int]) -> list[Slot]:
    """Rank order fills one node after the other: mp executors, block launches, hostfiles."""
    return [Slot(node, gpu) for node, count in enumerate(ranks_per_node) for gpu in range(count)]
