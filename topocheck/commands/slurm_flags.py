"""Flags of srun, sbatch and salloc, from the man pages of Slurm 26.11."""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.commands.flags import Table, Taken, take
from topocheck.commands.launch import Starter, Stated
from topocheck.commands.wrappers import Peeled, tool
from topocheck.hostlist import expand
from topocheck.launchers.hostfile import HostSlots

__all__ = ["TABLE", "peel_slurm", "starter_of"]

TABLE = Table(
    values={
        "nodes": "-N --nodes",
        "processes": "-n --ntasks",
        "processes_per_node": "--ntasks-per-node --tasks-per-node",
        "gpus_per_node": "--gpus-per-node",
        "gpus_per_task": "--gpus-per-task",
        "gpus": "-G --gpus",
        "gres": "--gres",
        "ntasks-per-gpu": "--ntasks-per-gpu",
        "nodelist": "-w --nodelist",
        "distribution": "-m --distribution",
        "gpu-bind": "--gpu-bind",
        "tres-bind": "--tres-bind",
        "mpi": "--mpi",
        "export": "--export",
        "wrap": "--wrap",
        "array": "-a --array",
        "switches": "--switches",
    },
    switches={
        "exclusive": "--exclusive",
        "overlap": "--overlap",
        "": "-l --label -u --unbuffered -v --verbose -Q --quiet -K -O --overcommit -s "
        "--oversubscribe -X -Z --contiguous --requeue --no-requeue --hold -H --parsable -W "
        "--wait-all-nodes --no-kill -k --pty",
    },
    ignored="-A --account -p --partition -t --time -J --job-name -o --output -e --error -i --input -c "
    "--cpus-per-task --cpus-per-gpu --mem --mem-per-cpu --mem-per-gpu --mem-bind --cpu-bind -D "
    "--chdir -q --qos -C --constraint -x --exclude -d --dependency --reservation --comment "
    "--container-image --container-mounts --container-workdir --container-name --container-env "
    "--jobid --signal --mail-type --mail-user --license -L --kill-on-bad-exit --open-mode "
    "--threads-per-core --cores-per-socket --sockets-per-node --ntasks-per-socket --hint "
    "--network --wckey --time-min --begin --relative -r --multi-prog --propagate --het-group "
    "--core-spec -S --gpu-freq --tres-per-task --tres-per-node --gpus-per-socket --nice "
    "--priority --tmp --prefer -M --clusters",
    glued=True,
)


def starter_of(name: str, taken: Taken) -> Starter:
    """What the flags of one Slurm command say."""
    stated = dict(taken.stated)
    nodes = stated.pop("nodes", None)
    if nodes is not None and "-" in nodes.text and not nodes.unresolved:
        nodes = _range(nodes)
    per_node = stated.pop("gpus_per_node", None) or _gres(stated.get("gres"))
    return Starter(
        name=name,
        nodes=nodes,
        processes=stated.pop("processes", None),
        processes_per_node=stated.pop("processes_per_node", None),
        gpus_per_node=_count(per_node),
        gpus_per_task=_count(stated.pop("gpus_per_task", None)),
        hosts=_hosts(stated.get("nodelist")),
        options={name: value for name, value in stated.items() if name not in {"export", "wrap", "gres"}},
        unknown=tuple(taken.unknown),
    )


def peel_slurm(words: Sequence[str]) -> Peeled | None:
    """The command that srun, salloc or `sbatch --wrap` starts; None if the first word is none of them."""
    name = tool(words[0])
    if name not in {"srun", "salloc", "sbatch"}:
        return None
    taken = take(words[1:], TABLE, program=True, of=name)
    wrapped = taken.stated.get("wrap")
    return Peeled(
        taken.rest,
        wrapped.text if wrapped is not None else None,
        _exported(taken.stated.get("export")),
        starter_of(name, taken),
    )


def _range(nodes: Stated) -> Stated:
    """`2-4` as `2:4`, `2-2` as `2`."""
    least, _, most = nodes.text.partition("-")
    return Stated(least if least == most else f"{least}:{most}", nodes.origin)


def _count(value: Stated | None) -> Stated | None:
    """`8` of `h100:8`."""
    return None if value is None else Stated(value.text.rpartition(":")[2], value.origin)


def _gres(value: Stated | None) -> Stated | None:
    """GPUs a node out of `gpu:8` or `gpu:h100:8`."""
    if value is None:
        return None
    parts = [part for part in value.text.split(",") if part == "gpu" or part.startswith("gpu:")]
    return Stated("1" if parts[0] == "gpu" else parts[0], value.origin) if len(parts) == 1 else None


def _hosts(value: Stated | None) -> tuple[HostSlots, ...]:
    if value is None or value.unresolved or "/" in value.text:
        return ()
    try:
        return tuple(HostSlots(host) for host in expand(value.text))
    except ValueError:
        return ()


def _exported(value: Stated | None) -> dict[str, str]:
    """Variables of `--export=ALL,NAME=VALUE`."""
    pairs = (part.partition("=") for part in value.text.split(",")) if value is not None else ()
    return {name: text for name, sign, text in pairs if sign}
