"""Lines `GPU 0: NAME (UUID: GPU-...)` and what is indented below them.

`nvidia-smi -L` and `nvidia-smi nvlink -s` print the same heading for each GPU; only what follows tells
them apart. Several tasks may have printed one after the other: an index that does not rise begins the
next task's view.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from topocheck.probes.capture.prompt import Section, section_at, sections
from topocheck.probes.capture.reading import Text
from topocheck.probes.capture.text import is_elision

__all__ = ["Block", "View", "read_uuid", "read_views"]

HEADING = re.compile(
    r"(?:(?P<task>[0-9]{1,6}): )?\s*GPU (?P<index>[0-9]{1,4}): "
    r"(?P<model>\S.{0,100}?) \(UUID: (?P<uuid>[^()]{1,90})\)\s*"
)
BODY = re.compile(r"(?:[0-9]{1,6}: )?\s*(?:Link [0-9]{1,3}[:,]|MIG |NVML: ).{0,200}")
LINKS = re.compile(r"(?:[0-9]{1,6}: )?\s*(?:Link [0-9]|NVML: .*NVLink)")
UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(slots=True)
class Block:
    """One GPU and the lines below its heading."""

    line: int
    index: int
    """NVML index as the printing process saw it."""
    model: str
    uuid: str | None
    """None where it is redacted or cut."""
    body: list[tuple[int, str]] = field(default_factory=list)
    """Lines below, with their numbers."""
    cut: bool = False
    """Something was left out right after it or in it."""


@dataclass(slots=True)
class View:
    """What one process listed."""

    section: Section
    task: str | None
    """Task number in front of each line, as `srun -l` puts it."""
    blocks: list[Block] = field(default_factory=list)
    elided: list[int] = field(default_factory=list)
    """Lines that say that something was left out."""

    @property
    def about_links(self) -> bool:
        """It is `nvidia-smi nvlink`, not a plain list."""
        return any(LINKS.match(line) for block in self.blocks for _, line in block.body)

    @property
    def lines(self) -> frozenset[int]:
        """All lines of it."""
        body = {number for block in self.blocks for number, _ in block.body}
        return frozenset(body | {block.line for block in self.blocks} | set(self.elided))


def read_uuid(text: str) -> str | None:
    """A full GPU UUID with its digits in lower case; None for anything else."""
    uuid = "GPU-" + text[4:].lower() if text.startswith("GPU-") else text
    return uuid if UUID.fullmatch(uuid) else None


def read_views(text: Text) -> Iterator[View]:
    """All views of a text, in order."""
    if not any("UUID: " in line for line in text.lines):
        return
    parts = sections(text)
    views: dict[str | None, View] = {}
    pending: list[int] = []  # elisions above the first heading of a section
    for number, line in enumerate(text.lines, 1):
        if (match := HEADING.fullmatch(line)) is not None:
            section, task, index = section_at(parts, number), match["task"], int(match["index"])
            view = views.get(task)
            if view is None or view.section is not section or view.blocks[-1].index >= index:
                if view is not None:
                    yield view
                view = views[task] = View(section, task, elided=[n for n in pending if n >= section.start])
            view.blocks.append(Block(number, index, match["model"], read_uuid(match["uuid"])))
            pending = []
        elif is_elision(line):
            pending.append(number)
            for view in views.values():
                view.elided.append(number)
                view.blocks[-1].cut = True
        elif BODY.fullmatch(line) and views:
            task = line.partition(": ")[0]
            view = views.get(task) or views.get(None)
            if view is not None:
                view.blocks[-1].body.append((number, line))
        elif line.strip():
            yield from views.values()
            views, pending = {}, []
    yield from views.values()
