"""GPUs that the job was given, to be compared with those that its ranks use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from topocheck.allocation import given_on
from topocheck.jobfacts import facts_of, number
from topocheck.kinds import per_node
from topocheck.placement import Placement
from topocheck.rule import Evidence, read_at
from topocheck.snapshot import JobFact

__all__ = ["Allotment", "allotment"]


MOST_WORDS = 16
"""Nodes whose variables are shown: those of thousands say the same."""


@dataclass(frozen=True, slots=True)
class Allotment:
    """GPUs that scheduler or manifest give to the job as a whole."""

    gpus: int
    """How many, at least."""
    whole: bool
    """All of them are counted; otherwise there may be more."""
    evidence: tuple[Evidence, ...]
    """What says so."""


def allotment(placement: Placement) -> Allotment | None:
    """By the scheduler's variables on all nodes, else by the batch script, else by a manifest.

    A hostfile lists what a launcher may use, and a cluster's size is not the job's: neither is asked.
    """
    return by_environment(placement) or by_script(placement) or by_manifest(placement)


def by_environment(placement: Placement) -> Allotment | None:
    """Counts of every node of the plan; None unless each has one."""
    nodes = placement.nodes[: placement.expected]
    given = per_node(placement, given_on)[: placement.expected]
    counts = [one.count for one in given if one.count is not None]
    if len(counts) < len(nodes):
        return None
    evidence = tuple(
        Evidence(source="environment", fact=f"{word} on {node}")
        for node, one in zip(nodes[:MOST_WORDS], given, strict=False)
        for word in one.words[:1]
    )
    return Allotment(sum(counts), whole=True, evidence=evidence)


def by_script(placement: Placement) -> Allotment | None:
    """Nodes x GPUs a node, or tasks x GPUs a task, as sbatch and srun are told."""
    for each, times in (("gpus-per-node", "nodes"), ("gpus-per-task", "processes")):
        pairs = [largest(placement, kind) for kind in (each, times)]
        known = [(count, fact) for count, fact in filter(None, pairs)]
        if len(known) == 2:
            evidence = tuple(read_at(fact.at, f"{fact.kind} {fact.value}") for _, fact in known)
            return Allotment(known[0][0] * known[1][0], whole=True, evidence=evidence)
    return None


def largest(placement: Placement, kind: str) -> tuple[int, JobFact] | None:
    """The largest number that a scheduler's command was told: the batch script has what its steps share."""
    told = [fact for fact in facts_of(placement, kind) if fact.name == "launcher"]
    known = [(count, fact) for fact in told if (count := number(fact.value)) is not None]
    return max(known, key=lambda pair: pair[0], default=None)


def by_manifest(placement: Placement) -> Allotment | None:
    """Pods of each role x the GPUs that each requests. A role that shows no GPU is unknown, not 0."""
    pods = {fact.name: number(fact.value) for fact in facts_of(placement, "pods")}
    roles = [fact for fact in facts_of(placement, "gpus-per-node") if fact.name in pods]
    found = list(requests(roles, pods))
    if not found:
        return None
    evidence = tuple(
        read_at(fact.at, f"{pods[fact.name]} pods of {fact.name}, {fact.value} GPUs each")
        for _, fact in found
    )
    whole = {fact.name for _, fact in found} == pods.keys()
    return Allotment(sum(count for count, _ in found), whole=whole, evidence=evidence)


def requests(roles: list[JobFact], pods: dict[str, int | None]) -> Iterator[tuple[int, JobFact]]:
    """GPUs of the roles whose numbers are known."""
    for fact in roles:
        each, count = number(fact.value), pods[fact.name]
        if each is not None and count is not None:
            yield each * count, fact
