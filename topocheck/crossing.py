"""Groups that cross nodes: whether the plan lets them, and how bad it is if not."""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.column import Column
from topocheck.placement import Node, Placement
from topocheck.profiles import tensor_domain
from topocheck.rule import Evidence, Severity, read_at

__all__ = [
    "crossing_fix",
    "crossing_severity",
    "engines_words",
    "gpus_of",
    "may_be_one_machine",
    "says_so",
    "torn_ranks",
]


def crossing_severity(placement: Placement, nodes: Sequence[Node], shared: bool | None) -> Severity | None:
    """Error where TP could stay inside with another pipeline size or order, else a warning.

    None where the plan lets a group cross: inside an NVLink domain that is proven, or may be one.
    """
    policy = tensor_domain(placement, nodes)
    if policy == "nvlink" and shared is not False:
        return None
    if policy == "any" or (shared and policy is None) or may_be_one_machine(nodes):
        return "warning"
    return "error" if max(gpus_of(placement, node) for node in nodes) > 1 else "warning"


def gpus_of(placement: Placement, node: Node) -> int:
    """GPUs of a node where its list is whole, else its share of the world."""
    machine = node.machine
    if machine is not None and machine.coverage.gpus == "all":
        return len(machine.gpus)
    share = -(-placement.world // placement.expected)
    return max(share, len(machine.gpus) if machine else 0)


def may_be_one_machine(nodes: Sequence[Node]) -> bool:
    """Two containers of one machine look like two hosts: no boot id, and no GPU place in common."""
    seen: set[str] = set()
    for node in nodes:
        machine = node.machine
        if machine is None or machine.host.boot_id is not None or machine.coverage.gpus == "all":
            return False
        places = {gpu.bus for gpu in machine.gpus if gpu.bus is not None}
        places = places or {f"index {gpu.nvml}" for gpu in machine.gpus if gpu.nvml is not None}
        if not places or places & seen:
            return False
        seen |= places
    return True


def torn_ranks(placement: Placement, column: Column, predicted: Column) -> set[int]:
    """Ranks of groups on more nodes than the layout needs: under Ray any order of whole groups is right."""
    torn: set[int] = set()
    for kind in placement.layout.kinds():
        for group in placement.layout.groups(kind):
            places = {column.node[rank] for rank in group} - {None}
            if len(places) > len({predicted.node[rank] for rank in group}):
                torn.update(group)
    return torn


def engines_words(placement: Placement) -> tuple[Evidence, ...]:
    """Lines by which the engine itself says that a TP group lies on several nodes, or must."""
    tensor = placement.layout.size("tensor")
    found = []
    for fact in placement.inventory.job:
        if fact.kind == "group-spans-nodes" and fact.name == "tensor":
            found.append(read_at(fact.at, fact.value))
        elif fact.kind == "reserved-gpus" and fact.value.isdecimal() and int(fact.value[:9]) < tensor:
            found.append(read_at(fact.at, f"GPUs reserved on {fact.name}: {fact.value}, TP is {tensor}"))
    return tuple(found)


def says_so(placement: Placement) -> bool:
    """The engine says that a TP group spans nodes, which does not hang on where ranks are seen."""
    job = placement.inventory.job
    return any(fact.kind == "group-spans-nodes" and fact.name == "tensor" for fact in job)


def crossing_fix(placement: Placement, nodes: list[Node], shared: bool | None, policy: str | None) -> str:
    """What to change about a group that crosses nodes."""
    if shared and policy is None:
        return "if the NVLink domain is meant to carry TP, say `policy: {tensor_domain: nvlink}` in the plan"
    if may_be_one_machine(nodes):
        return (
            "give the boot id of each host (topocheck probe): two containers of one machine look like this, "
            "and then they need a shared IPC namespace"
        )
    size = placement.layout.size("tensor")
    most = max(gpus_of(placement, node) for node in nodes)
    fits = max((d for d in range(1, most + 1) if size % d == 0), default=1)
    if fits == size:
        return (
            f"keep each TP group's {size} ranks on one node: order the ranks so that blocks of {size} share "
            "a node (hostfile order, block distribution, or node ranks)"
        )
    if fits > 1:
        stages = placement.layout.size("pipeline") * size // fits
        return f"use tensor {fits} x pipeline {stages} on the same GPUs: then each TP group fits in one node"
    if most > 1:
        return (
            f"use a tensor size that divides the {most} GPUs of a node: {size} leaves no whole group inside"
        )
    return "no node has more than one GPU: expect network speed, or say `policy: {tensor_domain: any}`"
