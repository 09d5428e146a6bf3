"""The NVLink fabric as other tools than nvidia-smi tell of it.

gpud prints a table for each GPU under `MODEL checked fabric state`. Telemetry of a job prints a line for
each rank, `rank=0 clusterId=1a2b.3c4d cliqueId=7`: two 64-bit numbers, as NCCL writes a cluster UUID. A
script that waits for the fabric says in the end that it never was `Completed`, and CUDA then answers with
error 802. The facts of the latter, in the vocabulary of LogFact:

| kind | value |
|---|---|
| `fabric-not-completed` | the words that say so, and how often was asked |
| `cuda-error` | `802 system not yet initialized`: CUDA waits for the fabric manager |
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

from topocheck.probes.capture.fabric_words import fabric_heading, merge_fabrics, parse_fabric
from topocheck.probes.capture.gpu_block import read_uuid
from topocheck.probes.capture.prompt import Section, section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import (
    SCHEMA,
    At,
    Coverage,
    Fabric,
    FullSnapshot,
    GpuId,
    GpuShape,
    Hardware,
    Host,
    Identity,
    JobFact,
    LogFact,
    Observed,
    Source,
)

__all__ = ["KIND", "parse"]

KIND = "fabric listing"

CELLS = re.compile(r"\s*\|\s*(?P<key>[A-Za-z][\w ]{0,60}?)\s*\|\s*(?P<value>[^|]{1,200}?)\s*\|\s*")
RULER = re.compile(r"\s*\+[-+=]+\+\s*")
CHECKED = re.compile(
    r"\W{0,8}(?P<model>(?:NVIDIA|AMD)[\w .-]{1,60}?) (?:checked fabric state|with unhealthy fabric state)\b.*"
)

DOMAIN = re.compile(r"\bclusterId=(?P<high>[0-9a-f]{1,16})\.(?P<low>[0-9a-f]{1,16})\b")
CLIQUE = re.compile(r"\bcliqueId=(?P<clique>[0-9]{1,10})\b")
RANK = re.compile(r"\brank=(?P<rank>[0-9]{1,7})\b")
HOST = re.compile(r"\bhost(?:name)?=(?P<host>[A-Za-z0-9][\w.-]{0,252})")

NEVER = re.compile(
    r"fabric.{0,60}\bnever\b.{0,60}\bCompleted\b|fabric.{0,40}\bnot Completed after\b", re.IGNORECASE
)
TRY = re.compile(r"\[[\w-]{1,40} (?P<number>[0-9]{1,5})\] state_ok=False")
NOT_READY = re.compile(
    r"Error 802: system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady"
)
CUDA_ERROR = "802 system not yet initialized"
GPU = re.compile(r"\s*GPU (?P<index>[0-9]{1,3}): (?P<model>[A-Z][\w .-]{2,80}?)\s*(?:\(.{0,100}\))?\s*")

MOST_WORDS = 200
MOST_NOTES = 20
MOST_TRIES = 2000
"""Lines above in which the tries are counted."""


def parse(text: Text) -> list[Reading]:
    """Read tables, telemetry and waiting scripts, one Reading for each kind that is there."""
    return [*_tables(text), *_telemetry(text), *_waits(text)]


@dataclass(slots=True)
class Table:
    """One table of a GPU's fabric."""

    line: int
    model: str | None
    words: dict[str, str] = field(default_factory=dict)
    lines: set[int] = field(default_factory=set)


def _tables(text: Text) -> list[Reading]:
    """The tables of one host together, since each is of one GPU."""
    if not any("Clique ID" in line for line in text.lines):
        return []
    hosts: dict[str | None, list[Table]] = {}
    parts = sections(text)
    for table in _boxes(text):
        if {"state", "cliqueid"} <= table.words.keys():
            hosts.setdefault(section_at(parts, table.line).host, []).append(table)
    return [_of_tables(text, host, tables) for host, tables in hosts.items()]


def _boxes(text: Text) -> Iterator[Table]:
    table: Table | None = None
    model = None
    for number, line in enumerate(text.lines, 1):
        short = len(line) < 400
        cells = CELLS.fullmatch(line) if short and "|" in line else None
        if cells:
            key = fabric_heading(cells["key"])
            if table and key in table.words:  # the next GPU's, below a ruler alone
                yield table
                table = None
            table = table or Table(number, model)
            table.words[key] = cells["value"]
            table.lines.add(number)
        elif short and RULER.fullmatch(line):
            continue
        else:
            if table:
                yield table
            table = None
            checked = CHECKED.fullmatch(line) if short else None
            if checked:
                model = " ".join(checked["model"].replace("-", " ").split())
            elif line.strip():
                model = None
    if table:
        yield table


