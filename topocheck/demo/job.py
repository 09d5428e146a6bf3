"""A made job: vLLM with TP 4 x PP 2 on two nodes of four GPUs, as `topocheck probe` would show it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from topocheck.demo.server import (
    COVERAGE,
    FABRIC,
    LIMITS,
    SOFTWARE,
    Server,
    hardware_of,
    identity_of,
    made_hex,
    verbs_of,
)
from topocheck.demo.state import network_of, state_of
from topocheck.snapshot import SCHEMA, FullSnapshot, RankClaim, Source

__all__ = [
    "BLOCK_SCRIPT",
    "CYCLIC_SCRIPT",
    "ENGINE_LOG",
    "HOSTS",
    "PLAN",
    "TAKEN_AT",
    "Member",
    "Node",
    "healthy_nodes",
    "snapshot_of",
]

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

MODEL = "meta-llama/Llama-3.1-70B-Instruct"

ENGINE_LOG = f"""\
INFO 01-31 11:59:41 [core.py:526] Initializing a V1 LLM engine (v{SOFTWARE.engine_version}) with config: \
model='{MODEL}', dtype=torch.bfloat16, max_seq_len=131072, tensor_parallel_size={TENSOR}, \
pipeline_parallel_size={STAGES}, data_parallel_size=1, enforce_eager=False, seed=0
INFO 01-31 11:59:55 [parallel_state.py:1208] rank 0 in world size {WORLD} is assigned as DP rank 0, \
PP rank 0, TP rank 0, EP rank 0
"""
"""What the engine says when it starts."""

BLOCK_SCRIPT = f"""\
#!/bin/bash
#SBATCH --nodes={len(HOSTS)}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={TENSOR}
srun torchrun --nnodes={len(HOSTS)} --nproc-per-node={TENSOR} --rdzv-backend=c10d \\
    --rdzv-endpoint={HOSTS[0]}:29500 \\
    serve.py --model {MODEL} --tensor-parallel-size {TENSOR} --pipeline-parallel-size {STAGES}
"""
"""Slurm script of the job as it should be: one torchrun a node, ranks in blocks."""

CYCLIC_SCRIPT = f"""\
#!/bin/bash
#SBATCH --nodes={len(HOSTS)}
#SBATCH --ntasks-per-node={TENSOR}
#SBATCH --gpus-per-node={TENSOR}
#SBATCH --distribution=cyclic
srun python serve.py --model {MODEL} --tensor-parallel-size {TENSOR} --pipeline-parallel-size {STAGES}
"""
"""The same with a task a rank, which Slurm deals out to the nodes in turn."""

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


def snapshot_of(node: Node, launcher: str = "torchrun") -> FullSnapshot:
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
        network=network_of(node.server, node.host, node.address),
        fabric=(FABRIC,),
        ranks=tuple(claim(node, local, member, launcher) for local, member in enumerate(node.members)),
        software=SOFTWARE,
        limits=replace(LIMITS, container=made_hex(f"{node.host} container", 64)),
        verbs=verbs_of(node.server),
        state=state_of(node.server, node.host, node.address),
    )


def claim(node: Node, local: int, member: Member, launcher: str) -> RankClaim:
    """What one process finds in its environment."""
    return RankClaim(
        rank=member.rank,
        size=WORLD,
        local_rank=local,
        node_rank=node.number,
        gpu=member.gpu,
        pid=member.pid,
        family=launcher,
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
