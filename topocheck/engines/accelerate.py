"""Hugging Face accelerate. Facts from accelerate/parallelism_config.py of 1.15.0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topocheck.engines.engine import (
    Engine,
    Sizes,
    all_sizes,
    as_launched,
    axes_of,
    block_slots,
    no_order,
)
from topocheck.engines.layers import check_split, contiguous, declared_counts
from topocheck.engines.layout import LayerSplit, Layout, Lines
from topocheck.errors import LayoutError

__all__ = ["ENGINE"]

TITLE = "accelerate"
ORDER = ("data_replicate", "data_shard", "context", "sequence", "tensor")


def layout(sizes: Sizes, version: str | None, order: str | None) -> Layout:
    """ParallelismConfig: mesh dp_replicate, dp_shard, cp, sp, tp. `data` is both data axes together."""
    no_order(TITLE, order)
    size = all_sizes(TITLE, sizes, ORDER)
    if size["context"] > 1 and size["sequence"] > 1:
        raise LayoutError(
            "accelerate: Context Parallelism and Sequence Parallelism are mutually exclusive, "
            f"got cp_size={size['context']} and sp_size={size['sequence']}"
        )
    if size["tensor"] * size["context"] > 1 and size["data_replicate"] > 1 and size["data_shard"] == 1:
        raise LayoutError(
            "accelerate: tp_size or cp_size > 1 cannot be used with pure data parallelism "
            f"(dp_replicate_size {size['data_replicate']} and dp_shard_size 1)"
        )
    axes = axes_of(size, ORDER)
    extra = {}
    if size["data_replicate"] * size["data_shard"] > 1:
        extra["data"] = Lines(axes, ("data_replicate", "data_shard"))
    if size["data_shard"] > 1 and size["context"] > 1:
        extra["data_shard_context"] = Lines(axes, ("data_shard", "context"))
    return Layout("accelerate", version, axes, extra)


def split(
    layers: int, stages: int, override: str | None, version: str | None, options: Mapping[str, object]
) -> LayerSplit:
    """There is no pipeline axis: one stage holds all layers. No options."""
    check_split(TITLE, layers, stages, options)
    if stages > 1:
        raise LayoutError(f"accelerate has no pipeline axis, it cannot make {stages} stages")
    counts = [layers] if override is None else declared_counts("layers", override, layers, stages)
    return contiguous(counts, "accelerate: one stage")


def node_arguments(node: int, names: Sequence[str], ranks: Sequence[int]) -> str:
    """`accelerate launch` (commands/launch.py): the machine rank, and the processes of all machines."""
    return (
        f"accelerate launch --num_machines {len(names)} --machine_rank {node} --num_processes {sum(ranks)} "
        f"--main_process_ip {names[0]} --main_process_port 29500"
    )


ENGINE = Engine(
    name="accelerate",
    title=TITLE,
    sizes=ORDER,
    newest="1.15.0",
    layout=layout,
    split=split,
    slots=block_slots,
    gpus=as_launched,
    node_arguments=node_arguments,
)
