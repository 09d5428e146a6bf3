"""Jobs for the rules of expert groups, of context groups, and of prefill and decode pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from build import GB200, H100, completed, nics, snap
from made_capacity import Made

from topocheck.snapshot import At, FullSnapshot, JobFact, NicShape, RankClaim

__all__ = ["CASES", "FAILURES", "WARNINGS", "chosen", "pools", "silent", "spread"]

Job = tuple[str, Sequence[FullSnapshot]]

WARNINGS = frozenset({"GR001", "GR002", "GR004"})

EXPERTS = (
    "engine: vllm\nparallel: {tensor: 4, data: 2, expert: 8}\nmodel: {layers: 32, experts: 64}\n"
    "nodes: [node-a, node-b]\n"
)
"""One expert group of eight ranks on two nodes of four."""
CONTEXT = "engine: megatron\nparallel: {tensor: 2, context: 2, data: 2}\nnodes: [node-a, node-b]\n"
"""Context groups inside the nodes, if ranks follow each other."""
RING = "engine: megatron\nparallel: {tensor: 2, context: 4}\nnodes: [node-a, node-b]\n"
"""Context groups that no node holds."""
POOLS = (
    "engine: vllm\nparallel: {tensor: 4}\n"
    "worlds:\n  prefill: {nodes: [node-a]}\n  decode: {nodes: [node-b]}\n"
)
SILENT = tuple(NicShape(name=nic.name) for nic in nics())
"""A NIC whose port nothing shows."""


def spread(
    first: Sequence[int] = range(4), second: Sequence[int] = range(4, 8), model: str = H100, **of_both: Any
) -> list[FullSnapshot]:
    """Two nodes with these ranks."""
    return [
        snap(name, ranks, model=model, **of_both) for name, ranks in (("node-a", first), ("node-b", second))
    ]


def silent(model: str = H100) -> list[FullSnapshot]:
    """Two nodes that show neither the state of their ports nor a fabric."""
    return spread(model=model, ports=SILENT)


def chosen(name: str, value: str = "") -> FullSnapshot:
    """A launch script that chooses something by a flag."""
    view = snap(None, boot=None)
    fact = JobFact(kind="option", name=name, value=value, engine="vllm", at=At(source="serve.sh", line=3))
    return FullSnapshot(
        schema=view.schema, identity=type(view.identity)(host=view.identity.host), job=(fact,)
    )


def pools(**of_decode: Any) -> list[FullSnapshot]:
    """A prefill world on node-a and a decode world on node-b; keywords change node-b."""
    found = []
    told: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("node-a", "prefill", {}),
        ("node-b", "decode", of_decode),
    )
    for name, world, parts in told:
        view = snap(name, range(4), size=4, **parts)
        ranks: tuple[RankClaim, ...] = tuple(
            msgspec.structs.replace(claim, world=world) for claim in view.ranks
        )
        found.append(msgspec.structs.replace(view, ranks=ranks))
    return found


CASES: dict[str, Made] = {
    "GR001": Made(
        (EXPERTS, spread()),
        (EXPERTS, spread(ports=nics(state="DOWN"))),
        (EXPERTS, silent()),
        (RING, spread()),
        "warning",
        ("expert group 0", "0..7", "node-a", "node-b", "mlx5_0 DOWN", "node-a.json"),
    ),
    "GR002": Made(
        (CONTEXT, spread()),
        (CONTEXT, spread((0, 1, 4, 5), (2, 3, 6, 7))),
        (RING, spread(model=GB200, fabric=())),
        (EXPERTS, spread()),
        "warning",
        ("context group", "0, 2", "node-a", "node-b", "tensor 2 x context 2"),
    ),
    "GR004": Made(
        (POOLS, pools()),
        (POOLS, pools(ports=nics(state="DOWN"))),
        (POOLS, pools(ports=SILENT)),
        (EXPERTS, spread()),
        "warning",
        ("decode", "node-b", "prefill on node-a", "mlx5_0 DOWN"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}

RACK = completed()
"""The fabric of one rack."""
