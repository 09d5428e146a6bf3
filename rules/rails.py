"""PP: a stage boundary stays on one rail of the network."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from topocheck.ask import Ask, Device
from topocheck.domain import in_one_domain
from topocheck.hardware import Shape
from topocheck.needed import filter_kind, hca_settings, ports_left
from topocheck.placement import Node, Placement
from topocheck.profiles import distances_from, hides_distances
from topocheck.ranges import first
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, rule
from topocheck.snapshot import NicShape
from topocheck.stagelinks import Crossing, find_crossings
from topocheck.traffic import flows

__all__ = ["RULES", "Rails"]

TOPO = "topocheck probe on every node, or nvidia-smi topo -m with its NIC columns, given as NODE=FILE"
LOG = "the NCCL_DEBUG=INFO log of both nodes"
DEVICE = re.compile(r"NET/[^/]+/(?P<device>[0-9]{1,4})\b")
BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
NEAR = frozenset({"PIX", "PXB"})
"""Classes of a NIC on the PCIe switch of a GPU; of farther ones NCCL may take any."""
SOFT = frozenset({"soft", "usnic", "bond"})
"""Kinds of device that are on no rail."""


class Way(NamedTuple):
    """The NICs that are nearest to a GPU."""

    kind: str
    """Their class: PIX, PXB, NODE ..."""
    names: tuple[str, ...]
    numbers: frozenset[int]
    """Their rails."""


@dataclass(frozen=True)
class Rails:
    """The compute NICs of equal nodes. A rail is the place of a NIC among them in the order of PCI."""

    shape: Shape
    taken: frozenset[str]
    """Names that NCCL_IB_HCA leaves."""
    declared: tuple[str, ...] = ()
    """Names of the rails by policy, in their order."""

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Rail of each NIC by name: those of the make nearest to most GPUs; {} where that is not known."""
        if self.declared:
            return {name: number for number, name in enumerate(self.declared) if name in self.taken}
        names = {nic.name for nic in self.shape.hardware.nics if nic.kind not in SOFT}
        near = [self.shape.nearest_nics(gpu, names) for gpu in range(self.shape.gpus)]
        tied = [nic for found in near if found is not None for nic in found[1]]
        if not tied or None in near:
            return {}
        makes = [make(nic) for nic in tied]
        usual = max(sorted(set(makes)), key=makes.count)
        chosen = {nic.name: nic for nic in tied if make(nic) == usual}
        if len({bool(bus(nic)) for nic in chosen.values()}) > 1:
            return {}  # one whose address is not shown may stand anywhere among the others
        order = [nic.name for nic in self.shape.hardware.nics]
        ordered = sorted(chosen, key=lambda name: (bus(chosen[name]), order.index(name)))
        return {name: number for number, name in enumerate(ordered)}

    @cached_property
    def ways(self) -> tuple[Way | None, ...]:
        """NICs that each GPU uses, of those that may be taken; None where they are not known."""
        found = [self.shape.nearest_nics(gpu, self.taken) for gpu in range(self.shape.gpus)]
        return tuple(
            Way(near[0], names, frozenset(self.numbers[name] for name in names))
            if near is not None and self.numbers.keys() >= set(names := tuple(nic.name for nic in near[1]))
            else None
            for near in found
        )

    def way(self, gpu: int) -> Way | None:
        """NICs of one GPU."""
        return self.ways[gpu] if gpu < len(self.ways) else None

    def spell(self, name: str) -> str:
        """`mlx5_0 (0000:1a:00.0, rail 0)`: a name alone proves nothing."""
        nic = next((nic for nic in self.shape.hardware.nics if nic.name == name), None)
        address = f"{nic.pci}, " if nic is not None and nic.pci and BUS.fullmatch(nic.pci) else ""
        return f"{name} ({address}rail {self.numbers[name]})"


def make(nic: NicShape) -> tuple[str, str, str]:
    """What NICs of one purpose have in common."""
    return nic.kind or "", nic.model or "", "/".join(sorted({port.layer or "" for port in nic.ports}))


def bus(nic: NicShape) -> tuple[int, ...]:
    """PCI address as numbers; () for all where the evidence has none, which leaves their order."""
    address = nic.pci or ""
    return tuple(int(part, 16) for part in re.split("[:.]", address)) if BUS.fullmatch(address) else ()


