"""The order of nodes over which ranks lie as the layout needs, tried on the rules before it is given.

Ranks that a launcher dealt out wrongly lie right if the same nodes are given to it in this order and filled
one after the other. What shows only once ranks are there is left out of the trial.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import msgspec

from topocheck.domain import reported
from topocheck.errors import UsageError
from topocheck.inventory import Inventory
from topocheck.machine import changed
from topocheck.placement import Node, Placement, join
from topocheck.remedy import NodeOrder
from topocheck.rule import Rule
from topocheck.verify import RuleResult, run_rules

__all__ = ["JUDGES", "add_order", "proven_order"]

JUDGES = ("TP001", "ID010")
"""Rules whose findings another order may mend."""
HOLD = ("pass", "not-applicable")


def add_order(placement: Placement, results: Sequence[RuleResult], rules: Sequence[Rule[Any]]) -> None:
    """Add the order that was proven, if there is one, to the findings that it mends."""
    order = proven_order(placement, results, rules)
    for result in results:
        if order is not None and result.rule.id in JUDGES:
            result.findings = [
                replace(finding, remedies=(*finding.remedies, order)) for finding in result.findings
            ]


def proven_order(
    placement: Placement, results: Sequence[RuleResult], rules: Sequence[Rule[Any]]
) -> NodeOrder | None:
    """An order in which the rules about it hold and no other finds a new error.

    None where no rule asks for one, where none was found, and where the launcher takes none: Ray has its own.
    """
    asked = [result for result in results if result.rule.id in JUDGES]
    nodes = placement.nodes[: placement.expected]
    if not any(finding.counts for result in asked for finding in result.findings):
        return None
    if placement.facts.ray is not None or any(node.machine is None for node in nodes):
        return None
    wrong = failing(results)
    for order in candidates(nodes):
        tried = tried_on(placement, order)
        if tried is None:
            continue
        answers = run_rules(rules, tried)
        if holds(answers) and failing(answers) <= wrong:
            ranks = [len(list(run)) for _, run in groupby(tried.predicted.node)]
            return NodeOrder(nodes=tuple(node.name for node in order), ranks=tuple(ranks))
    return None


def failing(results: Sequence[RuleResult]) -> set[str]:
    """Rules that found an error."""
    return {
        result.rule.id
        for result in results
        if result.broke or any((f.severity or result.rule.severity) == "error" for f in result.findings)
    }


def holds(answers: Sequence[RuleResult]) -> bool:
    """The rules about the order are answered, and find nothing."""
    asked = [answer.verdict for answer in answers if answer.rule.id in JUDGES]
    return bool(asked) and all(verdict in HOLD for verdict in asked)


def candidates(nodes: Sequence[Node]) -> Iterator[Sequence[Node]]:
    """Orders to try: as the nodes are, then those of one NVLink domain beside each other."""
    yield nodes
    domains: dict[Hashable, list[Node]] = {}
    for node in nodes:
        domain = reported(node)
        domains.setdefault(domain if isinstance(domain, str) else node.index, []).append(node)
    beside = [node for members in domains.values() for node in members]
    if beside != list(nodes):
        yield beside


def tried_on(placement: Placement, order: Sequence[Node]) -> Placement | None:
    """The job as the engine's formula lays it out over this order; None if ranks do not fill node by node."""
    machines = [
        changed(node.machine, observed=(), has_claims=False, node_ranks=(), node_claims=())
        for node in order
        if node.machine is not None
    ]
    names = tuple(node.name for node in order)
    inventory = Inventory()
    inventory.machines = [
        changed(machine, host=msgspec.structs.replace(machine.host, aliases=(name, *machine.host.aliases)))
        for machine, name in zip(machines, names, strict=True)
    ]
    inventory.names = inventory.names.part([machine.host for machine in inventory.machines])
    try:
        tried = join(msgspec.structs.replace(placement.plan, nodes=names), inventory)
    except UsageError:  # what the engine refuses was said before
        return None
    column = tried.predicted
    if tried.phase != "predicted" or not column.complete or tried.order != tuple(range(len(names))):
        return None
    places = [place for place in column.node if place is not None]
    return tried if all(here <= there for here, there in pairwise(places)) else None
