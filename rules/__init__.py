"""What is asked of a placement: one module and one page for each family.

The order is that of causes: a rule whose finding explains another's stands before it, so that the
first sentence of a report is the root.
"""

from __future__ import annotations

from typing import Any

from topocheck.rule import Rule
from topocheck.rules import (
    environment,
    evidence,
    hosts,
    identity,
    network,
    nvlink,
    observed,
    pipeline,
    tensor,
)

__all__ = ["RULES"]

RULES: tuple[Rule[Any], ...] = (
    *hosts.RULES,
    *identity.RULES,
    *nvlink.RULES,
    *network.RULES,
    *tensor.RULES,
    *pipeline.RULES,
    *observed.RULES,
    *environment.RULES,
    *evidence.RULES,
)
"""All built-in rules, causes before consequences."""
