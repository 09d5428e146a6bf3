"""What topocheck knows of one engine. Each engine is a module of this folder with one `ENGINE`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Literal, NamedTuple

from topocheck.engines.layout import Axes, LayerSplit, Layout, Slots
from topocheck.engines.modules import Modules, not_known
from topocheck.errors import LayoutError
from topocheck.runs import spread

__all__ = ["Engine", "Option", "Sizes", "all_sizes", "as_launched", "axes_of", "block_slots", "no_order"]

Sizes = Mapping[str, int]
"""Sizes by topocheck's names, those that are not given left out."""


class Option(NamedTuple):
    """One option of an engine's layer split."""

    name: str
    """Key of `options` that `split` takes, in the engine's own spelling."""
    kind: Literal["number", "flag", "text", "numbers"]
    """An integer from 0; true or false; a text; a list of numbers."""
    word: str = ""
    """As a plan writes it under `layers:`; empty where it writes the engine's own name."""


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
    options: tuple[Option, ...] = ()
    """What `options` of `split` may hold; its docstring says what they mean."""
    layout: Callable[[Sizes, str | None, str | None], Layout]
    """(sizes, version, order) -> Layout."""
    split: Callable[[int, int, str | None, str | None, Mapping[str, object]], LayerSplit]
    """(layers, stages, override, version, options) -> LayerSplit."""
    slots: Callable[..., Slots | None]
    """(layout, ranks a node by position) -> where each rank will be; None if the engine has no rule.

    An engine's own function may take more by keyword: `placing` names what its command line gives.
    """
    placing: tuple[str, ...] = ()
    """Keywords of `slots` that are numbers of the engine's command line: gpu_id_step is --gpu-id-step."""
    counts_visible: bool = False
    """`slots` takes `visible_gpus`: a rank's GPU hangs on how many its node shows."""
    modules: Callable[[int, LayerSplit | None, bool | None, Mapping[str, object]], Modules | None] = not_known
    """(stages, split if known, embedding and head tied if known, options) -> modules of each stage besides
    its layers; None if the engine leaves it to the script."""
    gpus: Callable[[Sequence[int], Sequence[int]], Sequence[int]] | None = None
    """(node by rank, local rank by rank, as the launcher gives them) -> GPU by rank, for engines whose ranks
    are the launcher's processes; None for engines that start their own."""
    node_arguments: Callable[[int, Sequence[str], Sequence[int]], str] | None = None
    """(node rank, names of the nodes, ranks on each) -> what the command takes on that node; None where
    torchrun starts it."""


def all_sizes(title: str, sizes: Sizes, keys: Sequence[str]) -> dict[str, int]:
    """Every key's size, 1 where it is not given.

    Raises LayoutError for a key that the engine does not take, unless its size is 1, and for a size below 1.
    """
    for key, size in sizes.items():
        if size < 1:
            raise LayoutError(f"{title}: {key} must be 1 or more, not {size}")
        if key not in keys and size != 1:
            raise LayoutError(f"{title} has no size {key!r}; it takes {', '.join(keys)}")
    return {key: sizes.get(key, 1) for key in keys}


def axes_of(sizes: Sizes, order: Sequence[str]) -> Axes:
    """The mesh with these axes, slowest first."""
    return tuple((name, sizes[name]) for name in order)


def no_order(title: str, order: str | None) -> None:
    """Raise LayoutError if an order is given to an engine whose order is fixed."""
    if order is not None:
        raise LayoutError(f"{title} has a fixed order of axes, it takes no order ({order[:80]!r})")


def block_slots(layout: Layout, ranks_per_node: Sequence[int]) -> Slots:
    """Rank order fills one node after the other: block launches, hostfiles, torchrun.

    Engines that read RANK and LOCAL_RANK go where their launcher puts them; this is what launchers do
    unless told otherwise. Ranks for which the nodes have no place are left out at the end of the list.
    """
    count = len(ranks_per_node)
    share = layout.world // count if count else 0
    if list(ranks_per_node) == [share] * count and share * count == layout.world:
        return Slots(spread(list(range(count)), share), list(range(share)) * count)
    nodes = chain.from_iterable(map(repeat, range(count), ranks_per_node))
    gpus = chain.from_iterable(map(range, ranks_per_node))
    return Slots(list(islice(nodes, layout.world)), list(islice(gpus, layout.world)))


def as_launched(nodes: Sequence[int], local_ranks: Sequence[int]) -> Sequence[int]:
    """Each process drives the GPU of its local rank's number."""
    return local_ranks