def rails_of(placement: Placement, node: Node) -> Rails | None:
    """Rails of a node; None where its NICs or their distances are not shown."""
    kept = placement.keep("rails", lambda _: dict[Hashable, Rails | None]())
    kind = filter_kind(placement, node), id(node.shape)  # the NICs are called by their addresses
    if kind not in kept:
        kept[kind] = find_rails(placement, node)
    return kept[kind]


def find_rails(placement: Placement, node: Node) -> Rails | None:
    """Rails by hardware and NCCL_IB_HCA."""
    shape = node.shape
    if shape is None or not shape.hardware.nics:
        return None
    settings = hca_settings(placement, node)
    taken = frozenset(nic.name for nic in shape.hardware.nics if ports_left(nic, settings))
    declared = tuple(name.partition(":")[0] for name in placement.plan.policy.expect_rails)
    rails = Rails(shape, taken & frozenset(declared) if declared else taken, declared)
    return rails if rails.numbers else None


def crossing_nodes(placement: Placement) -> Situations[Crossing] | NotApplicable:
    """Stage boundaries between nodes that need the network."""
    if placement.layout.size("pipeline") == 1:
        return NotApplicable("one pipeline stage")
    if (hidden := hides_distances(placement)) is not None and not placement.seen.edges:
        return NotApplicable(hidden)
    found = {
        key: alike
        for key, alike in placement.keep("stage crossings", find_crossings).items()
        if alike[0].a is None or alike[0].b is None or needs_network(placement, alike[0].a, alike[0].b)
    }
    return found or NotApplicable("no stage boundary uses the network between nodes")


def needs_network(placement: Placement, a: Node, b: Node) -> bool:
    """Two nodes that are not in one NVLink domain."""
    return a is not b and in_one_domain(placement, (a, b)) is not True


@dataclass(frozen=True, slots=True)
class Change:
    """A pair of ranks whose ends are on different rails."""

    ranks: tuple[int, int]
    words: str
    evidence: tuple[Evidence, ...]


@rule("PP005", "both ends of a boundary use the same rail", over=crossing_nodes, severity="warning")
def boundary_keeps_its_rail(ask: Ask, crossing: Crossing) -> Iterator[Finding]:
    """As edges of the running job show at both ends, else by the NICs nearest to the two GPUs."""
    if crossing.a is None or crossing.b is None:
        ask.rank_gap(crossing.ranks)
        return
    ask.rest_on(ask.placement.placed.basis)
    seen = observed(ask.placement, crossing)
    changes = [change for change in seen.values() if change is not None]
    rest = [rank for rank in crossing.ranks if rank not in seen]
    if rest:
        changes += predicted(ask, crossing, crossing.a, crossing.b, rest)
    if changes:
        count = len(changes) - 1
        more = f" and {count} more pair{'s' * (count > 1)} likewise" if count else ""
        yield Finding(
            message=f"stage boundary {crossing} changes rails: {changes[0].words}{more}. Such traffic "
            "climbs to the spine switches; on one rail it stays below a leaf",
            fix="give both ends of the boundary GPUs of the same place on their nodes, and each slot the "
            "same NIC on all nodes (NCCL_IB_HCA of its own for each node where names differ)",
            cause="boundary changes rails",
            subjects=(str(crossing),),
            evidence=tuple(evidence for change in changes for evidence in change.evidence),
            ranks=tuple(rank for change in changes[:16] for rank in change.ranks),
            mark="edge",
        )


def found_at(rails: Rails, way: Way, device: Device) -> Evidence:
    """What was read of one end."""
    node = device.node
    source = first(node.machine.sources, 2) if node.machine else ""
    fact = f"nearest to GPU {device.index} of {node} ({way.kind}): {rails.spell(way.names[0])}"
    return Evidence(source=source or "hardware", fact=fact)


