"""`nvidia-smi -q`: everything about each GPU, as a tree of indented headings.

Whole, for some subjects (`-d MEMORY`), for some GPUs (`-i 0`), or as `grep` left it. The list of GPUs is
whole if it has as many as `Attached GPUs` says. A block `Fabric` whose GPU was left out is that of some
GPU of the node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.capture.fabric_words import FABRIC_HEADINGS, fabric_heading
from topocheck.probes.capture.gpu_sheet import Row, Sheet, heading, sheets_snapshot
from topocheck.probes.capture.prompt import Section, section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.probes.capture.text import is_elision, stated
from topocheck.snapshot import Software, Source

__all__ = ["KIND", "parse"]

KIND = "nvidia-smi -q"

BANNER = re.compile(r"\s*=+NVSMI LOG=+\s*")
GPU = re.compile(
    r"(?P<indent>[ \t]*)GPU (?P<bus>[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7])\s*", re.IGNORECASE
)
PAIR = re.compile(r"(?P<indent>[ \t]*)(?P<key>[A-Za-z][^:]{0,60}?)[ \t]*:(?:[ \t]+(?P<value>.*))?")
HEADING = re.compile(r"(?P<indent>[ \t]*)(?P<key>[A-Za-z][\w /().'-]{0,60}?)\s*")
HEADERS = frozenset(
    {"timestamp", "driver_version", "cuda_version", "attached_gpus", "vgpu_driver_capability"}
)
FABRIC = "fabric"
VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,2}")


@dataclass(slots=True)
class Document:
    """One listing while it is read."""

    section: Section
    header: dict[str, str] = field(default_factory=dict)
    sheets: list[Sheet] = field(default_factory=list)
    base: int = 0
    """Indent of the GPU headings; below a `Fabric` without its GPU that of `Fabric`."""
    stack: list[tuple[int, str]] = field(default_factory=list)
    """Headings above the next row, with their indents."""
    lines: set[int] = field(default_factory=set)
    cut: list[int] = field(default_factory=list)
    """Lines that say that something was left out."""

    def open(self, number: int, indent: int, bus: str | None) -> None:
        """A GPU begins."""
        self.sheets.append(Sheet(number, bus))
        self.base = indent
        self.stack = [] if bus else [(indent, FABRIC)]
        self.lines.add(number)

    def row(self, number: int, indent: int, key: str, value: str | None) -> None:
        """A heading of the open GPU."""
        while self.stack and self.stack[-1][0] >= indent:
            self.stack.pop()
        name = heading(key)
        self.sheets[-1].rows.append(Row(number, (*(above for _, above in self.stack), name), value))
        self.stack.append((indent, name))
        self.lines.add(number)


def parse(text: Text) -> list[Reading]:
    """Read every listing, one Reading each; [] if there is none."""
    likely = [
        number
        for number, line in enumerate(text.lines, 1)
        if "NVSMI LOG" in line or line.strip() == "Fabric" or (len(line) < 80 and GPU.fullmatch(line))
    ]
    if not likely:
        return []
    parts = sections(text)
    wanted = dict.fromkeys(section_at(parts, number) for number in likely)
    documents = [document for section in wanted for document in _documents(text, section)]
    return [reading for document in documents if (reading := _reading(text, document))]


def _documents(text: Text, section: Section) -> Iterator[Document]:
    document: Document | None = None
    for number in range(section.start, section.end + 1):
        line = text.lines[number - 1]
        if BANNER.fullmatch(line):
            if document:
                yield document
            document = Document(section, lines={number})
        elif document is None:
            document = _begin(text, number, section)
        elif not _take(document, text, number):
            yield document
            document = _begin(text, number, section)
    if document:
        yield document


def _begin(text: Text, number: int, section: Section) -> Document | None:
    """A listing whose beginning was cut away, if it goes on here."""
    document = Document(section)
    return document if _opens(document, text, number) else None


def _opens(document: Document, text: Text, number: int) -> bool:
    """A GPU begins at this line: its heading, or a `Fabric` whose GPU is not shown."""
    line = text.lines[number - 1]
    gpu = GPU.fullmatch(line) if len(line) < 80 else None
    if gpu:
        document.open(number, len(gpu["indent"].expandtabs()), parse_bus(gpu["bus"]))
        return True
    below = PAIR.fullmatch(text.lines[number]) if number < len(text.lines) else None
    if line.strip() == "Fabric" and below and below["key"].strip() == "State":
        document.open(number, _indent(line), None)
        return True
    return False


def _take(document: Document, text: Text, number: int) -> bool:
    """Take one line; False if the listing ends before it."""
    line = text.lines[number - 1]
    if is_elision(line):
        document.cut.append(number)
    if is_elision(line) or not line.strip() or line.strip() == "--":
        return True
    sheet = document.sheets[-1] if document.sheets else None
    inside = sheet is not None and _indent(line) > document.base
    if (sheet is None or sheet.bus is None or not inside) and _opens(document, text, number):
        return True
    pair = PAIR.fullmatch(line) if len(line) < 400 else None
    if inside:
        plain = pair or (HEADING.fullmatch(line) if len(line) < 400 else None)
        if plain:
            document.row(number, _indent(line), plain["key"], (pair["value"] or "") if pair else None)
        return True
    return pair is not None and _take_outside(document, number, _indent(line), pair)


def _take_outside(document: Document, number: int, indent: int, pair: re.Match[str]) -> bool:
    """Take a line that is in no GPU's block; False if the listing ends before it."""
    key, value = pair["key"], pair["value"] or ""
    if not document.sheets:
        document.header[heading(key)] = value
        document.lines.add(number)
    elif document.sheets[-1].bus is None and fabric_heading(key) in FABRIC_HEADINGS:
        document.row(number, indent + 1, key, value)  # a copy that lost its indents
        return True
    return heading(key) in HEADERS


