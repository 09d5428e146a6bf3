"""Jobs for the rules of sameness: nodes whose versions, model, arguments or machines differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from build import snap
from made_capacity import Made

from topocheck.snapshot import (
    SCHEMA,
    At,
    FullSnapshot,
    Host,
    Identity,
    JobFact,
    ModelFiles,
    Software,
)

__all__ = ["CASES", "FAILURES", "WARNINGS", "asking", "nodes"]

Job = tuple[str, Sequence[FullSnapshot]]

NAMES = ("node-a", "node-b", "node-c", "node-d")
PLAN = f"engine: vllm\nparallel: {{tensor: 4, pipeline: 4}}\nnodes: [{', '.join(NAMES)}]\n"
ALONE = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n"

SAME = Software(
    driver="570.86.15",
    cuda="12.8",
    cuda_runtime="12.8",
    nccl="2.27.5",
    engine="vllm",
    engine_version="0.24.0",
)
MODEL = ModelFiles(
    path="/models/m",
    config_digest="sha256:" + "4f" * 32,
    weights_digest="sha256:" + "a7" * 32,
    weights_files=30,
)

WARNINGS = frozenset({"VER001", "VER004", "VER007"})


def nodes(**of_third: Any) -> list[FullSnapshot]:
    """Four nodes; keywords change the versions of the third."""
    odd = msgspec.structs.replace(SAME, **of_third)
    return [snap(name, (), software=odd if name == "node-c" else SAME) for name in NAMES]


def asking(*tensor: str, named: bool = True) -> list[FullSnapshot]:
    """Start-up logs of the nodes, each with the tensor size that it asks for, and its host if `named`."""
    return [
        FullSnapshot(
            schema=SCHEMA,
            identity=Identity(host=Host()),
            job=(
                JobFact(
                    kind="requested-size",
                    name="tensor",
                    value=size,
                    engine="vllm",
                    host=name if named else None,
                    at=At(source=f"{name}.log", line=12),
                ),
            ),
        )
        for name, size in zip(NAMES, tensor, strict=False)
    ]


def holding(**of_third: Any) -> list[FullSnapshot]:
    """Four nodes with a model; keywords change the files of the third."""
    odd = msgspec.structs.replace(MODEL, **of_third)
    return [
        msgspec.structs.replace(snap(name, ()), model=odd if name == "node-c" else MODEL) for name in NAMES
    ]


def bare(software: Software = Software()) -> list[FullSnapshot]:  # noqa: B008 - it is frozen
    """Nodes that show GPUs, and these versions."""
    return [snap(name, (), software=software) for name in NAMES]


def machines(count: int) -> list[FullSnapshot]:
    """Four nodes of four GPUs; the third has so many."""
    return [snap(name, (), count=count if name == "node-c" else 4) for name in NAMES]


ONE: Job = (ALONE, [snap("node-a", ())])
LAST: list[FullSnapshot] = nodes()[:3]
"""One node is silent."""

CASES: dict[str, Made] = {
    "VER001": Made(
        (PLAN, nodes()),
        (PLAN, nodes(driver="550.54.15")),
        (PLAN, LAST),
        ONE,
        "warning",
        ("node-c", "550.54.15", "570.86.15", "other 3 nodes"),
    ),
    "VER002": Made(
        (PLAN, nodes()),
        (PLAN, nodes(nccl="2.21.5")),
        (PLAN, LAST),
        ONE,
        "error",
        ("node-c", "2.21.5", "2.27.5"),
    ),
    "VER003": Made(
        (PLAN, nodes()),
        (PLAN, nodes(engine_version="0.19.1")),
        (PLAN, LAST),
        ONE,
        "error",
        ("node-c", "vllm 0.19.1", "vllm 0.24.0"),
    ),
    "VER004": Made(
        (PLAN, nodes()),
        (PLAN, nodes(cuda="12.4", cuda_runtime="13.0")),
        (PLAN, bare()),
        (PLAN, [snap(name, (), model="AMD Instinct MI300X") for name in NAMES]),
        "warning",
        ("node-c", "13.0", "12.4"),
    ),
    "VER005": Made(
        (PLAN, holding()),
        (PLAN, holding(weights_files=29, weights_digest="sha256:" + "0b" * 32)),
        (PLAN, bare()),
        ONE,
        "error",
        ("node-c", "29 weight files", "30 weight files"),
    ),
    "VER006": Made(
        (PLAN, asking("4", "4", "4", "4")),
        (PLAN, asking("4", "4", "8", "4")),
        (PLAN, asking("4")),
        ONE,
        "error",
        ("node-c", "tensor", "8"),
    ),
    "VER007": Made(
        (PLAN, machines(4)),
        (PLAN, machines(3)),
        (PLAN, machines(4)[:3]),
        ONE,
        "warning",
        ("node-c", "3 x", "4 x"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