def _of_tables(text: Text, host: str | None, tables: Sequence[Table]) -> Reading:
    uuids = [read_uuid(table.words.get("gpuuuid", "")) for table in tables]
    source = Source(name=text.source, kind=KIND)
    fabrics: list[Fabric] = []
    for ordinal, table in enumerate(tables):
        at = At(source=text.source, line=table.line)
        found = parse_fabric(table.words, at, (ordinal,))
        if found:
            fabrics.append(found)
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(source,),
        coverage=Coverage(gpus="part"),
        identity=Identity(
            host=Host(name=host),
            gpus=tuple(
                GpuId(uuid=uuid, model=table.model) for uuid, table in zip(uuids, tables, strict=True)
            ),
        ),
        hardware=Hardware(gpus=tuple(GpuShape(model=table.model) for table in tables)),
        fabric=merge_fabrics(fabrics),
    )
    lines = frozenset[int]().union(*(table.lines for table in tables))
    return Reading(KIND, (snapshot,), lines, sum(len(table.words) for table in tables))


def _telemetry(text: Text) -> list[Reading]:
    """One fact about the job for each rank; the text does not say on which host it ran."""
    facts: dict[str, JobFact] = {}
    others: list[JobFact] = []
    for number, line in enumerate(text.lines, 1):
        fact = _domain(text, number) if "clusterId=" in line and len(line) < 4000 else None
        if fact and facts.setdefault(fact.name, fact).value != fact.value:
            others.append(fact)
    if not facts:
        return []
    found = (*facts.values(), *others)
    notes = tuple(
        Note(
            _line(fact),
            "contradictory",
            f"rank {fact.name} is in another NVLink domain here than in line {_line(facts[fact.name])}",
        )
        for fact in others[:MOST_NOTES]
    )
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        identity=Identity(host=Host()),
        job=found,
    )
    return [Reading(KIND, (snapshot,), frozenset(map(_line, found)), len(found), notes)]


def _domain(text: Text, number: int) -> JobFact | None:
    """The NVLink domain of one rank; None where a part of it is missing."""
    line = text.lines[number - 1]
    domain, clique, rank, host = (each.search(line) for each in (DOMAIN, CLIQUE, RANK, HOST))
    if not (domain and clique and rank):
        return None
    halves = (int(domain[half], 16).to_bytes(8, "little") for half in ("high", "low"))
    return JobFact(
        kind="nvlink-domain",
        name=rank["rank"],
        value=f"{b''.join(halves).hex()}.{int(clique['clique'])}",
        host=host["host"] if host else None,
        at=At(source=text.source, line=number),
    )


def _line(fact: JobFact) -> int:
    return (fact.at.line if fact.at else None) or 0


def _waits(text: Text) -> list[Reading]:
    """Statements that the fabric was not ready, for each host whose prompt stands above them."""
    likely = [number for number, line in enumerate(text.lines, 1) if _says(line)]
    parts = sections(text) if likely else ()
    found: dict[str | None, dict[str, LogFact]] = {}
    for number in likely:
        facts = found.setdefault(section_at(parts, number).host, {})
        for kind, value in _statements(text, number, facts):
            facts[kind] = LogFact(kind=kind, value=value, at=At(source=text.source, line=number))
    return [_of_waits(text, parts, host, tuple(facts.values())) for host, facts in found.items()]


def _says(line: str) -> bool:
    return len(line) < 4000 and bool(NOT_READY.search(line) or NEVER.search(line))


def _statements(text: Text, number: int, known: Container[str]) -> Iterator[tuple[str, str]]:
    """(kind, value) of what a line says and none before it said."""
    line = text.lines[number - 1]
    if "fabric-not-completed" not in known and NEVER.search(line):
        above = text.lines[max(0, number - MOST_TRIES) : number]
        tries = [int(match["number"]) for line in above if (match := TRY.match(line))]
        count = f" ({max(tries)} tries)" if tries else ""
        yield "fabric-not-completed", line.strip()[:MOST_WORDS] + count
    if "cuda-error" not in known and NOT_READY.search(line):
        yield "cuda-error", CUDA_ERROR


def _of_waits(text: Text, parts: Sequence[Section], host: str | None, facts: tuple[LogFact, ...]) -> Reading:
    """The statements, and the GPUs that the same script listed without their UUIDs."""
    gpus: dict[int, tuple[str, int]] = {}
    for number, line in enumerate(text.lines, 1):
        match = GPU.fullmatch(line) if "GPU " in line and "UUID" not in line and len(line) < 200 else None
        if match and section_at(parts, number).host == host:
            gpus.setdefault(int(match["index"]), (match["model"], number))
    listed = sorted(gpus.items())
    source = Source(name=text.source, kind=KIND)
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(source,),
        coverage=Coverage(gpus="part" if listed else None, observed="part"),
        identity=Identity(
            host=Host(name=host),
            gpus=tuple(GpuId(nvml=index, scope="unknown", model=model) for index, (model, _) in listed),
        ),
        hardware=Hardware(gpus=tuple(GpuShape(model=model) for _, (model, _) in listed)),
        observed=Observed(facts=facts),
    )
    used = {fact.at.line for fact in facts if fact.at and fact.at.line}
    lines = frozenset(used | {number for _, (_, number) in listed})
    return Reading(KIND, (snapshot,), lines, len(facts) + len(listed))
