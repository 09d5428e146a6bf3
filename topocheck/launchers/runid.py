"""Which launch a process belongs to: an id that no other launch has, and how many nodes it has.

A restart is another launch: evidence of before it says nothing about after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from topocheck.errors import UsageError
from topocheck.launchers.launcher import Environment

__all__ = ["CONSTANTS", "Run", "checked_id", "run_of"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,199}")
"""Ids that are names of files too: no separator, no leading dot."""
CONSTANTS = frozenset({"none", "null", "default", "test", "0", "1"})
"""What people and launchers give to every run: torchrun's own default is `none`."""
NUMBER = re.compile(r"[0-9]{1,7}")
UIDS = (
    ("gang of pods", "TOPOCHECK_GANG", ()),
    ("JobSet and its restarts", "JOBSET_UID", ("JOBSET_RESTART_ATTEMPT",)),
    ("Job", "JOB_UID", ()),
    ("leader of a group of pods", "TOPOCHECK_LEADER_UID", ()),
    ("Pod", "TOPOCHECK_POD_UID", ()),
)
"""(whose uid, its variable, variables of what changes with a restart), as the manifests hand them on.

A gang is known by its pods (`launchers.gang`). Of a group that LeaderWorkerSet made again the labels are the
same: only its leader has another uid. In such a group, and in a job of several pods, a pod's own uid is no id
of the run.
"""
LONE_RESTART = (
    "a job of this JobSet was restarted without the others, and no id tells which pods are one launch"
)
IN_A_GROUP = (
    "LWS_WORKER_INDEX",
    "TOPOCHECK_GROUP_KEY",
    "JOB_COMPLETION_INDEX",
    "PET_NODE_RANK",
    "PET_NNODES",
    "GANG_ID",
)


class Run(msgspec.Struct, frozen=True, gc=False):
    """One launch, as its launcher shows it."""

    id: str | None
    """Id of the launch; None where the launcher shows none that is its own."""
    nodes: int | None
    """Nodes that take part."""
    source: str
    """Where the id comes from, in words."""


def run_of(env: Environment) -> Run:
    """The launch that this process belongs to."""
    if lone_restart(env):
        return Run(None, None, LONE_RESTART)
    for found in (*slurm(env), *pods(env)):
        return msgspec.structs.replace(found, id=f"{found.id}{again(env)}")
    for found in torchrun(env):
        return found
    return Run(None, None, "no launcher shows a run id")


def lone_restart(env: Environment) -> bool:
    """The child job of this pod was restarted more often than its JobSet, whose restarts it counts too.

    It stays ahead of the others when all are restarted later (JobSet's KEP on failure policies), so that no
    id tells one launch of all from a restart of one among old pods.
    """
    own, whole = (env.get(name, "") for name in ("JOB_RESTART_ATTEMPT", "JOBSET_RESTART_ATTEMPT"))
    return bool(NUMBER.fullmatch(own) and NUMBER.fullmatch(whole)) and int(own) > int(whole)


def again(env: Environment) -> str:
    """What tells workers that torchrun started again from those before: all else of them is alike."""
    count = env.get("TORCHELASTIC_RESTART_COUNT", "0")
    return "" if count == "0" or not NUMBER.fullmatch(count) else f"-e{count}"


def slurm(env: Environment) -> Iterator[Run]:
    """Cluster, job, step and how often the job was requeued."""
    job, step = env.get("SLURM_JOB_ID"), env.get("SLURM_STEP_ID", env.get("SLURM_STEPID"))
    if not job or not NUMBER.fullmatch(job):
        return
    cluster = env.get("SLURM_CLUSTER_NAME") or "slurm"
    restart = env.get("SLURM_RESTART_COUNT") or "0"
    name = f"{cluster}-{job}.{step or 'batch'}-r{restart}"
    nodes = number(env, "SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
    if NAME.fullmatch(name):
        yield Run(name, nodes, "Slurm's job, step and restart count")


def pods(env: Environment) -> Iterator[Run]:
    """Uid of a JobSet, a Job, a group's leader or a Pod, which manifests hand on through the downward API."""
    nodes = number(env, "TOPOCHECK_GANG_SIZE", "LWS_GROUP_SIZE")
    grouped = any(env.get(name) for name in IN_A_GROUP)
    for whose, variable, restarts in UIDS:
        uid = env.get(variable)
        name = "-".join((uid or "", *(f"r{env[again]}" for again in restarts if env.get(again))))
        if uid and NAME.fullmatch(name) and not (whose == "Pod" and grouped):
            yield Run(name, nodes, f"uid of the {whose}")


def torchrun(env: Environment) -> Iterator[Run]:
    """Id and restart count of an agent, unless the id is the one that everybody gets."""
    name = env.get("TORCHELASTIC_RUN_ID", "")
    restart = env.get("TORCHELASTIC_RESTART_COUNT", "0")
    if name and name.lower() not in CONSTANTS and NAME.fullmatch(f"{name}-{restart}"):
        yield Run(f"{name}-{restart}", None, "torchrun's --rdzv-id and restart count")


def number(env: Environment, *names: str) -> int | None:
    """The first of these variables that is a number above zero."""
    found = (int(env[name]) for name in names if NUMBER.fullmatch(env.get(name, "")))
    return next((value for value in found if value), None)


def checked_id(given: str | None, env: Environment) -> tuple[str, str]:
    """Run id in force and where it comes from. Raises UsageError for none, a constant, and a path."""
    found = run_of(env)
    run, source = (found.id, found.source) if given is None else (given, "--run-id")
    run = run if given is None or given.lower() in CONSTANTS else f"{given}{again(env)}"
    if run is None:
        raise UsageError(
            f"{found.source}: give --run-id with a word that no other launch has (a job id and its restart "
            "count, a uid); it keeps evidence of other launches out"
        )
    if run.lower() in CONSTANTS:
        raise UsageError(f"--run-id {run}: is the same in every launch: give one that no other launch has")
    if not NAME.fullmatch(run):
        raise UsageError(
            f"--run-id {run[:80]!r}: expected up to 200 letters, digits and . _ + = - only: it names a file"
        )
    return run, source
