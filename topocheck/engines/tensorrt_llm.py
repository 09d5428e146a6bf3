"""TensorRT-LLM.

Facts from tensorrt_llm/mapping.py before and after "Swap TP-CP grouping order" (PR #10350, December 2025)
and tensorrt_llm/executor/base_worker.py. Which of the 1.2 releases took the swap in is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from topocheck.engines.engine import Engine, Sizes, all_sizes, axes_of, block_slots, no_order
from topocheck.engines.layers import as_declared, check_split, contiguous, declared_counts, even_counts
from topocheck.engines.layout import LayerSplit, Layout, Lines, Slots
from topocheck.engines.modules import language_model
from topocheck.engines.version import release
from topocheck.errors import LayoutError, UnknownLayoutError

__all__ = ["ENGINE", "slots"]

TITLE = "TensorRT-LLM"
SIZES = ("pipeline", "tensor", "context", "expert", "expert_tensor", "attention_data")
CONTEXT_OUTSIDE = ("pipeline", "context", "tensor")
CONTEXT_INSIDE = ("pipeline", "tensor", "context")


def layout(sizes: Sizes, version: str | None, order: str | None) -> Layout:
    """Axes pp, cp, tp up to 1.1 and pp, tp, cp from 1.3 on: there TP groups are strided by the context size.

    Raises UnknownLayoutError with both tensor and context parallelism if the version does not settle it.
    MoE divides the ranks of a stage into moe_tp x moe_ep, EP contiguous. Attention DP adds no ranks.
    """
    no_order(TITLE, order)
    size = all_sizes(TITLE, sizes, SIZES)
    if size["attention_data"] not in {1, size["tensor"]}:
        raise LayoutError(
            f"TensorRT-LLM: attention DP has the tensor size {size['tensor']}, not {size['attention_data']}"
        )
    extra = _moe(size, sizes) if size["expert"] * size["expert_tensor"] > 1 else {}
    return Layout("tensorrt_llm", version, axes_of(size, _order(size, version)), extra)


def _order(size: Sizes, version: str | None) -> tuple[str, ...]:
    if size["context"] == 1 or size["tensor"] == 1:
        return CONTEXT_INSIDE
    if version is None:
        raise UnknownLayoutError(
            "TensorRT-LLM swapped the order of tensor and context ranks during 1.2: give engine_version"
        )
    known = release(version)
    if known >= (1, 3):
        return CONTEXT_INSIDE
    if known < (1, 2):
        return CONTEXT_OUTSIDE
    raise UnknownLayoutError(
        f"TensorRT-LLM swapped tensor and context ranks during 1.2; the order of {version} is not known"
    )


def _moe(size: Sizes, given: Sizes) -> dict[str, Lines]:
    """moe_tp x moe_ep = tp, or tp x cp with HELIX, the only context parallelism that takes experts.

    Mapping lists one block of them a stage, whatever the context size: with another context parallelism the
    ranks beyond are in no list.
    """
    stage = size["tensor"] * size["context"]
    expert = size["expert"]
    expert_tensor = given.get("expert_tensor", size["tensor"] // expert)
    if size["context"] > 1 and expert > 1 and expert * expert_tensor != stage:
        raise LayoutError(
            f"TensorRT-LLM: context {size['context']} with expert {expert} is for HELIX alone, where "
            f"expert_tensor x expert is tensor x context = {stage}, not {expert_tensor} x {expert}"
        )
    if expert * expert_tensor not in {size["tensor"], stage}:
        raise LayoutError(
            f"TensorRT-LLM: expert_tensor {expert_tensor} x expert {expert} must be tensor {size['tensor']}"
        )
    axes = (("blocks", size["pipeline"]), ("expert_tensor", expert_tensor), ("expert", expert))
    return {kind: Lines(axes, (kind,)) for kind in ("expert", "expert_tensor")}


def split(
    layers: int, stages: int, override: str | None, version: str | None, options: Mapping[str, object]
) -> LayerSplit:
    """Mapping.pp_layers: torch.tensor_split, the remainder goes to the first stages.

    `override` is pp_partition as `16,15,15,15`. There are no options. With fewer layers than stages the
    last stages stay empty.
    """
    check_split(TITLE, layers, stages, options)
    if override is not None:
        counts = declared_counts("pp_partition", override.strip("[] "), layers, stages)
        return contiguous(counts, as_declared("pp_partition", counts))
    return contiguous(even_counts(layers, stages), "TensorRT-LLM: the remainder goes to the first stages")


def slots(
    layout: Layout, ranks_per_node: Sequence[int], *, visible_gpus: Sequence[int] | None = None
) -> Slots:
    """MPI ranks in block distribution; each takes the GPU `rank % torch.cuda.device_count()`.

    `visible_gpus` is what each node's processes see, by default as many as it has ranks. Where that
    differs from the ranks a node, GPUs are shared or left out: that is TensorRT-LLM's doing.
    """
    counts = ranks_per_node if visible_gpus is None else visible_gpus
    blocks = block_slots(layout, ranks_per_node)
    if any(counts[node] < 1 for node in set(blocks.nodes)):
        raise LayoutError("TensorRT-LLM: a node that has ranks shows no GPU")
    return Slots(blocks.nodes, [rank % counts[node] for rank, node in enumerate(blocks.nodes)])


def gpus(nodes: Sequence[int], local_ranks: Sequence[int]) -> list[int]:
    """Each rank takes the GPU `rank % torch.cuda.device_count()`, whatever its place on its node.

    As many GPUs are taken to be visible as the node has ranks. A cyclic launch then shares GPUs.
    """
    here = Counter(nodes)
    return [rank % here[node] for rank, node in enumerate(nodes)]


def node_arguments(node: int, names: Sequence[str], ranks: Sequence[int]) -> str:
    """There are none."""
    raise LayoutError("TensorRT-LLM has no node rank: its ranks are mpirun's or srun's (--rankfile, --srun)")


ENGINE = Engine(
    name="tensorrt_llm",
    title=TITLE,
    sizes=SIZES,
    newest="main after PR #10350",
    layout=layout,
    split=split,
    slots=slots,
    counts_visible=True,
    modules=language_model,
    gpus=gpus,
    node_arguments=node_arguments,
)
