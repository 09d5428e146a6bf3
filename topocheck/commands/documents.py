"""YAML and JSON of other programs as trees with lines. Nothing is constructed, everything is untrusted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from topocheck.errors import InputError
from topocheck.inputfile import is_regular, read_bytes, text_in
from topocheck.strictyaml import is_plain, quoted

__all__ = ["Node", "parse_documents", "read_document", "read_file"]

LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_BYTES = 2_000_000
"""Configuration files have some kilobytes, manifests with CRDs a few hundred."""
MAX_DEPTH = 60
"""Deeper nesting is an attack on the parser; a pod template nests about fifteen deep."""
MAX_NODES = 200_000
"""Aliases can make more of a file than it holds; nobody writes that many entries."""
NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True)
class Node:
    """One value and its line. Scalars are text as written; keys that stand twice keep the last value."""

    line: int
    """Line where it starts, from 1."""
    text: str | None = None
    """A scalar; None for lists, mappings and nothing."""
    items: tuple[Node, ...] = ()
    """Entries of a list."""
    fields: tuple[tuple[str, Node], ...] = ()
    """Entries of a mapping, in order."""

    def get(self, *path: str) -> Node | None:
        """The value under these keys; None if there is none."""
        node: Node | None = self
        for name in path:
            node = (
                next((value for key, value in reversed(node.fields) if key == name), None) if node else None
            )
        return node

    def at(self, *path: str) -> str | None:
        """The scalar under these keys; None if there is none."""
        node = self.get(*path)
        return None if node is None else node.text

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Node]]:
        """(`outer.inner`, value) of all scalars in mappings; lists of scalars as `a,b`."""
        for key, value in self.fields:
            name = f"{prefix}{key}"
            if value.text is not None:
                yield name, value
            elif value.items and all(item.text is not None for item in value.items):
                yield name, Node(value.line, ",".join(item.text or "" for item in value.items))
            else:
                yield from value.leaves(f"{name}.")


def read_document(path: str, folder: Path) -> Node:
    """The only document of a configuration file, relative to `folder`. Raises InputError with its line."""
    text = read_file(path, folder)
    found = parse_documents(text.replace("\t", " ") if path.endswith(".json") else text, path)
    if len(found) > 1:
        raise InputError("holds several documents", path=path, line=found[1].line)
    if found and not found[0].fields and (found[0].text is not None or found[0].items):
        raise InputError("expected keys and values", path=path, line=found[0].line)
    return found[0] if found else Node(1)


def read_file(path: str, folder: Path) -> str:
    """Text of a file that a command names, relative to `folder`. Raises InputError."""
    file = folder / path
    if not is_regular(file, path):
        raise InputError("there is no such file", path=path, fix="start topocheck where the job starts")
    larger = "is larger than 2 MB and no configuration file"
    return text_in(read_bytes(file, MAX_BYTES, larger, name=path), path)


def parse_documents(text: str, source: str, first: int = 1) -> list[Node]:
    """All documents of a text, empty ones left out. `first` is the line of the file where the text starts.

    Raises InputError with the line for what is no YAML, for deep nesting and for aliases without end.
    """
    try:
        _screen(text, source, first)
        roots = list(yaml.compose_all(text, Loader=LOADER))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = first + mark.line if mark is not None else None
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise InputError(f"is not valid YAML ({quoted(problem, '')})", path=source, line=line) from error
    except (ValueError, OverflowError) as error:
        raise InputError("is not valid YAML (an escape names no character)", path=source) from error
    budget = [MAX_NODES]
    return [_tree(root, source, first, budget) for root in roots if root is not None and root.tag != NULL]


def _screen(text: str, source: str, first: int) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise InputError(
                "is nested too deeply", path=source, line=first + int(getattr(event.start_mark, "line", 0))
            )


def _tree(node: yaml.Node, source: str, first: int, budget: list[int], depth: int = 0) -> Node:
    budget[0] -= 1
    line = first + node.start_mark.line
    if budget[0] < 0 or depth > MAX_DEPTH:
        raise InputError("its aliases make it too large", path=source, line=line)
    if isinstance(node, yaml.SequenceNode):
        items = (_tree(item, source, first, budget, depth + 1) for item in node.value)
        return Node(line, items=tuple(items))
    if isinstance(node, yaml.MappingNode):
        entries = [
            (
                key.value if isinstance(key, yaml.ScalarNode) else "",
                _tree(value, source, first, budget, depth + 1),
            )
            for key, value in node.value
        ]
        return Node(line, fields=tuple(entries))
    return Node(line, None if node.tag == NULL and is_plain(node) else str(node.value))
