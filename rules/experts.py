"""GR: expert groups and context groups lie where their exchange is fast."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from topocheck.alltoall import BLOCK, deepep, refusal
from topocheck.ask import Ask
from topocheck.domain import domains_of, in_one_domain, reported
from topocheck.engines.layout import Group
from topocheck.models import spans_hosts
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.rdma import rdma_kind, rdma_of, told
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, read_at, rule
from topocheck.subjects import members

__all__ = ["RULES"]

PROBE = "topocheck probe on every node"
CONTEXT = ("context", "sequence")
"""Axes that cut the sequence: each layer hands keys and values around, or exchanges heads."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One group that an exchange of every layer joins."""

    title: str
    index: int
    ranks: Group

    def __str__(self) -> str:
        return f"{self.title} {self.index} (ranks {fold(self.ranks)})"


def expert_groups(placement: Placement) -> Situations[Spread] | NotApplicable:
    """Expert groups, those of equal nodes and order as one situation."""
    if placement.layout.size("expert") == 1:
        return NotApplicable("no expert parallelism")
    return placement.keep("expert groups", lambda p: find_groups(p, "expert", "expert group"))


def context_groups(placement: Placement) -> Situations[Spread] | NotApplicable:
    """Context groups that are no part of a tensor group."""
    layout = placement.layout
    kinds = [kind for kind in CONTEXT if layout.size(kind) > 1]
    apart = [kind for kind in kinds if kind not in layout.extra]
    if not kinds:
        return NotApplicable("no context parallelism")
    if not apart:
        return NotApplicable("context groups divide the tensor groups, which TP001 asks")
    found: dict[Hashable, list[Spread]] = {}
    for kind in apart:
        groups = placement.keep(
            f"{kind} groups",
            lambda p, kind=kind: find_groups(p, kind, f"{kind} group"),  # type: ignore[misc]
        )
        found |= {(kind, key): members for key, members in groups.items()}
    return found


def find_groups(placement: Placement, kind: str, title: str) -> dict[Hashable, list[Spread]]:
    """Groups by how they lie: inside one node, or on nodes that are alike, in the same order."""
    column, looks = placement.placed.node, Looks(placement)
    found: dict[Hashable, list[Spread]] = {}
    for index, ranks in enumerate(placement.layout.groups(kind)):
        places = members(column, ranks)
        if places.count(places[0]) == len(places):
            key: Hashable = "unplaced" if places[0] is None else "inside"
        else:  # cliques of communicators are the group's own
            key = index if placement.seen.communicators else looks.of(places, index)
        found.setdefault(key, []).append(Spread(title, index, ranks))
    return found


class Looks(dict[int, Hashable]):
    """What the rules see of a node, by its index: load, means of RDMA, the NVLink domain that it proves."""

    def __init__(self, placement: Placement) -> None:
        super().__init__()
        self.placement = placement
        self.domains = domains_of(placement)
        self.told: dict[int, str | bool | None] = {}
        self.works: dict[Hashable, bool] = {}
        """Whether nodes of a kind have RDMA: those that do are alike."""

    def __missing__(self, place: int) -> Hashable:
        """Look at a node that was not met before."""
        placement, node = self.placement, self.placement.nodes[place]
        domain = "some" if isinstance(self.domains[place], str) else self.domains[place]
        kind, spanning = rdma_kind(placement, node), frozenset(map(spans_hosts, node.models))
        if kind not in self.works:
            rdma = rdma_of(placement, node)
            self.works[kind] = rdma is not None and rdma.works
        self.told[place] = reported(node)
        load = len(placement.ranks_on.get(place, ()))
        self[place] = True if self.works[kind] else kind, domain, spanning, load
        return self[place]

    def of(self, places: Sequence[int | None], index: int) -> Hashable:
        """How a group lies on several nodes: which kinds of node in which order. `index` if not known."""
        known = [place for place in places if place is not None]
        if len(known) < len(places):
            return index
        own = {place: number for number, place in enumerate(dict.fromkeys(known))}
        runs = tuple((own[place], len(list(run))) for place, run in groupby(known))
        kinds = tuple(self[place] for place in own)
        proven = len({self.domains[place] for place in own}) == 1
        told = len({self.told[place] for place in own} - {None}) > 1
        return runs, kinds, proven, told


@rule("GR001", "an expert group stays near enough for its all-to-all", over=expert_groups, severity="warning")
def expert_group_stays_near(ask: Ask, group: Spread) -> Iterator[Finding]:
    """One node, one NVLink domain, or RDMA everywhere and what the kernels of the exchange can do."""
    places = ask.nodes(group.ranks)
    nodes = list(dict.fromkeys(places.values()))
    if len(places) < len(group.ranks) or len(nodes) < 2:
        return
    shared = in_one_domain(ask.placement, nodes)
    if shared:
        return
    accusations: tuple[Callable[..., Finding | None], ...] = (without_rdma, beyond_kernels, scattered)
    for accuse in accusations:
        finding = accuse(ask.placement, group, places, nodes)
        if finding is not None and shared is None and accuse is not without_rdma and may_share(nodes):
            ask.gap(
                "whether the nodes of an expert group lie in one NVLink domain",
                [node.name for node in nodes],
                PROBE,
                part="fabric",
            )
            return
        if finding is not None:
            yield finding
            return
    silent = [node.name for node in nodes if rdma_of(ask.placement, node) is None]
    if silent:
        ask.gap("RDMA between the nodes of an expert group", silent, f"ibstat, or {PROBE}", part="nics")


def may_share(nodes: Sequence[Node]) -> bool:
    """Nothing shows that the boards cannot share an NVLink domain with another node."""
    return False not in {spans_hosts(model) for node in nodes for model in node.models}


