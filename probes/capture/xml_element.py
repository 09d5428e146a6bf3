"""XML documents inside captured text, with the line of each element.

A document may follow a prompt and end before its root does. Nothing is resolved: reading starts at the
root, below any document type, so entities are not defined and an attempt to use one is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from topocheck.errors import CaptureError
from topocheck.probes.capture.reading import Text

__all__ = ["Element", "read_documents"]

DEEPEST = 100
"""Elements inside each other; real documents have less than 40."""


@dataclass(slots=True)
class Element:
    """One element."""

    tag: str
    line: int
    """Line of its start tag, from 1."""
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    text: str = ""
    """Text directly in it."""
    end: int | None = None
    """Line of its end tag; None if the text ends before."""

    def find(self, tag: str) -> Element | None:
        """Its first child of that tag."""
        return next((child for child in self.children if child.tag == tag), None)

    def all(self, tag: str) -> Iterator[Element]:
        """Its children of that tag."""
        return (child for child in self.children if child.tag == tag)


class Builder:
    """Makes elements of what the parser reports."""

    def __init__(self, first: int) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self._first = first
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = lambda _: self.end()
        self.parser.CharacterDataHandler = self.data
        self.too_deep = False

    @property
    def line(self) -> int:
        """Line of the text that the parser is at."""
        return self._first + self.parser.CurrentLineNumber - 1

    @property
    def is_complete(self) -> bool:
        """The root element has ended."""
        return self.root is not None and self.root.end is not None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """A start tag."""
        element = Element(tag, self.line, attributes)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)
        self.too_deep |= len(self._open) > DEEPEST

    def end(self) -> None:
        """An end tag."""
        self._open.pop().end = self.line

    def data(self, text: str) -> None:
        """Text, or a part of it."""
        if text.strip():
            self._open[-1].text += text


def read_documents(text: Text, root: str, fix: str) -> Iterator[Element]:
    """Every document whose root element has this tag; one that is cut has elements without an end.

    Raises CaptureError with the line of what is not well-formed.
    """
    number = 0
    while number < len(text.lines):
        number += 1
        line = text.lines[number - 1]
        begin = line.find(f"<{root}")
        if begin < 0 or line[begin + 1 + len(root) : begin + 2 + len(root)] not in {">", "/", " ", "\t", ""}:
            continue
        element = _read(text, root, number, begin, fix)
        yield element
        number = element.end or len(text.lines)


def _read(text: Text, root: str, first: int, begin: int, fix: str) -> Element:
    builder = Builder(first)

    def refuse(problem: str, line: int) -> CaptureError:
        return CaptureError(problem, path=text.source, line=line, fix=fix)

    for number in range(first, len(text.lines) + 1):
        line = text.lines[number - 1][begin if number == first else 0 :]
        head, closing, _ = line.partition(f"</{root}>")
        try:
            builder.parser.Parse(head + closing + "\n", False)
        except expat.ExpatError as error:
            if builder.is_complete:  # what stands behind the document is no part of it
                break
            reason = expat.ErrorString(error.code)
            raise refuse(f"is not well-formed XML ({reason})", first + error.lineno - 1) from error
        if builder.too_deep:
            raise refuse(f"nests elements deeper than {DEEPEST}", number)
        if builder.is_complete:
            break
    if builder.root is None:
        raise refuse(f"the XML ends inside <{root}", first)
    return builder.root
