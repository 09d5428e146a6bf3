"""`accelerate launch` and its YAML, from accelerate/commands/launch.py and config_args.py of 1.15.0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from topocheck.commands.documents import read_document
from topocheck.commands.engine_flags import EngineFlags, Settings
from topocheck.commands.flags import Table, join_address, take
from topocheck.commands.launch import Launch, Starter, Stated
from topocheck.commands.megatron_flags import data_size
from topocheck.commands.wrappers import Peeled, tool
from topocheck.errors import UsageError

__all__ = ["FLAGS", "LAUNCHER", "peel_accelerate"]

SIZES = {
    "data_replicate": "--parallelism_config_dp_replicate_size",
    "data_shard": "--parallelism_config_dp_shard_size",
    "tensor": "--parallelism_config_tp_size",
    "context": "--parallelism_config_cp_size",
    "sequence": "--parallelism_config_sp_size",
}
MEGATRON = {
    "tensor": "--megatron_lm_tp_degree",
    "pipeline": "--megatron_lm_pp_degree",
    "context": "--megatron_lm_context_parallel_size",
    "expert": "--megatron_lm_expert_model_parallel_size",
    "expert_tensor": "--megatron_lm_expert_tensor_parallel_size",
}
LAUNCHER = Table(
    values={
        "processes": "--num-processes",
        "nodes": "--num-machines",
        "node_rank": "--machine-rank",
        "master": "--main-process-ip",
        "master-port": "--main-process-port",
        "gpu_ids": "--gpu-ids",
        "fsdp_sharding_strategy": "--fsdp-sharding-strategy",
        "config": "--config-file",
        "deepspeed_config_file": "--deepspeed-config-file",
        "rdzv-backend": "--rdzv-backend",
        **SIZES,
        **{f"megatron.{axis}": flag for axis, flag in MEGATRON.items()},
    },
    switches={
        "multi_gpu": "--multi-gpu",
        "use_deepspeed": "--use-deepspeed",
        "use_fsdp": "--use-fsdp",
        "use_megatron_lm": "--use-megatron-lm",
        "use_parallelism_config": "--use-parallelism-config",
        "": "-q --quiet --cpu --tpu --same-network -m --module --no-python --debug "
        "--enable-cpu-affinity --dynamo-use-fullgraph --dynamo-use-dynamic",
    },
    ignored="--mixed-precision --num-cpu-threads-per-process --dynamo-backend --dynamo-mode -t --tee "
    "--log-dir --role --rdzv-conf --max-restarts --monitor-interval --env "
    "--main-training-function --zero-stage --offload-optimizer-device --offload-param-device "
    "--offload-optimizer-nvme-path --offload-param-nvme-path --gradient-accumulation-steps "
    "--gradient-clipping --zero3-init-flag --zero3-save-16bit-model --deepspeed-hostfile "
    "--deepspeed-exclusion-filter --deepspeed-inclusion-filter --deepspeed-multinode-launcher "
    "--deepspeed-moe-layer-cls-names --fsdp-version --fsdp-offload-params --fsdp-min-num-params "
    "--fsdp-reshard-after-forward --fsdp-auto-wrap-policy --fsdp-transformer-layer-cls-to-wrap "
    "--fsdp-backward-prefetch --fsdp-state-dict-type --fsdp-forward-prefetch "
    "--fsdp-use-orig-params --fsdp-cpu-ram-efficient-loading --fsdp-sync-module-states "
    "--fsdp-activation-checkpointing --mpirun-hostfile",
    dashes="either",
)
CONFIG = {
    "num_processes": "processes",
    "num_machines": "nodes",
    "machine_rank": "node_rank",
    "main_process_ip": "master",
    "main_process_port": "master-port",
    "gpu_ids": "gpu_ids",
    "distributed_type": "distributed_type",
    "rdzv_backend": "rdzv-backend",
    "fsdp_config.fsdp_sharding_strategy": "fsdp_sharding_strategy",
    "deepspeed_config.deepspeed_config_file": "deepspeed_config_file",
    **{f"parallelism_config.{flag[2:]}": axis for axis, flag in SIZES.items()},
    **{f"megatron_lm_config.{flag[2:]}": f"megatron.{axis}" for axis, flag in MEGATRON.items()},
}
KINDS = {
    "FSDP": "use_fsdp",
    "DEEPSPEED": "use_deepspeed",
    "MEGATRON_LM": "use_megatron_lm",
    "MULTI_GPU": "multi_gpu",
}


def peel_accelerate(words: Sequence[str], folder: Path | None) -> Peeled | None:
    """The script that `accelerate launch` starts; None if the first word is something else."""
    if tool(words[0]) == "accelerate" and len(words) > 1 and words[1] == "launch":
        rest = words[2:]
    elif words[0] == "accelerate.commands.launch":
        rest = words[1:]
    else:
        return None
    taken = take(rest, LAUNCHER, program=True, of="accelerate")
    stated = dict(taken.stated)
    config = stated.pop("config", None)
    if config is not None and folder is not None and not config.unresolved:
        stated = {**_read(config.text, folder), **stated}
    elif config is not None:
        stated["unread"] = config
    kind = stated.pop("distributed_type", None)
    if kind is not None and not any(name in stated for name in KINDS.values()) and kind.text in KINDS:
        stated[KINDS[kind.text]] = Stated("true", kind.origin)
    join_address(stated, "master", "master-port")
    starter = Starter(
        name="accelerate",
        nodes=stated.pop("nodes", None)
        or (None if "unread" in stated else Stated("1", "accelerate's default", given=False)),
        processes=stated.pop("processes", None),
        node_rank=stated.pop("node_rank", None),
        rendezvous={"master": stated.pop("master")} if "master" in stated else {},
        options=stated,
        unknown=tuple(taken.unknown),
    )
    return Peeled(taken.rest, starter=starter)


def _read(path: str, folder: Path) -> dict[str, Stated]:
    """What accelerate's YAML states."""
    return {
        CONFIG[name]: Stated(value.text or "", f"{path}:{value.line}")
        for name, value in read_document(path, folder).leaves()
        if name in CONFIG and value.text
    }


