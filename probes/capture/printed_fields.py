"""What Python printed: `tp_size=16, nnodes=2)` of a call, `'tp_size': 16}` of a dict, as text by name.

A terminal may have broken such a line in the middle of a word; the pieces are joined without a blank.
Values stay text: they hold enums, paths and objects that no literal reader takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Printed", "parse_fields", "read_fields", "whole"]

PIECE = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[\[({]|[\])}]|,|[^\[\](){},'\"\\]+|\\.?|['\"]", re.DOTALL
)
FIELD = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w{0,100})\s*=|(?P<quote>['\"])(?P<key>[^'\"]{1,100})(?P=quote)\s*:)"
)

MOST_LINES = 200
"""A printed value is not broken over more lines than this."""


@dataclass(frozen=True, slots=True)
class Printed:
    """The fields of one printed value."""

    fields: dict[str, str]
    """Value by name, quotes taken off; a name that is there twice keeps its first value."""
    lines: tuple[int, ...]
    """Lines that it was read from, from 1."""
    closed: bool
    """Its closing bracket was seen; otherwise its last field is left out, for it may be cut."""

    def number(self, name: str) -> int | None:
        """A field as a number; None if it is none or not there."""
        return whole(self.fields.get(name, ""))


def whole(text: str) -> int | None:
    """A whole number without sign; None for anything else."""
    text = text.strip()
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def parse_fields(text: str) -> tuple[dict[str, str], bool]:
    """Fields up to the bracket that closes what was open before `text`, and whether it is there."""
    items, closed = _split(text)
    if not closed:
        items.pop()
    fields: dict[str, str] = {}
    for item in items:
        match = FIELD.match(item)
        if match:
            fields.setdefault(match["name"] or match["key"], _unquoted(item[match.end() :].strip()))
    return fields, closed


def read_fields(lines: Sequence[str], start: int, text: str, stops: Callable[[str], object]) -> Printed:
    """Fields of a value whose first line is `start` and goes on with `text` after the opening bracket.

    Where that line does not close it, the next ones are joined to it until one `stops`, as the first line
    of another message does.
    """
    fields, closed = parse_fields(text)
    if closed:
        return Printed(fields, (start,), closed)
    end = start
    while end < len(lines) and end - start < MOST_LINES and not stops(lines[end]):
        end += 1
    fields, closed = parse_fields(text + "".join(lines[start:end]))
    return Printed(fields, tuple(range(start, end + 1 if closed else start + 1)), closed)


def _split(text: str) -> tuple[list[str], bool]:
    """The text between commas that lie in no bracket and no quotes."""
    items: list[str] = []
    parts: list[str] = []
    depth = 0
    for match in PIECE.finditer(text):
        piece = match.group()
        if piece in "([{":
            depth += 1
        elif piece in ")]}":
            depth -= 1
            if depth < 0:
                return [*items, "".join(parts)], True
        elif piece == "," and depth == 0:
            items.append("".join(parts))
            parts = []
            continue
        parts.append(piece)
    return [*items, "".join(parts)], False


def _unquoted(value: str) -> str:
    """A value without the quotes around it."""
    return value[1:-1] if len(value) > 1 and value[0] in "'\"" and value[-1] == value[0] else value
