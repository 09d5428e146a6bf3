"""Edges of the running job in global ranks: who sent to whom, over what, between which nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from topocheck.communicators import Communicator, Member, world_communicators
from topocheck.placement import Node, Placement
from topocheck.rule import Evidence, read_at
from topocheck.snapshot import Edge

__all__ = ["Flow", "flows", "global_members"]


@dataclass(frozen=True, slots=True)
class Flow:
    """One edge, its ends as global ranks and nodes as far as known."""

    edge: Edge
    src: int | None
    """Global rank of the sender; None if its communicator is not tied to the world."""
    dst: int | None
    """Global rank of the receiver."""
    near: Node
    """Node that logged it."""
    src_node: Node | None
    dst_node: Node | None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes known to be at its ends."""
        return tuple(node for node in (self.src_node, self.dst_node) if node is not None)

    @property
    def between_nodes(self) -> bool:
        """It joins two nodes: by its ends, or as a network edge whose ends are not both on one host."""
        if self.src_node is not None and self.dst_node is not None:
            return self.src_node is not self.dst_node
        return self.edge.via == "NET"

    def __str__(self) -> str:
        return f"{self.edge.src}->{self.edge.dst}"

    @property
    def ends(self) -> tuple[str | None, int, int]:
        """What the lines of its two ends have in common: communicator, sender, receiver."""
        return self.edge.comm, self.edge.src, self.edge.dst

    @property
    def how(self) -> str:
        """Transport without the device number: NET/Socket, NET/IB."""
        return f"NET/{self.edge.network}" if self.edge.via == "NET" else self.edge.how or self.edge.via

    def evidence(self) -> Evidence:
        """The line it was read from."""
        return read_at(self.edge.at, f"{self} via {self.edge.how or self.edge.via}", "log")


Seat = tuple[str, int, int]
"""A process (`pid`, machine, pid) or a GPU (`gpu`, machine, ordinal) of one machine."""


def global_members(placement: Placement, comm: Communicator) -> dict[int, int]:
    """Global rank of each rank of a communicator; ranks that nothing ties to the world are left out."""
    worlds = placement.keep("world communicators", lambda p: world_communicators(p.seen, p.world))
    if any(comm is world for world in worlds):
        return {rank: rank for rank in range(placement.world)}
    owners = placement.keep("seats", lambda _: seat_owners(worlds))
    found = {}
    for member in comm.everyone():
        rank = next((owners[seat] for seat in seats(member) if owners.get(seat) is not None), None)
        if rank is not None:
            found[member.rank] = rank
    return found


def seats(member: Member) -> Iterator[Seat]:
    """What ties a member of one communicator to that of another: its process, else its GPU."""
    if member.pid is not None:
        yield "pid", member.machine, member.pid
    if member.gpu is not None:
        yield "gpu", member.machine, member.gpu


def seat_owners(worlds: list[Communicator]) -> dict[Seat, int | None]:
    """Global rank of each process and GPU; None where several ranks have it, which ties nothing."""
    owners: dict[Seat, int | None] = {}
    for comm in worlds:
        for member in comm.everyone():
            for seat in seats(member):
                known = owners.setdefault(seat, member.rank)
                owners[seat] = member.rank if known == member.rank else None
    return owners


def flows(placement: Placement) -> list[Flow]:
    """All attributed edges; what belongs to no communicator accuses nobody and is left out."""
    return placement.keep("flows", lambda p: list(find_flows(p)))


def find_flows(placement: Placement) -> Iterator[Flow]:
    """Translate edges into global ranks and nodes."""
    column = placement.columns["observed"]
    members: dict[str, dict[int, int]] = {}
    for seen in placement.seen.edges:
        edge = seen.edge
        if edge.comm is None or seen.machine not in placement.node_of:
            continue
        comm = placement.seen.communicators.get(edge.comm)
        if comm is None:
            continue
        if edge.comm not in members:
            members[edge.comm] = global_members(placement, comm)
        src, dst = members[edge.comm].get(edge.src), members[edge.comm].get(edge.dst)
        near = placement.nodes[placement.node_of[seen.machine]]
        ends = [place(placement, column.node, rank) for rank in (src, dst)]
        if edge.via in ("P2P", "SHM") and "MNNVL" not in edge.how:
            ends = [end or near for end in ends]  # local transport: both ends are on the logger's host
        elif edge.side == "send":
            ends[0] = ends[0] or near
        elif edge.side == "receive":
            ends[1] = ends[1] or near
        yield Flow(edge, src, dst, near, ends[0], ends[1])


def place(placement: Placement, column: list[int | None], rank: int | None) -> Node | None:
    """Node of a global rank by communicators."""
    if rank is None or not 0 <= rank < len(column):
        return None
    position = column[rank]
    return None if position is None else placement.nodes[position]
