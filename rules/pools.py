"""GR: prefill and decode workers, which are worlds of their own, reach each other fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topocheck.ask import Ask
from topocheck.domain import domain_of
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rdma import Rdma, ports, rdma_of, told
from topocheck.rule import Finding, NotApplicable, Situations, rule, the

__all__ = ["RULES"]

OF_NCCL = frozenset({"switched off", "socket network"})
"""Causes that bind NCCL alone: what moves the KV cache (NIXL, UCX, Mooncake) opens devices by itself."""


def pools(placement: Placement) -> Situations[Placement] | NotApplicable:
    """A world that does prefill or decode, in a job that has the other too."""
    roles = {world.facts.role for world in placement.facts.worlds} - {None}
    if len(roles) < 2:
        return NotApplicable("the job has no worlds for prefill and for decode")
    if placement.facts.role is None:
        return NotApplicable(f"world {placement.facts.name} does neither prefill nor decode alone")
    return the(placement)


@rule("GR004", "prefill and decode workers are near each other", over=pools, severity="warning")
def pools_are_near(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Same node, one NVLink domain, or RDMA at every node of both: the KV cache of each prompt goes there.

    Each pool is asked about its own nodes, so that nothing is asked for each pair of pools.
    """
    ask.rest_on(placement.placed.basis)
    own = nodes_of(placement)
    known = {node: kv_rdma(placement, node) for node in own}
    lacking = {node: rdma for node, rdma in known.items() if rdma is not None and not rdma.works}
    silent = [node.name for node, rdma in known.items() if rdma is None]
    if not lacking and not silent:
        return
    far = [other for other in placement.facts.worlds if is_other(placement, other) and not near(own, other)]
    if far and lacking:
        yield far_pools(placement, far, lacking)
    elif far:
        ask.gap(
            "RDMA between prefill and decode workers",
            silent,
            "ibstat, or topocheck probe on every node",
            part="nics",
        )


def nodes_of(placement: Placement) -> tuple[Node, ...]:
    """Nodes that carry the world; all that it is to have where some of its ranks were not seen."""
    if placement.unplaced:
        return placement.nodes
    return tuple(placement.nodes[place] for place in placement.ranks_on)


def kv_rdma(placement: Placement, node: Node) -> Rdma | None:
    """RDMA of a node for what is not NCCL: variables of NCCL do not bind it."""
    rdma = rdma_of(placement, node)
    return ports(node) if rdma is not None and rdma.cause in OF_NCCL else rdma


def is_other(placement: Placement, other: Placement) -> bool:
    """It does what this world does not."""
    return other.facts.role not in (None, placement.facts.role)


def near(own: Sequence[Node], other: Placement) -> bool:
    """All workers of both are on the same nodes, or in one NVLink domain."""
    theirs = nodes_of(other)
    mine, yours = {identity(node) for node in own}, {identity(node) for node in theirs}
    if None not in mine and mine == yours and len(mine) == 1:
        return True
    domains = {domain_of(node) for node in (*own, *theirs)}
    return len(domains) == 1 and isinstance(domains.pop(), str)


def identity(node: Node) -> str | None:
    """What tells a node from others in every world of a job; None where nothing was seen of it."""
    return None if node.machine is None else node.machine.host.boot_id or node.machine.name


def far_pools(placement: Placement, far: Sequence[Placement], lacking: dict[Node, Rdma]) -> Finding:
    """The finding of a pool whose nodes have no RDMA, with the pools that it exchanges KV cache with."""
    others = first((f"{other.facts.name} on {first(map(str, nodes_of(other)), 3)}" for other in far), 3)
    return Finding(
        message=f"{placement.facts.role} workers have no RDMA ({told(lacking)}) and share neither a node "
        f"nor an NVLink domain with {others}: the KV cache of each prompt goes through sockets",
        fix=f"{next(iter(lacking.values())).fix}; or place prefill and decode on one node or in one NVLink "
        "domain",
        cause="no RDMA between prefill and decode",
        subjects=tuple(map(str, lacking)),
        evidence=tuple(one for rdma in lacking.values() for one in rdma.evidence),
    )


RULES = (pools_are_near,)
