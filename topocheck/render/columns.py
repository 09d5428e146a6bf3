"""JSON in columns: a long table of like rows packs into a tenth of what its rows pack into.

A document becomes `[texts, value]`. In the value every list becomes one that begins with its kind:

    [0, item, ...]                  items as they are
    [1, [key, ...], column, ...]    objects of the same keys, one list for each key
    [2, lengths, items]             lists, joined into one
    [3, number, difference, ...]    whole numbers, each as its difference from the one before
    [4, places]                     texts and nulls, as places in `texts`; -1 is null

Objects, and texts, numbers, booleans and null that stand alone, stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, chain, count, islice
from operator import attrgetter, itemgetter, sub
from typing import Any

import msgspec

__all__ = ["in_columns", "in_rows"]

ITEMS, TABLE, JOINED, NUMBERS, TEXTS = range(5)
NULL = type(None)
NESTED = {dict, list}
MOST_CHARACTERS = 1 << 30
"""Characters that texts and keys may come to where they are repeated: no report has a tenth."""


def in_columns(document: Any) -> list[Any]:
    """The same document in columns; what JSON it is of is that of `msgspec.json.encode`.

    A document of msgspec's types gives what its decoded JSON gives, without the objects of that.
    """
    texts: dict[str | None, int] = {None: -1}
    value = _columns(document, texts)
    return [list(texts)[1:], value]


def _columns(value: Any, texts: dict[str | None, int]) -> Any:
    """One value in columns; its texts in lists are noted."""
    if isinstance(value, msgspec.Struct):
        names = _names(type(value))
        if names is None:
            return _columns(msgspec.to_builtins(value), texts)
        found = ((name, getattr(value, name)) for name in names)
        return {name: _columns(item, texts) for name, item in found if item is not msgspec.UNSET}
    if isinstance(value, dict):
        return {key: _columns(item, texts) for key, item in value.items()}
    return _column(value, texts) if isinstance(value, list | tuple) else value


def _column(value: Sequence[Any], texts: dict[str | None, int]) -> list[Any]:
    """One list in columns; all that is done for each item of a long one is done by C code."""
    kinds = set(map(type, value))
    if kinds == {int}:
        return [NUMBERS, value[0], *map(sub, value[1:], value)]
    if kinds and kinds <= {str, NULL}:
        fresh = [text for text in dict.fromkeys(value) if text not in texts]
        texts.update(zip(fresh, count(len(texts) - 1)))  # noqa: B905  without end
        return [TEXTS, _columns(list(map(texts.__getitem__, value)), texts)]
    if kinds and kinds <= {list, tuple}:
        joined = list(chain.from_iterable(value))
        return [JOINED, _columns(list(map(len, value)), texts), _columns(joined, texts)]
    if kinds == {dict} and value[0] and len(set(map(tuple, value))) == 1:
        keys = list(value[0])
        return [TABLE, keys, *(_columns(list(map(itemgetter(key), value)), texts) for key in keys)]
    if any(issubclass(kind, msgspec.Struct) for kind in kinds):
        return _structs(value, kinds, texts)
    return [ITEMS, *(_columns(item, texts) for item in value)]


def _structs(value: Sequence[Any], kinds: set[type], texts: dict[str | None, int]) -> list[Any]:
    """One list with typed rows in columns."""
    names = _names(next(iter(kinds))) if len(kinds) == 1 else None
    if not names or any(type(getattr(value[0], name)) is msgspec.UnsetType for name in names):
        return _column(msgspec.to_builtins(value), texts)
    return [TABLE, list(names), *(_columns(list(map(attrgetter(name), value)), texts) for name in names)]


@cache
def _names(kind: type[msgspec.Struct]) -> tuple[str, ...] | None:
    """Keys that a type has in JSON, if they are its own names and all are always there, else None."""
    config = kind.__struct_config__
    plain = config.tag is None and not config.array_like and not config.omit_defaults
    return kind.__struct_fields__ if plain and kind.__struct_encode_fields__ == kind.__struct_fields__ else None


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
