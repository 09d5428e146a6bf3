"""Values of a variable that are in force where the ranks of a node run, and where each was read.

What the job's own log shows goes before its variables, those before the nccl.conf of the node, and that
before what a launch command says of all nodes. Ranks of one node may have values of their own.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import msgspec

from topocheck.placement import Node, Placement
from topocheck.rule import Evidence, read_at
from topocheck.snapshot import JobFact
from topocheck.speaker import node_named

__all__ = [
    "Setting",
    "configured",
    "has_without",
    "is_listed",
    "is_unset",
    "names_set",
    "own_options",
    "setting_kind",
    "settings_of",
]

ONE_A_NODE = frozenset({"torchrun", "accelerate"})
"""Launchers that are started on each node."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of one variable."""

    name: str
    value: str
    evidence: Evidence

    def __str__(self) -> str:
        return f"{self.name}={self.value[:100]}"


class Variables(dict[bytes, dict[str, str]]):
    """Variables by their encoded form; nodes share most of them."""

    def __missing__(self, raw: bytes) -> dict[str, str]:
        """Read variables that were not met before."""
        self[raw] = msgspec.json.decode(raw, type=dict[str, str])
        return self[raw]


def settings_of(placement: Placement, node: Node, name: str) -> tuple[Setting, ...]:
    """Values of a variable on a node, each once; () where none is shown."""
    found: dict[str, Evidence] = {}
    for fact in placement.facts_by_node.get(node.index, ()):
        own, _, value = fact.value.partition("=")
        if fact.kind == "env" and own == name:
            found.setdefault(value, read_at(fact.at, fact.value, "log"))
    machine = node.machine
    if machine is not None and not found:
        decoded = placement.keep("variables", lambda _: Variables())
        for raw in machine.listed if is_listed(node) else machine.environments:
            if name in decoded[raw]:
                value = decoded[raw][name]
                found.setdefault(value, Evidence(source="environment of the ranks", fact=f"{name}={value}"))
    if not found:
        found = configured(node, name) or ({} if is_listed(node) else commanded(placement, node, name))
    return tuple(Setting(name, value, evidence) for value, evidence in found.items())


def names_set(placement: Placement, node: Node) -> set[str]:
    """Names of all variables that anything sets for the ranks of a node."""
    facts = placement.facts_by_node.get(node.index, ())
    found = {fact.value.partition("=")[0] for fact in facts if fact.kind == "env"}
    machine = node.machine
    for raw in machine.environments if machine is not None else ():
        found |= placement.keep("variables", lambda _: Variables())[raw].keys()
    for file in machine.files if machine is not None else ():
        found |= file.settings.keys()
    return found | {fact.name for fact in commands(placement, node)}


def configured(node: Node, name: str) -> dict[str, Evidence]:
    """What the first nccl.conf says that sets the variable: NCCL lets the first one win."""
    for file in node.machine.files if node.machine else ():
        if file.kind == "settings" and name in file.settings:
            value = file.settings[name]
            return {value: Evidence(source=file.path, fact=f"{name}={value}")}
    return {}


def commanded(placement: Placement, node: Node, name: str) -> dict[str, Evidence]:
    """What launch commands and scripts say for a node."""
    facts = [fact for fact in commands(placement, node) if fact.name == name]
    return {fact.value: read_at(fact.at, f"{name}={fact.value}") for fact in facts if "$" not in fact.value}


def commands(placement: Placement, node: Node) -> list[JobFact]:
    """Options of the commands and scripts that are for all nodes, and of the node's own."""
    by_node = placement.keep("options by node", options_by_node)
    return [*by_node.get(None, ()), *by_node.get(node.index, ())]


def own_options(placement: Placement) -> dict[int, tuple[tuple[str, str], ...]]:
    """Names and values of the options that are for one node alone, by its index."""

    def find(_: Placement) -> dict[int, tuple[tuple[str, str], ...]]:
        by_node = placement.keep("options by node", options_by_node)
        return {
            place: tuple([(fact.name, fact.value) for fact in facts])
            for place, facts in by_node.items()
            if place is not None
        }

    return placement.keep("own options", find)


def options_by_node(placement: Placement) -> dict[int | None, list[JobFact]]:
    """Options by the node that they are for; None is all of them.

    What was given on a node of the job is for that node alone, unless a launcher carried it to the others:
    not torchrun, nor accelerate, nor an engine's own command, of which each node has its own.
    """
    job = placement.inventory.job
    carried = {
        (fact.host, fact.at and fact.at.source)
        for fact in job
        if fact.kind == "launcher" and not ONE_A_NODE.issuperset(fact.value.split())
    }
    found: dict[int | None, list[JobFact]] = {}
    for fact in job:
        if fact.kind == "option":
            own = fact.host is not None and (fact.host, fact.at and fact.at.source) not in carried
            node = node_named(placement, fact.host) if own and fact.host else None
            found.setdefault(None if node is None else node.index, []).append(fact)
    return found


def is_listed(node: Node) -> bool:
    """The variables of the job's own processes are listed: what is not among them is not set."""
    return node.machine is not None and node.machine.has_claims and bool(node.machine.listed)


def has_without(placement: Placement, node: Node, name: str) -> bool:
    """Some ranks of a node have the variable in their environment and others do not.

    What a log shows was read by the library itself, whoever set it: then nothing is known of the others.
    """
    machine = node.machine
    if machine is None or not machine.has_claims or len(machine.listed) < 2:
        return False
    facts = placement.facts_by_node.get(node.index, ())
    if any(fact.kind == "env" and fact.value.partition("=")[0] == name for fact in facts):
        return False
    decoded = placement.keep("variables", lambda _: Variables())
    return len({name in decoded[raw] for raw in machine.listed}) > 1


def is_unset(placement: Placement, node: Node, name: str) -> bool:
    """Nothing sets the variable on a node, and its processes show all of theirs."""
    return is_listed(node) and not settings_of(placement, node, name)


def setting_kind(placement: Placement, node: Node) -> Hashable:
    """Nodes of one kind have the same settings: variables, files, and no log of their own."""
    machine = node.machine
    if node.index in placement.facts_by_node:
        return node.index
    own = own_options(placement).get(node.index, ())
    if machine is None:
        return own
    files = tuple(tuple(sorted(file.settings.items())) for file in machine.files) if machine.files else ()
    listed = tuple(map(id, machine.listed)) if machine.has_claims else None
    return tuple(map(id, machine.environments)), files, listed, own
