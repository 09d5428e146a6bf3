"""Network edges by their two ends: what the sender logged beside what the receiver logged.

A pair of ranks may be joined by several channels over several NICs, so that each end tells a set of stories.
A log is an excerpt: the ends are held to differ only where no story of one is a story of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from topocheck.placement import Placement
from topocheck.traffic import Flow, flows

__all__ = ["Ends", "ends_of", "one_sided"]


@dataclass(slots=True)
class Ends:
    """One directed edge between nodes."""

    src: int
    """Sending rank, inside the communicator."""
    dst: int
    """Receiving rank."""
    sends: list[Flow] = field(default_factory=list)
    """Lines of the sender."""
    receives: list[Flow] = field(default_factory=list)
    """Lines of the receiver."""

    def __str__(self) -> str:
        return f"{self.src}->{self.dst}"

    @property
    def both(self) -> bool:
        """Both ends were seen."""
        return bool(self.sends and self.receives)

    @property
    def vague(self) -> bool:
        """Some line does not say which network it is of, or whether it uses GPUDirect."""
        return any(None in (flow.edge.network, flow.edge.gdr) for flow in (*self.sends, *self.receives))

    @property
    def networks(self) -> tuple[set[str | None], set[str | None]]:
        """Networks of sender and receiver."""
        return {f.edge.network for f in self.sends}, {f.edge.network for f in self.receives}

    @property
    def direct(self) -> tuple[set[bool | None], set[bool | None]]:
        """Whether sender and receiver use GPUDirect RDMA."""
        return {f.edge.gdr for f in self.sends}, {f.edge.gdr for f in self.receives}

    @property
    def sent_alone(self) -> bool:
        """Sent by GPUDirect and received without."""
        return self.direct == ({True}, {False})

    @property
    def received_alone(self) -> bool:
        """Received by GPUDirect and sent without."""
        return self.direct == ({False}, {True})


def ends_of(placement: Placement) -> list[Ends]:
    """Directed network edges between nodes, in the order seen, without those of no known communicator."""
    return placement.keep("ends of edges", find_ends)


def find_ends(placement: Placement) -> list[Ends]:
    """Bring the lines of the two ends together."""
    found: dict[tuple[str | None, int, int], Ends] = {}
    for flow in flows(placement):
        if flow.edge.via == "NET" and flow.between_nodes and flow.edge.side is not None:
            ends = found.setdefault(flow.ends, Ends(flow.edge.src, flow.edge.dst))
            (ends.sends if flow.edge.side == "send" else ends.receives).append(flow)
    return list(found.values())


def one_sided(placement: Placement) -> set[tuple[str | None, int, int]]:
    """Edges of which one end alone uses GPUDirect."""
    return {
        ends.sends[0].ends
        for ends in ends_of(placement)
        if ends.both and (ends.sent_alone or ends.received_alone)
    }
