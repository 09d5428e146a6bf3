"""Writes a record as YAML, and reads one back strictly.

A record is kept and compared months later, perhaps after somebody mended it by hand: whatever does not fit
is refused with its line, and nothing is converted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from topocheck.errors import InputError, PlanError
from topocheck.inputfile import name_of, read_text
from topocheck.record import SCHEMA, EachRequest, Interval, Limits, Record, Seat, Spread
from topocheck.spelling import suggest
from topocheck.strictyaml import MERGE, NUMBER, TEXT, compose, describe, line_of, quoted

__all__ = ["MAX_BYTES", "parse_record", "read_record", "to_yaml"]

MAX_BYTES = 64_000_000
"""Ten thousand requests and a thousand ranks make two megabytes."""
ROWS = (EachRequest, Interval, Limits, Seat, Spread)
"""Parts that stand on one line each."""
FIX = "`topocheck schema record` says what it takes"

DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,17})")
FRACTION = re.compile(r"-?[0-9]{1,18}\.[0-9]{0,20}([eE][-+]?[0-9]{1,3})?")
REAL = "tag:yaml.org,2002:float"
PLACE = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>[^`]*)`)?", re.DOTALL)
STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
NAMED = re.compile(r"Object (?P<what>contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)


class _Row(dict[str, object]):
    """Keys and values on one line."""


class _Dumper(yaml.SafeDumper):
    """Plain YAML without anchors."""

    def ignore_aliases(self, _data: object) -> bool:
        """Each value is written out: equal ones are not tied by anchors, which a reader would refuse."""
        return True


def _row(dumper: yaml.SafeDumper, row: _Row) -> yaml.MappingNode:
    return dumper.represent_mapping("tag:yaml.org,2002:map", row.items(), flow_style=True)


_Dumper.add_representer(_Row, _row)


def to_yaml(record: Record) -> str:
    """The record as YAML text, fields in their order. ASCII: other characters are escapes."""
    return yaml.dump(_plain(record), Dumper=_Dumper, sort_keys=False, width=100_000)


def _plain(value: object) -> Any:
    """Parts as mappings; those of `ROWS` on one line."""
    if isinstance(value, msgspec.Struct):
        pairs = {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        return _Row(pairs) if isinstance(value, ROWS) else pairs
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def read_record(path: str | Path) -> Record:
    """Record in the file `path`, `-` is standard input; YAML or the same as JSON. Raises InputError."""
    return parse_record(read_text(path, MAX_BYTES, "is larger than 64 MB and no record"), name_of(path))


def parse_record(text: str, source: str) -> Record:
    """Record in `text`; `source` names it in errors. Raises InputError."""
    try:
        root = compose(text, source)
    except PlanError as error:
        problem = error.problem.replace(" in a plan", " in a record")
        raise InputError(
            problem, path=source, line=error.line, fix="write records with topocheck record"
        ) from None
    values = _Values(source).of(root)
    name = values.get("schema")
    if name != SCHEMA:
        problem = (
            f"is no record of this topocheck: its schema is {quoted(str(name))}" if name else "no 'schema'"
        )
        raise InputError(problem, path=source, line=line_of(root), fix=f"expected `schema: {SCHEMA}`")
    try:
        return msgspec.convert(values, Record)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), root, source) from None


class _Values:
    """Plain values of composed nodes."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.seen: set[int] = set()

    def of(self, node: yaml.Node) -> Any:
        """What stands there. Raises InputError for what a record never holds."""
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if id(node) in self.seen:  # an alias: read again and again, a few lines can hold billions of values
            raise InputError("an alias (*) is not allowed in a record", path=self.source, line=line_of(node))
        self.seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            return [self.of(item) for item in node.value]
        found: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag != TEXT or key.tag == MERGE:
                problem = f"expected a key, got {describe(key)}"
                raise InputError(problem, path=self.source, line=line_of(key))
            if key.value in found:
                problem = f"key {quoted(key.value)} stands twice"
                raise InputError(problem, path=self.source, line=line_of(key), fix="remove one of them")
            found[key.value] = self.of(value)
        return found

    def scalar(self, node: yaml.ScalarNode) -> str | int | float:
        """Text, a whole number or a fraction as JSON has it. Raises InputError."""
        text: str = node.value
        if node.tag == TEXT:
            return text
        if node.tag == NUMBER and DECIMAL.fullmatch(text):
            return int(text)
        if node.tag == REAL and FRACTION.fullmatch(text):
            return float(text)
        problem = f"expected text or a number, got {describe(node)}"
        fix = (
            "write `not measured` where nothing was measured"
            if not text
            else "write numbers in digits, text in quotes"
        )
        raise InputError(problem, path=self.source, line=line_of(node), fix=fix)


def _misfit(words: str, root: yaml.Node, source: str) -> InputError:
    """What msgspec refuses, with the line of the value."""
    match = PLACE.fullmatch(words)
    path = (match["path"] or "") if match else ""
    node, where = _at(root, path), path.removeprefix(".") or "the record"
    named = NAMED.fullmatch(match["problem"]) if match else None
    if named is None:
        problem = f"{describe(node)} is no value of {where}"
        return InputError(problem, path=source, line=line_of(node), fix=FIX)
    if named["what"].startswith("missing"):
        return InputError(f"no '{named['name']}' in {where}", path=source, line=line_of(node), fix=FIX)
    key = next((k for k, _ in node.value if k.value == named["name"]), node)
    meant = suggest(named["name"], _known(path))
    problem = f"unknown key {quoted(named['name'])} in {where}"
    return InputError(
        problem, path=source, line=line_of(key), fix=f"did you mean '{meant}'?" if meant else FIX
    )


def _at(root: yaml.Node, path: str) -> yaml.Node:
    """The node at a path of msgspec, or the last one before the path leaves the document."""
    node = root
    for name, index in STEP.findall(path):
        if isinstance(node, yaml.MappingNode):
            inner = next((value for key, value in node.value if key.value == name), None)
        else:
            inner = node.value[int(index)] if index.isdecimal() and int(index) < len(node.value) else None
        if inner is None:
            break
        node = inner
    return node


def _known(path: str) -> tuple[str, ...]:
    """Keys that the part at a path takes."""
    schema = msgspec.json.schema(Record)
    definitions, here = schema["$defs"], schema["$defs"]["Record"]
    for name, _ in STEP.findall(path):
        inner = here["properties"].get(name, {}) if name else here
        forms = [inner, *inner.get("anyOf", ()), *inner.get("allOf", ())] if name else []
        forms += [form["items"] for form in forms if isinstance(form.get("items"), dict)]
        found = next((form["$ref"] for form in forms if "$ref" in form), None)
        here = here if not name else definitions[found.rpartition("/")[2]] if found else {"properties": {}}
    return tuple(here["properties"])
