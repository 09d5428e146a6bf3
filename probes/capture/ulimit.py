"""Limits of a process: `ulimit -a`, `ulimit -l`, /proc/PID/limits, `prlimit`.

The soft limit counts. bash and zsh print locked memory in units of 1024 bytes. Whose limits they are is
what the command shows: those of a container that it ran in, else unknown, for the shell that somebody
logged in with is not the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from topocheck.probes.capture.command_scope import scope_of
from topocheck.probes.capture.prompt import Section, section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import SCHEMA, FullSnapshot, Host, Identity, Limits, Source

__all__ = ["KIND", "parse"]

KIND = "limits"

UNLIMITED = -1
AMOUNT = r"(?P<amount>unlimited|[0-9]{1,18})"

Limit = Literal["memlock", "nofile"]

KILOBYTES = re.compile(
    r"\s*(?:max locked memory\s+\(kbytes, -l\)|-l: locked-in-memory size \((?:kbytes|kb)\)"
    rf"|locked memory\s*\(kbytes\))\s+{AMOUNT}\s*"
)
"""Locked memory as bash, zsh and dash print it."""
FILES = re.compile(
    rf"\s*(?:open files\s+\(-n\)|-n: file descriptors|nofiles(?:\s*\(descriptors\))?)\s+{AMOUNT}\s*"
)
PROC = re.compile(
    rf"\s*Max (?P<what>locked memory|open files)\s+{AMOUNT}\s+(?:unlimited|[0-9]{{1,18}})\s+\w+\s*"
)
PRLIMIT = re.compile(
    rf"\s*(?P<what>MEMLOCK|NOFILE)\s.{{4,60}}?\s{AMOUNT}\s+(?:unlimited|[0-9]{{1,18}})\s+\w+\s*"
)
ALONE = re.compile(rf"\s*(?:[0-9]{{1,6}}: )?{AMOUNT}\s*")
"""The answer to `ulimit -l`; srun may put the task in front."""
COMMAND = re.compile(r"\bulimit\s+-S?l\b(?!\s*(?:unlimited|[0-9]))")
LISTED = re.compile(r"\s*(?:[$#%]\s+)?ulimit\s+-S?l\s*")

WORDS = (
    "locked memory",
    "open files",
    "locked-in-memory",
    "MEMLOCK",
    "NOFILE",
    "file descriptors",
    "nofiles",
)


class Value(NamedTuple):
    """One limit as a line states it."""

    line: int
    limit: Limit
    amount: int
    """Bytes, or number of files; -1 is unlimited."""


def parse(text: Text) -> list[Reading]:
    """Read every listing, one Reading for each command; [] if there is none."""
    likely = [
        number
        for number, line in enumerate(text.lines, 1)
        if "ulimit" in line or (any(word in line for word in WORDS) and _value(number, line))
    ]
    if not likely:
        return []
    parts = sections(text)
    wanted = dict.fromkeys(section_at(parts, number) for number in likely)
    return [reading for section in wanted if (reading := _reading(text, section))]


def _reading(text: Text, section: Section) -> Reading | None:
    values = [*_values(text, section), *_alone(text, section)]
    if not values:
        return None
    found: dict[Limit, list[Value]] = {}
    for value in values:
        found.setdefault(value.limit, []).append(value)
    notes = [
        Note(several[1].line, "ignored", f"several processes show their limits: the smallest {limit} counts")
        for limit, several in found.items()
        if len({value.amount for value in several}) > 1
    ]
    limits = Limits(
        scope=scope_of(section), memlock_bytes=_least(found, "memlock"), nofile=_least(found, "nofile")
    )
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        identity=Identity(host=Host(name=section.host)),
        limits=limits,
    )
    lines = frozenset(value.line for value in values)
    return Reading(KIND, (snapshot,), lines, len(found), tuple(notes))


def _least(found: dict[Limit, list[Value]], limit: Limit) -> int | None:
    """The smallest amount; unlimited only if all are."""
    amounts = [value.amount for value in found.get(limit, [])]
    numbers = [amount for amount in amounts if amount != UNLIMITED]
    return min(numbers) if numbers else UNLIMITED if amounts else None


def _values(text: Text, section: Section) -> Iterator[Value]:
    for number in range(section.start, section.end + 1):
        line = text.lines[number - 1]
        value = _value(number, line) if any(word in line for word in WORDS) else None
        if value:
            yield value


def _value(number: int, line: str) -> Value | None:
    """A line of any of the listings."""
    if len(line) > 200:
        return None
    match = KILOBYTES.fullmatch(line)
    if match:
        return Value(number, "memlock", _amount(match["amount"], 1024))
    match = FILES.fullmatch(line)
    if match:
        return Value(number, "nofile", _amount(match["amount"], 1))
    match = PROC.fullmatch(line) or PRLIMIT.fullmatch(line)
    if match:
        memory = match["what"] in {"locked memory", "MEMLOCK"}
        return Value(number, "memlock" if memory else "nofile", _amount(match["amount"], 1))
    return None


def _alone(text: Text, section: Section) -> Iterator[Value]:
    """Answers to `ulimit -l`, at a prompt or on a line of its own."""
    asked = COMMAND.search(section.command or "") is not None
    for number in range(section.start, section.end + 1):
        line = text.lines[number - 1]
        match = ALONE.fullmatch(line) if asked and len(line) < 200 else None
        if match:
            yield Value(number, "memlock", _amount(match["amount"], 1024))
        elif line.strip():
            asked = LISTED.fullmatch(line[:200]) is not None


def _amount(text: str, unit: int) -> int:
    return UNLIMITED if text == "unlimited" else int(text) * unit
