"""Loaded kernel modules: `lsmod`, whole or through grep, and /proc/modules.

Of interest is the module by which a NIC reaches GPU memory. That neither nvidia_peermem nor the older
nv_peer_mem is loaded is known only if all modules, or both names, were asked for.
"""

from __future__ import annotations

import re

from topocheck.probes.capture.command_scope import scope_of
from topocheck.probes.capture.prompt import Section, section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.probes.capture.text import is_elision
from topocheck.snapshot import SCHEMA, FullSnapshot, Host, Identity, Source, Verbs

__all__ = ["KIND", "PEER_MODULES", "parse"]

KIND = "kernel modules"

PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
"""Modules that let a NIC reach GPU memory, the present one first."""
NONE = ""
"""All modules were listed and none of these is loaded."""

HEADER = re.compile(r"\s*Module\s+Size\s+Used by\s*")
ROW = re.compile(
    r"\s*(?P<name>[A-Za-z0-9_]{2,60})\s+(?P<size>[0-9]{3,10})\s+-?[0-9]{1,6}(?:\s+(?P<users>[\w,-]{1,1000}))?"
    r"(?:\s+(?:Live|Loading|Unloading)\s+0x[0-9a-f]{1,16}(?:\s+\([A-Z]{1,6}\))?)?\s*"
)
GREP = re.compile(
    r"\b(?:lsmod|/proc/modules)\s*\|\s*[ef]?grep\s+(?P<rest>.+)|\bgrep\s+(?P<file>.+?)\s+/proc/modules\b"
)


def parse(text: Text) -> list[Reading]:
    """Read every listing that tells of these modules, one Reading for each command."""
    likely = [
        number
        for number, line in enumerate(text.lines, 1)
        if any(name in line for name in PEER_MODULES)
        or "lsmod" in line
        or "/proc/modules" in line
        or (line.lstrip().startswith("Module") and HEADER.fullmatch(line))
    ]
    if not likely:
        return []
    parts = sections(text)
    wanted = dict.fromkeys(section_at(parts, number) for number in likely)
    return [reading for section in wanted if (reading := _reading(text, section))]


def _reading(text: Text, section: Section) -> Reading | None:
    rows: dict[int, tuple[str, ...]] = {}
    headed = False
    cut: list[int] = []
    other: list[int] = []
    for number in range(section.start, section.end + 1):
        line = text.lines[number - 1]
        match = ROW.fullmatch(line) if len(line) < 1200 else None
        if match:
            rows[number] = (match["name"], *(match["users"] or "").split(","))
        elif HEADER.fullmatch(line[:200]):
            headed = True
        elif is_elision(line):
            cut.append(number)
        elif line.strip():
            other.append(number)
    loaded = [name for name in PEER_MODULES if any(name in names for names in rows.values())]
    notes: list[Note] = []
    if loaded:
        found = loaded[0]
        lines = frozenset(number for number, names in rows.items() if found in names)
    elif not other and not cut and _asks_all(section, notes, headed=headed and len(rows) > 1):
        found, lines = NONE, frozenset(rows) or frozenset({max(section.start - 1, 1)})
    else:
        return Reading(KIND, (), frozenset(rows), 0, tuple(notes)) if notes else None
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        identity=Identity(host=Host(name=section.host)),
        verbs=Verbs(scope=scope_of(section), peer_memory=found),
    )
    return Reading(KIND, (snapshot,), lines, 1, tuple(notes))


def _asks_all(section: Section, notes: list[Note], *, headed: bool) -> bool:
    """Both modules would be in this output if they were loaded. Notes where only one was asked for."""
    command = section.command or ""
    grep = GREP.search(command)
    if grep is None:
        return headed and "|" not in command
    asked = [name for name in PEER_MODULES if _finds(grep["rest"] or grep["file"], name)]
    if asked and len(asked) < len(PEER_MODULES):
        words = f"{asked[0]} is not loaded; {'/'.join(set(PEER_MODULES) - set(asked))} was not asked for"
        notes.append(Note(max(section.start - 1, 1), "cut", words))
    return len(asked) == len(PEER_MODULES)


def _finds(arguments: str, name: str) -> bool:
    """A grep with these arguments finds the name. Only plain words and their alternatives are understood."""
    for word in arguments.split():
        if word.startswith("-"):
            if set(word) & set("vc"):
                return False
            continue
        patterns = word.strip("'\"").replace("\\|", "|").split("|")
        return any(pattern and pattern.lower() in name for pattern in patterns)
    return False
