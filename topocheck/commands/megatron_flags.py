"""Megatron-LM's command line, from megatron/training/arguments.py of core 0.20.0."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from topocheck.commands.engine_flags import EngineFlags, Settings
from topocheck.commands.flags import Table
from topocheck.commands.launch import Launch, Starter, Stated
from topocheck.errors import UsageError

__all__ = ["FLAGS", "data_size"]

MARKS = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--use-mcore-models")
"""Flags that only Megatron-LM and what is built on it have."""
PP_BEFORE_DP = "tp-cp-ep-pp-dp"

TABLE = Table(
    values={
        "tensor": "--tensor-model-parallel-size",
        "pipeline": "--pipeline-model-parallel-size",
        "context": "--context-parallel-size",
        "expert": "--expert-model-parallel-size",
        "expert_tensor": "--expert-tensor-parallel-size",
        "layers": "--pipeline-model-parallel-layout",
        "virtual-stages": "--num-virtual-stages-per-pipeline-rank",
        "layers-per-virtual-stage": "--num-layers-per-virtual-pipeline-stage",
        "first-stage-layers": "--decoder-first-pipeline-num-layers",
        "last-stage-layers": "--decoder-last-pipeline-num-layers",
        "mtp-layers": "--mtp-num-layers",
        "model.layers": "--num-layers",
        "model.hidden": "--hidden-size",
        "model.heads": "--num-attention-heads",
        "model.kv_heads": "--num-query-groups",
        "model.experts": "--num-experts",
        "config": "--yaml-cfg",
    },
    switches={
        "use-tp-pp-dp-mapping": "--use-tp-pp-dp-mapping",
        "account-for-embedding": "--account-for-embedding-in-pipeline-split",
        "account-for-loss": "--account-for-loss-in-pipeline-split",
        "untied": "--untie-embeddings-and-output-weights",
    },
    abbreviated=True,
)

SPLITTING = {
    "first-stage-layers": "first_stage",
    "last-stage-layers": "last_stage",
    "account-for-embedding": "account_for_embedding",
    "account-for-loss": "account_for_loss",
    "virtual-stages": "virtual_stages",
    "layers-per-virtual-stage": "layers_per_virtual_stage",
    "mtp-layers": "mtp_layers",
}


def arguments(words: Sequence[str], starters: Sequence[Starter]) -> Sequence[str] | None:
    """Any script with Megatron's own flags, or one that accelerate runs on Megatron."""
    flags = {word.partition("=")[0] for word in words[1:]}
    through_accelerate = bool(starters) and "use_megatron_lm" in starters[-1].options
    return words[1:] if flags.intersection(MARKS) or through_accelerate else None


def adapt(settings: Settings) -> None:
    """--use-tp-pp-dp-mapping is an order (megatron/training/initialize.py); accelerate has its own flags."""
    launcher = settings.starters[-1].options if settings.starters else {}
    for name, value in launcher.items():
        if name.startswith("megatron."):
            settings.stated.setdefault(name.removeprefix("megatron."), value)
    if settings.is_on("use-tp-pp-dp-mapping"):
        settings.stated["order"] = Stated(PP_BEFORE_DP, settings.stated["use-tp-pp-dp-mapping"].origin)


def data_size(launch: Launch, sizes: dict[str, int], axes: Sequence[str], title: str) -> int:
    """Processes divided by the other axes. Raises UsageError if that is no whole number, or not known."""
    world, rest = launch.processes, prod(sizes.get(axis, 1) for axis in axes)
    if world is None:
        raise UsageError(
            f"the command does not say how many processes run, from which {title} takes its data parallel "
            "size: put torchrun, srun or mpirun with its numbers in front, or write a plan file"
        )
    if world % rest:
        named = " x ".join(f"{axis} {sizes.get(axis, 1)}" for axis in axes)
        raise UsageError(f"{world} processes are not divisible by {named} = {rest}: {title} refuses to start")
    return world // rest


def fill(launch: Launch, sizes: dict[str, int], said: list[str]) -> None:
    """The data parallel size is what the processes leave."""
    sizes["data"] = data_size(launch, sizes, ("tensor", "pipeline", "context"), "Megatron")
    said.append(f"data {sizes['data']}: it follows from {launch.processes} processes")


FLAGS = EngineFlags(
    engine="megatron",
    table=TABLE,
    arguments=arguments,
    splitting=SPLITTING,
    ranks_from_launcher=True,
    adapt=adapt,
    reads_config=False,
    defaults={"tensor": "1, Megatron's default", "pipeline": "1, Megatron's default"},
    fill=fill,
)
