"""Jobs for the rules of direct traffic: GPUDirect RDMA, access control, network plugins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from build import TWO, pair, snap
from made_capacity import Made

from topocheck.demo.job import healthy_nodes, snapshot_of
from topocheck.snapshot import FullSnapshot, Library, NicShape, Port, Verbs

__all__ = ["CASES", "FAILURES", "WARNINGS", "equipped", "on_efa", "pci_of", "wired"]

Job = tuple[str, Sequence[FullSnapshot]]

ALONE = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n"
HAS = Verbs(scope="task", library=True, peer_memory="nvidia_peermem", dma_buf=False)
PLUGIN = Library(name="libnccl-net.so", folder="/opt/amazon/ofi-nccl/lib")
WARNINGS = frozenset({"NET007"})


def equipped(environment: dict[str, str] | None = None, **of_first: Any) -> list[FullSnapshot]:
    """Two nodes with a NIC near each GPU and nvidia_peermem; keywords change the verbs of the first."""
    views = (msgspec.structs.replace(HAS, **of_first), HAS)
    variables = ({"NCCL_DEBUG": "INFO"} | (environment or {}), {"NCCL_DEBUG": "INFO"})
    return [
        msgspec.structs.replace(view, verbs=verbs, environment=own)
        for view, verbs, own in zip(pair(), views, variables, strict=True)
    ]


def pci_of(view: FullSnapshot, kind: str, **fields: Any) -> FullSnapshot:
    """The node with those fields in every part of this kind in its PCI tree."""
    tree = tuple(
        msgspec.structs.replace(part, **fields) if part.kind == kind else part for part in view.hardware.pci
    )
    return msgspec.structs.replace(view, hardware=msgspec.structs.replace(view.hardware, pci=tree))


def wired(kind: str = "", **fields: Any) -> list[FullSnapshot]:
    """Two servers with a PCI tree, node-a and node-b; keywords change parts of the first one's tree."""
    found: list[FullSnapshot] = []
    for node, name in zip(healthy_nodes(), ("node-a", "node-b"), strict=True):
        view = snapshot_of(node)
        host = msgspec.structs.replace(view.identity.host, name=name)
        view = msgspec.structs.replace(view, identity=msgspec.structs.replace(view.identity, host=host))
        found.append(pci_of(view, kind, **fields) if not found else view)
    return found


def on_efa(*of_first: Library, **fields: Any) -> list[FullSnapshot]:
    """Two nodes with EFA; the plugins of the first are given."""
    port = Port(state="ACTIVE", physical="LinkUp", layer=None, rate_gbps=100)
    ports = (NicShape(name="rdmap16s27", kind="efa", ports=(port,)),)
    has = Verbs(scope="task", library=True, providers=("efa",))
    return [
        snap(
            name,
            ranks,
            ports=ports,
            verbs=msgspec.structs.replace(has, plugins=plugins, **(fields if name == "node-a" else {})),
        )
        for name, ranks, plugins in (("node-a", range(4), of_first), ("node-b", range(4, 8), (PLUGIN,)))
    ]


ONE: Job = (ALONE, [snap("node-a", range(4), size=4)])

CASES: dict[str, Made] = {
    "NET007": Made(
        (TWO, equipped()),
        (TWO, equipped(peer_memory="")),
        (TWO, pair()),
        ONE,
        "warning",
        ("node-a", "nvidia_peermem", "dma-buf"),
    ),
    "NET008": Made(
        (TWO, wired()),
        (TWO, wired("bridge", acs=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"))),
        (TWO, wired("bridge", acs=None)),
        ONE,
        "error",
        ("node-a", "ReqRedir", "mlx5_0"),
    ),
    "NET011": Made(
        (TWO, on_efa(PLUGIN)),
        (TWO, on_efa()),
        (TWO, on_efa(library=None)),
        (TWO, pair()),
        "error",
        ("node-a", "EFA", "aws-ofi-nccl"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
