"""Indexed Jobs of Kubernetes, alone and as the child jobs of a JobSet.

Facts from the Kubernetes Job controller and jobset (pkg/controllers/jobset_controller.go).
"""

from __future__ import annotations

from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.order import block
from topocheck.launchers.variables import Variables

__all__ = ["INDEXED_JOB", "JOBSET", "pod_index"]

INDEX = "JOB_COMPLETION_INDEX"
SET_NAMES = ("JOBSET_NAME", "REPLICATED_JOB_NAME", "JOB_INDEX", "JOB_GLOBAL_INDEX")
"""JobSet sets labels, no variables; these are what manifests usually name the variables that they make of
the labels, and what `topocheck.launchers.pod` makes of them."""


def _in_set(env: Environment) -> bool:
    return any(env.get(name) for name in SET_NAMES)  # a label that is absent gives an empty variable


def claim(env: Environment) -> Claim | None:
    """A pod of an Indexed Job: its completion index."""
    if not env.get(INDEX) or _in_set(env):
        return None
    read = Variables(env)
    return read.claim("indexed_job", "pod", node_rank=read.number(INDEX))


def jobset_claim(env: Environment) -> Claim | None:
    """A pod of a JobSet. The completion index counts within one child job, which is the claim's world.

    A child job is called `<jobset>-<replicated job>-<job index>`.
    """
    if not env.get(INDEX) or not _in_set(env):
        return None
    read = Variables(env)
    parts = [read.text("JOBSET_NAME"), read.text("REPLICATED_JOB_NAME"), read.text("JOB_INDEX")]
    if read.needed("JOB_INDEX", "JOB_GLOBAL_INDEX") is None:
        parts[2] = None
    elif parts[2] is None:
        parts = [parts[0], read.text("JOB_GLOBAL_INDEX")]
    world = "-".join(part for part in parts if part)
    return read.claim("jobset", "pod", node_rank=read.number(INDEX), world=world)


def pod_index(job: int, index: int, pods_a_job: int) -> int:
    """Index of a pod over all child jobs: jobs in the order of their job index, pods by completion index.

    Use jobset.sigs.k8s.io/job-global-index as `job` where several replicated jobs make one world and each
    of their jobs has as many pods.
    """
    return job * pods_a_job + index


INDEXED_JOB = Launcher(
    name="indexed_job",
    title="Kubernetes Indexed Job",
    level="pod",
    variables=(INDEX,),
    claim=claim,
    rank_nodes=block,
)
JOBSET = Launcher(
    name="jobset",
    title="JobSet",
    level="pod",
    variables=SET_NAMES,
    claim=jobset_claim,
    rank_nodes=block,
)
