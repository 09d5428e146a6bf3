"""What would mend a finding, as data from which `topocheck verify --write-fixes` makes files."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

__all__ = ["Devices", "Exclude", "NodeOrder", "Remedy", "Variable", "joined", "spread"]


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all remedies."""

    nodes: tuple[str, ...]
    """Nodes that it is for, as findings call them."""


class NodeOrder(Step, frozen=True, kw_only=True, tag="node-order"):
    """The order in which the nodes must be given to the launcher; ranks then fill one node after the other.

    The rules hold over it: they were run on it.
    """

    ranks: tuple[int, ...]
    """Ranks on each of the nodes."""


class Devices(Step, frozen=True, kw_only=True, tag="devices"):
    """The GPUs that processes must see, in the order of the local ranks: CUDA_VISIBLE_DEVICES."""

    gpus: tuple[int, ...]
    """NVML indexes, which are CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID."""


class Exclude(Step, frozen=True, kw_only=True, tag="exclude"):
    """Nodes that the job must do without until they are repaired."""


class Variable(Step, frozen=True, kw_only=True, tag="variable"):
    """A variable of the ranks' environment."""

    name: str
    """Its name."""
    value: str | None
    """Its value; null is unset."""
    nodes: tuple[str, ...] = ()
    """Nodes whose ranks need it, as findings call them; all of the job if empty."""


Remedy = NodeOrder | Devices | Exclude | Variable


def joined(remedies: Iterable[Remedy]) -> tuple[Remedy, ...]:
    """Remedies that differ in nothing but their nodes as one, in the order of the first of each."""
    found: dict[Remedy, dict[str, None]] = {}
    for remedy in remedies:
        if isinstance(remedy, NodeOrder) or not remedy.nodes:
            found.setdefault(remedy, {})
        else:
            bare = msgspec.structs.replace(remedy, nodes=("",))
            found.setdefault(bare, {}).update(dict.fromkeys(remedy.nodes))
    return tuple(
        msgspec.structs.replace(remedy, nodes=tuple(nodes)) if nodes else remedy
        for remedy, nodes in found.items()
    )


def spread(remedies: Iterable[Remedy], node: str, others: Iterable[str]) -> tuple[Remedy, ...]:
    """Remedies of one node as those of others too, which are equal to it."""
    more = tuple(others)
    return tuple(
        msgspec.structs.replace(remedy, nodes=(*remedy.nodes, *more))
        if remedy.nodes == (node,) and not isinstance(remedy, NodeOrder)
        else remedy
        for remedy in remedies
    )
