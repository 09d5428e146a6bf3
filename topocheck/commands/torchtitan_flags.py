"""torchtitan's command line: settings of its job configuration, written `--section.name value`."""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.commands.engine_flags import EngineFlags, Settings
from topocheck.commands.flags import Table
from topocheck.commands.launch import Launch, Starter, Stated
from topocheck.commands.megatron_flags import data_size
from topocheck.commands.wrappers import tool

__all__ = ["FLAGS"]

TABLE = Table(
    values={
        "tensor": "--parallelism.tensor-parallel-degree --training.tensor-parallel-degree",
        "pipeline": "--parallelism.pipeline-parallel-degree --experimental.pipeline-parallel-degree",
        "data_replicate": "--parallelism.data-parallel-replicate-degree "
        "--training.data-parallel-replicate-degree",
        "data_shard": "--parallelism.data-parallel-shard-degree --training.data-parallel-shard-degree",
        "context": "--parallelism.context-parallel-degree --experimental.context-parallel-degree",
        "expert": "--parallelism.expert-parallel-degree",
        "schedule": "--parallelism.pipeline-parallel-schedule --experimental.pipeline-parallel-schedule",
        "first-stage-less-layers": "--parallelism.pipeline-parallel-first-stage-less-layers",
        "last-stage-less-layers": "--parallelism.pipeline-parallel-last-stage-less-layers",
        "layers-per-stage": "--parallelism.pipeline-parallel-layers-per-stage",
        "config": "--job.config-file --config --module",
    },
    variables={"config": "CONFIG_FILE"},
    dashes="either",
)


SPLITTING = {
    "first-stage-less-layers": "first_stage_less_layers",
    "last-stage-less-layers": "last_stage_less_layers",
    "layers-per-stage": "layers_per_stage",
    "virtual-stages": "virtual_stages",
    "style": "style",
}
LOOPED = {"interleaved1f1b", "interleavedzerobubble", "loopedbfs"}
FOLDED = {"zbvzerobubble", "dualpipev"}
"""Schedules of several stages a rank (torch.distributed.pipelining.schedules), names in small letters."""


def arguments(words: Sequence[str], starters: Sequence[Starter]) -> Sequence[str] | None:
    """`torchtitan.train`, its run_train.sh, or a script with torchtitan's sections."""
    own = tool(words[0]) == "run_train.sh" or words[0].startswith("torchtitan.")
    marked = any(word.startswith(("--parallelism.", "--job.config")) for word in words[1:])
    return words[1:] if own or "torchtitan/train.py" in words[0] or marked else None


def adapt(settings: Settings) -> None:
    """A shard size of -1 takes what the processes leave; it is not stated then. A schedule has its stages."""
    shard = settings.stated.get("data_shard")
    if shard is not None and shard.text == "-1":
        del settings.stated["data_shard"]
    schedule = settings.stated.get("schedule")
    name = schedule.text.lower() if schedule is not None else ""
    if schedule is not None and name in LOOPED | FOLDED:
        if "layers-per-stage" not in settings.stated:
            settings.stated["virtual-stages"] = Stated("2", f"{schedule.origin} {schedule.text}")
        if name in FOLDED:
            settings.stated["style"] = Stated("v", f"{schedule.origin} {schedule.text}")


def fill(launch: Launch, sizes: dict[str, int], said: list[str]) -> None:
    """The shard size is what the processes leave, unless the command sets it."""
    if "data_shard" in sizes:
        return
    sizes["data_shard"] = data_size(
        launch, sizes, ("pipeline", "data_replicate", "context", "tensor"), "torchtitan"
    )
    said.append(f"data_shard {sizes['data_shard']}: it follows from {launch.processes} processes")


FLAGS = EngineFlags(
    engine="torchtitan",
    table=TABLE,
    arguments=arguments,
    splitting=SPLITTING,
    ranks_from_launcher=True,
    adapt=adapt,
    reads_config=False,
    defaults={"tensor": "1, torchtitan's default", "pipeline": "1, torchtitan's default"},
    fill=fill,
)
