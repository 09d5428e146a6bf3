"""vLLM.

Facts from vllm/distributed/parallel_state.py (initialize_model_parallel), vllm/distributed/utils.py
(get_pp_indices), vllm/config/parallel.py and vllm/v1/executor/multiproc_executor.py of the releases
0.11.2, 0.19.1, 0.24.0 and 0.33.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from topocheck.engines.engine import Engine, Sizes, all_sizes, axes_of, block_slots, no_order
from topocheck.engines.layers import as_declared, check_split, contiguous, declared_counts
from topocheck.engines.layout import Axes, Group, LayerSplit, Layout, Lines, Slots
from topocheck.engines.modules import language_model
from topocheck.engines.version import before
from topocheck.errors import LayoutError, UnknownLayoutError

__all__ = ["ENGINE"]

TITLE = "vLLM"
NEWEST = "0.33.0"
ORDER = ("data", "pipeline", "context", "tensor")
EXTERNAL = "data_external"
SIZES = (*ORDER, "decode_context", "expert", EXTERNAL)


def layout(sizes: Sizes, version: str | None, order: str | None) -> Layout:
    """`rank = ((dp * PP + pp) * PCP + pcp) * TP + tp`, initialize_model_parallel.

    The expert group is no number of the user's: with expert parallelism it holds all ranks of one
    pipeline stage, over data x context x tensor. With a dense model (0.19 and later) each data replica is
    a torch world of its own whose ranks start at 0; here they follow each other as in one world. Under the
    external launcher a world may be a multiple of all that: its slowest axis is whole copies of the engine,
    which share no group.
    """
    no_order(TITLE, order)
    size = all_sizes(TITLE, sizes, SIZES)
    if size["context"] > 1 and before(version, (0, 12)):
        raise LayoutError(f"vLLM {version} has no prefill context parallel size")
    axes = axes_of(size, ORDER if size[EXTERNAL] == 1 else (EXTERNAL, *ORDER))
    extra: dict[str, Lines | tuple[Group, ...]] = {}
    if size["decode_context"] > 1:
        version = version or (NEWEST if size["context"] > 1 else None)
        extra["decode_context"] = _decode_context(size, axes, version)
    if size["expert"] > 1:
        extra["expert"] = _expert(size, axes)
    return Layout("vllm", version, axes, extra)


def _expert(size: Sizes, axes: Axes) -> Lines:
    """All ranks of one pipeline stage."""
    ranks = size["data"] * size["context"] * size["tensor"]
    if size["expert"] != ranks:
        raise LayoutError(
            f"vLLM's expert parallel size is data x context x tensor = {ranks}, it cannot be {size['expert']}"
        )
    return Lines(axes, ("data", "context", "tensor"))


def _decode_context(size: Sizes, axes: Axes, version: str | None) -> Lines | tuple[Group, ...]:
    """Consecutive ranks up to 0.24; in 0.33 the prefill context axis comes first, then the tensor axis."""
    tensor, context, decode = size["tensor"], size["context"], size["decode_context"]
    if context > 1 and before(version, (0, 33)) and not before(version, (0, 25)):
        raise UnknownLayoutError(
            f"vLLM changed its decode context groups between 0.24 and 0.33; those of {version} "
            "with context parallelism are not known"
        )
    context_first = context > 1 and not before(version, (0, 33))
    span = tensor * context if context_first else tensor
    if span % decode:
        raise LayoutError(f"vLLM: {span} ranks are not divisible by decode context parallel size {decode}")
    if not context_first:
        world = prod(count for _, count in axes)
        return Lines((("consecutive", world // decode), ("decode_context", decode)), ("decode_context",))
    groups: list[Group] = []
    for stage in Lines(axes, ("context", "tensor")):
        ranks = [rank for column in range(tensor) for rank in stage[column::tensor]]
        groups += [tuple(ranks[first : first + decode]) for first in range(0, span, decode)]
    return tuple(sorted(groups, key=lambda group: group[0]))


def split(
    layers: int, stages: int, override: str | None, version: str | None, options: Mapping[str, object]
) -> LayerSplit:
    """get_pp_indices: the remainder goes to the stages before the last, from the right.

    `override` is VLLM_PP_LAYER_PARTITION. There are no options. vLLM refuses neither fewer layers than
    stages (some stay empty) nor a negative entry that leaves the sum right.
    """
    check_split(TITLE, layers, stages, options)
    if override is not None:
        counts = declared_counts("VLLM_PP_LAYER_PARTITION", override, layers, stages)
        return contiguous(counts, as_declared("VLLM_PP_LAYER_PARTITION", counts))
    base, rest = divmod(layers, stages)
    counts = [base] * stages
    for extra in range(rest):
        counts[-2 - extra] += 1
    return contiguous(counts, "vLLM default: the remainder goes to the stages before the last")


def slots(layout: Layout, ranks_per_node: Sequence[int]) -> Slots:
    """Where the mp executor puts ranks (--nnodes, --node-rank), from the number of nodes alone.

    Each node gets as many workers as any other. GPUs are indexes into --device-ids, else into
    CUDA_VISIBLE_DEVICES. Under Ray, nodes follow in an order of Ray's; the numbers a node are the same
    where its bundles are.
    """
    if layout.size(EXTERNAL) > 1:  # torchrun places the processes
        return block_slots(layout, ranks_per_node)
    world, nodes = layout.world, len(ranks_per_node)
    replicas = layout.size("data")
    replica = world // replicas
    if not nodes or world % nodes:
        raise LayoutError(f"vLLM: world size {world} is not divisible by nnodes {nodes}")
    replicas_per_node = max(world // nodes // replica, 1)
    nodes_per_replica, rest = divmod(nodes, replicas // replicas_per_node)
    # vLLM checks the node count alone; with an odd replica left over it would never start that one.
    if rest or not nodes_per_replica or replicas % replicas_per_node:
        raise LayoutError(
            f"vLLM: {replicas} data parallel replicas of {replica} ranks do not fit {nodes} nodes"
        )
    # Whole replicas on each node, or each replica on whole nodes: ranks follow each other node by node.
    return block_slots(layout, [world // nodes] * nodes)


def node_arguments(node: int, names: Sequence[str], ranks: Sequence[int]) -> str:
    """`vllm serve` with the mp executor: all nodes but the first are headless (vllm/engine/arg_utils.py)."""
    headless = " --headless" if node else ""
    return f"--nnodes {len(names)} --node-rank {node} --master-addr {names[0]}{headless}"


ENGINE = Engine(
    name="vllm",
    title=TITLE,
    sizes=SIZES,
    newest=NEWEST,
    layout=layout,
    split=split,
    slots=slots,
    modules=language_model,
    node_arguments=node_arguments,
)
