"""A made cluster as a stream of snapshots, the same bytes each time.

    python tests/benchmark/cluster.py --nodes 1250 --engine megatron FOLDER

writes FOLDER/plan.yaml and FOLDER/stream.jsonl. Nodes have 8 GPUs with 18 NVLinks to NVSwitches,
12 RDMA devices, a PCI tree of 54 entries, 8 rank claims and 31 variables. They fall into 42 shapes:
six firmwares number buses in their own ways and seven drivers leave other amounts of memory; one node
in 400 has a GPU with a dark NVLink, which makes a few shapes more.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from topocheck.demo.server import (
    COVERAGE,
    FABRIC,
    LIMITS,
    SOFTWARE,
    Server,
    hardware_of,
    identity_of,
    verbs_of,
)
from topocheck.demo.state import network_of, state_of
from topocheck.snapshot import SCHEMA, RankClaim, Snapshot, Source

__all__ = ["GPUS", "plan_text", "snapshots", "write_cluster"]

SEED = 20260131
GPUS = 8
STAGES = 2
FIRMWARES = (0x15, 0x17, 0x19, 0x1B, 0x1D, 0x1F)
"""First bus number by firmware."""
HEALTHY = tuple(
    Server(storage_nics=4, first_bus=first, memory_bytes=85_520_809_984 + (kind << 20))
    for first in FIRMWARES
    for kind in range(7)
)
"""42 shapes: six firmware versions, seven sizes of the memory that the driver keeps for itself."""
ONE_FAULTY_IN = 400
BUS = re.compile(rb'("(?:pci)?)0000:(?=[0-9a-f]{2}[:"])')
"""PCI addresses and root complexes in a document."""
TAKEN_AT = "2026-01-31T12:00:00Z"

NAMES = ",".join(f"mlx5_{nic}" for nic in range(GPUS))
ENVIRONMENT = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "CUDA_HOME": "/usr/local/cuda",
    "CUDA_MODULE_LOADING": "LAZY",
    "GLOO_SOCKET_IFNAME": "eth0",
    "MASTER_ADDR": "r000n00.cluster.internal",
    "MASTER_PORT": "29500",
    "NCCL_ASYNC_ERROR_HANDLING": "1",
    "NCCL_BUFFSIZE": "8388608",
    "NCCL_CROSS_NIC": "0",
    "NCCL_CUMEM_ENABLE": "1",
    "NCCL_DEBUG": "WARN",
    "NCCL_IB_ADAPTIVE_ROUTING": "1",
    "NCCL_IB_GID_INDEX": "3",
    "NCCL_IB_HCA": f"={NAMES}",
    "NCCL_IB_QPS_PER_CONNECTION": "4",
    "NCCL_IB_RETRY_CNT": "7",
    "NCCL_IB_SL": "0",
    "NCCL_IB_TC": "106",
    "NCCL_IB_TIMEOUT": "22",
    "NCCL_NET_GDR_LEVEL": "PIX",
    "NCCL_NVLS_ENABLE": "1",
    "NCCL_SOCKET_IFNAME": "eth0",
    "NCCL_TOPO_DUMP_FILE": "/run/nccl/topology.xml",
    "NVTE_FUSED_ATTN": "1",
    "OMP_NUM_THREADS": "12",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "TORCH_NCCL_BLOCKING_WAIT": "0",
    "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1",
    "UCX_TLS": "rc,cuda_copy,cuda_ipc,sm,self",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}


def plan_text(nodes: int, engine: str) -> str:
    """Plan of a job over all GPUs: TP 8 x PP 2 x DP, or TP 8 alone on one node."""
    stages = STAGES if nodes % STAGES == 0 else 1
    return (
        f"engine: {engine}\n"
        f"parallel: {{tensor: {GPUS}, pipeline: {stages}, data: {nodes // stages}}}\n"
        f"nodes: {nodes}\n"
    )


def snapshots(
    nodes: int, engine: str = "megatron", *, faulty_in: int = ONE_FAULTY_IN, alike: bool = True
) -> Iterator[bytes]:
    """One JSON line a node, in an order that has nothing to do with the node ranks.

    One node in `faulty_in` has a dark NVLink. Unless they are `alike`, each node numbers its PCI buses in a
    domain of its own, so that no two have one shape.
    """
    chance = random.Random(SEED)  # noqa: S311 - the same cluster each time is the point
    shapes: dict[Server, msgspec.Raw] = {}
    environment = msgspec.Raw(msgspec.json.encode(ENVIRONMENT))
    order = list(range(nodes))
    chance.shuffle(order)
    for node in order:
        server = chance.choice(HEALTHY)
        if chance.randrange(faulty_in) == 0:
            server = replace(server, dark=((chance.randrange(GPUS), 0),))
        if server not in shapes:
            shapes[server] = msgspec.Raw(msgspec.json.encode(hardware_of(server)))
        first_pid = 10_000 + chance.randrange(50_000)
        pids = tuple(first_pid + 7 * gpu for gpu in range(GPUS))
        claims = claims_of(engine, node, nodes, pids)
        host, address = (
            f"r{node // 32:03d}n{node % 32:02d}.cluster.internal",
            f"10.{node // 250}.{node % 250}.1",
        )
        snapshot = Snapshot(
            schema=SCHEMA,
            run="benchmark",
            taken_at=TAKEN_AT,
            sources=(Source(name="topocheck probe", kind="topocheck probe"),),
            coverage=COVERAGE,
            identity=identity_of(server, host),
            hardware=shapes[server],
            environment=environment,
            network=msgspec.Raw(msgspec.json.encode(network_of(server, host, address))),
            fabric=(FABRIC,),
            ranks=claims,
            software=SOFTWARE,
            limits=LIMITS,
            verbs=verbs_of(server),
            state=state_of(server, host, address, pids),  # type: ignore[arg-type]  # with its counters
        )
        line = msgspec.json.encode(snapshot) + b"\n"
        yield line if alike else BUS.sub(rb"\g<1>%04x:" % (node + 1), line)


def claims_of(engine: str, node: int, nodes: int, pids: tuple[int, ...]) -> tuple[RankClaim, ...]:
    """Claims of one node's processes under torchrun: ranks in blocks of the node rank."""
    return tuple(
        RankClaim(
            rank=node * GPUS + gpu,
            size=nodes * GPUS,
            local_rank=gpu,
            node_rank=node,
            gpu=gpu,
            pid=pid,
            family="torchrun",
        )
        for gpu, pid in enumerate(pids)
    )


def write_cluster(
    folder: Path,
    nodes: int,
    engine: str = "megatron",
    *,
    faulty_in: int = ONE_FAULTY_IN,
    alike: bool = True,
) -> None:
    """Write plan.yaml and stream.jsonl into a folder that exists."""
    (folder / "plan.yaml").write_text(plan_text(nodes, engine), encoding="utf-8")
    with (folder / "stream.jsonl").open("wb") as stream:
        stream.writelines(snapshots(nodes, engine, faulty_in=faulty_in, alike=alike))


def main() -> None:
    """Write one cluster."""
    parser = argparse.ArgumentParser(description="Write a made cluster: plan.yaml and stream.jsonl.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--engine", choices=("megatron", "vllm"), default="megatron")
    parser.add_argument("--faulty-in", type=int, default=ONE_FAULTY_IN, help="one node in so many is faulty")
    parser.add_argument("--each-its-own", action="store_true", help="no two nodes have one shape")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    write_cluster(
        asked.folder, asked.nodes, asked.engine, faulty_in=asked.faulty_in, alike=not asked.each_its_own
    )


if __name__ == "__main__":
    main()
