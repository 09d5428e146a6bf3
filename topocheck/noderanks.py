"""Node ranks of nodes and pods, as launchers and engines give them: each once, and none beyond the nodes."""

from __future__ import annotations

from collections.abc import Iterator

from topocheck.ask import Ask
from topocheck.nodeclaims import Numbering, numberings
from topocheck.placement import Placement
from topocheck.ranges import first, fold
from topocheck.rule import Evidence, Finding, read_at
from topocheck.snapshot import NodeClaim

__all__ = ["claimed_beyond", "claimed_twice", "given", "numbered_nodes", "twice"]

GROUP = "topocheck probe in the pods, with LWS_LEADER_ADDRESS or JOB_INDEX in their environment"


def given(placement: Placement) -> list[Numbering]:
    """All numberings of nodes and pods."""
    return placement.keep("numberings", lambda p: numberings(p.inventory, p.plan.engine))


def numbered_nodes(placement: Placement) -> set[int]:
    """Positions of the nodes that have a node rank by any of them."""
    machines = {machine for one in given(placement) for found in one.holders.values() for machine in found}
    return {placement.node_of[machine] for machine in machines if machine in placement.node_of}


def claimed_twice(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """One index on two hosts. Where it may count in groups that nobody names, that is not known."""
    for numbering in given(placement):
        doubled = {rank: hosts for rank, hosts in sorted(numbering.holders.items()) if len(hosts) > 1}
        if not doubled:
            continue
        parts = [
            f"node rank {rank} is on {first(names(placement, hosts))}" for rank, hosts in doubled.items()
        ]
        if numbering.alone:
            yield twice(parts, evidence(placement, numbering, list(doubled)))
        else:
            ask.gap(f"whether indexes of {numbering} count in one group", parts, GROUP)


def claimed_beyond(placement: Placement) -> Iterator[Finding]:
    """Indexes that the plan has no node for. Pods that share hosts may be more than nodes."""
    for numbering in given(placement):
        room = placement.world if numbering.shared else placement.expected
        ranks = sorted(rank for rank in numbering.holders if rank >= room)
        if ranks:
            yield Finding(
                message=f"node ranks {fold(ranks)} exist and the plan has {placement.expected} nodes "
                f"(0..{placement.expected - 1})",
                fix="number the nodes 0 to N-1, or correct `nodes:` in the plan",
                cause="node rank out of range",
                subjects=tuple(
                    f"node rank {rank} on {first(names(placement, numbering.holders[rank]))}"
                    for rank in ranks
                ),
                evidence=evidence(placement, numbering, ranks),
            )


def names(placement: Placement, hosts: dict[int, NodeClaim]) -> list[str]:
    """Names of machines."""
    return [placement.inventory.machines[machine].name for machine in hosts]


def evidence(placement: Placement, numbering: Numbering, ranks: list[int]) -> tuple[Evidence, ...]:
    """Where each of these node ranks was read."""
    found = []
    for rank in ranks:
        for index, claim in numbering.holders[rank].items():
            machine = placement.inventory.machines[index]
            fact = f"node rank {rank} on {machine.name} ({numbering})"
            found.append(read_at(claim.at, fact, first(machine.sources, 2) or "rank probe"))
    return tuple(found)


def twice(parts: list[str], seen: tuple[Evidence, ...]) -> Finding:
    """The finding of node ranks that several nodes have."""
    return Finding(
        message=f"{first(parts, 4)}: each of these nodes takes the same ranks, and the job waits for the "
        "others",
        fix="give each node its own --node-rank, 0 to N-1, rank 0 where the master address is",
        cause="node rank twice",
        subjects=tuple(parts),
        evidence=seen,
    )
