"""ENV: nothing around the processes changes their path unseen."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import msgspec

from topocheck.ask import Ask
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rdma import spell
from topocheck.rule import Evidence, Finding, Situations, rule

__all__ = ["RULES"]

IDENTITY_OVERRIDES = (
    "NCCL_HOSTID",
    "NCCL_MNNVL_UUID",
    "NCCL_MNNVL_CLIQUE_ID",
    "NCCL_MULTI_RANK_GPU_ENABLE",
    "NCCL_IGNORE_DISABLED_P2P",
    "NCCL_CHECKS_DISABLE",
)
"""Variables that replace what NCCL finds out about hosts, domains and GPUs, or silence its checks."""


def environments(placement: Placement) -> Situations[Node]:
    """Nodes by what is known of their variables."""
    found: dict[Hashable, list[Node]] = {}
    for node in placement.nodes:
        key: Hashable = "unknown"
        if node.index in placement.facts_by_node:
            key = node.index
        elif node.machine is not None and node.machine.environments:
            key = tuple(map(id, node.machine.environments))
        found.setdefault(key, []).append(node)
    return found


@rule("ENV007", "nothing overrides identity", over=environments, severity="warning")
def identity_is_not_overridden(ask: Ask, node: Node) -> Iterator[Finding]:
    """A variable that makes two hosts one, or one two, defeats every check behind it."""
    found: dict[str, Evidence] = {}
    for fact in ask.placement.facts_by_node.get(node.index, []):
        name = fact.value.partition("=")[0]
        if fact.kind == "env" and name in IDENTITY_OVERRIDES:
            found.setdefault(fact.value, spell(fact))
    for raw in node.machine.environments if node.machine else ():
        for name, value in msgspec.json.decode(raw, type=dict[str, str]).items():
            if name in IDENTITY_OVERRIDES:
                found.setdefault(f"{name}={value}", Evidence(source="environment", fact=f"{name}={value}"))
    if not found and not (node.machine and node.machine.environments):
        supply = "topocheck probe in the job's own processes"
        ask.gap("variables of the ranks", [node.name], supply, part="environment")
        return
    ask.know()
    if found:
        yield Finding(
            message=f"{first(found)} is set on {node}: the library takes it for the truth about hosts and "
            "GPUs, so a wrong value joins what is apart or hides a fault",
            fix="unset it, unless the machine's vendor asks for it",
            cause="identity overridden",
            subjects=(node.name,),
            evidence=tuple(found.values()),
        )


RULES = (identity_is_not_overridden,)
