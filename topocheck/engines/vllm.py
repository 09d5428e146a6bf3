"""vLLM. Facts from vllm/distributed/parallel_state.py, vllm/distributed/utils.py (0.11.2 to 0.33.0)."""

from __future__ import annotations

from collections.abc import Mapping

from topocheck.engines.engine import Engine, Sizes, block_slots
from topocheck.engines.layout import LayerSplit, Layout
from topocheck.errors import LayoutError

__all__ = ["ENGINE"]

ORDER = ("data", "pipeline", "context", "tensor")


def layout(sizes: Sizes, version: str | None, order: str | None) -> Layout:
    """`rank = ((dp * PP + pp) * PCP + pcp) * TP + tp`, initialize_model_parallel."""
    return Layout("vllm", version, tuple((axis, sizes.get(axis, 1)) for axis in ORDER))


def split(
    layers: int, stages: int, override: str | None, version: str | None, options: Mapping[str, object]
) -> LayerSplit:
    """get_pp_indices: the remainder goes to the stages before the last, from the right."""
    if override is not None:
        counts = [int(part) for part in override.split(",")]
        if len(counts) != stages:
            raise LayoutError(f"VLLM_PP_LAYER_PARTITION has {len(counts)} entries for {stages} stages")
        if sum(counts) != layers:
            raise LayoutError(f"VLLM_PP_LAYER_PARTITION sums to {sum(counts)}, the model has {layers} layers")
    else:
        counts = [layers // stages] * stages
        for extra in range(layers % stages):
            counts[-2 - extra] += 1
    ends = [sum(counts[: stage + 1]) for stage in range(stages)]
    return LayerSplit(
        tuple(zip([0, *ends[:-1]], ends, strict=True)), rule="vLLM default" if override is None else override
    )


ENGINE = Engine(
    name="vllm",
    title="vLLM",
    sizes=ORDER,
    newest="0.33.0",
    layout=layout,
    split=split,
    slots=block_slots,
)
