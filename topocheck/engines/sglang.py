"""SGLang.

Facts from srt/distributed/parallel_state.py, srt/distributed/utils.py (get_pp_indices), srt/server_args.py,
srt/entrypoints/engine.py (rank ranges and GPU ids) and srt/managers/data_parallel_controller.py of the
releases 0.4.10 to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from topocheck.engines.engine import Engine, Sizes, all_sizes, axes_of, no_order
from topocheck.engines.layers import as_declared, check_split, contiguous, declared_counts
from topocheck.engines.layout import Axes, LayerSplit, Layout, Lines, Slots
from topocheck.engines.modules import language_model
from topocheck.engines.version import before
from topocheck.errors import LayoutError

__all__ = ["ENGINE", "slots"]

TITLE = "SGLang"
ORDER = ("data", "pipeline", "tensor")
SIZES = (*ORDER, "attention_data", "context", "decode_context", "expert", "moe_data")
ATTENTION = ("attention_data", "context", "attention_tensor")
MOE = ("moe_data", "expert", "expert_tensor")


def layout(sizes: Sizes, version: str | None, order: str | None) -> Layout:
    """`rank = tp_size * pp_rank + tp_rank`; attention and MoE divide the tensor axis anew.

    Attention: tp_rank = (attn_dp * CP + attn_cp) * ATP + attn_tp. MoE: (moe_dp * EP + ep) * MTP + moe_tp.
    Data replicas are torch worlds of their own whose ranks start at 0; here they follow each other.
    `attention_data` is --attn-dp-size, up to 0.5.10 --dp-size with --enable-dp-attention.
    """
    no_order(TITLE, order)
    size = all_sizes(TITLE, sizes, SIZES)
    extra: dict[str, Lines] = {}
    if size["attention_data"] * size["context"] > 1:
        extra |= _divided(size, ATTENTION)
    if size["expert"] * size["moe_data"] > 1:
        extra |= _divided(size, MOE)
    if size["context"] > size["moe_data"]:
        extra["moe_data"] = extra["context"]  # initialize_model_parallel takes the attention CP group
    if size["decode_context"] > 1:
        extra["decode_context"] = _divided(size, ("consecutive", "decode_context"))["decode_context"]
    return Layout("sglang", version, axes_of(size, ORDER), extra)


def _divided(size: Sizes, order: tuple[str, ...]) -> dict[str, Lines]:
    """Groups along the parts of the tensor axis; the part that has no size of its own takes what is left."""
    tensor = size["tensor"]
    given = prod(size.get(name, 1) for name in order)
    if tensor % given:
        factors = " x ".join(f"{name} {size[name]}" for name in order if name in size)
        raise LayoutError(f"SGLang: tp_size {tensor} is not divisible by {factors}")
    outer = size["data"] * size["pipeline"]
    axes: Axes = (("outer", outer), *((name, size.get(name, tensor // given)) for name in order))
    return {name: Lines(axes, (name,)) for name in order}


def split(
    layers: int, stages: int, override: str | None, version: str | None, options: Mapping[str, object]
) -> LayerSplit:
    """get_pp_indices: the remainder goes to the last stages, one each; up to 0.5.5 all of it to the last.

    `override` is SGLANG_PP_LAYER_PARTITION, which 0.5.23 ignores where there is one stage. There are no
    options. The rule answers for fewer layers than stages too, but make_layers then refuses the model.
    """
    check_split(TITLE, layers, stages, options)
    if override is not None and (stages > 1 or before(version, (0, 5, 11))):
        counts = declared_counts("SGLANG_PP_LAYER_PARTITION", override, layers, stages)
        return contiguous(counts, as_declared("SGLANG_PP_LAYER_PARTITION", counts))
    base, rest = divmod(layers, stages)
    if rest and before(version, (0, 5, 6)):
        return contiguous(
            [base] * (stages - 1) + [base + rest], "SGLang: the remainder goes to the last stage"
        )
    counts = [base] * (stages - rest) + [base + 1] * rest
    return contiguous(counts, "SGLang: the remainder goes to the last stages, one layer each")


def slots(
    layout: Layout, ranks_per_node: Sequence[int], *, base_gpu_id: int = 0, gpu_id_step: int = 1
) -> Slots:
    """Where the scheduler processes start, from the number of nodes alone (_calculate_rank_ranges).

    `gpu_id_step` does not scale the pipeline term, so that two ranks may get one GPU: that is SGLang's
    doing, and is returned as it is. Sizes for which SGLang would start a stage that does not exist, or
    none at all for a stage that does, are refused here although SGLang does not check them.
    """
    nodes, stages, tensor = len(ranks_per_node), layout.size("pipeline"), layout.size("tensor")
    _check_nodes(layout, nodes)
    stages_per_node, nodes_per_stage = max(stages // nodes, 1), max(nodes // stages, 1)
    per_node = tensor // nodes_per_stage
    replica = stages * tensor
    nodes_of, gpus = [], []
    for rank in range(layout.world):
        earlier, in_replica = divmod(rank, replica)
        stage, tp_rank = divmod(in_replica, tensor)
        nodes_of.append(stage // stages_per_node * nodes_per_stage + tp_rank // per_node)
        gpu = base_gpu_id + stage % stages_per_node * per_node + tp_rank % per_node * gpu_id_step
        gpus.append(gpu + earlier * replica * gpu_id_step)
    return Slots(nodes_of, gpus)


def _check_nodes(layout: Layout, nodes: int) -> None:
    stages, tensor = layout.size("pipeline"), layout.size("tensor")
    if not nodes or stages * tensor % nodes:
        raise LayoutError(f"SGLang: tp_size * pp_size = {stages * tensor} is not divisible by nnodes {nodes}")
    if layout.size("data") > 1 and nodes > 1:
        raise LayoutError(f"SGLang: dp_size {layout.size('data')} is not supported with nnodes {nodes}")
    if stages % nodes and nodes % stages:
        raise LayoutError(
            f"SGLang: neither of pp_size {stages} and nnodes {nodes} divides the other, which it does not "
            f"check: {_wrong_stages(stages, nodes)}"
        )
    if tensor % max(nodes // stages, 1):
        raise LayoutError(f"SGLang: tp_size {tensor} is not divisible by {nodes // stages} nodes a stage")


def _wrong_stages(stages: int, nodes: int) -> str:
    """What _calculate_rank_ranges makes of such numbers."""
    if stages > nodes:
        first = stages // nodes * nodes
        return f"no node would start stage {first}" + f"..{stages - 1}" * (first < stages - 1)
    return f"node {nodes // stages * stages} would start stage {stages}, which does not exist"


def node_arguments(node: int, names: Sequence[str], ranks: Sequence[int]) -> str:
    """srt/server_args.py: --dist-init-addr is the first node's, with any free port."""
    return f"--nnodes {len(names)} --node-rank {node} --dist-init-addr {names[0]}:20000"


ENGINE = Engine(
    name="sglang",
    title=TITLE,
    sizes=SIZES,
    newest="0.5.23",
    layout=layout,
    split=split,
    slots=slots,
    placing=("base_gpu_id", "gpu_id_step"),
    modules=language_model,
    node_arguments=node_arguments,
)
