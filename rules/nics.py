"""NET: the nodes of one job have the same set of NICs, in the same places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_, attrgetter

from topocheck.ask import Ask
from topocheck.domain import all_in_one_domain
from topocheck.hardware import NEAREST_FIRST, Shape
from topocheck.hca import is_up
from topocheck.kinds import by_kind, kinds
from topocheck.majority import Split, split_nodes
from topocheck.needed import filter_kind, hca_settings, needed, ports_left
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.rdma import rdma_of
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, rule, the
from topocheck.snapshot import NicShape, Port
from topocheck.subjects import within_nodes

__all__ = ["RULES"]

PROBE = "topocheck probe on every node"
MOST_NAMED = 6
"""Devices named of each kind of node."""

Entries = tuple[str, ...]
"""What is compared, one entry a device."""


@dataclass(frozen=True)
class NicSet:
    """The NICs of equal nodes that the job may take."""

    shape: Shape | None
    """None where the node has neither GPUs nor NICs to show."""
    ordinals: tuple[int, ...]
    """Ordinals of the NICs in the shape."""

    @cached_property
    def nics(self) -> tuple[NicShape, ...]:
        """The devices."""
        return tuple(self.shape.hardware.nics[ordinal] for ordinal in self.ordinals) if self.shape else ()

    @property
    def names(self) -> Entries:
        """Their names."""
        return tuple(sorted(nic.name for nic in self.nics))

    @cached_property
    def places(self) -> tuple[str | None, ...]:
        """Where each of them is, `PIX to GPU 0, 1`; None where nothing shows it."""
        shape = self.shape
        return () if shape is None else tuple(place(shape, ordinal) for ordinal in self.ordinals)

    @property
    def rates(self) -> Entries:
        """Rate of each port."""
        return tuple(sorted(f"{port.rate_gbps:g} Gb/s" for nic in self.nics for port in nic.ports))

    def seats(self, *, addresses: bool) -> Entries:
        """Each NIC with its place, and its PCI address where all nodes have the same ones."""
        pairs = zip(self.nics, self.places, strict=True)
        return tuple(
            sorted(
                nic.name + (f" at {nic.pci}" if addresses else "") + (f" ({place})" if place else "")
                for nic, place in pairs
            )
        )


Aspect = Callable[[NicSet], Entries]
"""One way to look at a set of NICs."""


def place(shape: Shape, ordinal: int) -> str | None:
    """GPUs that a device is nearest to, else its NUMA node: bus numbers differ with the firmware."""
    links = [shape.nic_link(gpu, ordinal) for gpu in range(shape.gpus)]
    kinds = [link.kind for link in links if link is not None]
    if kinds and len(kinds) == len(links):
        kind = min(kinds, key=NEAREST_FIRST.index)
        return f"{kind} to GPU {fold(gpu for gpu, own in enumerate(kinds) if own == kind)}"
    numa = shape.hardware.nics[ordinal].numa
    return None if numa is None else f"NUMA node {numa}"


def compared_sets(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, where its nodes have NICs to compare, or policy says which they should have."""
    policy = placement.plan.policy
    return the(placement) if policy.expect_nics or policy.expect_rails else comparable(placement)


