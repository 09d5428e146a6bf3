"""ACME: the coolant of every node is cool enough."""

from __future__ import annotations

from collections.abc import Iterator

from acme_checks.probe import FILE, NAME
from topocheck.ask import Ask
from topocheck.kinds import by_kind
from topocheck.placement import Node, Placement
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, rule

__all__ = ["RULES"]

WARMEST = 40.0
"""Degrees Celsius from which on GPUs slow down."""


def nodes(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes by what the probe said of them."""
    return by_kind(placement, lambda node: node.machine.plugins if node.machine else None)


@rule("ACME001", "the coolant is cool enough", over=nodes, severity="warning", required=True)
def coolant_is_cool(ask: Ask, node: Node) -> Iterator[Finding]:
    """Temperature at the inlet of a node."""
    for facts in ask.plugin(node, NAME):
        degrees = facts["inlet_celsius"]
        if degrees > WARMEST:
            yield Finding(
                message=f"the coolant enters {node} with {degrees:g} C: GPUs slow down from {WARMEST:g} C on"
                ", and the others wait for them",
                fix="look at the pump of the rack, or take the node out of the job",
                cause="coolant too warm",
                subjects=(node.name,),
                evidence=(Evidence(source=FILE, fact=f"inlet {degrees:g}"),),
            )


RULES = (coolant_is_cool,)
