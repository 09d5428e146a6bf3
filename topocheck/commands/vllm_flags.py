"""vLLM's command line, from vllm/engine/arg_utils.py and vllm/utils/argparse_utils.py up to 0.33.0."""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.commands.engine_flags import EngineFlags, Settings, config_of, nothing_to_fill
from topocheck.commands.flags import Table, join_address
from topocheck.commands.launch import Starter, Stated
from topocheck.commands.wrappers import tool

__all__ = ["FLAGS"]

SERVERS = frozenset({"vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"})

TABLE = Table(
    values={
        "tensor": "-tp --tensor-parallel-size",
        "pipeline": "-pp --pipeline-parallel-size",
        "data": "-dp --data-parallel-size",
        "context": "-pcp --prefill-context-parallel-size",
        "decode_context": "-dcp --decode-context-parallel-size",
        "nodes": "-n --nnodes",
        "node_rank": "-r --node-rank",
        "master": "--master-addr",
        "master-port": "--master-port",
        "dp-master": "-dpa --data-parallel-address",
        "dp-master-port": "-dpp --data-parallel-rpc-port",
        "data-parallel-size-local": "-dpl --data-parallel-size-local",
        "data-parallel-start-rank": "-dpr --data-parallel-start-rank",
        "data-parallel-rank": "-dpn --data-parallel-rank",
        "data-parallel-backend": "-dpb --data-parallel-backend",
        "distributed-executor-backend": "--distributed-executor-backend",
        "device-ids": "--device-ids",
        "all2all-backend": "--all2all-backend",
        "model": "--model",
        "config": "--config",
    },
    switches={
        "enable-expert-parallel": "-ep --enable-expert-parallel",
        "headless": "-hl --headless",
        "data-parallel-hybrid-lb": "-dph --data-parallel-hybrid-lb",
        "data-parallel-external-lb": "-dpe --data-parallel-external-lb",
        "disable-custom-all-reduce": "--disable-custom-all-reduce",
        "worker-use-ray": "--worker-use-ray",
    },
    variables={"layers": "VLLM_PP_LAYER_PARTITION"},
    dashes="either",
    abbreviated=True,
)


def arguments(words: Sequence[str], starters: Sequence[Starter]) -> Sequence[str] | None:
    """`vllm serve`, or the server as a module."""
    if words[0] in SERVERS:
        return words[1:]
    if tool(words[0]) == "vllm" or words[0] == "vllm.entrypoints.cli.main":
        return words[2:] if len(words) > 1 and words[1] == "serve" else None
    return None


def adapt(settings: Settings) -> None:
    """Expert parallelism has no size of its own: it is data x context x tensor."""
    stated = settings.stated
    join_address(stated, "master", "master-port")
    join_address(stated, "dp-master", "dp-master-port")
    if settings.rest and "model" not in stated:
        stated["model"] = Stated(settings.rest[0], "the first argument")
    if settings.is_on("worker-use-ray"):
        stated.setdefault("distributed-executor-backend", Stated("ray", "--worker-use-ray"))
    _nodes_of_replicas(stated)
    if settings.is_on("enable-expert-parallel"):
        product = 1
        for axis in ("data", "context", "tensor"):
            number = stated[axis].number if axis in stated else 1
            product *= number or 0
        if product > 1:
            stated["expert"] = Stated(f"{product}", stated["enable-expert-parallel"].origin)
            settings.notes.append(
                "expert parallelism is on: for a mixture of experts it holds all ranks of a stage, a dense "
                "model ignores it"
            )


def _nodes_of_replicas(stated: dict[str, Stated]) -> None:
    """Data replicas in all and on each node give the nodes, where --nnodes does not."""
    data, local = stated.get("data"), stated.get("data-parallel-size-local")
    if "nodes" in stated or data is None or local is None or not data.number or not local.number:
        return
    nodes, rest = divmod(data.number, local.number)
    if nodes and not rest:
        stated["nodes"] = Stated(f"{nodes}", f"{data.origin} {data.text} with {local.origin} {local.text}")


FLAGS = EngineFlags(
    engine="vllm",
    table=TABLE,
    arguments=arguments,
    adapt=adapt,
    config=config_of(TABLE, ("model_tag", "model")),
    defaults={"tensor": "1, vLLM's default", "pipeline": "1, vLLM's default", "data": "1, vLLM's default"},
    fill=nothing_to_fill,
)
