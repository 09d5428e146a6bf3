"""TensorRT-LLM's command line, from tensorrt_llm/commands/serve.py and common_llm_options.py."""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.commands.engine_flags import EngineFlags, Settings, nothing_to_fill
from topocheck.commands.flags import Table
from topocheck.commands.launch import Starter, Stated
from topocheck.commands.wrappers import tool

__all__ = ["FLAGS"]

TABLE = Table(
    values={
        "tensor": "--tp_size --tp --tensor_parallel_size",
        "pipeline": "--pp_size --pp --pipeline_parallel_size",
        "context": "--cp_size --context_parallel_size",
        "expert": "--ep_size --ep --moe_expert_parallel_size",
        "moe-cluster": "--cluster_size --moe_cluster_parallel_size",
        "gpus_per_node": "--gpus_per_node",
        "backend": "--backend",
        "config": "--extra_llm_api_options --config",
    },
)
COMMANDS = {"trtllm-serve": {"serve"}, "tensorrt_llm.commands.serve": {"serve"}}
OTHER_COMMANDS = frozenset({"disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve"})


def arguments(words: Sequence[str], starters: Sequence[Starter]) -> Sequence[str] | None:
    """`trtllm-serve [serve] MODEL`; its other sub-commands have no sizes."""
    name = tool(words[0])
    if name not in COMMANDS or (len(words) > 1 and words[1] in OTHER_COMMANDS):
        return None
    return words[2:] if len(words) > 1 and words[1] in COMMANDS[name] else words[1:]


def adapt(settings: Settings) -> None:
    """Attention DP has the size of the tensor axis."""
    stated = settings.stated
    if settings.rest and "model" not in stated:
        stated["model"] = Stated(settings.rest[0], "the first argument")
    if settings.is_on("enable_attention_dp") and "tensor" in stated:
        stated["attention_data"] = Stated(stated["tensor"].text, stated["enable_attention_dp"].origin)


FLAGS = EngineFlags(
    engine="tensorrt_llm",
    table=TABLE,
    arguments=arguments,
    ranks_from_launcher=True,
    adapt=adapt,
    config={
        "tensor_parallel_size": "tensor",
        "pipeline_parallel_size": "pipeline",
        "context_parallel_size": "context",
        "moe_expert_parallel_size": "expert",
        "moe_tensor_parallel_size": "expert_tensor",
        "moe_cluster_parallel_size": "moe-cluster",
        "gpus_per_node": "gpus_per_node",
        "enable_attention_dp": "enable_attention_dp",
        "pp_partition": "layers",
    },
    config_wins=True,
    defaults={"tensor": "1, trtllm-serve's default", "pipeline": "1, trtllm-serve's default"},
    one_node="trtllm-serve without mpirun or srun starts its workers here",
    fill=nothing_to_fill,
)
