"""The shape of each kind of Kubernetes job: its roles, their pods, and how many nodes one copy has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from topocheck.commands.documents import Node

__all__ = ["KINDS", "Role", "Shape", "copies"]

NUMBER = 9
"""Digits of a count; more is no number of pods."""


@dataclass(frozen=True, slots=True)
class Role:
    """Pods that are made from one template."""

    name: str
    """leader, worker, master, launcher, or the name that the manifest gives."""
    pods: int | None
    """How many of them one copy of the job has; None if the manifest does not say."""
    template: Node | None
    """Their template; None if the manifest does not show it."""
    line: int
    """Line where it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One object."""

    line: int
    """Line of its size."""
    roles: tuple[Role, ...] = ()
    nodes: int | None = None
    """Pods that carry ranks, in one copy of the job."""
    replicas: int | None = None
    """Copies of the whole job, each a world of its own."""
    processes_per_node: int | None = None
    entrypoint: Node | None = None
    """A command line that a driver runs."""
    missing: tuple[tuple[int, str], ...] = ()
    """What the manifest ought to show and does not: (line, words)."""


def count(node: Node | None, *path: str) -> int | None:
    """A number of the manifest; None if it is not there or none."""
    text = None if node is None else node.at(*path)
    return int(text) if text is not None and text.isdecimal() and len(text) <= NUMBER else None


def copies(node: Node | None, *path: str) -> int | None:
    """A number of pods or copies, 1 where it is left out; None for what is no number."""
    return 1 if node is None or node.get(*path) is None else count(node, *path)


def line_at(node: Node, *path: str) -> int:
    """Line of a value, else of the object."""
    found = node.get(*path)
    return node.line if found is None else found.line


def leader_worker_set(document: Node) -> Shape:
    """`size` pods a group, one of them the leader; without a leader template it is made from the worker's."""
    path = ("spec", "leaderWorkerTemplate")
    group = document.get(*path)
    size, line = count(group, "size"), line_at(document, *path, "size")
    leader = None if group is None else group.get("leaderTemplate")
    worker = None if group is None else group.get("workerTemplate")
    workers = None if size is None else size - 1
    roles: list[Role] = []
    if leader is not None:
        roles.append(Role("leader", 1, leader, leader.line))
    if worker is not None:
        pods = workers if leader is not None else size
        roles.append(Role("worker", pods, worker, worker.line))
    elif workers is None or workers > 0:
        roles.append(Role("worker", workers, None, line))
    missing = ((line, "no worker template is shown: what the workers start is not known"),)
    return Shape(
        line=line,
        roles=tuple(roles),
        nodes=size,
        replicas=count(document, "spec", "replicas"),
        missing=missing if worker is None and workers != 0 else (),
    )


def job_set(document: Node) -> Shape:
    """Each replicated job has replicas x parallelism pods."""
    jobs = document.get("spec", "replicatedJobs")
    roles = []
    for job in jobs.items if jobs is not None else ():
        inner = job.get("template", "spec")
        times, each = copies(job, "replicas"), copies(inner, "parallelism")
        pods = None if times is None or each is None else times * each
        template = None if inner is None else inner.get("template")
        roles.append(Role(job.at("name") or "worker", pods, template, job.line))
    only = roles[0].pods if len(roles) == 1 else None
    return Shape(line=line_at(document, "spec"), roles=tuple(roles), nodes=only)


def job(document: Node) -> Shape:
    """An Indexed Job has as many pods at a time as its parallelism."""
    pods = copies(document, "spec", "parallelism")
    template = document.get("spec", "template")
    line = line_at(document, "spec", "parallelism")
    return Shape(line=line, roles=(Role("worker", pods, template, line),), nodes=pods)


def replica_specs(document: Node, key: str) -> tuple[Role, ...]:
    """Roles of Kubeflow's v1 jobs, in lower case."""
    specs = document.get("spec", key)
    roles = []
    for name, spec in specs.fields if specs is not None else ():
        roles.append(Role(name.lower(), copies(spec, "replicas"), spec.get("template"), spec.line))
    return tuple(roles)


def pytorch_job(document: Node) -> Shape:
    """Master and workers all carry ranks."""
    roles = replica_specs(document, "pytorchReplicaSpecs")
    processes = count(document, "spec", "nprocPerNode")
    if processes is None:
        processes = count(document, "spec", "elasticPolicy", "nProcPerNode")
    pods = [role.pods for role in roles if role.pods is not None]
    return Shape(
        line=line_at(document, "spec", "pytorchReplicaSpecs"),
        roles=roles,
        nodes=sum(pods) or None if len(pods) == len(roles) else None,
        processes_per_node=processes,
    )


def mpi_job(document: Node) -> Shape:
    """Workers carry ranks; the launcher runs mpirun over their slots."""
    roles = replica_specs(document, "mpiReplicaSpecs")
    workers = [role.pods for role in roles if role.name == "worker"]
    return Shape(
        line=line_at(document, "spec", "mpiReplicaSpecs"),
        roles=roles,
        nodes=workers[0] if workers else None,
        processes_per_node=count(document, "spec", "slotsPerWorker"),
    )


def ray_cluster(document: Node, *path: str) -> Shape:
    """A head and groups of workers. Which of them carry ranks is Ray's choice by their resources."""
    spec = document.get(*(path or ("spec",)))
    head = None if spec is None else spec.get("headGroupSpec")
    groups = None if spec is None else spec.get("workerGroupSpecs")
    roles = [] if head is None else [Role("head", 1, head.get("template"), head.line)]
    for group in groups.items if groups is not None else ():
        hosts, pods = copies(group, "numOfHosts"), count(group, "replicas")
        total = None if pods is None or hosts is None else pods * hosts
        roles.append(Role(group.at("groupName") or "worker", total, group.get("template"), group.line))
    return Shape(line=document.line if spec is None else spec.line, roles=tuple(roles))


def ray_job(document: Node) -> Shape:
    """A cluster and the command that is submitted to it."""
    shape = ray_cluster(document, "spec", "rayClusterSpec")
    return Shape(line=shape.line, roles=shape.roles, entrypoint=document.get("spec", "entrypoint"))


def replicated(document: Node) -> Shape:
    """StatefulSet and Deployment: pods of one template; whether they are one job is in their command."""
    pods = copies(document, "spec", "replicas")
    template = document.get("spec", "template")
    line = line_at(document, "spec", "replicas")
    return Shape(line=line, roles=(Role("worker", pods, template, line),))


def pod(document: Node) -> Shape:
    """One pod, which is its own template."""
    return Shape(line=document.line, roles=(Role("pod", 1, document, document.line),))


KINDS: Mapping[str, Callable[[Node], Shape]] = {
    "LeaderWorkerSet": leader_worker_set,
    "JobSet": job_set,
    "Job": job,
    "PyTorchJob": pytorch_job,
    "MPIJob": mpi_job,
    "RayCluster": ray_cluster,
    "RayJob": ray_job,
    "StatefulSet": replicated,
    "Deployment": replicated,
    "Pod": pod,
}
"""Kind of object -> its shape."""
