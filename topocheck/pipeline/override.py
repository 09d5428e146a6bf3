"""A partition of layers as the user gives it to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

__all__ = ["Override", "override_of"]


class Override(NamedTuple):
    """One partition in the engine's own words."""

    setting: str
    """What the user sets: an environment variable, an option, a key of a settings file."""
    value: str
    """What it is set to, which is what the engine's partition function reads."""

    @property
    def line(self) -> str:
        """Setting and value as one writes them."""
        if self.setting.startswith("--"):
            return f"{self.setting} '{self.value}'"
        return f"{self.setting}{self.value}"


def override_of(engine: str, counts: Sequence[int], *, mtp: int = 0) -> Override:
    """The override of an engine for these layers a stage; `mtp` layers stand before Megatron's loss.

    vLLM get_pp_indices, SGLang get_pp_indices, TensorRT-LLM Mapping(pp_partition), Megatron-Core
    pipeline_model_parallel_layout, torchtitan module_fqns_per_model_part. DeepSpeed and
    torch.distributed.pipelining have no such string: their scripts take the counts.
    """
    listed = ",".join(map(str, counts))
    if engine == "vllm":
        return Override("VLLM_PP_LAYER_PARTITION=", listed)
    if engine == "sglang":
        return Override("SGLANG_PP_LAYER_PARTITION=", listed)
    if engine == "tensorrt_llm":
        return Override("pp_partition: ", f"[{listed}]")
    if engine == "megatron":
        return Override("--pipeline-model-parallel-layout", _layout(counts, mtp))
    if engine == "torchtitan":
        return Override("module_fqns_per_model_part = ", _modules(counts))
    return Override("layers: ", f"[{listed}]")


def _layout(counts: Sequence[int], mtp: int) -> str:
    """`Et*15|t*16|t*16|t*14L`."""
    return f"E{'|'.join(f't*{count}' for count in counts)}{'m' * mtp}L"


def _modules(counts: Sequence[int]) -> str:
    """The names of the modules of each stage, as generate_llm_fqn_per_model_part writes them."""
    parts = []
    for start, end in pairwise(accumulate(counts, initial=0)):
        names = [f"layers.{layer}" for layer in range(start, end)]
        names[:0] = ["tok_embeddings"] if start == 0 else []
        names += ["norm", "lm_head"] if end == sum(counts) else []
        parts.append("[" + ", ".join(f'"{name}"' for name in names) + "]")
    return f"[{', '.join(parts)}]"
