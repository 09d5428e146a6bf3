"""What is asked of a placement: one module and one page for each family.

The order is that of causes: a rule whose finding explains another's stands before it, so that the
first sentence of a report is the root.
"""

from __future__ import annotations

from typing import Any

from topocheck.rule import Rule
from topocheck.rules import (
    capacity,
    devices,
    direct,
    edges,
    effective,
    environment,
    evidence,
    experts,
    fabric,
    groups,
    hops,
    hosts,
    identity,
    launch,
    limits,
    model,
    network,
    nics,
    nvlink,
    observed,
    occupancy,
    path,
    pipeline,
    pools,
    ports,
    rails,
    recovery,
    selection,
    settings,
    stages,
    tensor,
    versions,
)

__all__ = ["RULES"]

RULES: tuple[Rule[Any], ...] = (
    *hosts.RULES,
    *launch.RULES,
    *identity.RULES,
    *devices.RULES,
    *model.RULES,
    *effective.RULES,
    *nvlink.RULES,
    *fabric.RULES,
    *limits.RULES,
    *ports.RULES,
    *selection.RULES,
    *direct.RULES,
    *network.RULES,
    *nics.RULES,
    *tensor.RULES,
    *path.RULES,
    *identity.AFTER_GROUPS,
    *pipeline.RULES,
    *stages.RULES,
    *rails.RULES,
    *hops.RULES,
    *occupancy.RULES,
    *capacity.RULES,
    *edges.RULES,
    *recovery.RULES,
    *observed.RULES,
    *experts.RULES,
    *pools.RULES,
    *groups.RULES,
    *settings.RULES,
    *environment.RULES,
    *versions.RULES,
    *evidence.RULES,
)
"""All built-in rules, causes before consequences."""
