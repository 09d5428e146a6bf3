"""One job of a manifest: its pods, what they start and what they ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from topocheck.commands import Launch, Stated, to_plan, world_of
from topocheck.commands.documents import Node
from topocheck.errors import TopocheckError
from topocheck.formula import ranks_of_sizes
from topocheck.probes.capture.manifest import GPU, containers, started, variables
from topocheck.probes.capture.manifest_kinds import KINDS, Role, Shape

__all__ = ["REPLICATED", "Job", "Started", "World", "read_job", "worlds_of"]


REPLICATED = frozenset({"StatefulSet", "Deployment"})
"""Kinds whose pods may be one job or each a job of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A launch in one container of one role."""

    role: Role
    container: Node
    launch: Launch
    line: int
    """Line of its command."""

    def line_of(self, stated: Stated | None) -> int:
        """Line of the flag or variable that stated a value; that of the command where it is not found.

        A folded block (`>`) has lost its lines: its first one stands for it.
        """
        origin = stated.origin if stated is not None else ""
        for name in ("command", "args"):
            node = self.container.get(name)
            for item in node.items if node is not None else ():
                before, flag, _ = (item.text or "").partition(origin)
                if flag:
                    return item.line + before.count("\n") + ("\n" in (item.text or ""))
        entries = self.container.get("env")
        named = [
            entry for entry in (entries.items if entries is not None else ()) if entry.at("name") == origin
        ]
        return named[0].line if named else self.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One object of a manifest."""

    kind: str
    document: Node
    shape: Shape
    launches: tuple[Started, ...] = ()
    gpus: Mapping[str, int] = field(default_factory=dict)
    """GPUs of a pod by role, of roles that show them."""

    @property
    def pods(self) -> int | None:
        """Pods of one copy of the job."""
        return self.shape.nodes

    @property
    def gpus_in_all(self) -> int | None:
        """GPUs of one copy; None where a role shows none or its number of pods is open."""
        roles = self.shape.roles
        if self.kind in REPLICATED and roles[0].pods != 1:
            return self.gpus_of_a_replica
        if not roles or any(role.pods is None or role.name not in self.gpus for role in roles):
            return None
        return sum((role.pods or 0) * self.gpus[role.name] for role in roles)

    @property
    def gpus_of_a_replica(self) -> int | None:
        """The same where the manifest does not say which pods make one job, by the nodes of the command."""
        one, each = self.engine, self.gpus_a_pod
        nodes = None if one is None else one.launch.nodes
        return None if each is None or nodes is None or nodes.number is None else nodes.number * each

    @property
    def gpus_a_pod(self) -> int | None:
        """The fewest GPUs of a pod; None if no role shows any."""
        return min(self.gpus.values(), default=None)

    @property
    def engine(self) -> Started | None:
        """The launch of the engine; the first, where leader and workers each start it."""
        return next((one for one in self.launches if one.launch.engine is not None), None)

    @property
    def ranks(self) -> int | None:
        """Ranks that the command declares; None where it leaves them open."""
        one = self.engine
        return None if one is None else ranks_of(one.launch, self.pods)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One engine and the pods that it runs over."""

    started: Started
    pods: int | None
    """How many they are."""
    gpus: int | None
    """GPUs of all of them; None where a pod shows none or their number is open."""
    gpus_a_pod: int | None
    """The fewest GPUs of a pod."""

    @property
    def ranks(self) -> int | None:
        """Ranks that the command declares; None where it leaves them open."""
        return ranks_of(self.started.launch, self.pods)


def worlds_of(job: Job) -> list[World]:
    """Engines of a job with the pods of each; one, unless a JobSet starts an engine in several of its jobs.

    Such jobs are worlds of their own where the command of each runs over its own pods, and one world where it
    runs over all pods. An engine whose pods cannot be told so is left out.
    """
    if job.engine is None:
        return []
    whole = World(started=job.engine, pods=job.pods, gpus=job.gpus_in_all, gpus_a_pod=job.gpus_a_pod)
    engines = engines_of(job)
    if job.kind != "JobSet" or len(engines) < 2:
        return [whole]
    every = [role.pods for role in job.shape.roles]
    total = None if None in every else sum(pods or 0 for pods in every)
    if total is not None and all(over(one) == total for one in engines):
        return [replace(whole, pods=total)]
    return [own_world(job, one) for one in engines if over(one) == one.role.pods]


def left_open(job: Job) -> list[str]:
    """Roles that start an engine and of which no world is known."""
    worlds, engines = worlds_of(job), engines_of(job)
    if len(worlds) == 1 and worlds[0].started.role.pods != worlds[0].pods:
        return []  # all of them are one
    known = {world.started.role.name for world in worlds}
    return [] if job.kind != "JobSet" else [one.role.name for one in engines if one.role.name not in known]


def engines_of(job: Job) -> list[Started]:
    """The first launch of an engine in each role."""
    found: dict[str, Started] = {}
    for one in job.launches:
        if one.launch.engine is not None:
            found.setdefault(one.role.name, one)
    return list(found.values())


def over(one: Started) -> int | None:
    """Pods that a command says it runs over; 1 where it says nothing."""
    nodes = one.launch.nodes
    return 1 if nodes is None else nodes.number


def own_world(job: Job, one: Started) -> World:
    """An engine over the pods of its own role."""
    each, pods = job.gpus.get(one.role.name), one.role.pods
    gpus = None if each is None or pods is None else each * pods
    return World(started=one, pods=pods, gpus=gpus, gpus_a_pod=each)


def ranks_of(launch: Launch, pods: int | None) -> int | None:
    """Ranks of one launch: its launcher's processes, else the product of its sizes."""
    try:
        product = ranks_of_sizes(to_plan(launch, nodes=pods or 1))
    except TopocheckError:  # a size is a variable, or the engine refuses it: what it means stays open
        return None
    return world_of(launch) or (product if launch.sizes else None)


def read_job(document: Node) -> Job | None:
    """The job that an object is; None if it is none."""
    kind = document.at("kind") or ""
    if kind not in KINDS:
        return None
    shape = KINDS[kind](document)
    launches = tuple(one for role in shape.roles for one in launches_of(role, shape, kind))
    gpus = {role.name: count for role in shape.roles if (count := gpus_of(role)) is not None}
    return Job(kind=kind, document=document, shape=shape, launches=launches, gpus=gpus)


def launches_of(role: Role, shape: Shape, kind: str) -> Iterator[Started]:
    """Launches of a role's containers, with the sizes that its controller puts into variables."""
    given = {"LWS_GROUP_SIZE": str(shape.nodes)} if kind == "LeaderWorkerSet" and shape.nodes else {}
    for container in containers(role.template):
        for line, launch in started(container, {**variables(container), **given}):
            yield Started(role=role, container=container, launch=launch, line=line)


def gpus_of(role: Role) -> int | None:
    """GPUs that all containers of a pod ask for; None if none asks, or one asks for what is no number."""
    texts = [
        value.text or ""
        for container in containers(role.template)
        for name, value in resources(container)
        if GPU.fullmatch(name)
    ]
    readable = all(text.isdecimal() and len(text) < 7 for text in texts)
    return sum(map(int, texts)) if texts and readable else None


def resources(container: Node) -> Iterator[tuple[str, Node]]:
    """Limits of a container, else its requests."""
    limits, requests = container.get("resources", "limits"), container.get("resources", "requests")
    found = dict(requests.fields if requests is not None else ())
    found |= dict(limits.fields if limits is not None else ())
    yield from found.items()
