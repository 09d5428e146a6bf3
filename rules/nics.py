"""NET: the nodes of one job have the same set of NICs, in the same places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property

from topocheck.ask import Ask
from topocheck.domain import in_one_domain
from topocheck.hardware import NEAREST_FIRST, Shape
from topocheck.hca import is_up
from topocheck.majority import Split, split
from topocheck.needed import filter_kind, hca_settings, need_kind, needed
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.rdma import rdma_of
from topocheck.rule import Finding, NotApplicable, Situations, rule, the
from topocheck.snapshot import NicShape
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

    shape: Shape
    ordinals: tuple[int, ...]

    @cached_property
    def nics(self) -> tuple[NicShape, ...]:
        """The devices."""
        return tuple(self.shape.hardware.nics[ordinal] for ordinal in self.ordinals)

    @property
    def names(self) -> Entries:
        """Their names."""
        return tuple(sorted(nic.name for nic in self.nics))

    @cached_property
    def places(self) -> tuple[str | None, ...]:
        """Where each of them is, `PIX to GPU 0, 1`; None where nothing shows it."""
        return tuple(map(self.place, self.ordinals))

    def place(self, ordinal: int) -> str | None:
        """GPUs that a device is nearest to, else its NUMA node: bus numbers differ with the firmware."""
        links = [self.shape.nic_link(gpu, ordinal) for gpu in range(self.shape.gpus)]
        kinds = [link.kind for link in links if link is not None]
        if kinds and len(kinds) == len(links):
            kind = min(kinds, key=NEAREST_FIRST.index)
            return f"{kind} to GPU {fold(gpu for gpu, own in enumerate(kinds) if own == kind)}"
        numa = self.shape.hardware.nics[ordinal].numa
        return None if numa is None else f"NUMA node {numa}"


def compared_sets(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, where its nodes have NICs to compare."""
    if placement.expected == 1:
        return NotApplicable("the job has one node")
    if (reason := within_nodes(placement)) is not None:
        return reason
    nodes = placement.nodes[: placement.expected]
    if in_one_domain(placement, nodes):
        return NotApplicable("all nodes lie in one NVLink domain")
    rdma = rdma_of(placement, nodes[0])
    if rdma is not None and rdma.cause == "switched off":
        return NotApplicable(rdma.reason)
    return the(placement)


def sets_of(placement: Placement) -> dict[int, NicSet]:
    """NICs that the job may take, by the identity of the machine; equal nodes share one set."""
    kept: dict[Hashable, NicSet | None] = {}
    found: dict[int, NicSet] = {}
    for node in placement.nodes[: placement.expected]:
        kind = filter_kind(placement, node)
        if kind not in kept:
            kept[kind] = set_of(placement, node)
        own = kept[kind]
        if own is not None and node.machine is not None:
            found[id(node.machine)] = own
    return found


def set_of(placement: Placement, node: Node) -> NicSet | None:
    """NICs of a node that NCCL_IB_HCA selects, all without it; None unless its list of NICs is whole."""
    machine, shape = node.machine, node.shape
    if machine is None or shape is None or machine.coverage.nics != "all":
        return None
    values = [setting.filter for setting in hca_settings(placement, node)]
    return NicSet(
        shape,
        tuple(
            ordinal
            for ordinal, nic in enumerate(shape.hardware.nics)
            if not values
            or any(value.selects(nic.name, number) for value in values for number in numbers(nic))
        ),
    )


def numbers(nic: NicShape) -> list[int]:
    """Numbers of the ports of a device, 1 where none is shown."""
    return [port.port for port in nic.ports] or [1]


@rule("NET010", "the set of NICs is the same on all nodes", over=compared_sets, severity="warning")
def same_nics(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Number, kind and link layer, then the places, then which name is where, then rates."""
    ask.know()
    sets = sets_of(placement)
    if len(sets) < placement.expected:
        silent = [
            n.name for n in placement.nodes[: placement.expected] if n.machine is None or id(n.machine) not in sets
        ]
        ask.gap("the whole list of RDMA devices", silent, PROBE, part="nics")
    for what, entries in aspects(ask, placement, list(dict.fromkeys(sets.values()))):
        values = {id(own): entries(own) for own in dict.fromkeys(sets.values())}
        found = split(placement, lambda machine: values[id(own)] if (own := sets.get(id(machine))) else None)
