"""A small made job as evidence: vLLM with TP 4 x PP 2 on two nodes of four GPUs."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["PLAN", "PLAN_OF_ONE", "TOPOLOGY", "snapshot", "stream"]

PLAN = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\n"
PLAN_OF_ONE = "engine: vllm\nparallel: {tensor: 4}\nnodes: 1\n"

TOPOLOGY = """\
        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity
GPU0     X      NV6     NV6     NV6     0-31            0
GPU1    NV6      X      NV6     NV6     0-31            0
GPU2    NV6     NV6      X      NV6     32-63           1
GPU3    NV6     NV6     NV6      X      32-63           1

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""
"""`nvidia-smi topo -m` of a healthy node that names no host."""


def snapshot(node: int, **changes: Any) -> dict[str, Any]:
    """One node of the healthy job: four GPUs on NVSwitch, two active ports, a claim for each rank."""
    name = changes.pop("name", None) or f"node-{'abcdefgh'[node]}"
    return {
        "schema": "topocheck.snapshot/1",
        "coverage": {"gpus": "all", "links": "all", "nics": "all", "ranks": "all"},
        "identity": {
            "host": {"name": name, "boot_id": f"6f0c1a52-8d3e-4b7a-9c11-{node:012d}"},
            "gpus": [
                {
                    "uuid": f"GPU-1b2c3d4e-5f60-7182-93a4-{node:010d}{gpu:02d}",
                    "bus": f"0000:{0x21 + 0x20 * gpu:02x}:00.0",
                    "nvml": gpu,
                    "scope": "host",
                }
                for gpu in range(4)
            ],
            "nics": [{"name": f"mlx5_{nic}"} for nic in range(2)],
        },
        "hardware": {
            "gpus": [
                {
                    "model": "NVIDIA H200",
                    "memory_bytes": 150_754_820_096,
                    "nvswitch": True,
                    "links": [{"link": link, "active": True, "remote": "switch"} for link in range(18)],
                }
                for _ in range(4)
            ],
            "nics": [
                {
                    "name": f"mlx5_{nic}",
                    "kind": "rdma",
                    "ports": [
                        {
                            "state": "ACTIVE",
                            "physical": "LinkUp",
                            "layer": "InfiniBand",
                            "rate_gbps": 400.0,
                        }
                    ],
                }
                for nic in range(2)
            ],
        },
        "ranks": [
            {
                "rank": 4 * node + gpu,
                "size": 8,
                "local_rank": gpu,
                "node_rank": node,
                "gpu": gpu,
                "family": "torchrun",
            }
            for gpu in range(4)
        ],
        **changes,
    }


def stream(*snapshots: dict[str, Any]) -> str:
    """Snapshots as a stream: one JSON document a line."""
    return "".join(json.dumps(one) + "\n" for one in snapshots)
