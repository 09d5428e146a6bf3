"""How a rule gets facts: every question may answer None, and then has noted what is missing.

Unknown comes out by itself: a check that gets None has nothing to accuse, and the runner sees the
gap. Each question says which evidence would answer it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from topocheck.hardware import Link
from topocheck.placement import Node, Placement
from topocheck.plan import BASES, Basis
from topocheck.ranges import fold

__all__ = ["NVLINK", "TOPO", "Answer", "Ask", "Device", "Gap"]

TOPO = "nvidia-smi topo -m, given as NODE=FILE"
"""What supplies links, NUMA nodes and nearest NICs."""
NVLINK = "nvidia-smi nvlink -s, given as NODE=FILE"
"""What supplies the NVLinks of each GPU."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Evidence that is missing."""

    need: str
    """What is missing."""
    about: tuple[str, ...]
    """About what: nodes, ranks."""
    supply: str
    """The command or step that gives it."""
    because: str | None = None
    """Id of the rule whose finding explains it, if one does."""
    part: str | None = None
    """Part of a snapshot that would hold it, as probe faults name it: gpus, links, nics, ranks ..."""


class Answer(Protocol):
    """What became of an earlier rule."""

    gaps: list[Gap]

    @property
    def verdict(self) -> str:
        """pass, fail, unknown, not-applicable, error."""

    @property
    def rule_id(self) -> str:
        """Which rule."""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of one node."""

    node: Node
    ordinal: int

    @property
    def index(self) -> int:
        """NVML index, else the ordinal."""
        machine = self.node.machine
        known = machine.numbering if machine is not None else ()
        index = known[self.ordinal] if self.ordinal < len(known) else None
        return self.ordinal if index is None else index

    def __str__(self) -> str:
        return f"{self.node.gpu_name(self.ordinal)} of {self.node}"


@dataclass(slots=True)
class Ask:
    """The questions of one rule about one subject."""

    placement: Placement
    earlier: Sequence[Answer] = ()
    """What rules before this one said; only rules about the evidence itself look at it."""
    gaps: list[Gap] = field(default_factory=list)
    asked: int = 0
    basis: Basis | None = None
    """Weakest way in which a place that was used is known."""

    def know(self) -> None:
        """A fact was looked at that is no question to the evidence: plan, layout, findings so far."""
        self.asked += 1

    def gap(
        self,
        need: str,
        about: Sequence[str],
        supply: str,
        *,
        because: str | None = None,
        part: str | None = None,
    ) -> None:
        """Note missing evidence."""
        self.asked += 1
        self.gaps.append(Gap(need, tuple(about), supply, because, part))

    def rest_on(self, basis: Basis) -> None:
        """Remember the weakest basis used."""
        self.asked += 1
        if self.basis is None or BASES.index(basis) < BASES.index(self.basis):
            self.basis = basis

    def node(self, rank: int) -> Node | None:
        """Node of a rank by the phase's column."""
        column = self.placement.placed
        self.rest_on(column.basis)
        place = column.node[rank]
        if place is None:
            self.rank_gap([rank])
            return None
        return self.placement.nodes[place]

    def nodes(self, ranks: Sequence[int]) -> dict[int, Node]:
        """Nodes of those ranks whose node is known; the others are one gap."""
        column = self.placement.placed
        self.rest_on(column.basis)
        known = {
            rank: self.placement.nodes[place] for rank in ranks if (place := column.node[rank]) is not None
        }
        if len(known) < len(ranks):
            self.rank_gap([rank for rank in ranks if rank not in known])
        return known

    def rank_gap(self, ranks: Sequence[int]) -> None:
        """Note ranks whose node or GPU nothing shows; those without a node all at once, whoever met one."""
        placement = self.placement
        placed = [rank for rank in ranks if placement.placed.node[rank] is not None]
        about = [f"ranks {fold(placed)}"] if placed else []
        if len(placed) < len(ranks):
            about.append(placement.keep("unplaced ranks", lambda p: f"ranks {fold(p.unplaced)}"))
        why = placement.facts.refusal
        supply = {
            "predicted": f"a number of nodes that the engine can fill ({why}), or evidence of the running job"
            if why
            else "name the nodes in the plan, or give evidence of the running job",
            "claimed": "topocheck probe in the job's own processes on every node",
            "observed": "the NCCL_DEBUG=INFO log of every node, from its first line",
        }[placement.phase]
        self.gap("which node and GPU a rank is on", about, supply, part="ranks")

    def device(self, rank: int) -> Device | None:
        """GPU of a rank by the phase's column."""
        return self.devices([rank]).get(rank)

    def devices(self, ranks: Sequence[int]) -> dict[int, Device]:
        """GPUs of those ranks whose GPU the phase's column knows; the others are gaps."""
        column = self.placement.placed
        self.rest_on(column.basis)
        found: dict[int, Device] = {}
        missing = []
        for rank in ranks:
            place, ordinal = column.node[rank], column.gpu[rank]
            if place is None or ordinal is None:
                missing.append(rank)
                continue
            node = self.placement.nodes[place]
            device = self.indexed(node, ordinal) if column.basis == "predicted" else Device(node, ordinal)
            if device is not None:
                found[rank] = device
        if missing:
            self.rank_gap(missing)
        return found

    def indexed(self, node: Node, index: int) -> Device | None:
        """The GPU that a formula names by index: NVML order, as long as nothing narrows the view."""
        self.asked += 1
        ordinal = None if node.machine is None else node.machine.at_index(index)
        if ordinal is None:
            whole = node.machine is not None and node.machine.coverage.gpus == "all"
            supply = "nvidia-smi -L, given as NODE=FILE"
            # One gap for a node, and not one for each GPU: the same listing would show them all.
            need = f"GPU {index}" if whole else "the list of GPUs"
            self.gap(need, [node.name], supply, because="ID015" if whole else None, part="gpus")
            return None
        return Device(node, ordinal)

    def link(self, a: Device, b: Device) -> Link | None:
        """How two GPUs of one node reach each other."""
        self.asked += 1
        shape = a.node.shape
        link = None
        if shape is not None and max(a.ordinal, b.ordinal) < shape.gpus:
            link = shape.link(a.ordinal, b.ordinal)
        if link is None:
            self.gap("link of each pair of GPUs", [a.node.name], TOPO, part="links")
        return link

    def peer(self, a: Device, b: Device) -> str | None:
        """Peer access between two GPUs of one node: OK if both directions have it, or a refusal."""
        self.asked += 1
        shape = a.node.shape
        pairs = ((a.ordinal, b.ordinal), (b.ordinal, a.ordinal))
        found = [shape.peer(*pair) if shape else None for pair in pairs]
        refusal = next((status for status in found if status not in (None, "OK")), None)
        if refusal is None and None in found:
            need, supply = "peer access of each pair of GPUs", "nvidia-smi topo -p2p r, given as NODE=FILE"
            self.gap(need, [a.node.name], supply, part="peers")
            return None
        return refusal or "OK"

    def plugin(self, node: Node, probe: str) -> tuple[Any, ...]:
        """What a probe of another package found on a node, each of several views that differ; () for none."""
        self.asked += 1
        told = node.machine.plugins if node.machine is not None else ()
        found = tuple(msgspec.json.decode(facts) for name, facts in told if name == probe)
        if not found:
            supply = "topocheck probe on every node, with the package of that probe installed there"
            self.gap(f"facts of the probe {probe}", [node.name], supply, part=f"plugins.{probe}")
        return found

    def gpu_count(self, node: Node) -> int | None:
        """How many GPUs a node has; None unless its list of GPUs is whole."""
        self.asked += 1
        machine = node.machine
        if machine is None or machine.coverage.gpus != "all":
            self.gap("the list of GPUs", [node.name], "nvidia-smi -L, given as NODE=FILE", part="gpus")
            return None
        return len(machine.gpus)
