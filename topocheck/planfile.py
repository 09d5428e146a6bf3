"""Reads a plan file: YAML in, one `Plan` out, or one clear sentence with its line.

Nothing is converted. What YAML 1.1 would quietly turn into something else (`on`, `010`, `2.0`, `1:20`)
is refused with what to write instead, because a size that was misread is a check that was not made.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from topocheck import policyfile
from topocheck.engines import ENGINES
from topocheck.engines.plugins import offered, third_party
from topocheck.errors import LayoutError, PlanError
from topocheck.formula import derive
from topocheck.hostlist import MAX_NODES, expand
from topocheck.inputfile import digest_of, name_of, read_bytes, text_in
from topocheck.layeroptions import option
from topocheck.modelconfig import read_config
from topocheck.plan import (
    Expect,
    Layers,
    Model,
    NodeRange,
    Parallel,
    Plan,
    Policy,
    PolicyFile,
    Waiver,
    Workload,
    World,
)
from topocheck.plancheck import check_plan, of_all_worlds
from topocheck.spelling import ENGINE_NAMES, KEY_NAMES, suggest
from topocheck.strictyaml import (
    MERGE,
    NUMBER,
    TEXT,
    amount,
    compose,
    describe,
    flag,
    is_plain,
    line_of,
    quoted,
)

__all__ = ["bytes_of", "derive", "hashed_plan", "parse_plan", "parse_policy", "read_plan", "read_policy"]

MAX_BYTES = 1_000_000
"""A plan is a few lines; even the names of 12,500 nodes are 200 kB."""
MAX_NUMBER = 1_000_000_000

DECIMAL = re.compile(r"0|[1-9][0-9]*")
LIKE_A_NUMBER = re.compile(r"[-+]?[0-9]+([eE][-+]?[0-9]+)?|0o[0-7]+")
"""Unquoted names that pass as text here and are numbers to other readers of YAML: `08`, `1e3`, `0o17`."""
NOT_IN_A_NAME = re.compile(r"[\s\[\](){},@!&^]")
EXAMPLES = {
    "engine": "vllm",
    "rule": "NV001",
    "reason": "spare part ordered, ticket 4711",
    "owner": "network team",
    "expires": "2026-12-31",
}
"""What may stand for a key that must be there; 2 for all others."""
LARGER = "is larger than 1 MB: a plan is a few lines of YAML"
OF_A_POLICY = "a policy file has the keys policy and waivers, as a plan has them"


def read_plan(path: str | Path) -> Plan:
    """Plan in the file `path`; `-` is standard input. Raises PlanError."""
    return hashed_plan(path)[0]


def hashed_plan(path: str | Path) -> tuple[Plan, str]:
    """The same, and the digest of the file. Raises PlanError."""
    data = bytes_of(path)
    return parse_plan(text_in(data, path, PlanError), name_of(path)), digest_of(data)


def read_policy(path: str | Path) -> tuple[PolicyFile, frozenset[str]]:
    """Policy and waivers of the file `path`, and the keys of its policy that are given. Raises PlanError."""
    source, text = text_of(path)
    return parse_policy(text, source)


def bytes_of(path: str | Path) -> bytes:
    """The bytes of a file that is written by hand; `-` is standard input. Raises PlanError."""
    return read_bytes(path, MAX_BYTES, LARGER, PlanError)


def parse_policy(text: str, source: str) -> tuple[PolicyFile, frozenset[str]]:
    """The same of `text`; `source` names it in errors. Raises PlanError."""
    root = compose(text, source, start=OF_A_POLICY)
    stated: PolicyFile = _Reader(source).record(PolicyFile, root, "")
    keys = next((value.value for key, value in root.value if key.value == "policy"), ())
    return stated, frozenset(key.value for key, _ in keys)


def text_of(path: str | Path) -> tuple[str, str]:
    """Name and text of a file that is written by hand; `-` is standard input. Raises PlanError."""
    return name_of(path), text_in(bytes_of(path), path, PlanError)


def parse_plan(text: str, source: str) -> Plan:
    """Plan in `text`. `source` names it in errors, and a relative path in `model` starts at its folder.

    Raises PlanError.
    """
    root = compose(text, source)
    plan: Plan = _Reader(source).record(Plan, root, "")
    check_plan(plan, root, source)
    return plan


class _Reader:
    """Turns composed nodes into the types of `topocheck.plan`, each node by the type of its field.

    `what` is the path of a key as messages name it: `policy.optional`.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    def error(self, node: yaml.Node, problem: str, fix: str = "") -> PlanError:
        return PlanError(problem, path=self.source, line=line_of(node), fix=fix)

    def expected(self, kind: str, what: str, node: yaml.Node, fix: str = "") -> PlanError:
        return self.error(node, f"expected {kind} for {what}, got {describe(node)}", fix)

    def record(self, kind: type[Any], node: yaml.Node, what: str) -> Any:
        """Keys and values that are the fields of the Struct `kind`."""
        hints = get_type_hints(kind, include_extras=True)
        entries, values = self.entries(node, what or "the plan"), {}
        for name, (key, value) in entries.items():
            if name not in hints:
                problem = f"unknown key {quoted(name)}" + f" in {what}" * bool(what)
                raise self.error(key, problem, _meant_key(name, kind))
            read = SPECIAL.get((kind, name), _Reader.value)
            values[name] = read(self, value, f"{what}.{name}" if what else name, hints[name])
        if kind is Plan:
            values = {**of_all_worlds(values.get("worlds")), **values}
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in values:
                fix = f"write for instance '{field.name}: {EXAMPLES.get(field.name, 2)}'"
                raise self.error(node, f"no '{field.name}' in {what or 'the plan'}", fix)
        return kind(**values)

    def entries(self, node: yaml.Node, what: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Key and value nodes of a mapping by key."""
        if not isinstance(node, yaml.MappingNode):
            raise self.expected("keys and values", what, node, "write them as {key: value}")
        entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if key.tag == MERGE:
                raise self.error(key, "the merge key '<<' is not allowed in a plan", "write the keys out")
            name = self.text(key, f"a key of {what}")
            if name in entries:
                lines = f"in lines {line_of(entries[name][0])} and {line_of(key)}"
                raise self.error(key, f"key {quoted(name)} stands twice, {lines}", "remove one of them")
            entries[name] = (key, value)
        return entries

    def value(self, node: yaml.Node, what: str, hint: Any) -> Any:
        """A value of the type `hint`, one of those that `topocheck.plan` uses."""
        origin, args = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):  # X | None, where None stands for a key that is left out
            return self.value(node, what, args[0])
        if origin is Literal:
            return self.choice(node, what, args)
        if origin is Annotated:
            return amount(node, what, args[1], self.source)
        if hint is int:
            return self.whole(node, what)
        if hint is bool:
            return flag(node, what, self.source)
        return self.text(node, what) if hint is str else self.record(hint, node, what)

    def whole(self, node: yaml.Node, what: str, least: int = 1, most: int = MAX_NUMBER) -> int:
        text = node.value if isinstance(node, yaml.ScalarNode) else ""
        if node.tag == NUMBER and DECIMAL.fullmatch(text) and len(text) < 20 and least <= int(text) <= most:
            return int(text)
        if node.tag == NUMBER and DECIMAL.fullmatch(text.removeprefix("-")):
            raise self.expected(f"a whole number from {least} to {most}", what, node)
        meant = re.fullmatch(r"\+?0*([0-9][0-9_]*)(\.0*)?", text)
        fix = f"write {meant[1].replace('_', '')}" if meant else "write digits, for instance 4"
        unquote = " without quotes" if meant and not is_plain(node) else ""
        raise self.expected("a whole number", what, node, fix + unquote)

    def text(self, node: yaml.Node, what: str, kind: str = "text", fix: str = "") -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag != TEXT:
            shown = quoted(node.value, '"') if isinstance(node, yaml.ScalarNode) and node.value else ""
            raise self.expected(kind, what, node, fix or (f"write {shown} in quotes" if shown else ""))
        text: str = node.value
        if not text.strip():
            raise self.error(node, f"the text for {what} is empty", fix or "fill it in or leave it out")
        if not text.isprintable():
            raise self.error(
                node, f"the text for {what} holds a control character", f"remove it from {quoted(text)}"
            )
        return text

    def choice(self, node: yaml.Node, what: str, options: tuple[str, ...]) -> str:
        choose = f"choose {', '.join(options[:-1])} or {options[-1]}"
        text = self.text(node, what, fix=choose)
        if text in options:
            return text
        meant = suggest(text, options)
        fix = f"did you mean '{meant}'?" if meant else choose
        raise self.error(node, f"unknown value {quoted(text)} for {what}", fix)

    def items(self, node: yaml.Node, what: str, fix: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            raise self.expected("a list", what, node, fix)
        if not node.value:
            raise self.error(node, f"the list for {what} is empty", "fill it in or leave it out")
        return list(node.value)

    def engine(self, node: yaml.Node, what: str, _: Any) -> str:
        known = f"known engines are {', '.join(ENGINES)}"
        text = self.text(node, what, "the name of an engine", known)
        try:
            if text in ENGINES or third_party(text):
                return text
        except LayoutError as error:
            raise self.error(node, str(error), "mend or remove that package") from error
        meant = suggest(text, (*ENGINES, *offered()), ENGINE_NAMES)
        raise self.error(
            node, f"unknown engine {quoted(text)}", f"did you mean '{meant}'?" if meant else known
        )

    def nodes(self, node: yaml.Node, what: str, _: Any) -> int | tuple[str, ...] | NodeRange:
        if isinstance(node, yaml.MappingNode):
            return self.node_range(node, what)
        if isinstance(node, yaml.ScalarNode) and (node.tag != TEXT or LIKE_A_NUMBER.fullmatch(node.value)):
            return self.whole(node, what, most=MAX_NODES)
        listed = [node] if isinstance(node, yaml.ScalarNode) else self.items(node, what, "")
        lines: dict[str, int] = {}
        for item in listed:
            for name in self.names(item, what):
                if name in lines:
                    twice = f"in lines {lines[name]} and {line_of(item)}"
                    raise self.error(item, f"node {quoted(name)} stands twice, {twice}", "remove one of them")
                lines[name] = line_of(item)
        return tuple(lines)

    def node_range(self, node: yaml.Node, what: str) -> NodeRange:
        span: NodeRange = self.record(NodeRange, node, what)
        if span.min > span.max or span.max > MAX_NODES:
            problem = f"{what} has min {span.min} and max {span.max}"
            raise self.error(node, problem, f"min is at most max, max at most {MAX_NODES}")
        return span

    def names(self, node: yaml.Node, what: str) -> list[str]:
        """Names that one entry of `nodes` stands for."""
        text = self.text(node, what, "a node name")
        if is_plain(node) and LIKE_A_NUMBER.fullmatch(text):
            problem = f"the node name {text} is a number to other readers of YAML"
            raise self.error(node, problem, f'write "{text}" in quotes')
        try:
            names = expand(text)
        except ValueError as error:
            raise self.error(node, str(error), "write for instance n[01-04]") from error
        for name in names:
            if bad := NOT_IN_A_NAME.search(name):
                raise self.error(node, f"{quoted(name)} is no node name", f"remove {quoted(bad[0])}")
        return names

    def worlds(self, node: yaml.Node, what: str, _: Any) -> int | dict[str, World]:
        if isinstance(node, yaml.ScalarNode):
            return self.whole(node, what, most=MAX_NODES)
        entries = self.entries(node, what)
        if not entries:
            raise self.error(node, f"no world in {what}", "leave it out, or name each: {prefill: {...}}")
        for name, (key, _value) in entries.items():
            if bad := NOT_IN_A_NAME.search(name):
                raise self.error(key, f"{quoted(name)} is no name of a world", f"remove {quoted(bad[0])}")
        return {name: self.record(World, value, f"{what}.{name}") for name, (_, value) in entries.items()}

    def model(self, node: yaml.Node, what: str, _: Any) -> Model:
        if not isinstance(node, yaml.ScalarNode):
            model: Model = self.record(Model, node, what)
            return model
        path = self.text(node, what, "sizes or the path of a config.json")
        return read_config(Path(self.source).parent / path)

    def experts(self, node: yaml.Node, what: str, _: Any) -> int:
        return self.whole(node, what, least=0)

    def layers(self, node: yaml.Node, what: str, _: Any) -> Layers:
        if isinstance(node, yaml.SequenceNode):
            return tuple(self.whole(item, what, least=0) for item in self.items(node, what, ""))
        if isinstance(node, yaml.MappingNode):
            return {
                name: option(value, f"{what}.{name}", self.source)
                for name, (_, value) in self.entries(node, what).items()
            }
        kind, fix = "a list of numbers or the engine's own text", "write the layers of each stage: [16, 16]"
        return self.text(node, what, kind, fix)


SPECIAL: dict[tuple[type[Any], str], Any] = {
    (Plan, "engine"): _Reader.engine,
    (Plan, "nodes"): _Reader.nodes,
    (Plan, "model"): _Reader.model,
    (Plan, "layers"): _Reader.layers,
    (Plan, "worlds"): _Reader.worlds,
    (Model, "experts"): _Reader.experts,
    (Plan, "waivers"): policyfile.waivers,
    (PolicyFile, "waivers"): policyfile.waivers,
    (Policy, "only"): policyfile.rules,
    (Policy, "skip"): policyfile.rules,
    (Policy, "optional"): policyfile.rules,
    (Policy, "severity"): policyfile.severity,
    (Policy, "expect_rails"): policyfile.devices,
    (Waiver, "rule"): policyfile.rule_id,
    (Waiver, "nodes"): policyfile.nodes,
    (Waiver, "ranks"): policyfile.ranks,
    (Waiver, "group"): policyfile.group,
    (Waiver, "expires"): policyfile.day,
}
"""Fields that their type alone does not describe."""
SPECIAL |= {
    (World, name): read
    for (kind, name), read in SPECIAL.items()
    if kind is Plan and name in World.__struct_fields__
}

PLACES: dict[str, type[Any]] = {
    "": Plan,
    "parallel": Parallel,
    "model": Model,
    "expect": Expect,
    "policy": Policy,
    "workload": Workload,
}
"""Where a key may belong instead."""


def _meant_key(name: str, kind: type[Any]) -> str:
    """What an unknown key of `kind` was meant to be, else the keys that there are."""
    if kind is PolicyFile and name not in Policy.__struct_fields__:
        return OF_A_POLICY
    for place, other in PLACES.items():
        if name in other.__struct_fields__:
            return f"it belongs under '{place}'" if place else "it belongs at the top level"
    fields: tuple[str, ...] = kind.__struct_fields__
    if meant := suggest(name, fields, KEY_NAMES):
        return f"did you mean '{meant}'?"
    for place, other in PLACES.items():
        if meant := suggest(name, other.__struct_fields__, KEY_NAMES):
            return f"did you mean '{meant}' " + (f"under '{place}'?" if place else "at the top level?")
    return f"known keys are {', '.join(fields)}"
