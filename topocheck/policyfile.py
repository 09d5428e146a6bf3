"""How a plan file writes policy and waivers: rules by id, waivers with reason, owner and expiry.

The functions are readers of single keys, as `topocheck.planfile` calls them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, get_args

import yaml

from topocheck.errors import PlanError
from topocheck.plan import Waiver
from topocheck.strictyaml import NUMBER, quoted
from topocheck.waiver import MAX_NAMED, parse_day, parse_group, parse_nodes, parse_ranks

__all__ = ["Reader", "day", "devices", "group", "nodes", "ranks", "rule_id", "rules", "severity", "waivers"]

RULE = re.compile(r"[A-Z]+[0-9]{0,3}")
WHOLE_RULE = re.compile(r"[A-Z]+[0-9]{3}")
DEVICE = re.compile(r"[A-Za-z0-9_.-]{1,64}(:[0-9]{1,3})?")
DATE = "tag:yaml.org,2002:timestamp"
MAX_WAIVERS = 1000
"""More are not waivers but another policy."""
TOO_MANY = f"name more than {MAX_NAMED:,} nodes one by one"
FEWER = "say it with patterns such as gpu-*"

Parsed = TypeVar("Parsed")


class Reader(Protocol):
    """What of the reader of plans is used here."""

    def error(self, node: yaml.Node, problem: str, fix: str = "") -> PlanError:
        """An error at the line of a node."""

    def text(self, node: yaml.Node, what: str, kind: str = "text", fix: str = "") -> str:
        """Text of a node. Raises PlanError."""

    def items(self, node: yaml.Node, what: str, fix: str) -> list[yaml.Node]:
        """Nodes of a list. Raises PlanError."""

    def entries(self, node: yaml.Node, what: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Key and value nodes of a mapping. Raises PlanError."""

    def choice(self, node: yaml.Node, what: str, options: tuple[str, ...]) -> str:
        """One of some words. Raises PlanError."""

    def record(self, kind: type[Any], node: yaml.Node, what: str) -> Any:
        """A Struct. Raises PlanError."""


def rules(reader: Reader, node: yaml.Node, what: str, _: Any) -> tuple[str, ...]:
    """A list of rules and families: [TP, PP003]."""
    return tuple(rule(reader, item, what) for item in reader.items(node, what, "write it as [EV002]"))


def severity(reader: Reader, node: yaml.Node, what: str, hint: Any) -> dict[str, Any]:
    """Severities by rule or family: {TP003: warning}."""
    levels = get_args(get_args(hint)[1])
    return {
        rule(reader, key, what): reader.choice(value, f"{what}.{name}", levels)
        for name, (key, value) in reader.entries(node, what).items()
    }


def rule(reader: Reader, node: yaml.Node, what: str) -> str:
    """A rule or a family."""
    text = reader.text(node, what, "the id of a rule")
    if RULE.fullmatch(text):
        return text
    upper = text.upper()
    fix = f"did you mean '{upper}'?" if RULE.fullmatch(upper) else "rules are written TP001, families TP"
    raise reader.error(node, f"{quoted(text)} in {what} is neither a rule nor a family", fix)


def devices(reader: Reader, node: yaml.Node, what: str, _: Any) -> tuple[str, ...]:
    """Names of RDMA devices: [mlx5_0, mlx5_1]."""
    names: dict[str, None] = {}
    for item in reader.items(node, what, "write it as [mlx5_0, mlx5_1]"):
        name = reader.text(item, what, "the name of an RDMA device")
        if not DEVICE.fullmatch(name):
            fix = "write names as ibv_devices lists them, for instance mlx5_0"
            raise reader.error(item, f"{quoted(name)} in {what} is no RDMA device", fix)
        if name in names:
            raise reader.error(item, f"{quoted(name)} stands twice in {what}", "remove one of them")
        names[name] = None
    return tuple(names)


def waivers(reader: Reader, node: yaml.Node, what: str, _: Any) -> tuple[Waiver, ...]:
    """A list of waivers."""
    listed = reader.items(node, what, "write each as '- {rule: ..., reason: ..., owner: ..., expires: ...}'")
    if len(listed) > MAX_WAIVERS:
        raise reader.error(node, f"{what} holds {len(listed)} waivers", f"{MAX_WAIVERS} are the most")
    found: list[Waiver] = []
    named = 0
    for number, item in enumerate(listed):
        waiver: Waiver = reader.record(Waiver, item, f"{what}[{number}]")
        named += sum(len(parse_nodes(text)) for text in waiver.nodes)
        if named > MAX_NAMED:
            raise reader.error(item, f"{what} together {TOO_MANY}", FEWER)
        if waiver in found:
            raise reader.error(item, f"{what}[{number}] stands there twice", "remove one of them")
        found.append(waiver)
    return tuple(found)


def rule_id(reader: Reader, node: yaml.Node, what: str, _: Any) -> str:
    """One rule: a waiver of a whole family would cover what nobody has seen yet."""
    text = rule(reader, node, what)
    if not WHOLE_RULE.fullmatch(text):
        raise reader.error(node, f"{quoted(text)} in {what} is no single rule", "write for instance NV001")
    return text


def nodes(reader: Reader, node: yaml.Node, what: str, _: Any) -> tuple[str, ...]:
    """Names and patterns of nodes, one or a list."""
    found, named = [], 0
    for item in one_or_more(reader, node, what):
        text = reader.text(item, what, "a name or pattern of nodes")
        named += len(parsed(reader, item, text, parse_nodes))
        if named > MAX_NAMED:
            raise reader.error(item, f"{what} {TOO_MANY}", FEWER)
        found.append(text)
    return tuple(found)


def ranks(reader: Reader, node: yaml.Node, what: str, _: Any) -> tuple[str, ...]:
    """Ranks and ranges of ranks, one or a list."""
    found = []
    for item in one_or_more(reader, node, what):
        whole = isinstance(item, yaml.ScalarNode) and item.tag == NUMBER
        text = item.value if whole else reader.text(item, what, "ranks", "write for instance 0..7")
        parsed(reader, item, text, parse_ranks)
        found.append(text)
    return tuple(found)


def group(reader: Reader, node: yaml.Node, what: str, _: Any) -> str:
    """A group by kind and number."""
    text = reader.text(node, what, "a group", "write its kind and number, for instance TP 3")
    parsed(reader, node, text, parse_group)
    return text


def day(reader: Reader, node: yaml.Node, what: str, _: Any) -> str:
    """A day, with or without quotes; YAML would read the latter as a date of its own."""
    plain = isinstance(node, yaml.ScalarNode) and node.tag == DATE
    fix = "write year-month-day, for instance 2026-12-31"
    text: str = node.value if plain else reader.text(node, what, "a day", fix)
    parsed(reader, node, text, parse_day)
    return text


def one_or_more(reader: Reader, node: yaml.Node, what: str) -> list[yaml.Node]:
    """The nodes of a list, or the only one."""
    return reader.items(node, what, "") if isinstance(node, yaml.SequenceNode) else [node]


def parsed(reader: Reader, node: yaml.Node, text: str, parse: Callable[[str], Parsed]) -> Parsed:
    """What a text means. Raises PlanError in the words of its parser."""
    try:
        return parse(text)
    except ValueError as error:
        problem, _, fix = str(error).partition(": ")
        raise reader.error(node, f"{quoted(text)} {problem}", fix) from error
