"""What needs one NVLink domain of several nodes: a fault of a domain is nothing to groups that have RDMA."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from topocheck.domain import domain_of, in_one_domain
from topocheck.kinds import kinds
from topocheck.models import spans_hosts
from topocheck.placement import Node, Placement
from topocheck.profiles import tensor_domain
from topocheck.ranges import fold
from topocheck.rdma import rdma_of
from topocheck.rule import NotApplicable, Situations
from topocheck.stagepairs import stage_boundaries
from topocheck.subjects import members, within_nodes

__all__ = ["Reliance", "relying"]


@dataclass(frozen=True, slots=True)
class Reliance:
    """Ranks of several nodes whose traffic needs one NVLink domain."""

    what: str
    """The group or boundary in words."""
    ranks: tuple[int, ...]
    nodes: tuple[Node, ...]
    """Those that are known; () for ranks of which nothing shows where they are."""
    elsewhere: str | None
    """Rule that tells it if the nodes lie in several domains; None where that is no fault."""

    def __str__(self) -> str:
        return self.what


def relying(placement: Placement) -> Situations[Reliance] | NotApplicable:
    """Groups and boundaries that need one domain of several nodes."""
    inside = within_nodes(placement)
    if inside is not None:
        return inside
    spans = {spans_hosts(model) for alike in kinds(placement) for model in alike[0].models}
    if spans == {False}:
        return NotApplicable("no GPU of the job can share an NVLink domain with another node")
    return placement.keep("reliances", find_reliances) or NotApplicable(
        "no group relies on an NVLink domain of several nodes"
    )


def find_reliances(placement: Placement) -> dict[Hashable, list[Reliance]]:
    """TP groups meant for a domain or in one, expert groups on nodes of one, boundaries without RDMA."""
    found: dict[Hashable, list[Reliance]] = {}
    for kind, title, elsewhere in (("tensor", "TP group", "TP001"), ("expert", "expert group", None)):
        for index, ranks in enumerate(placement.layout.groups(kind) if is_grouped(placement, kind) else ()):
            places = dict.fromkeys(members(placement.placed.node, ranks))
            nodes = tuple(placement.nodes[place] for place in places if place is not None)
            if nodes and len(places) > 1 and relies(placement, kind, nodes):
                one = Reliance(f"{title} {index} (ranks {fold(ranks)})", tuple(ranks), nodes, elsewhere)
                found.setdefault((kind, tuple(places)), []).append(one)
    boundaries = stage_boundaries(placement)
    for pairs in () if isinstance(boundaries, NotApplicable) else boundaries.values():
        for pair in pairs:
            if pair.a and pair.b and without_rdma(placement, pair.a, pair.b):
                what = f"stage boundary {pair} without RDMA"
                found["boundary", pair.a.index, pair.b.index] = [
                    Reliance(what, pair.ranks, (pair.a, pair.b), "PP003")
                ]
    if placement.unplaced and placement.plan.policy.tensor_domain == "nvlink":
        found["unplaced"] = [Reliance("ranks without a node", tuple(placement.unplaced), (), None)]
    return found


def is_grouped(placement: Placement, kind: str) -> bool:
    """The layout has such groups, and policy neither keeps them in a node nor lets them lie anywhere."""
    free = kind == "tensor" and placement.plan.policy.tensor_domain in ("node", "any")
    return kind in placement.layout.kinds() and not free


def relies(placement: Placement, kind: str, nodes: Sequence[Node]) -> bool:
    """The group is meant to lie in one domain, or lies in one, or its nodes are each of some domain."""
    if kind == "tensor" and tensor_domain(placement, nodes) == "nvlink":
        return True
    return in_one_domain(placement, nodes) is True or (kind == "expert" and any(map(may_span, nodes)))


def may_span(node: Node) -> bool:
    """The node proves a domain beyond itself."""
    return isinstance(domain_of(node), str)


def without_rdma(placement: Placement, a: Node, b: Node) -> bool:
    """An end of a boundary is proven to have no RDMA, on boards whose NVLink reaches further."""
    known = [rdma_of(placement, node) for node in (a, b)]
    lacks = any(rdma is not None and not rdma.works for rdma in known)
    return lacks and True in {spans_hosts(model) for node in (a, b) for model in node.models}
