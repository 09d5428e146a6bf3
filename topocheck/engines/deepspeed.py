"""DeepSpeed.

Facts from deepspeed/runtime/pipe/topology.py, pipe/module.py, runtime/utils.py and launcher/launch.py of
0.19.6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from math import inf

from topocheck.engines.engine import (
    Engine,
    Option,
    Sizes,
    all_sizes,
    as_launched,
    axes_of,
    block_slots,
    no_order,
)
from topocheck.engines.layers import as_declared, check_split, contiguous, declared_counts, even_counts
from topocheck.engines.layout import LayerSplit, Layout, Lines, Slots
from topocheck.errors import LayoutError, UnknownLayoutError

__all__ = ["ENGINE"]

TITLE = "DeepSpeed"
ORDER = ("pipeline", "data", "tensor")
OPTIONS = (Option("partition_method", "text"), Option("weights", "numbers"))
NAMES = tuple(option.name for option in OPTIONS)


def layout(sizes: Sizes, version: str | None, order: str | None) -> Layout:
    """PipeModelDataParallelTopology: axes pipe, data, model. Without tensor parallelism pipe, data.

    So data ranks lie next to each other and pipeline neighbours world / stages apart.
    """
    no_order(TITLE, order)
    size = all_sizes(TITLE, sizes, ORDER)
    axes = axes_of(size, ORDER if size["tensor"] > 1 else ORDER[:2])
    extra = {}
    if size["tensor"] > 1 and size["pipeline"] > 1:
        extra["tensor_pipeline"] = Lines(axes, ("pipeline", "tensor"))
    return Layout("deepspeed", version, axes, extra)


def split(
    layers: int, stages: int, override: str | None, version: str | None, options: Mapping[str, object]
) -> LayerSplit:
    """PipelineModule partitions LayerSpec entries; `layers` counts entries.

    Options: `partition_method` (`uniform`, `parameters`, `type:REGEX`) and `weights` (one number an entry:
    its parameters, or 1 where the regex matches its class and else 0), which the last two need. Without
    a method the uniform rule is taken, which equal entries get from any method; an embedding or a head
    among the entries shifts the others. `override` is a count for each stage, for a partition of one's own.
    """
    check_split(TITLE, layers, stages, options, NAMES)
    if override is not None:
        counts = declared_counts("layers", override, layers, stages)
        return contiguous(counts, as_declared("layers", counts))
    method = str(options.get("partition_method", "uniform")).lower()
    if method == "uniform":
        return contiguous(_uniform(layers, stages), "DeepSpeed: partition_method uniform")
    if method != "parameters" and not method.startswith("type:"):
        raise LayoutError(f"DeepSpeed: partition_method {method!r} is not uniform, parameters or type:REGEX")
    weights = _weights(options, method, layers)
    return contiguous(_balanced(weights, stages), f"DeepSpeed: partition_method {method}")


def _uniform(layers: int, stages: int) -> list[int]:
    """partition_uniform: the remainder goes to the first parts, and so do entries fewer than the parts."""
    return even_counts(layers, stages)


def _weights(options: Mapping[str, object], method: str, layers: int) -> list[float]:
    given = options.get("weights")
    if given is None:
        raise UnknownLayoutError(f"DeepSpeed: partition_method {method} needs the weights of the entries")
    if not isinstance(given, Sequence) or not all(isinstance(weight, int | float) for weight in given):
        raise LayoutError("DeepSpeed: weights must be numbers, one an entry")
    if len(given) != layers:
        raise LayoutError(f"DeepSpeed: weights has {len(given)} entries, the model has {layers} layers")
    return list(given)


def _balanced(weights: Sequence[float], stages: int) -> list[int]:
    """partition_balanced: the partition with the smallest gap between heaviest and lightest part.

    Dynamic programming over (entries taken, parts made); of equal gaps the one found last wins.
    """
    count = len(weights)
    if count <= stages:
        return _uniform(count, stages)
    sums = [0.0, *accumulate(weights)]
    best: list[dict[int, tuple[float, float, int]]] = [{0: (0.0, inf, 0)}]  # end: (heaviest, lightest, start)
    for parts in range(1, stages + 1):
        found: dict[int, tuple[float, float, int]] = {}
        for end in range(parts, count + 1):
            found[end] = _last_part(best[-1], sums, end)
        best.append(found)
    bounds = [count]
    for ends in reversed(best[1:]):
        bounds.append(ends[bounds[-1]][2])
    return [end - start for start, end in pairwise(reversed(bounds))]


def _last_part(
    before: Mapping[int, tuple[float, float, int]], sums: Sequence[float], end: int
) -> tuple[float, float, int]:
    """(heaviest part, lightest part, start of the last part) of the best partition that ends here."""
    chosen, gap = (inf, inf, 0), inf
    for start, (heaviest, lightest, _) in before.items():
        if start >= end:
            continue
        weight = sums[end] - sums[start]
        high, low = max(heaviest, weight), min(lightest, weight)
        if high - low <= gap:
            chosen, gap = (high, low, start), high - low
    return chosen


def slots(layout: Layout, ranks_per_node: Sequence[int]) -> Slots:
    """The deepspeed launcher: ranks node by node in hostfile order, LOCAL_RANK = rank % processes here.

    With unequal nodes LOCAL_RANK is therefore not the place in the node: after a node of 6, one of 4 gets
    the local ranks 2, 3, 0, 1.
    """
    blocks = block_slots(layout, ranks_per_node)
    return Slots(blocks.nodes, [rank % ranks_per_node[node] for rank, node in enumerate(blocks.nodes)])


ENGINE = Engine(
    name="deepspeed",
    title=TITLE,
    sizes=ORDER,
    newest="0.19.6",
    options=OPTIONS,
    layout=layout,
    split=split,
    slots=slots,
    gpus=as_launched,
)
