"""NV: the NVLinks that should be there are there."""

from __future__ import annotations

from collections.abc import Iterator

from topocheck.ask import Ask
from topocheck.hardware import Link, Shape
from topocheck.models import has_nvlink, nvlinks_by_design
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rule import Evidence, Finding, NotApplicable, Severity, Situations, rule
from topocheck.subjects import Load, loads

__all__ = ["RULES"]


def linked_nodes(placement: Placement) -> Situations[Load] | NotApplicable:
    """Nodes with ranks, unless no GPU of the job has NVLink by design."""
    nodes = placement.nodes[: placement.expected]
    models = {gpu.model for node in nodes if node.shape for gpu in node.shape.hardware.gpus}
    if models and all(node.shape for node in nodes) and all(has_nvlink(m) is False for m in models):
        return NotApplicable(f"{first(sorted(map(str, models)))} has no NVLink")
    return loads(placement)


@rule("NV001", "each GPU has all its NVLinks", over=linked_nodes, severity="error")
def gpu_has_its_links(ask: Ask, load: Load) -> Iterator[Finding]:
    """Fewer active links than the model has by design, or than the node's other GPUs have."""
    ask.rest_on(ask.placement.placed.basis)
    node = load.node
    if node is None or node.shape is None or not node.shape.gpus:
        ask.gap(
            "NVLinks of each GPU",
            [node.name if node else "ranks without a node"],
            "nvidia-smi nvlink -s, or nvidia-smi topo -m, given as NODE=FILE",
        )
        return
    judged = 0
    for gpu in range(node.shape.gpus):
        verdict = short_by(node.shape, gpu)
        if verdict is None:
            continue
        judged += 1
        fact, severity = verdict
        if fact:
            yield short_of_links(load, node, gpu, fact, severity)
    if judged < node.shape.gpus:
        ask.gap("NVLinks of each GPU", [node.name], "nvidia-smi nvlink -s, given as NODE=FILE")


def short_by(shape: Shape, gpu: int) -> tuple[str, Severity] | None:
    """What a GPU lacks in words, empty if nothing; None if it cannot be judged."""
    active, model = shape.nvlinks(gpu), shape.hardware.gpus[gpu].model
    design = nvlinks_by_design(model)
    if active is not None and design is not None:
        return (
            f"{active} active NVLinks of the {design} that {model} has" if active < design else ""
        ), "error"
    others = [
        count for other in range(shape.gpus) if other != gpu and (count := shape.nvlinks(other)) is not None
    ]
    if active is not None and others:
        most = max(set(others), key=others.count)
        return (f"{active} active NVLinks where its peers have {most}" if active < most else ""), "error"
    return by_table(shape, gpu)


def by_table(shape: Shape, gpu: int) -> tuple[str, Severity] | None:
    """The same from a table of link classes, which shows bonds between pairs and not links of a GPU."""
    rows = [shape.table_row(other) for other in range(shape.gpus)]
    if shape.gpus < 2 or any(row is None for row in rows):
        return None
    totals = [sum(link.count for link in row or ()) for row in rows]
    if not any(totals):
        return None  # no NVLink at all: whether the model should have it is not shown
    if totals[gpu] == max(totals):
        return "", "error"
    if meshed(rows, gpu):
        return f"NVLink to {joined(rows[gpu])} of {shape.gpus - 1} GPUs, its peers are all joined", "error"
    if totals[gpu]:
        return f"{totals[gpu]} bonded NVLinks where others have {max(totals)}", "warning"
    return None  # a box with bridges on some pairs only: nothing says that this one should have any


def meshed(rows: list[list[Link] | None], gpu: int) -> bool:
    """All pairs among the other GPUs are joined."""
    for other, row in enumerate(rows):
        if other == gpu or row is None:
            continue
        missing_place = gpu if gpu < other else gpu - 1
        if any(not link.nvlink for place, link in enumerate(row) if place != missing_place):
            return False
    return len(rows) > 2


def joined(row: list[Link] | None) -> int:
    """Number of NVLinked peers."""
    return sum(link.nvlink for link in row or ())


def short_of_links(load: Load, node: Node, gpu: int, fact: str, severity: Severity) -> Finding:
    """The finding of one GPU."""
    machine = node.machine
    index = machine.gpus[gpu].nvml if machine and gpu < len(machine.gpus) else None
    ranks = tuple(rank for rank, used in zip(load.ranks, load.gpus, strict=True) if used == gpu)
    return Finding(
        message=f"GPU {gpu if index is None else index} ({node.gpu_name(gpu)}) of {node} has {fact}: every "
        "all-reduce through it slows down or leaves NVLink, while logs still say P2P",
        fix=f"drain {node}, reset or reseat the GPU, and check nvidia-smi nvlink -s and the kernel log "
        "for Xid",
        cause="links missing",
        subjects=(f"GPU {gpu if index is None else index} of {node}",),
        evidence=(
            Evidence(
                source=", ".join(machine.sources) if machine and machine.sources else "hardware", fact=fact
            ),
        ),
        severity=severity,
        ranks=ranks,
        mark="gpu",
    )


RULES = (gpu_has_its_links,)
