"""Jobs for the rules of what variables select: GIDs, RDMA devices, interfaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from build import TWO, nics, pair, snap
from made_capacity import Made
from made_network import Interface, with_interfaces, with_ports

from topocheck.portreading import GidReading, PortReading
from topocheck.snapshot import FullSnapshot, Netdev, NicShape, Port, Software

__all__ = ["CASES", "FAILURES", "LOW", "MAPPED", "WELL", "addressed", "netted", "table"]

Job = tuple[str, Sequence[FullSnapshot]]

ALONE = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n"
V1, V2 = "IB/RoCE v1", "RoCE v2"
LOW = "fe80:0000:0000:0000:0a00:27ff:fe00:0001"
MAPPED = "0000:0000:0000:0000:0000:ffff:0a33:0007"
WELL = ((LOW, V1), (LOW, V2), (MAPPED, V1), (MAPPED, V2))
"""A GID table as most drivers fill it: entry 3 is RoCE v2 with an IPv4 address."""


def table(entries: Sequence[tuple[str, str | None]], first: int = 0) -> tuple[GidReading, ...]:
    """A GID table whose first entry has that index."""
    return tuple(
        GidReading(index=first + place, digits=gid, type=kind, netdev="rail0")
        for place, (gid, kind) in enumerate(entries)
    )


def addressed(
    index: str | None = "3",
    *,
    gids: tuple[GidReading, ...] | None = table(WELL),
    nccl: str | None = "2.27.5",
    cut: bool = False,
    ports: tuple[NicShape, ...] | None = None,
    **variables: str,
) -> list[FullSnapshot]:
    """Two nodes with one RoCE port each; keywords change the first node."""
    found = []
    devices = ports or nics(layer="Ethernet")
    nodes = (snap("node-a", range(4), ports=devices), snap("node-b", range(4, 8), ports=devices))
    for number, view in enumerate(nodes):
        own = {"NCCL_DEBUG": "INFO"} | (variables if number == 0 else {})
        value = index if number == 0 else "3"
        if value is not None:
            own["NCCL_IB_GID_INDEX"] = value
        port = PortReading(
            lid=0, sm_lid=0, gids=gids if number == 0 else table(WELL), gids_cut=cut and number == 0
        )
        made = msgspec.structs.replace(view, environment=own, software=Software(nccl=nccl))
        found.append(with_ports(made, {0: (port,)}))
    return found


def choosing(value: str, ports: tuple[NicShape, ...] | None = None, **parts: Any) -> list[FullSnapshot]:
    """Two nodes with twelve RDMA devices; the first one chooses among them."""
    devices = nics(12) if ports is None else ports
    environments = ({"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": value}, {"NCCL_DEBUG": "INFO"})
    return [
        snap(name, ranks, ports=devices, environment=environment, **parts)
        for name, ranks, environment in zip(
            ("node-a", "node-b"), (range(4), range(4, 8)), environments, strict=True
        )
    ]


def netted(
    value: str | None = "eth0",
    *,
    of_first: Sequence[Interface] | None = None,
    of_second: Sequence[Interface] | None = None,
    **variables: str,
) -> list[FullSnapshot]:
    """Two nodes with lo and eth0 that ask for an interface; keywords change what they have."""
    found = []
    for number, (view, own) in enumerate(zip(pair(), (of_first, of_second), strict=True)):
        lo = Netdev(name="lo", kind="loopback", state="unknown"), ("127.0.0.1/8", "::1/128")
        eth = Netdev(name="eth0", kind="physical", state="up"), (f"10.51.0.{number + 7}/24",)
        environment = {"NCCL_DEBUG": "INFO"} | variables
        if value is not None:
            environment["NCCL_SOCKET_IFNAME"] = value
        made = msgspec.structs.replace(view, environment=environment)
        found.append(with_interfaces(made, lo, *((eth,) if own is None else own)))
    return found


ONE: Job = (ALONE, [snap("node-a", range(4), size=4)])
OTHER = ((Netdev(name="ens5", kind="physical", state="up"), ("10.51.0.7/24",)),)
DOWN_PORT = Port(state="DOWN", physical="Disabled", layer="Ethernet")

CASES: dict[str, Made] = {
    "NET004": Made(
        (TWO, addressed()),
        (TWO, addressed("2")),
        (TWO, addressed(gids=None)),
        ONE,
        "error",
        ("node-a", "mlx5_0 port 1", "NCCL_IB_GID_INDEX=2", "RoCE v1", "Usable is 3"),
    ),
    "NET005": Made(
        (TWO, choosing("=mlx5_0,mlx5_1")),
        (TWO, choosing("mlx5_0,mlx5_1")),
        (TWO, pair(environment={})),
        ONE,
        "error",
        ("node-a", "mlx5_10", "mlx5_11", "`=mlx5_0,mlx5_1`"),
    ),
    "NET006": Made(
        (TWO, netted()),
        (TWO, netted(of_first=OTHER)),
        (TWO, pair()),
        ONE,
        "error",
        ("node-a", "NCCL_SOCKET_IFNAME=eth0", "ens5"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
