"""Jobs for the rules of ports and NICs: two nodes with a NIC near each GPU, and storage beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from build import TWO, full, snap
from made_capacity import Made
from made_network import with_ports

from topocheck.portreading import PortReading
from topocheck.snapshot import FullSnapshot, LinkMatrix, NicShape, Port, Verbs

__all__ = [
    "CASES",
    "DOWN",
    "FAILURES",
    "PLAN",
    "SILENT",
    "STORAGE",
    "UP",
    "WAITING",
    "WARNINGS",
    "bond",
    "fabric",
    "nic",
    "node",
    "rails",
    "switched",
]

Job = tuple[str, Sequence[FullSnapshot]]

PLAN = TWO
ALONE = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n"
RANKS = {"node-a": range(4), "node-b": range(4, 8)}

UP = Port(state="ACTIVE", physical="LinkUp", layer="InfiniBand", rate_gbps=400)
DOWN = Port(state="DOWN", physical="Polling", layer="InfiniBand", rate_gbps=10)
STORAGE = Port(state="ACTIVE", physical="LinkUp", layer="Ethernet", rate_gbps=100)

WARNINGS = frozenset({"NET002", "NET010"})


def nic(name: str, *ports: Port, kind: str = "rdma", **fields: Any) -> NicShape:
    """One device; it is up unless ports are given."""
    return NicShape(name=name, kind=kind, ports=ports or (UP,), **{"model": "MT4129"} | fields)


def rails(changes: Mapping[int, Port] | None = None, count: int = 4) -> tuple[NicShape, ...]:
    """A compute NIC for each GPU; ports by number differ."""
    return tuple(nic(f"mlx5_{n}", (changes or {}).get(n, UP)) for n in range(count))


def bond(port: Port = STORAGE) -> NicShape:
    """Two bonded storage ports, near to no GPU."""
    return nic("mlx5_bond_0", port, kind="bond", model="MT41692")


def near_to(gpu: int, index: int, device: NicShape) -> str:
    """NIC n hangs on the switch of GPU n; storage is on the other socket."""
    return "SYS" if device.kind == "bond" else "PIX" if gpu == index else "NODE"


def node(
    name: str = "node-a",
    ports: tuple[NicShape, ...] | None = None,
    *,
    near: Any = near_to,
    hca: str | None = None,
    sm_lids: Mapping[int, int | None] | None = None,
    **parts: Any,
) -> FullSnapshot:
    """One node of four GPUs and their rails. `near` gives the link class of a GPU and a NIC."""
    devices = rails() if ports is None else ports
    made = snap(name, RANKS.get(name, ()), ports=devices, near=None, **parts)
    columns = list(enumerate(devices)) if near else []
    rows = tuple(tuple(near(gpu, n, each) for n, each in columns) for gpu in range(4)) if columns else ()
    matrix = made.hardware.matrix or LinkMatrix()
    whole = LinkMatrix(gpus=matrix.gpus, nics=rows)
    lids = {
        n: (sm_lids or {}).get(n, 1 if each.ports[0].layer == "InfiniBand" else 0)
        for n, each in enumerate(devices)
        if each.ports
    }
    made = with_ports(made, {n: (PortReading(sm_lid=lid),) for n, lid in lids.items()})
    return msgspec.structs.replace(
        made,
        hardware=msgspec.structs.replace(made.hardware, matrix=whole),
        environment={"NCCL_DEBUG": "INFO"} | ({} if hca is None else {"NCCL_IB_HCA": hca}),
    )


def fabric(**of_first: Any) -> list[FullSnapshot]:
    """Both nodes of the job; keywords change the first."""
    return [node("node-a", **of_first), node("node-b")]


def switched(**of_first: Any) -> list[FullSnapshot]:
    """The same where the ranks ask for sockets."""
    return [
        msgspec.structs.replace(view, environment={"NCCL_IB_DISABLE": "1"}) for view in fabric(**of_first)
    ]


def lacking(**of_first: Any) -> list[FullSnapshot]:
    """Both nodes with what their processes have for RDMA; keywords change the first."""
    well = Verbs(scope="task", library=True, devices=())
    return [
        msgspec.structs.replace(view, verbs=msgspec.structs.replace(well, **changes))
        for view, changes in zip(fabric(), (of_first, {}), strict=True)
    ]


SILENT = [snap(name, ranks, ports=(), coverage=full(nics="part")) for name, ranks in RANKS.items()]
"""Nodes that show no NIC."""
ONE: Job = (ALONE, [node("node-a")])
SLOW = msgspec.structs.replace(UP, rate_gbps=200)
WAITING = msgspec.structs.replace(UP, state="INIT")

CASES: dict[str, Made] = {
    "NET001": Made(
        (PLAN, fabric()),
        (PLAN, fabric(ports=rails({2: DOWN}))),
        (PLAN, SILENT),
        ONE,
        "error",
        ("node-a", "mlx5_2", "DOWN/Polling", "nearest to GPU 2", "PIX"),
    ),
    "NET002": Made(
        (PLAN, fabric()),
        (PLAN, fabric(ports=rails({2: SLOW}))),
        (PLAN, SILENT),
        ONE,
        "warning",
        ("mlx5_2 of node-a", "200 Gb/s", "400 Gb/s"),
    ),
    "NET010": Made(
        (PLAN, fabric()),
        (PLAN, fabric(ports=rails(count=3))),
        (PLAN, SILENT),
        ONE,
        "warning",
        ("node-a", "3 x InfiniBand NIC", "4 x InfiniBand NIC"),
    ),
    "NET012": Made(
        (PLAN, fabric()),
        (PLAN, fabric(ports=rails({2: WAITING}), sm_lids={2: 0})),
        (PLAN, SILENT),
        ONE,
        "error",
        ("node-a", "mlx5_2:1", "subnet manager"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
