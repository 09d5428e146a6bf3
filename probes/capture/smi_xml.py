"""`nvidia-smi -q -x`: everything about each GPU as XML, of the document types v11 to v13.

A document that is cut gives the GPUs that are complete in it. MIG devices have no UUID here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from topocheck.errors import CaptureError
from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.capture.gpu_sheet import Row, Sheet, heading, sheets_snapshot
from topocheck.probes.capture.prompt import section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.probes.capture.text import stated
from topocheck.probes.capture.xml_element import Element, read_documents
from topocheck.snapshot import Software, Source

__all__ = ["KIND", "parse"]

KIND = "nvidia-smi -q -x"

ROOT = "nvidia_smi_log"
LEFT_OUT = frozenset({"supported_clocks", "accounted_processes"})
"""Long lists without a fact about the placement."""
FIX = "give the output of nvidia-smi -q -x as it was printed"
VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,2}")


def parse(text: Text) -> list[Reading]:
    """Read every document, one Reading each. Raises CaptureError for XML that is not well-formed."""
    if not any(f"<{ROOT}" in line for line in text.lines):
        return []
    parts = sections(text)
    return [
        _reading(text, root, section_at(parts, root.line).host) for root in read_documents(text, ROOT, FIX)
    ]


def _reading(text: Text, root: Element, host: str | None) -> Reading:
    complete = [gpu for gpu in root.all("gpu") if gpu.end is not None]
    sheets = [_sheet(gpu) for gpu in complete]
    buses = Counter(sheet.bus for sheet in sheets if sheet.bus)
    bus, count = buses.most_common(1)[0] if buses else ("", 0)
    if count > 1:
        raise CaptureError(f"lists GPU {bus} {count} times", path=text.source, line=root.line, fix=FIX)
    attached = _value(root, "attached_gpus") or ""
    whole = root.end is not None and attached.isdigit() and int(attached[:6]) == len(sheets)
    software = Software(driver=_version(root, "driver_version"), cuda=_version(root, "cuda_version"))
    source = Source(name=text.source, kind=KIND)
    snapshot, facts = sheets_snapshot(source, host, sheets, software, whole=whole)
    last = root.end or len(text.lines)
    notes = []
    if root.end is None:
        words = f"the XML ends before </{ROOT}>: {len(sheets)} GPUs are complete"
        notes.append(Note(last, "cut", words))
    elif not whole:
        words = f"{len(sheets)} GPUs are listed and {attached[:6] or 'an unknown number'} are attached"
        notes.append(Note(root.line, "cut", words))
    return Reading(KIND, (snapshot,), frozenset(range(root.line, last + 1)), facts, tuple(notes))


def _sheet(gpu: Element) -> Sheet:
    return Sheet(gpu.line, parse_bus(gpu.attributes.get("id", "")), list(_rows(gpu, ())))


def _rows(above: Element, path: tuple[str, ...]) -> Iterator[Row]:
    """Headings in the document's order; those with others below them have no value."""
    for child in above.children:
        below = (*path, heading(child.tag))
        if child.tag not in LEFT_OUT:
            yield Row(child.line, below, None if child.children else child.text.strip())
            yield from _rows(child, below)


def _value(root: Element, tag: str) -> str | None:
    child = root.find(tag)
    return stated(child.text) if child else None


def _version(root: Element, tag: str) -> str | None:
    value = _value(root, tag)
    return value if value and VERSION.fullmatch(value) else None
