"""The deepspeed launcher and DeepSpeed's JSON, from deepspeed/launcher/runner.py of 0.19.8."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from topocheck.commands.documents import read_file
from topocheck.commands.engine_flags import EngineFlags, nothing_to_adapt
from topocheck.commands.flags import Table, join_address, take
from topocheck.commands.launch import Launch, Starter, Stated
from topocheck.commands.megatron_flags import data_size
from topocheck.commands.wrappers import Peeled, tool
from topocheck.launchers.hostfile import HostSlots, parse_deepspeed

__all__ = ["FLAGS", "LAUNCHER", "parse_include", "peel_deepspeed"]

LAUNCHER = Table(
    values={
        "hostfile": "-H --hostfile",
        "include": "-i --include",
        "exclude": "-e --exclude",
        "nodes": "--num_nodes",
        "processes_per_node": "--num_gpus --num_accelerators",
        "master": "--master_addr",
        "master-port": "--master_port",
        "node_rank": "--node_rank",
    },
    switches={
        "no_ssh": "--no_ssh",
        "": "--module --no_python --no_local_rank --no_ssh_check --force_multi --save_pid "
        "--bind_cores_to_rank -q --quiet",
    },
    ignored="--launcher --launcher_args --enable_each_rank_log --autotuning --bind_core_list --ssh_port "
    "--venv_script --log_level",
    abbreviated=True,
)
SCRIPT = Table(values={"config": "--deepspeed_config --deepspeed", "local_rank": "--local_rank"})
CONFIG = {
    "tensor_parallel.autotp_size": "tensor",
    "autotp_size": "tensor",
    "tensor_parallel.tp_size": "tensor",
    "zero_optimization.stage": "zero-stage",
}


def peel_deepspeed(words: Sequence[str], folder: Path | None) -> Peeled | None:
    """The script that `deepspeed` starts; None if the first word is something else."""
    if tool(words[0]) != "deepspeed" and words[0] != "deepspeed.launcher.runner":
        return None
    taken = take(words[1:], LAUNCHER, program=True, of="deepspeed")
    stated = dict(taken.stated)
    join_address(stated, "master", "master-port")
    file, include = stated.pop("hostfile", None), stated.pop("include", None)
    hosts: tuple[HostSlots, ...] = ()
    if file is not None and folder is not None and not file.unresolved:
        hosts = tuple(parse_deepspeed(read_file(file.text, folder), file.text))
    selected: dict[str, str] = {}
    if include is not None and not include.unresolved:
        selected = parse_include(include.text)
        hosts = _included(hosts, selected)
    given = stated.pop("nodes", None)
    starter = Starter(
        name="deepspeed",
        nodes=given or _nodes(hosts, file),
        processes=_processes(hosts, selected)
        if given is None and "processes_per_node" not in stated
        else None,
        processes_per_node=stated.pop("processes_per_node", None),
        node_rank=stated.pop("node_rank", None),
        rendezvous={"master": stated.pop("master")} if "master" in stated else {},
        hosts=hosts,
        selected={host: indexes for host, indexes in selected.items() if indexes},
        options={name: value for name, value in stated.items() if name in {"exclude", "no_ssh"}},
        unknown=tuple(taken.unknown),
    )
    return Peeled(taken.rest, starter=starter)


def parse_include(text: str) -> dict[str, str]:
    """Indexes by host of `worker-0@worker-1:0,2`; empty for a host that has all its slots."""
    parts = (part.partition(":") for part in text.split("@") if part)
    return {host: indexes for host, _, indexes in parts}


def _included(listed: tuple[HostSlots, ...], chosen: dict[str, str]) -> tuple[HostSlots, ...]:
    """The chosen hosts, in the order of the file if there is one."""
    known = tuple(host for host in listed if host.host in chosen)
    names = {host.host for host in known}
    return known + tuple(HostSlots(host) for host in chosen if host not in names)


def _nodes(hosts: tuple[HostSlots, ...], file: Stated | None) -> Stated | None:
    """All hosts; without a hostfile the launcher stays on this machine unless /job/hostfile is there."""
    if hosts:
        return Stated(f"{len(hosts)}", "the hosts of the launcher", given=False)
    return None if file is not None else Stated("1", "deepspeed's default without a hostfile", given=False)


def _processes(hosts: tuple[HostSlots, ...], selected: dict[str, str]) -> Stated | None:
    """One process a selected index or slot."""
    chosen = [selected.get(host.host, "") for host in hosts]
    counts = [
        len(indexes.split(",")) if indexes else host.slots
        for indexes, host in zip(chosen, hosts, strict=True)
    ]
    known = [count for count in counts if count is not None]
    if not known or len(known) < len(counts):
        return None
    return Stated(f"{sum(known)}", "the slots of the launcher's hosts", given=False)


def arguments(words: Sequence[str], starters: Sequence[Starter]) -> Sequence[str] | None:
    """What the deepspeed launcher starts, or a script that is given DeepSpeed's configuration."""
    launcher = starters[-1].options if starters else {}
    if "use_deepspeed" in launcher:
        file = launcher.get("deepspeed_config_file")
        return [*words[1:], "--deepspeed_config", file.text] if file is not None else words[1:]
    launched = bool(starters) and starters[-1].name == "deepspeed"
    flags = {word.partition("=")[0] for word in words[1:]}
    return words[1:] if launched or flags & {"--deepspeed", "--deepspeed_config"} else None


def fill(launch: Launch, sizes: dict[str, int], said: list[str]) -> None:
    """Data parallelism over what is left; stages are made in the script, which nobody reads here."""
    sizes["data"] = data_size(launch, sizes, ("tensor",), "DeepSpeed")
    said.append(f"data {sizes['data']}: it follows from {launch.processes} processes")


FLAGS = EngineFlags(
    engine="deepspeed",
    table=SCRIPT,
    arguments=arguments,
    ranks_from_launcher=True,
    adapt=nothing_to_adapt,
    config=CONFIG,
    defaults={
        "tensor": "1, unless DeepSpeed's JSON sets autotp_size",
        "pipeline": "1, unless the script itself makes a PipelineModule",
    },
    fill=fill,
)
