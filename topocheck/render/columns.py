"""JSON in columns: a long table of like rows packs into a tenth of what its rows pack into.

A document becomes `[texts, value]`. In the value every list becomes one that begins with its kind:

    [0, item, ...]                  items as they are
    [1, [key, ...], column, ...]    objects of the same keys, one list for each key
    [2, lengths, items]             lists, joined into one
    [3, number, difference, ...]    whole numbers, each as its difference from the one before
    [4, places]                     texts and nulls, as places in `texts`; -1 is null
    [5, item, count]                one text, number, boolean or null so many times

Objects, and texts, numbers, booleans and null that stand alone, stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate, chain, count, islice
from operator import attrgetter, itemgetter, sub
from typing import Any

import msgspec

__all__ = ["in_columns", "in_rows"]

ITEMS, TABLE, JOINED, NUMBERS, TEXTS, SAME = range(6)
NULL = type(None)
NESTED = {dict, list}
SCALARS: tuple[set[type], ...] = ({int}, {str}, {bool}, {NULL})
"""Types of items that are the same where they are equal; 0.0 and -0.0 are not."""
FEW = 4
"""Items that are not worth being counted."""
MOST_KEPT = 16
MOST_CHARACTERS = 1 << 30
"""Characters that texts and keys may come to where they are repeated: no report has a tenth."""
OF_AN_ITEM = 64
"""Characters that a repeated item counts for beside its own."""


def in_columns(document: Any) -> list[Any]:
    """The same document in columns; what JSON it is of is that of `msgspec.json.encode`.

    A document of msgspec's types gives what its decoded JSON gives, without the objects of that.
    """
    columns = _Columns()
    value = columns.of(document)
    return [list(columns.texts)[1:], value]


class _Columns:
    """Writes columns; what is done for each item of a long list is done by C code."""

    def __init__(self) -> None:
        self.texts: dict[str | None, int] = {None: -1}
        self.kept: list[tuple[Sequence[Any], list[Any]]] = []
        """Long lists of texts and their columns: ranks and their sources name the same nodes and GPUs."""

    def of(self, value: Any) -> Any:
        """One value in columns; its texts in lists are noted."""
        if isinstance(value, msgspec.Struct):
            kind: type[msgspec.Struct] = type(value)
            names = _names(kind)
            if names is None:
                return self.of(msgspec.to_builtins(value))
            found = ((name, getattr(value, name)) for name in names)
            return {name: self.of(item) for name, item in found if item is not msgspec.UNSET}
        if isinstance(value, dict):
            return {key: self.of(item) for key, item in value.items()}
        return self.list_of(value) if isinstance(value, list | tuple) else value

    def list_of(self, value: Sequence[Any]) -> list[Any]:
        """One list of any kind."""
        kinds = set(map(type, value))
        if kinds in SCALARS and len(value) > FEW and value.count(value[0]) == len(value):
            return [SAME, value[0], len(value)]
        if kinds == {int}:
            return [NUMBERS, value[0], *map(sub, value[1:], value)]
        if kinds and kinds <= {str, NULL}:
            return self.texts_of(value)
        return self.nested(value, kinds)

    def nested(self, value: Sequence[Any], kinds: set[type]) -> list[Any]:
        """One list with lists, objects or items of several kinds."""
        if any(issubclass(kind, msgspec.Struct) for kind in kinds):
            return self.structs_of(value, alike=len(kinds) == 1)
        if kinds and kinds <= {list, tuple}:
            joined = list(chain.from_iterable(value))
            return [JOINED, self.of(list(map(len, value))), self.of(joined)]
        if kinds == {dict} and value[0] and len(set(map(tuple, value))) == 1:
            return self.table(list(value[0]), value, itemgetter)
        return [ITEMS, *map(self.of, value)]

    def structs_of(self, value: Sequence[Any], *, alike: bool) -> list[Any]:
        """Typed rows."""
        kind: type[msgspec.Struct] = type(value[0])
        names = _names(kind) if alike else None
        if not names or msgspec.UNSET in kind.__struct_defaults__:
            return self.list_of(msgspec.to_builtins(value))
        return self.table(list(names), value, attrgetter)

    def table(self, keys: list[str], rows: Sequence[Any], getter: Callable[[str], Any]) -> list[Any]:
        """Rows of the same keys."""
        return [TABLE, keys, *(self.list_of(list(map(getter(key), rows))) for key in keys)]

    def texts_of(self, value: Sequence[str | None]) -> list[Any]:
        """Texts and nulls."""
        for earlier, column in self.kept:
            if earlier == value:
                return column
        fresh = [text for text in dict.fromkeys(value) if text not in self.texts]
        self.texts.update(zip(fresh, count(len(self.texts) - 1)))
        column = [TEXTS, self.of(list(map(self.texts.__getitem__, value)))]
        self.kept = [*self.kept, (value, column)][-MOST_KEPT:]
        return column


@cache
def _names(kind: type[msgspec.Struct]) -> tuple[str, ...] | None:
    """Keys that a type has in JSON, if they are its own names and all are always there, else None."""
    config = kind.__struct_config__
    plain = config.tag is None and not config.array_like and not config.omit_defaults
    return (
        kind.__struct_fields__ if plain and kind.__struct_encode_fields__ == kind.__struct_fields__ else None
    )


def in_rows(columns: Any) -> Any:
    """The document that was put in columns. Raises ValueError for what `in_columns` does not write."""
    match columns:
        case [[*texts], value] if all(type(text) is str for text in texts):
            return _Rows(texts).of(value)
    raise ValueError("no document in columns")


class _Rows:
    """Reads columns; what a few bytes would repeat without end is refused before it is made."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.left = MOST_CHARACTERS

    def take(self, characters: int) -> None:
        """Note what is repeated. Raises ValueError if it is too much."""
        self.left -= characters
        if self.left < 0:
            raise ValueError("it repeats its texts without end")

    def of(self, value: Any) -> Any:
        """One value as it was."""
        if isinstance(value, dict):
            return {key: self.of(item) for key, item in value.items()}
        return self.list_of(value) if isinstance(value, list) else value

    def list_of(self, value: Any) -> list[Any]:
        """One list of any kind."""
        match value:
            case [0, *items]:
                return [self.of(item) for item in items] if NESTED & set(map(type, items)) else items
            case [1, [_, *_] as keys, *columns] if len(columns) == len(keys):
                return list(self.table(keys, [self.list_of(column) for column in columns]))
            case [2, lengths, joined]:
                return list(_parted(self.list_of(lengths), self.list_of(joined)))
            case [3, *numbers] if set(map(type, numbers)) == {int}:
                return list(accumulate(numbers))
            case [4, places]:
                return list(self.texts_at(self.list_of(places)))
            case [5, item, number] if type(number) is int and number > 0 and type(item) not in NESTED:
                self.take(number * (OF_AN_ITEM + (len(item) if isinstance(item, str) else 0)))
                return [item] * number
        raise ValueError("a list of no known kind")

    def table(self, keys: list[Any], columns: list[list[Any]]) -> Iterator[dict[str, Any]]:
        """Rows of columns that are equally long."""
        if any(type(key) is not str for key in keys) or len(set(keys)) != len(keys):
            raise ValueError("the keys of a table are not distinct texts")
        if len(set(map(len, columns))) != 1:
            raise ValueError("columns of one table are not equally long")
        self.take(len(columns[0]) * sum(map(len, keys)))
        return (dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True))

    def texts_at(self, places: list[Any]) -> Iterator[str | None]:
        """Texts at these places."""
        if any(type(place) is not int or not -1 <= place < len(self.texts) for place in places):
            raise ValueError("a text that is not there")
        self.take(sum(len(self.texts[place]) for place in places if place >= 0))
        return (None if place == -1 else self.texts[place] for place in places)


def _parted(lengths: list[Any], joined: list[Any]) -> Iterator[list[Any]]:
    """A joined list in its parts again."""
    if any(type(length) is not int or length < 0 for length in lengths) or sum(lengths) != len(joined):
        raise ValueError("the parts of a list do not add up")
    items = iter(joined)
    return (list(islice(items, length)) for length in lengths)