def comparable(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, where its nodes have NICs to compare."""
    if placement.expected == 1:
        return NotApplicable("the job has one node")
    reason, nodes = within_nodes(placement), placement.nodes[: placement.expected]
    if reason is not None:
        return reason
    if all_in_one_domain(placement, nodes):
        return NotApplicable("all nodes lie in one NVLink domain")
    answers = [rdma_of(placement, alike[0]) for alike in kinds(placement)]
    reasons = {rdma.reason for rdma in answers if rdma is not None and rdma.cause == "switched off"}
    if reasons and all(rdma is not None and rdma.cause == "switched off" for rdma in answers):
        return NotApplicable(first(sorted(reasons), 2))
    sets = placement.keep("NIC sets", sets_of)
    if all(own is not None and not own.ordinals for own in sets):
        return NotApplicable("no node has an RDMA device that the job may take")
    return the(placement)


def sets_of(placement: Placement) -> list[NicSet | None]:
    """NICs that the job may take, by the expected nodes; equal nodes share one set."""
    found: list[NicSet | None] = [None] * placement.expected
    for alike in by_kind(placement, lambda node: filter_kind(placement, node)).values():
        own = set_of(placement, alike[0])
        if own is None:
            continue
        # Nodes that are wired alike may have their NICs at other addresses: each shape is a set of its own.
        shapes: list[Shape | None] = list(map(attrgetter("machine.shape"), alike))
        views = dict(zip(map(id, shapes), shapes, strict=True))
        sets = {key: NicSet(shape, own.ordinals) for key, shape in views.items()}
        for node, shape in zip(alike, shapes, strict=True):
            found[node.index] = sets[id(shape)]
    return found


def set_of(placement: Placement, node: Node) -> NicSet | None:
    """NICs of a node that NCCL_IB_HCA selects, all without it; None unless its list of NICs is whole."""
    machine, shape = node.machine, node.shape
    if machine is None or machine.coverage.nics != "all":
        return None
    nics = shape.hardware.nics if shape else ()
    values = hca_settings(placement, node)
    taken = [ordinal for ordinal, nic in enumerate(nics) if ports_left(nic, values)]
    return NicSet(shape, tuple(taken))


@rule("NET010", "the set of NICs is the same on all nodes", over=compared_sets, severity="warning")
def same_nics(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Number, kind and link layer, then places, then which name is where, then rates: what differs first."""
    ask.know()
    sets = placement.keep("NIC sets", sets_of)
    nodes = placement.nodes[: placement.expected]
    if silent := [node.name for node, own in zip(nodes, sets, strict=True) if own is None]:
        ask.gap("the whole list of RDMA devices", silent, PROBE, part="nics")
    lacking = list(short_of_policy(placement, sets))
    yield from lacking
    if lacking or isinstance(comparable(placement), NotApplicable):
        return
    views = list(dict.fromkeys({id(own): own for own in sets if own is not None}.values()))
    unjudged = any(needed(placement, alike[0]) is None for alike in kinds(placement))
    for what, entries in aspects(ask, views, rates=unjudged):
        values = {view: entries(view) for view in views}
        if len(set(values.values())) < 2:
            continue
        found = split_nodes(placement, lambda node, v=values: v.get(sets[node.index]))  # type: ignore[misc]
        yield difference(what, found)
        return


def short_of_policy(placement: Placement, sets: Sequence[NicSet | None]) -> Iterator[Finding]:
    """Nodes with fewer NICs than policy expects, or without one of its rails."""
    policy, by_view = placement.plan.policy, dict[NicSet, list[Node]]()
    if policy.expect_nics is None and not policy.expect_rails:
        return
    for node, own in zip(placement.nodes, sets, strict=False):
        if own is not None:
            by_view.setdefault(own, []).append(node)
    rails = [name.partition(":")[0] for name in policy.expect_rails]
    for view, nodes in by_view.items():
        if absent := [name for name in rails if name not in view.names]:
            lack = f"no {first(absent, MOST_NAMED)} among the RDMA devices that the job may take"
            yield lacks(nodes, lack, "rail missing", f"expect_rails {first(rails, MOST_NAMED)}")
        elif policy.expect_nics is not None and len(view.ordinals) < policy.expect_nics:
            few = f"{len(view.ordinals)} RDMA devices that the job may take"
            yield lacks(nodes, few, "NICs missing", f"expect_nics {policy.expect_nics}")


def lacks(nodes: Sequence[Node], has: str, cause: str, wanted: str) -> Finding:
    """The finding of nodes that lack NICs by the words of the policy."""
    names = [node.name for node in nodes]
    return Finding(
        message=f"{first(names)} {'has' if len(names) == 1 else 'have'} {has}, and the policy says {wanted}",
        fix="repair or replace the missing NIC, widen NCCL_IB_HCA, or correct the policy",
        cause=cause,
        subjects=tuple(names),
        evidence=(Evidence(source=nodes[0].read_in(), fact=has), Evidence(source="policy", fact=wanted)),
    )


def aspects(ask: Ask, views: Sequence[NicSet], *, rates: bool) -> Iterator[tuple[str, Aspect]]:
    """What can be compared with what all nodes show, coarse before fine."""
    yield "the set of NICs", makes(views)
    one_naming = len({view.names for view in views}) < 2
    addresses = same_addresses(views)
    gpus = {view.shape.gpus for view in views if view.shape is not None}
    placed = len(gpus) < 2 and not any(None in view.places for view in views)
    if placed:
        yield "the places of the NICs", lambda view: tuple(sorted(map(str, view.places)))
    if one_naming and (addresses or placed):
        yield "which NIC is where", lambda view: view.seats(addresses=addresses)
    if not (placed or addresses):
        about = [node.name for node in ask.placement.nodes[: ask.placement.expected]]
        because = "VER007" if len(gpus) > 1 else None
        ask.gap("the place of each NIC in the PCI tree", about, PROBE, because=because, part="nics")
    ports = [port for view in views for nic in view.nics for port in nic.ports or (Port(),)]
    if rates and all(is_up(port) and port.rate_gbps for port in ports):
        yield "the rates of the NICs", lambda view: view.rates


def makes(views: Sequence[NicSet]) -> Aspect:
    """Kind, link layer and number of ports of each device, as far as every view shows them of all."""
    nics = [nic for view in views for nic in view.nics]
    kind_known = all(nic.kind for nic in nics)
    layer_known = all(nic.ports and all(port.layer for port in nic.ports) for nic in nics)

    def spelled(nic: NicShape) -> str:
        layer = "/".join(sorted({str(port.layer) for port in nic.ports})) if layer_known else ""
        kind = str(nic.kind) if kind_known and nic.kind != "rdma" else "NIC"
        ports = f" with {len(nic.ports)} ports" if layer_known and len(nic.ports) > 1 else ""
        return f"{layer} {kind}{ports}".strip()

    return lambda view: tuple(sorted(map(spelled, view.nics)))


def same_addresses(views: Sequence[NicSet]) -> bool:
    """The NICs of all views have the same PCI addresses, so that an address is a place."""
    found = {tuple(sorted(nic.pci or "" for nic in view.nics)) for view in views}
    return len(found) < 2 and not any("" in addresses for addresses in found)


def difference(what: str, found: Split[Entries]) -> Finding:
    """The finding of nodes whose entries differ; what all of them have is left out."""
    shared = reduce(and_, (Counter(entries) for entries, _ in found.groups))

    def spelled(entries: Entries) -> str:
        if what == "the set of NICs":
            return " and ".join(f"{n} x {entry}" for entry, n in Counter(entries).items()) or "empty"
        return " and ".join(list((Counter(entries) - shared).elements())[:MOST_NAMED]) or "without these"

    return Finding(
        message=f"{found.told(what, spelled)}. NCCL pairs NICs by their order: rails may cross",
        fix="repair or replace the missing or misplaced NIC, or select the same ones on each node by its own "
        "names with NCCL_IB_HCA",
        cause=what,
        subjects=tuple(node.name for node in found.odd),
        evidence=found.evidence(what, spelled),
    )


RULES = (same_nics,)
