"""A host file, alone or as a command printed it: hosts in order and how many processes each takes.

`host slots=n` is DeepSpeed's and Open MPI's form and is recognised anywhere; `host:n` and bare names could
be anything, and are read only where a command names a host file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from topocheck.errors import CaptureError
from topocheck.launchers.hostfile import merged, parse_hydra, parse_openmpi
from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line
from topocheck.probes.capture.prompt import sections
from topocheck.probes.capture.reading import Reading, Text

__all__ = ["KIND", "parse"]

KIND = "host file"

SLOTS = re.compile(r"\s*[\w.@-]{1,255}(?:\s+max[_-]slots=\d+)?\s+slots=\d+(?:\s+[a-z_-]+=\S+)*\s*(?:#.*)?")
MEANT = re.compile(r"\s*[\w.@-]{1,255}\s+.*\bslots\b.*")
"""A damaged line of a file that a command says is a host file."""
PRINTS = re.compile(r"(?:cat|head|tail|less|more|type)\b.*(?:host|machine)_?-?(?:file|s)\b", re.IGNORECASE)
"""A command that prints what its name says is a host file."""
LONGEST_COMMAND = 300
COLON = re.compile(r"\s*[A-Za-z0-9][\w.-]{0,253}:\d{1,4}\s*")
BARE = re.compile(r"\s*[A-Za-z0-9][\w.-]{0,253}\s*")


def parse(text: Text) -> list[Reading]:
    """Read every host file; [] if there is none. Raises CaptureError for a line of one that is no host."""
    if not any("slots=" in line or (has_words(line) and PRINTS.search(line)) for line in text.lines):
        return []
    evidence = JobEvidence(KIND, text.source)
    for section in sections(text):
        named = PRINTS.search(section.command or "") is not None
        for numbers in blocks(text.lines, section.start, section.end, named=named):
            state(evidence, text, numbers)
    return evidence.readings()


def has_words(line: str) -> bool:
    """The line may print a host file: most lines of a log are settled without a regular expression."""
    lower = line[:LONGEST_COMMAND].lower()
    return "host" in lower or "machine" in lower


def blocks(lines: Sequence[str], start: int, end: int, *, named: bool) -> Iterator[list[int]]:
    """Numbers of the lines of each host file between two lines: runs of hosts, comments and empty lines."""
    found: list[int] = []
    for number in range(start, end + 1):
        line = lines[number - 1]
        host = SLOTS.fullmatch(line) or (
            named and (MEANT.fullmatch(line) or COLON.fullmatch(line) or BARE.fullmatch(line))
        )
        if host:
            found.append(number)
        elif found and line.strip() and not line.lstrip().startswith("#"):
            yield found
            found = []
    if found:
        yield found


def state(evidence: JobEvidence, text: Text, numbers: Sequence[int]) -> None:
    """State the hosts of one file at their lines, and their order."""
    source = [text.lines[number - 1] for number in numbers]
    hydra = any(COLON.fullmatch(line) for line in source)
    try:
        hosts = (parse_hydra if hydra else parse_openmpi)("\n".join(source), text.source)
    except CaptureError as error:
        line = numbers[(error.line or 1) - 1]
        raise CaptureError(error.problem, path=error.path, line=line, fix=error.fix) from None
    for host in merged(hosts):
        if host.slots is not None:
            evidence.fact(Line(numbers[(host.line or 1) - 1], ""), "host-slots", host.slots, host.host)
    evidence.lines.update(numbers)
    order = " ".join(dict.fromkeys(host.host for host in hosts))
    evidence.fact(Line(numbers[0], ""), "node-order", order)
