"""Slurm: srun's variables, its encodings, its distributions, and the way back.

Facts from the man pages and the source of Slurm 26.11, and from steps run on Slurm 22.05.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from topocheck.errors import LayoutError
from topocheck.hostlist import MAX_NODES
from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.order import deal
from topocheck.launchers.variables import Variables, number_of

__all__ = ["LAUNCHER", "arbitrary", "distribution", "parse_tasks_per_node", "rank_nodes", "srun_arbitrary"]

FIRST_SPECIAL_STEP = 0xFFFFFFF0
"""Step ids from here on are no srun steps: batch script, extern, interactive, pending."""

TASKS = re.compile(r"([0-9]{1,7})(?:\(x([0-9]{1,7})\))?")
"""`8` or `8(x2)`."""


def claim(env: Environment) -> Claim | None:
    """A task of a step; outside a step, only that the process is inside a job.

    The batch script is given SLURM_PROCID=0 and SLURM_LOCALID=0, and hands them on to all that it starts
    without srun.
    """
    if "SLURM_PROCID" not in env and "SLURM_NODEID" not in env:
        return None
    read = Variables(env)
    if not _in_step(read):
        read.note(
            "leaked",
            "SLURM_PROCID, SLURM_LOCALID and SLURM_NODEID are the batch script's: srun did not start this",
            "SLURM_PROCID",
        )
        return read.claim("slurm", "node", node_name=read.text("SLURMD_NODENAME"))
    node_rank = read.number("SLURM_NODEID")
    return read.claim(
        "slurm",
        rank=read.needed("SLURM_PROCID"),
        local_rank=read.needed("SLURM_LOCALID"),
        node_rank=node_rank,
        size=read.number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
        local_size=_tasks_here(read, node_rank),
        nodes=read.number("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
        node_name=read.text("SLURMD_NODENAME"),
    )


def _in_step(read: Variables) -> bool:
    """Steps of srun count from 0; other ids, and no id at all, are not srun's."""
    name = "SLURM_STEP_ID" if "SLURM_STEP_ID" in read.env else "SLURM_STEPID"
    if read.env.get(name) in (None, "batch", "extern", "interactive"):
        return False
    step = read.number(name)
    return step is not None and step < FIRST_SPECIAL_STEP


def _tasks_here(read: Variables, node_rank: int | None) -> int | None:
    """Tasks of the step on this node: the encoded counts at the node's place, else the listed task ids."""
    encoded, listed = read.text("SLURM_STEP_TASKS_PER_NODE"), read.text("SLURM_GTIDS")
    try:
        tasks = parse_tasks_per_node(encoded) if encoded else []
    except ValueError as error:
        read.note("malformed", f"SLURM_STEP_TASKS_PER_NODE: {error}", "SLURM_STEP_TASKS_PER_NODE")
        tasks = []
    here = tasks[node_rank] if node_rank is not None and node_rank < len(tasks) else None
    count = len(listed.split(",")) if listed else None
    if None not in (here, count) and here != count:
        read.note("contradictory", f"SLURM_GTIDS lists {count} tasks of this node, the step has {here} here")
    return count if here is None else here


def parse_tasks_per_node(text: str) -> list[int]:
    """`8(x2),4` -> [8, 8, 4], in the order of the node list.

    Raises ValueError with a sentence about what is wrong.
    """
    tasks: list[int] = []
    for part in text.split(","):
        match = TASKS.fullmatch(part.strip())
        if not match:
            raise ValueError(f"{part[:40]!r} is not a number of tasks such as 8 or 8(x2)")
        times = int(match[2] or 1)
        if len(tasks) + times > MAX_NODES:
            raise ValueError(f"more than {MAX_NODES:,} nodes")
        tasks += [int(match[1])] * times
    return tasks


def distribution(env: Environment) -> str | None:
    """The distribution over nodes that the environment shows, `plane=N` with its size; None if unset."""
    first = _first(env.get("SLURM_DISTRIBUTION", ""))
    size = env.get("SLURM_DIST_PLANESIZE")
    return f"plane={size}" if first == "plane" and size else first or None


