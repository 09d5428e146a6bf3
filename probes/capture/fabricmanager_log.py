"""NVIDIA's fabric manager: its log, its lines in the journal, its version, and systemd's word on it.

The log is an excerpt: that a line is missing says nothing. Facts in the vocabulary of LogFact:

| kind | value |
|---|---|
| `fabric-manager` | `running`, `configured`, `failed`, `inactive`, the last that is said; else `ran` |
| `fabric-manager-mismatch` | `550.90.07 550.107.02`: its version, and that of the driver, refused |
| `fabric-manager-error` | the message of a line of level ERROR or FATAL, once for each kind of error |
| `nvswitch-error` | `non-fatal 12028 0000:86:00.0 port 61`: an SXid, its NVSwitch and its port |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.capture.prompt import section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import (
    SCHEMA,
    At,
    Coverage,
    FullSnapshot,
    Host,
    Identity,
    LogFact,
    Observed,
    Software,
    Source,
)

__all__ = ["KIND", "parse"]

KIND = "fabric manager log"

LINE = re.compile(
    r"\[[A-Z][a-z]{2} +\d{1,2} \d{4} \d\d:\d\d:\d\d\] \[(?P<level>[A-Z]{3,9})\] \[tid \d{1,9}\] "
    r"(?P<message>.*)"
)
JOURNAL = re.compile(
    r"(?:\S{3,12} +\d{1,2} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S{8,30}) (?P<host>[A-Za-z0-9][\w.-]{0,252}) "
    r"(?:nv-fabricmanager|nvidia-fabricmanager[\w.-]{0,20})\[\d{1,9}\]: (?P<message>.*)"
)
VERSION = re.compile(
    r"(?:Nvidia |NVIDIA )?Fabric Manager version (?:is : ?)?(?P<version>\d{1,4}(?:\.\d{1,4}){1,2})\b.*"
)
MISMATCH = re.compile(
    r"fabric manager NVIDIA GPU driver interface version (?P<own>\d{1,4}(?:\.\d{1,4}){1,2}) "
    r"do(?:es)?n.{0,3}?t match with driver version (?P<driver>\d{1,4}(?:\.\d{1,4}){1,2})\b"
)
NVSWITCH = re.compile(
    r"detected NVSwitch (?P<severity>fatal|non-fatal) error (?P<error>\d{1,6}) .*?"
    r"pci bus id (?P<bus>[0-9A-Fa-f:.]{7,16})(?:.*? port (?P<port>\d{1,3}))?"
)
CONFIGURED = re.compile(r"Successfully configured all the available (?:GPUs and )?NVSwitches")
UNIT = re.compile(r"\s*(?:\S\s)?nvidia-fabricmanager\.service\b.*")
ACTIVE = re.compile(r"\s*Active: (?P<state>active \(running\)|failed|inactive)(?!\w).*")
STATES = {"active (running)": "running", "failed": "failed", "inactive": "inactive"}
FAILED = re.compile(
    r".*nvidia-fabricmanager\.service: (?:Failed with result|Control process exited, code=exited, status=1).*"
)

NOISE = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]*\d[0-9a-fA-F]*")
"""Numbers by which messages of one kind differ."""
MOST_FACTS = 64
"""Facts kept of one host; a broken fabric repeats itself for hours."""
MOST_MESSAGE = 300

NEEDLES = ("[tid ", "abricmanager", "abric Manager", "abric manager")


@dataclass(slots=True)
class Seen:
    """What one host's lines say."""

    facts: dict[tuple[str, str], LogFact] = field(default_factory=dict)
    version: str | None = None
    driver: str | None = None
    lines: set[int] = field(default_factory=set)
    more: int | None = None
    """The first line whose fact was left out because there are too many."""