def arguments(words: Sequence[str], starters: Sequence[Starter]) -> Sequence[str] | None:
    """What `accelerate launch` starts."""
    return words[1:] if starters and starters[-1].name == "accelerate" else None


def adapt(settings: Settings) -> None:
    """Sizes are the launcher's flags."""
    launcher = settings.starters[-1].options
    settings.stated |= {axis: launcher[axis] for axis in SIZES if axis in launcher}


def fill(launch: Launch, sizes: dict[str, int], said: list[str]) -> None:
    """Without sizes of its own, accelerate has one data axis: sharded under FSDP, else replicated."""
    options = launch.starters[-1].options
    if "data_replicate" in sizes or "data_shard" in sizes:
        return
    strategy = options.get("fsdp_sharding_strategy")
    if strategy is not None and "HYBRID" in strategy.text.upper():
        raise UsageError(
            "HYBRID_SHARD shards inside a node and replicates over nodes, in groups whose size the command "
            "does not give: write a plan file with data_replicate and data_shard"
        )
    axis = "data_shard" if "use_fsdp" in options else "data_replicate"
    sizes[axis] = data_size(launch, sizes, ("context", "sequence", "tensor"), "accelerate")
    kind = "sharded under FSDP" if axis == "data_shard" else "replicated without FSDP"
    said.append(f"{axis} {sizes[axis]}: {launch.processes} processes, {kind}")


FLAGS = EngineFlags(
    engine="accelerate",
    table=Table(values={}),
    arguments=arguments,
    ranks_from_launcher=True,
    adapt=adapt,
    defaults={"tensor": "1, accelerate's default"},
    fill=fill,
)
