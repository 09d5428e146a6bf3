"""The all-to-all of expert groups: which kernels do it, and what they refuse.

DeepEP's normal mode (csrc/kernels/configs.cuh and the constructor of Buffer, deep_ep.cpp) sends in two steps:
ranks in blocks of NUM_MAX_NVL_PEERS = 8 that follow each other in the group reach each other by NVLink
through CUDA IPC, and the blocks by RDMA, NUM_MAX_RDMA_PEERS = 20 of them at most. Its low-latency mode sends
everything by RDMA and knows no blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topocheck.placement import Placement
from topocheck.ranges import first
from topocheck.rule import Evidence, read_at
from topocheck.snapshot import JobFact

__all__ = ["BLOCK", "deepep", "refusal"]

BLOCK = 8
"""Ranks of one block, NUM_MAX_NVL_PEERS."""
MOST_BLOCKS = 20
"""NUM_MAX_RDMA_PEERS."""

VARIABLE = "VLLM_ALL2ALL_BACKEND"
CHOICES = {
    "all2all-backend": ("deepep_high_throughput",),
    VARIABLE: ("deepep_high_throughput",),
    "moe-a2a-backend": ("deepep",),
    "moe-flex-dispatcher-backend": ("deepep",),
    "moe-enable-deepep": ("True", "true", ""),
}
"""Option or variable -> values by which vLLM, SGLang and Megatron-LM choose DeepEP's normal mode."""
MODE = "deepep-mode"
LOW_LATENCY = frozenset({"low_latency", "low_latency_overlap"})


def deepep(placement: Placement) -> Evidence | None:
    """What chose DeepEP's normal mode for this job; None if nothing shown did."""
    chosen: JobFact | None = None
    for fact in placement.inventory.job:
        if fact.kind != "option":
            continue
        name = spelled(fact)
        if name == MODE and fact.value in LOW_LATENCY:
            return None
        if fact.value in CHOICES.get(name, ()):
            chosen = chosen or fact
    if chosen is None:
        return None
    return read_at(chosen.at, f"{chosen.name} {chosen.value}".rstrip(), "job")


def spelled(fact: JobFact) -> str:
    """An option without dashes in front, as its flag is written; a variable as it is."""
    return fact.name if fact.name == VARIABLE else fact.name.lstrip("-").replace("_", "-")


def refusal(places: Sequence[int], name: Callable[[int], str]) -> str | None:
    """Why DeepEP's normal mode does not work for a group whose ranks lie on these nodes; None if it does.

    `places` are in the order of the group, `name` gives the name of a node.
    """
    size = len(places)
    if size > BLOCK and size % BLOCK:
        return f"it wants a multiple of {BLOCK} ranks, and the group has {size}"
    if size > BLOCK * MOST_BLOCKS:
        return f"it reaches {BLOCK * MOST_BLOCKS} ranks at most, and the group has {size}"
    for start in range(0, size, BLOCK):
        nodes = list(dict.fromkeys(places[start : start + BLOCK]))
        if len(nodes) > 1:
            span = f"{start}..{min(start + BLOCK, size) - 1}"
            return f"the block of ranks {span} of the group lies on {first(map(name, nodes), 4)}"
    return None