def predicted(ask: Ask, crossing: Crossing, a: Node, b: Node, ranks: Sequence[int]) -> Iterator[Change]:
    """Pairs whose nearest NICs have no rail in common; gaps where that is not known."""
    lower, upper = rails_of(ask.placement, a), rails_of(ask.placement, b)
    if lower is None or upper is None:
        silent = [node.name for node, rails in ((a, lower), (b, upper)) if rails is None]
        node = a if lower is None else b
        supply = distances_from(ask.placement, node, TOPO)
        ask.gap("which NIC is near each GPU", silent, supply, part="nics")
        return
    counts = len(lower.numbers), len(upper.numbers)
    if counts[0] != counts[1]:
        need = f"which rail each NIC is on, with {counts[0]} and {counts[1]} compute NICs"
        ask.gap(need, [a.name, b.name], LOG, because="NET010", part="nics")
        return
    devices = ask.devices([*ranks, *(rank + crossing.stride for rank in ranks)])
    for rank in ranks:
        source, target = devices.get(rank), devices.get(rank + crossing.stride)
        sent = None if source is None else lower.way(source.ordinal)
        received = None if target is None else upper.way(target.ordinal)
        if sent is None or received is None:
            ask.gap("which NIC is near each GPU", [a.name, b.name], TOPO, part="nics")
        elif sent.numbers.isdisjoint(received.numbers) and source is not None and target is not None:
            if not {sent.kind, received.kind} <= NEAR or proxied(ask.placement, a, rank, lower, received):
                ask.gap("the NIC that a boundary uses, its GPU's own or another", [a.name, b.name], LOG)
                continue
            yield Change(
                (rank, rank + crossing.stride),
                f"rank {rank} on {a} sends by {lower.spell(sent.names[0])}, rank {rank + crossing.stride} on "
                f"{b} receives by {upper.spell(received.names[0])}",
                (found_at(lower, sent, source), found_at(upper, received, target)),
            )


def proxied(placement: Placement, node: Node, rank: int, rails: Rails, target: Way) -> bool:
    """A rank of the same pipeline shares the sender's node and is on the receiver's rail.

    NCCL may then send through its GPU over NVLink (PXN), which keeps the rail.
    """
    column, layout, machine = placement.placed, placement.layout, node.machine
    stride = layout.strides["pipeline"]
    start = rank - layout.coordinate(rank, "pipeline") * stride
    for peer in range(start, start + layout.size("pipeline") * stride, stride):
        gpu = column.gpu[peer] if column.node[peer] == node.index and peer != rank else None
        if gpu is not None and placement.phase == "predicted" and machine is not None:
            gpu = machine.at_index(gpu)
        way = None if gpu is None else rails.way(gpu)
        if way is not None and not way.numbers.isdisjoint(target.numbers):
            return True
    return False


def observed(placement: Placement, crossing: Crossing) -> dict[int, Change | None]:
    """Lower ranks of which both ends show their NICs, with the change of rails if there is one."""
    found: dict[int, Change | None] = {}
    ends = placement.keep("rails in use", rails_in_use)
    for rank in crossing.ranks:
        pair = rank, rank + crossing.stride
        for source, target in (pair, pair[::-1]):
            sent, received = ends.get((source, target, "send")), ends.get((source, target, "receive"))
            if not sent or not received:
                continue
            found.setdefault(rank, None)
            if sent.keys().isdisjoint(received):
                (words, told), (others, heard) = next(iter(sent.values())), next(iter(received.values()))
                said = f"rank {source} sends by {words}, rank {target} receives by {others}"
                found[rank] = Change(pair, said, (told, heard))
    return found


InUse = dict[tuple[int, int, str], dict[int, tuple[str, Evidence]]]
"""Rails of each end of each pair of ranks, with the NIC in words and the line that shows it."""


def rails_in_use(placement: Placement) -> InUse:
    """What the edges of the running job show: each end logs the device of its own node."""
    found: InUse = {}
    for flow in flows(placement):
        match = DEVICE.match(flow.edge.how)
        if match is None or flow.src is None or flow.dst is None or flow.edge.side is None:
            continue
        rail = rail_of(placement, flow.near, int(match["device"]))
        if rail is not None:
            ends = found.setdefault((flow.src, flow.dst, flow.edge.side), {})
            ends.setdefault(rail[0], (rail[1], flow.evidence()))
    return found


def rail_of(placement: Placement, node: Node, device: int) -> tuple[int, str] | None:
    """Rail and words of the device that NCCL counts so; None where NICs were fused or are not shown."""
    facts = placement.facts_by_node.get(node.index, ())
    names = list(dict.fromkeys(fact.value.partition(":")[0] for fact in facts if fact.kind == "hca"))
    rails = rails_of(placement, node)
    fused = any(fact.kind == "nic-fused" for fact in facts)
    if fused or rails is None or device >= len(names) or names[device] not in rails.numbers:
        return None
    return rails.numbers[names[device]], rails.spell(names[device])


RULES = (boundary_keeps_its_rail,)
