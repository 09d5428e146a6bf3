"""What NCCL 2.27 writes with NCCL_DEBUG=INFO while the made job starts, in the words of its sources.

init.cc and bootstrap.cc say who is who, net_ib.cc and net_socket.cc which network there is,
transport/p2p.cc and transport/net.cc how two ranks are joined. Lines that say nothing about placement
are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from topocheck.demo.job import Member, Node
from topocheck.demo.server import made_hex

__all__ = ["IB", "SOCKET", "nccl_log"]

IB, SOCKET = "IB", "Socket"


@dataclass(frozen=True, slots=True)
class Seat:
    """One rank of one communicator."""

    node: Node
    member: Member

    def says(self, message: str) -> str:
        """A line of its process."""
        pid, gpu = self.member.pid, self.member.gpu
        return f"{self.node.host}:{pid}:{pid + 100} [{gpu}] NCCL INFO {message}\n"


def nccl_log(nodes: Sequence[Node], network: str, tensor: int) -> str:
    """The log of the whole job: its world, its tensor groups of `tensor` ranks, and its pipelines.

    `network` is IB or SOCKET, chosen on every node.
    """
    seats = sorted(
        (Seat(node, member) for node in nodes for member in node.members), key=lambda seat: seat.member.rank
    )
    stages = [seats[first : first + tensor] for first in range(0, len(seats), tensor)]
    pipelines = [seats[first::tensor] for first in range(tensor)]
    lines = list(networks(seats, network))
    for number, group in enumerate((seats, *stages, *pipelines)):
        lines += communicator(f"0x{made_hex(f'communicator {number}', 16)}", group, network)
    return "".join(lines)


def networks(seats: Sequence[Seat], network: str) -> Iterator[str]:
    """Each process finds its network."""
    yield seats[0].says("NCCL version 2.27.5+cuda12.8")
    for seat in seats:
        interface = f"eth0:{seat.node.address}<0>"
        yield seat.says(f"Bootstrap: Using {interface}")
        if network == IB:
            devices = " ".join(f"[{nic}]mlx5_{nic}:1/IB" for nic in range(seat.node.server.gpus))
            yield seat.says(f"NET/IB : Using {devices} [RO]; OOB {interface}")
        else:
            yield seat.says("NET/IB : No device found.")
            yield seat.says(f"NET/Socket : Using [0]{interface}")
        yield seat.says(f"Using network {network}")


def communicator(comm: str, seats: Sequence[Seat], network: str) -> Iterator[str]:
    """One communicator from its start to its end: who is in it, and the ring that joins them."""
    for step in ("START", "COMPLETE"):
        for rank, seat in enumerate(seats):
            bus = seat.node.buses[seat.member.gpu].removeprefix("0000:").replace(":", "").replace(".", "")
            gpu = seat.member.gpu
            yield seat.says(
                f"ncclCommInitRankConfig comm 0x{made_hex(f'{comm} {rank}', 12)} rank {rank} "
                f"nranks {len(seats)} cudaDev {gpu} nvmlDev {gpu} busId {bus} commId {comm} - Init {step}"
            )
        if step == "START":
            for edge in pairwise([*range(len(seats)), 0]):
                yield from channel(seats, *edge, network)


def channel(seats: Sequence[Seat], src: int, dst: int, network: str) -> Iterator[str]:
    """One connection of a ring: memory inside a node, the network between nodes."""
    ends = f"Channel 00/0 : {src}[{seats[src].member.gpu}] -> {dst}[{seats[dst].member.gpu}]"
    if seats[src].node is seats[dst].node:
        yield seats[src].says(f"{ends} via P2P/CUMEM")
        return
    how = f"NET/IB/{seats[src].member.gpu}/GDRDMA" if network == IB else "NET/Socket/0"
    yield seats[src].says(f"{ends} [send] via {how}")
    yield seats[dst].says(f"{ends} [receive] via {how}")