def parse(text: Text) -> list[Reading]:
    """Read all lines about the fabric manager, one Reading for each host; [] if there are none."""
    likely = [
        number
        for number, line in enumerate(text.lines, 1)
        if len(line) < 4000 and any(needle in line for needle in NEEDLES)
    ]
    parts = sections(text) if likely else ()
    hosts: dict[str | None, Seen] = {}
    for number in likely:
        line = text.lines[number - 1]
        journal = JOURNAL.fullmatch(line)
        host = journal["host"] if journal else section_at(parts, number).host
        found = list(_statements(text, number, line))
        match = LINE.fullmatch(line)
        if found or match or journal:
            seen = hosts.setdefault(host, Seen())
            seen.lines.add(number)
            for kind, value in found:
                _take(text, seen, number, kind, value)
    return [reading for host, seen in hosts.items() if (reading := _reading(text, host, seen))]


def _statements(text: Text, number: int, line: str) -> Iterator[tuple[str, str]]:
    """(kind, value) of what a line says; versions are kinds of their own."""
    match, journal = LINE.fullmatch(line), JOURNAL.fullmatch(line)
    message = match["message"] if match else journal["message"] if journal else line.strip()
    if version := VERSION.fullmatch(message):
        yield "version", version["version"]
    elif mismatch := MISMATCH.search(message):
        yield "fabric-manager-mismatch", f"{mismatch['own']} {mismatch['driver']}"
    elif fault := NVSWITCH.search(message):
        port = f" port {fault['port']}" if fault["port"] else ""
        bus = parse_bus(fault["bus"]) or fault["bus"]
        yield "nvswitch-error", f"{fault['severity']} {fault['error']} {bus}{port}"
    elif CONFIGURED.search(message) and (match or journal):
        yield "fabric-manager", "configured"
    elif match and match["level"] in {"ERROR", "FATAL", "CRITICAL"}:
        yield "fabric-manager-error", message[:MOST_MESSAGE]
    elif UNIT.fullmatch(line):
        below = text.lines[number : number + 12]
        active = next((found for each in below if (found := ACTIVE.fullmatch(each[:300]))), None)
        if active:
            yield "fabric-manager", STATES[active["state"]]
    elif FAILED.fullmatch(line):
        yield "fabric-manager", "failed"


def _take(text: Text, seen: Seen, number: int, kind: str, value: str) -> None:
    if kind == "version":
        seen.version = value
        return
    if kind == "fabric-manager-mismatch":
        seen.version, seen.driver = value.split()
    key = (kind, "" if kind == "fabric-manager" else value)
    if kind == "fabric-manager-error":
        key = (kind, NOISE.sub("#", value))
    if len(seen.facts) >= MOST_FACTS and key not in seen.facts:
        seen.more = seen.more or number
        return
    fact = LogFact(kind=kind, value=value, at=At(source=text.source, line=number))
    if kind == "fabric-manager":
        seen.facts[key] = fact  # it is started anew: its last word counts
    else:
        seen.facts.setdefault(key, fact)


def _reading(text: Text, host: str | None, seen: Seen) -> Reading | None:
    software = Software(driver=seen.driver, fabric_manager=seen.version)
    log = any(LINE.fullmatch(text.lines[number - 1]) for number in sorted(seen.lines)[:50])
    if not seen.facts and software == Software() and not log:
        return None
    running = ("fabric-manager", "")
    if log and running not in seen.facts:
        first = next(n for n in sorted(seen.lines) if LINE.fullmatch(text.lines[n - 1]))
        at = At(source=text.source, line=first)
        seen.facts[running] = LogFact(kind="fabric-manager", value="ran", at=at)
    notes = []
    if seen.more:
        notes.append(
            Note(seen.more, "ignored", f"more than {MOST_FACTS} different errors: the others are left out")
        )
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        coverage=Coverage(observed="part"),
        identity=Identity(host=Host(name=host)),
        software=software,
        observed=Observed(facts=tuple(seen.facts.values())),
    )
    facts = len(seen.facts) + sum(value is not None for value in (seen.version, seen.driver))
    return Reading(KIND, (snapshot,), frozenset(seen.lines), facts, tuple(notes))