def without_rdma(
    placement: Placement, group: Spread, places: dict[int, Node], nodes: Sequence[Node]
) -> Finding | None:
    """The finding of nodes that are proven to have no RDMA."""
    known = {node: rdma for node in nodes if (rdma := rdma_of(placement, node)) and not rdma.works}
    if not known:
        return None
    return Finding(
        message=f"{group} lies on {len(nodes)} nodes ({first(map(str, nodes), 4)}) without RDMA between "
        f"them: {told(known)}. Each mixture-of-experts layer sends its tokens through sockets, and back",
        fix=next(iter(known.values())).fix,
        cause="expert group without RDMA",
        subjects=(str(group),),
        evidence=(*(one for rdma in known.values() for one in rdma.evidence), *lies_on(placement, places)),
        ranks=tuple(group.ranks),
    )


def beyond_kernels(
    placement: Placement, group: Spread, places: dict[int, Node], nodes: Sequence[Node]
) -> Finding | None:
    """The finding of a group that the kernels of its all-to-all refuse, where these are DeepEP's."""
    chosen = deepep(placement)
    if chosen is None:
        return None
    order = [places[rank].index for rank in group.ranks]
    problem = refusal(order, lambda place: placement.nodes[place].name)
    if problem is None:
        return None
    return Finding(
        message=f"{group} is beyond what DeepEP's kernels do: {problem}. Buffers of a block are opened by "
        "CUDA IPC, which ends at the node",
        fix=f"give each node blocks of {BLOCK} ranks that follow each other in the group, or choose another "
        "all-to-all (DeepEP's low-latency mode, or the engine's own)",
        cause="beyond the kernels of the all-to-all",
        subjects=(str(group),),
        evidence=(chosen, *lies_on(placement, places)),
        ranks=tuple(group.ranks),
    )


def scattered(
    placement: Placement, group: Spread, places: dict[int, Node], nodes: Sequence[Node]
) -> Finding | None:
    """The finding of a group that crosses nodes although each of them has room for whole groups."""
    block = placement.layout.size("expert") * placement.layout.size("expert_tensor")
    if not fits(placement, nodes, block):
        return None
    return Finding(
        message=f"{group} lies on {len(nodes)} nodes ({first(map(str, nodes), 4)}), and one node has room "
        f"for its {len(group.ranks)} ranks: its all-to-all goes over the network where NVLink could carry it",
        fix="order the ranks so that the ranks of an expert group follow each other on a node "
        "(the engine's order option, block distribution, or node ranks)",
        cause="expert group scattered",
        subjects=(str(group),),
        evidence=lies_on(placement, places),
        ranks=tuple(group.ranks),
    )


def fits(placement: Placement, nodes: Sequence[Node], block: int) -> bool:
    """Each of the nodes has ranks for a whole number of blocks."""
    return all(len(placement.ranks_on.get(node.index, ())) % block == 0 for node in nodes)


def lies_on(placement: Placement, places: dict[int, Node]) -> tuple[Evidence, ...]:
    """Where the first rank on each node was read."""
    firsts: dict[Node, int] = {}
    for rank, node in places.items():
        firsts.setdefault(node, rank)
    at, phase = placement.placed.at, placement.phase
    return tuple(read_at(at.get(rank), f"rank {rank} is on {node}", phase) for node, rank in firsts.items())


@rule("GR002", "a context group stays in one NVLink domain", over=context_groups, severity="warning")
def context_group_stays_inside(ask: Ask, group: Spread) -> Iterator[Finding]:
    """In one node or one NVLink domain, as a tensor group, unless policy lets it lie anywhere."""
    places = ask.nodes(group.ranks)
    nodes = list(dict.fromkeys(places.values()))
    placement, policy = ask.placement, ask.placement.plan.policy.tensor_domain
    if len(nodes) < 2 or policy == "any":
        return
    shared = in_one_domain(placement, nodes)
    if shared and policy != "node":
        return
    if shared is None and (policy == "nvlink" or spans(nodes)):
        ask.gap(
            "whether the nodes of a context group lie in one NVLink domain",
            [node.name for node in nodes],
            PROBE,
            part="fabric",
        )
        return
    yield crossing_context(placement, group, places, nodes)


def spans(nodes: Sequence[Node]) -> bool:
    """All boards are of kinds whose NVLink domain may reach over several nodes."""
    return {spans_hosts(model) for node in nodes for model in node.models} == {True}


def crossing_context(
    placement: Placement, group: Spread, places: dict[int, Node], nodes: Sequence[Node]
) -> Finding:
    """The finding of a context group on several nodes."""
    layout = placement.layout
    inner = [(axis, layout.size(axis)) for axis in ("tensor", *CONTEXT) if layout.size(axis) > 1]
    block = 1
    for _, size in inner:
        block *= size
    words = " x ".join(f"{axis} {size}" for axis, size in inner)
    if fits(placement, nodes, block):
        fix = f"order the ranks so that {words} = {block} ranks share a node"
    else:
        fix = (
            f"no node holds {words} = {block} ranks: use a smaller context size, or, if it is meant so, say "
            "`policy: {severity: {GR002: info}}`"
        )
    return Finding(
        message=f"{group} crosses {len(nodes)} nodes ({first(map(str, nodes), 4)}): each layer hands keys "
        "and values around over the network between them",
        fix=fix,
        cause="context group crosses nodes",
        subjects=(str(group),),
        evidence=lies_on(placement, places),
        ranks=tuple(group.ranks),
    )


RULES = (expert_group_stays_near, context_group_stays_inside)
