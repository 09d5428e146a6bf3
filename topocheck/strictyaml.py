"""YAML as composed nodes, with the line of everything, and nothing constructed.

Only one plain document is accepted: no tags, no deep nesting, no control characters. Aliases are left
to the reader, who reads by the types that he expects and so never expands them without end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
import yaml

from topocheck.errors import PlanError

__all__ = [
    "MERGE",
    "NUMBER",
    "TEXT",
    "amount",
    "compose",
    "describe",
    "flag",
    "is_plain",
    "line_of",
    "quoted",
]

LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MERGE, NUMBER, TEXT, FRACTION, FLAG = (
    f"tag:yaml.org,2002:{kind}" for kind in ("merge", "int", "str", "float", "bool")
)
AMOUNT = re.compile(r"(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?")

START = "start with 'engine: vllm' or another engine"
MAX_DEPTH = 20
"""Nesting beyond this is an attack on the parser: a plan nests three deep."""

ORDINARY = re.compile(r"[\t\n\r\x20-\x7e]*")
UNREADABLE = "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
"""What YAML does not take, and the Unicode line breaks, after which its line numbers are not an editor's.

Compiling it takes as long as starting Python four times: it is done for text beyond ASCII alone.
"""

WORDS = {
    "null": "the empty value",
    "bool": "the yes/no value",
    "float": "the fraction",
    "timestamp": "the date",
}
BASES = ((":", "a number to the base 60"), ("x", "hexadecimal"), ("b", "binary"), ("_", "a number"))


def compose(
    text: str, source: str, loader: type[yaml.SafeLoader] = LOADER, *, start: str = START
) -> yaml.MappingNode:
    """Node tree of the only document of `text`, which is a mapping. `start` says how one begins.

    Raises PlanError.
    """
    if bad := unreadable(text):
        line = text.count("\n", 0, bad.start()) + 1
        raise PlanError(
            f"holds the character U+{ord(bad[0]):04X} and is no plain text", path=source, line=line
        )
    try:
        _screen(yaml.parse(text, Loader=loader), source)
        root = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        raise _not_yaml(error, text, source) from error
    except (OverflowError, ValueError) as error:  # the Python loader on an escape such as "\UFFFFFFFF"
        raise PlanError("is not valid YAML (an escape names no character)", path=source) from error
    if root is None:
        fix = "write at least engine, parallel and nodes" if start == START else start
        raise PlanError("is empty", path=source, fix=fix)
    if not isinstance(root, yaml.MappingNode):
        problem = f"expected keys and values, got {describe(root)}"
        raise PlanError(problem, path=source, line=line_of(root), fix=start)
    return root


def unreadable(text: str) -> re.Match[str] | None:
    """The first character that a plan cannot hold."""
    return None if ORDINARY.fullmatch(text) else re.search(UNREADABLE, text)


def _screen(events: Iterable[Any], source: str) -> None:
    """Refuse what no plan needs before anything is built from it."""
    depth = documents = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if depth > MAX_DEPTH:
            problem, fix = "is nested too deeply", "a plan nests three deep"
        elif documents > 1:
            problem, fix = "a second YAML document starts here", "keep one plan in a file"
        elif tag := getattr(event, "tag", None):
            problem, fix = f"the tag {quoted(tag)} is not allowed in a plan", "remove it"
        else:
            continue
        raise PlanError(problem, path=source, line=line_of(event), fix=fix)


def _not_yaml(error: yaml.YAMLError, text: str, source: str) -> PlanError:
    mark = getattr(error, "problem_mark", None)
    problem = f"is not valid YAML ({getattr(error, 'problem', None) or 'it cannot be parsed'})"
    if mark is None:
        return PlanError(problem, path=source)
    there = "".join(text.splitlines()[mark.line : mark.line + 1])
    fix = "indent with spaces, not with tabs" if "\t" in there else ""
    if not fix and "*" in there:
        fix = "put text that starts with * in quotes"
    return PlanError(problem, path=source, line=mark.line + 1, fix=fix)


def amount(node: yaml.Node, what: str, bounds: msgspec.Meta, source: str) -> float:
    """A decimal number within bounds: 5, 0.25. Raises PlanError for anything else, `1e3` and `25%` too."""
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    if node.tag in (NUMBER, FRACTION) and AMOUNT.fullmatch(text) and _within(float(text), bounds):
        return float(text)
    most = f"at most {bounds.le}" if bounds.le is not None else f"below {bounds.lt}"
    problem = f"expected a number above {bounds.gt} and {most} for {what}, got {describe(node)}"
    percent = re.fullmatch(r"([0-9]{1,2})\s*%", text)
    fix = f"write {int(percent[1]) / 100:g}" if percent else "write digits, for instance 0.2"
    raise PlanError(problem, path=source, line=line_of(node), fix=fix)


def flag(node: yaml.Node, what: str, source: str) -> bool:
    """True or false. Raises PlanError for anything else, `yes` and `on` too."""
    text = node.value if isinstance(node, yaml.ScalarNode) and node.tag == FLAG else ""
    if text in ("true", "false"):
        return bool(text == "true")
    problem = f"expected true or false for {what}, got {describe(node)}"
    raise PlanError(problem, path=source, line=line_of(node), fix="write true or false")


def _within(number: float, bounds: msgspec.Meta) -> bool:
    gt, le, lt = bounds.gt, bounds.le, bounds.lt
    return (gt is None or number > gt) and (le is None or number <= le) and (lt is None or number < lt)


def line_of(node: Any) -> int:
    """Line at which a node or an event starts, from 1."""
    return int(node.start_mark.line) + 1


def is_plain(node: yaml.Node) -> bool:
    """A single value that stands without quotes."""
    return isinstance(node, yaml.ScalarNode) and not node.style


def quoted(text: str, mark: str = "'") -> str:
    """`text` in quotes as it may be shown on a terminal: short, and without control characters."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[:60])
    return f"{mark}{shown}{'...' if len(text) > 60 else ''}{mark}"


def describe(node: yaml.Node) -> str:
    """What stands there, as YAML 1.1 reads it, in a reader's words."""
    if not isinstance(node, yaml.ScalarNode):
        return "a list" if isinstance(node, yaml.SequenceNode) else "keys and values"
    if not node.value and is_plain(node):
        return "nothing"
    kind, value = node.tag.rpartition(":")[2], quoted(node.value, "")
    if node.tag != NUMBER:
        return f"{WORDS[kind]} {value}" if kind in WORDS else f"the text {quoted(node.value, chr(34))}"
    if re.fullmatch("[-+]?(0|[1-9][0-9]*)", node.value):
        return f"the number {value}"
    base = next((name for mark, name in BASES if mark in node.value), "octal")
    return f"{value}, which YAML reads as {base}"
