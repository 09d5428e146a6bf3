"""JSON Schemas (2020-12) of the documents that topocheck reads and writes.

They are generated from the types, and the text under each field in the source is its description, so
that schema and types cannot drift apart.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any, Literal, get_args

import msgspec

from topocheck import decision, declaration, difference, manifestreport, record, report, snapshot
from topocheck.engines import ENGINES
from topocheck.pipeline import balance_report, boundary, bubble, capacity, trace_units, waits_report
from topocheck.pipeline import compare as comparison
from topocheck.plan import Plan, PolicyFile

__all__ = ["KINDS", "Kind", "schema_for", "text"]

Kind = Literal[
    "plan",
    "policy",
    "snapshot",
    "report",
    "verdict",
    "record",
    "comparison",
    "balance",
    "boundary",
    "bubble",
    "capacity",
    "declared",
    "waits",
    "unit",
    "diff",
    "manifest",
]

KINDS: tuple[Kind, ...] = get_args(Kind)
"""Documents that have a schema."""

DOCUMENTS: dict[Kind, tuple[type[msgspec.Struct], str]] = {
    "plan": (Plan, "topocheck.plan/1"),
    "policy": (PolicyFile, "topocheck.policy/1"),
    "snapshot": (snapshot.FullSnapshot, snapshot.SCHEMA),
    "report": (report.Report, report.SCHEMA),
    "verdict": (decision.Decision, decision.SCHEMA),
    "record": (record.Record, record.SCHEMA),
    "comparison": (comparison.Comparison, comparison.SCHEMA),
    "balance": (balance_report.BalanceReport, balance_report.SCHEMA),
    "boundary": (boundary.BoundaryReport, boundary.SCHEMA),
    "bubble": (bubble.BubbleReport, bubble.SCHEMA),
    "capacity": (capacity.CapacityReport, capacity.SCHEMA),
    "declared": (declaration.Declaration, declaration.SCHEMA),
    "waits": (waits_report.WaitsReport, waits_report.SCHEMA),
    "unit": (trace_units.UnitLine, "topocheck.unit/1"),
    "diff": (difference.Difference, difference.SCHEMA),
    "manifest": (manifestreport.ManifestReport, manifestreport.SCHEMA),
}
"""Type and schema id of each document."""

OTHERWISE: dict[Kind, type[msgspec.Struct]] = {"declared": declaration.DeclaredJob}
"""A second form of a document: that of a plan of several worlds."""

Json = dict[str, Any]

NULL = {"type": "null"}


def schema_for(kind: Kind) -> Json:
    """JSON Schema 2020-12 of one kind of document, each type and each field with its description."""
    document, name = DOCUMENTS[kind]
    generated = _generated(document, OTHERWISE.get(kind))
    for struct, definition in generated["$defs"].items():
        _describe(_type(struct, sys.modules[document.__module__]), definition)
    if kind in ("plan", "policy"):
        _as_written(generated["$defs"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:" + name.replace(".", ":").replace("/", ":"),
        "title": name,
        **generated,
    }


def text(kind: Kind) -> str:
    """The schema as indented JSON, the same bytes each time."""
    return json.dumps(schema_for(kind), indent=2, ensure_ascii=False) + "\n"


def _generated(document: type[msgspec.Struct], other: type[msgspec.Struct] | None) -> Json:
    if other is None:
        return msgspec.json.schema(document)
    forms, definitions = msgspec.json.schema_components((document, other), ref_template="#/$defs/{name}")
    return {"anyOf": list(forms), "$defs": definitions}


def _type(name: str, module: ModuleType) -> type[msgspec.Struct]:
    """The type of this name in a document's module, or of reports and records, which others hold."""
    owner = next(owner for owner in (module, report, record) if hasattr(owner, name))
    found: type[msgspec.Struct] = getattr(owner, name)
    return found


def _describe(struct: type[msgspec.Struct], definition: Json) -> None:
    """Add the words of the source: the docstrings of the type and of its own and inherited fields."""
    words, properties = "", definition["properties"]
    for owner in reversed(struct.__mro__[: struct.__mro__.index(msgspec.Struct)]):
        words, fields = _words(owner.__module__)[owner.__name__]
        for name in fields.keys() & properties.keys():
            properties[name]["description"] = fields[name]
    if struct.__struct_config__.tag_field in properties:
        properties[struct.__struct_config__.tag_field]["description"] = "What kind it is."
    rest = {key: value for key, value in definition.items() if key not in ("title", "description")}
    definition.clear()  # msgspec leaves the description out under -OO: the order is made here
    definition.update({"title": struct.__name__, "description": words, **rest})


@cache
def _words(module: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Docstring of each class of a module and of its fields, from the source: Python drops the latter."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name: (ast.get_docstring(node) or "", dict(_field_words(node.body))) for node in classes}


def _field_words(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, follower in pairwise(body):
        match statement, follower:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                yield name, inspect.cleandoc(words)


def _as_written(definitions: Json) -> None:
    """Narrow and widen the schema of a Plan to that of a plan file (`topocheck.planfile`).

    A file never holds null; sizes start at 1; nodes may be a host list and the model a path; what may be a
    list of one may stand alone.
    """
    for definition in definitions.values():
        for name, field in definition["properties"].items():
            if NULL in field.get("anyOf", ()):
                field["anyOf"].remove(NULL)
                del field["default"]
            for form in field.get("anyOf", [field]):
                if form.get("type") == "integer":
                    form["minimum"] = 0 if name == "experts" else 1
    waiver = definitions["Waiver"]["properties"]
    for name in ("nodes", "ranks"):
        alone: list[Json] = [{"type": "string"}]
        if name == "ranks":
            alone.append({"type": "integer", "minimum": 0})
        waiver[name]["anyOf"] = [{"type": waiver[name].pop("type"), "items": {"anyOf": alone}}, *alone]
        del waiver[name]["items"], waiver[name]["default"]
    if "Plan" not in definitions:
        return
    plan = definitions["Plan"]["properties"]
    for owner in (plan, definitions["World"]["properties"]):
        owner["engine"]["enum"] = list(ENGINES)
        for name in ("nodes", "model"):
            owner[name]["anyOf"].append({"type": "string"})
    # Worlds may give what the plan leaves out; whether each of them does is for the reader to say.
    definitions["Plan"]["anyOf"] = [
        {"required": definitions["Plan"].pop("required")},
        {"required": ["worlds"]},
    ]
