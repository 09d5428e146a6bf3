"""SGLang's command line, from srt/server_args.py and srt/arg_groups of 0.4.10 to 0.5.23."""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.commands.engine_flags import EngineFlags, Settings, config_of, nothing_to_fill
from topocheck.commands.flags import Table
from topocheck.commands.launch import Starter, Stated
from topocheck.commands.wrappers import tool

__all__ = ["FLAGS"]

TABLE = Table(
    values={
        "tensor": "--tp-size --tensor-parallel-size --tp",
        "pipeline": "--pp-size --pipeline-parallel-size --pp",
        "data": "--dp-size --data-parallel-size --dp",
        "expert": "--ep-size --expert-parallel-size --ep",
        "attention_data": "--attn-dp-size --attention-data-parallel-size",
        "context": "--attn-cp-size --attention-context-parallel-size",
        "moe_data": "--moe-dp-size --moe-data-parallel-size",
        "decode_context": "--dcp-size --decode-context-parallel-size",
        "nodes": "--nnodes",
        "node_rank": "--node-rank",
        "dist-init": "--dist-init-addr --nccl-init-addr",
        "base-gpu-id": "--base-gpu-id",
        "gpu-id-step": "--gpu-id-step",
        "disaggregation-mode": "--disaggregation-mode",
        "moe-a2a-backend": "--moe-a2a-backend",
        "deepep-mode": "--deepep-mode",
        "model": "--model-path --model",
        "config": "--config",
    },
    switches={
        "enable-dp-attention": "--enable-dp-attention",
        "use-ray": "--use-ray",
        "disable-custom-all-reduce": "--disable-custom-all-reduce",
    },
    variables={"layers": "SGLANG_PP_LAYER_PARTITION"},
    abbreviated=True,
)


def arguments(words: Sequence[str], starters: Sequence[Starter]) -> Sequence[str] | None:
    """`python -m sglang.launch_server` or `sglang serve`."""
    if words[0] in {"sglang.launch_server", "sglang.srt.entrypoints.http_server"}:
        return words[1:]
    if tool(words[0]) == "sglang" and len(words) > 1 and words[1] == "serve":
        return words[2:]
    return None


def adapt(settings: Settings) -> None:
    """--dp-size with --enable-dp-attention divides the tensor axis and makes no replicas."""
    stated = settings.stated
    if settings.rest and "model" not in stated:
        stated["model"] = Stated(settings.rest[0], "the first argument")
    if settings.is_on("enable-dp-attention") and "data" in stated:
        data = stated.pop("data")
        origin = f"{data.origin} with {stated['enable-dp-attention'].origin}"
        stated["attention_data"] = Stated(data.text, origin)


FLAGS = EngineFlags(
    engine="sglang",
    table=TABLE,
    arguments=arguments,
    adapt=adapt,
    config=config_of(TABLE),
    defaults={
        "tensor": "1, SGLang's default",
        "pipeline": "1, SGLang's default",
        "data": "1, SGLang's default",
    },
    one_node="SGLang's default without --nnodes",
    fill=nothing_to_fill,
)
