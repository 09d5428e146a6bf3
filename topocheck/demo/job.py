"""A made job: vLLM with TP 4 x PP 2 on two nodes of four GPUs, as `topocheck probe` would show it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from topocheck.demo.server import (
    COVERAGE,
    FABRIC,
    LIMITS,
    SOFTWARE,
    Server,
    hardware_of,
    identity_of,
    state_of,
)
from topocheck.snapshot import SCHEMA, FullSnapshot, RankClaim, Source

__all__ = ["HOSTS", "PLAN", "TAKEN_AT", "Member", "Node", "healthy_nodes", "snapshot_of"]

HOSTS = ("gpu-a", "gpu-b")
TENSOR, STAGES = 4, 2
WORLD = TENSOR * STAGES
TAKEN_AT = "2026-01-31T12:00:00Z"

PLAN = f"""\
engine: vllm
parallel: {{tensor: {TENSOR}, pipeline: {STAGES}}}
nodes: [{", ".join(HOSTS)}]
model: {{layers: 80, hidden: 8192, heads: 64, kv_heads: 8, vocabulary: 128256}}
"""

PROBE = Source(name="topocheck probe", kind="topocheck probe")


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the job on a node."""

    rank: int
    gpu: int
    """Ordinal of the GPU that it drives."""
    pid: int


@dataclass(frozen=True)
class Node:
    """One node of the job."""

    host: str
    number: int
    """Its node rank."""
    server: Server
    members: tuple[Member, ...]
    """Its processes by local rank."""

    @cached_property
    def buses(self) -> tuple[str, ...]:
        """PCI address of each GPU."""
        return tuple(gpu.bus or "" for gpu in identity_of(self.server, self.host).gpus)

    @property
    def address(self) -> str:
        """Its address on the interface of the rendezvous."""
        return f"10.0.0.{self.number + 1}"


def healthy_nodes() -> list[Node]:
    """Both nodes as they should be: ranks in blocks, each process on the GPU of its local rank."""
    server = Server(gpus=TENSOR, switches=2)
    return [
        Node(host, number, server, tuple(Member(number * TENSOR + n, n, 4100 + n) for n in range(TENSOR)))
        for number, host in enumerate(HOSTS)
    ]


def snapshot_of(node: Node) -> FullSnapshot:
    """What the probe prints in the job's own processes on this node, before it starts."""
    return FullSnapshot(
        schema=SCHEMA,
        run="demo",
        taken_at=TAKEN_AT,
        sources=(PROBE,),
        coverage=COVERAGE,
        identity=identity_of(node.server, node.host),
        hardware=hardware_of(node.server),
        environment=environment_of(node.server),
        fabric=(FABRIC,),
        ranks=tuple(claim(node, local, member) for local, member in enumerate(node.members)),
        software=SOFTWARE,
        limits=LIMITS,
        state=state_of(node.server),
    )


def claim(node: Node, local: int, member: Member) -> RankClaim:
    """What one process finds in its environment under torchrun."""
    return RankClaim(
        rank=member.rank,
        size=WORLD,
        local_rank=local,
        node_rank=node.number,
        gpu=member.gpu,
        pid=member.pid,
        family="torchrun",
    )


def environment_of(server: Server) -> dict[str, str]:
    """Variables that all processes of a node share."""
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "MASTER_ADDR": HOSTS[0],
        "MASTER_PORT": "29500",
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_HCA": "=" + ",".join(f"mlx5_{nic}" for nic in range(server.gpus)),
        "NCCL_SOCKET_IFNAME": "eth0",
    }
