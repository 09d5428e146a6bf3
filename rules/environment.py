"""ENV: nothing around the processes changes their path unseen."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from topocheck.ask import Ask
from topocheck.kinds import by_kind
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rule import Finding, Situations, rule
from topocheck.settings import is_listed, setting_kind, settings_of

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
    """Nodes by what sets their variables."""
    return by_kind(placement, partial(setting_kind, placement), others=True)


@rule("ENV007", "nothing overrides identity", over=environments, severity="warning")
def identity_is_not_overridden(ask: Ask, node: Node) -> Iterator[Finding]:
    """A variable that makes two hosts one, or one two, defeats every check behind it."""
    settings = [one for name in IDENTITY_OVERRIDES for one in settings_of(ask.placement, node, name)]
    found = {str(setting): setting.evidence for setting in settings}
    if not found and not is_listed(node):
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