def _first(text: str) -> str:
    """Distributions over sockets and cores follow after colons, Pack and NoPack after a comma."""
    return re.split(r"[:,]", text.strip().lower(), maxsplit=1)[0]


def rank_nodes(tasks: Sequence[int], processes: int | None = None, policy: str | None = None) -> list[int]:
    """Node by rank for the tasks of each node, as SLURM_STEP_TASKS_PER_NODE counts them.

    Without a policy Slurm takes block for more tasks than nodes, else cyclic. Raises LayoutError for an
    unknown one, and for `arbitrary`, whose order is the host file's (see `arbitrary`).
    """
    first = _first(policy or "*")
    if first == "*":
        wanted = sum(tasks) if processes is None else processes
        first = "block" if wanted > len(tasks) else "cyclic"
    name, _, size = first.partition("=")
    if name == "plane":
        run = number_of(size)
        if not run:
            raise LayoutError("--distribution=plane needs its size: plane=4")
        return deal(tasks, processes, run=run)
    if first == "arbitrary":
        raise LayoutError("--distribution=arbitrary follows SLURM_HOSTFILE: its lines are needed")
    if first not in ("block", "cyclic"):
        raise LayoutError(f"Slurm has no distribution {first[:40]!r}: block, cyclic, plane=N, arbitrary")
    return deal(tasks, processes, run=1 if first == "cyclic" else None)


def arbitrary(lines: Sequence[str], nodes: Sequence[str]) -> list[int]:
    """Node by rank under --distribution=arbitrary: rank r runs on the host of line r of SLURM_HOSTFILE.

    Nodes keep the order of the step's node list. Raises LayoutError for a host that is not among them.
    """
    places = {name: index for index, name in enumerate(nodes)}
    strangers = [line for line in lines if line not in places]
    if strangers:
        raise LayoutError(f"SLURM_HOSTFILE names {strangers[0][:80]!r}, which is not in the node list")
    return [places[line] for line in lines]


def srun_arbitrary(hosts: Sequence[str]) -> tuple[str, str]:
    """(options of srun, text of the file that SLURM_HOSTFILE must name) that put rank r on hosts[r].

    No other option can: --nodelist chooses nodes, and Slurm orders them as its own configuration does.
    """
    options = f"--nodes={len(set(hosts))} --ntasks={len(hosts)} --distribution=arbitrary"
    return options, "".join(f"{host}\n" for host in hosts)


LAUNCHER = Launcher(
    name="slurm",
    title="Slurm srun",
    variables=(
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_NNODES",
        "SLURM_GTIDS",
        "SLURMD_NODENAME",
        "SLURM_JOB_ID",
        "SLURM_JOBID",
        "SLURM_JOB_NUM_NODES",
        "SLURM_JOB_NODELIST",
        "SLURM_NODELIST",
        "SLURM_STEP_ID",
        "SLURM_STEPID",
        "SLURM_STEP_NODELIST",
        "SLURM_STEP_NUM_NODES",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_TASKS_PER_NODE",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_DISTRIBUTION",
        "SLURM_DIST_PLANESIZE",
        "SLURM_HOSTFILE",
        "SLURM_HET_SIZE",
        "SLURM_JOB_GPUS",
        "SLURM_STEP_GPUS",
        "SLURM_GPUS",
        "SLURM_GPUS_ON_NODE",
        "SLURM_GPUS_PER_NODE",
        "SLURM_GPUS_PER_TASK",
        "SLURM_GPU_BIND",
        "SLURM_CPU_BIND",
        "SLURM_RESTART_COUNT",
        "SLURM_LAUNCH_NODE_IPADDR",
        "SLURM_TOPOLOGY_ADDR",
        "SLURM_TOPOLOGY_ADDR_PATTERN",
    ),
    claim=claim,
    rank_nodes=rank_nodes,
)