def _indent(line: str) -> int:
    expanded = line.expandtabs()
    return len(expanded) - len(expanded.lstrip())


def _reading(text: Text, document: Document) -> Reading | None:
    named = [sheet for sheet in document.sheets if sheet.bus]
    attached = document.header.get("attached_gpus", "").strip()
    whole = attached.isdigit() and int(attached[:6]) == len(named) and not document.cut
    versions = {
        name: version
        for name in ("driver_version", "cuda_version")
        if (version := stated(document.header.get(name, ""))) and VERSION.fullmatch(version)
    }
    software = Software(driver=versions.get("driver_version"), cuda=versions.get("cuda_version"))
    source = Source(name=text.source, kind=KIND)
    snapshot, facts = sheets_snapshot(source, document.section.host, document.sheets, software, whole=whole)
    if not any(sheet.rows for sheet in document.sheets) and not versions:
        return None
    notes = list(_notes(document, named, attached))
    return Reading(KIND, (snapshot,), frozenset(document.lines), facts, tuple(notes))


def _notes(document: Document, named: list[Sheet], attached: str) -> Iterator[Note]:
    first = min(document.lines)
    if document.cut:
        yield Note(document.cut[0], "cut", "something was left out of the listing")
    if attached.isdigit() and int(attached[:6]) != len(named):
        words = f"{len(named)} GPUs are listed and {attached[:6]} are attached: the others are not known"
        yield Note(first, "cut", words)
    bus, count = Counter(sheet.bus for sheet in named).most_common(1)[0] if named else ("", 0)
    if count > 1:
        yield Note(first, "contradictory", f"GPU {bus} is listed {count} times")
    if any(sheet.bus is None for sheet in document.sheets):
        words = "this fabric is of a GPU that is not shown: nvidia-smi -q shows all of them with their names"
        yield Note(next(s.line for s in document.sheets if s.bus is None), "cut", words)
