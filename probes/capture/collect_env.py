"""`collect_env.py` of PyTorch and vLLM: versions and GPU models, in the old flat and in the new format.

Old: `PyTorch version: 2.6.0+cu124`. New, by vLLM: sections between rulers, `PyTorch version : 2.7.0`.
`Could not collect` and `N/A` are unknown. GPUs are nvidia-smi's own list without UUIDs; the topology
table and the variables that may follow have parsers of their own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec.structs import replace

from topocheck.probes.capture.prompt import extent, section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.probes.capture.text import stated
from topocheck.snapshot import (
    SCHEMA,
    At,
    Coverage,
    FullSnapshot,
    GpuId,
    GpuShape,
    Hardware,
    Host,
    Identity,
    JobFact,
    Software,
    Source,
)

__all__ = ["KIND", "parse"]

KIND = "collect_env"

LINE = re.compile(r"(?P<key>[A-Za-z][\w ./()\[\]-]{1,60}?)\s*:(?: +(?P<value>.*))?")
GPU = re.compile(r"\s*GPU (?P<index>\d{1,3}): (?P<model>\S.{0,200}?)\s*(?:\(UUID: .*\))?")
MIG = re.compile(r"\s+MIG ")
RULER = re.compile(r"=+")
VERSION = re.compile(r"v?(\d[\w.+-]{0,60})")

MARKS = frozenset({"PyTorch version", "Is debug build", "CUDA used to build PyTorch", "Is CUDA available"})
"""Keys that no other program prints in this form; two of them make the text a collect_env."""
GPUS = "GPU models and configuration"
KEYS = {
    "PyTorch version": "torch",
    "CUDA runtime version": "cuda_runtime",
    "Nvidia driver version": "driver",
    "vLLM Version": "engine_version",
}
"""Field of `Software` by key."""


class Row(NamedTuple):
    """One `key: value` line."""

    line: int
    key: str
    value: str


class GpuList(NamedTuple):
    """GPUs as collect_env lists them."""

    gpus: list[tuple[int, str]]
    """Index and model of each."""
    whole: bool
    """Nothing was cut from the list."""
    lines: list[int]


def parse(text: Text) -> list[Reading]:
    """Read every report of collect_env, one Reading for each; [] if there is none."""
    rows: list[Row] = []
    for number, line in enumerate(text.lines, 1):
        match = LINE.fullmatch(line) if ":" in line and len(line) < 2000 else None
        if match:
            rows.append(Row(number, match["key"].strip(), match["value"] or ""))
    starts = [place for place, row in enumerate(rows) if row.key == "PyTorch version"]
    ends = [*starts[1:], len(rows)]
    reports = [rows[start:end] for start, end in zip(starts, ends, strict=False)]
    return [report(text, rows) for rows in reports if len(MARKS & {row.key for row in rows}) > 1]


def report(text: Text, rows: list[Row]) -> Reading:
    """One report: its versions and its GPUs."""
    host = section_at(sections(text), rows[0].line).host
    versions: dict[str, str] = {}
    for row in rows:
        version = VERSION.match(stated(row.value) or "")
        if row.key in KEYS and version:
            versions.setdefault(KEYS[row.key], version[1])
    listed = next((read_gpus(text, row) for row in rows if row.key == GPUS), GpuList([], False, []))
    facts = engine_facts(text, rows, versions, host)
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        coverage=Coverage(gpus=extent(listed.whole) if listed.gpus else None),
        identity=Identity(
            host=Host(name=host), gpus=tuple(GpuId(nvml=index, model=model) for index, model in listed.gpus)
        ),
        hardware=Hardware(gpus=tuple(GpuShape(model=model) for _, model in listed.gpus)),
        software=replace(Software(), **versions),
        job=tuple(facts),
    )
    notes = tuple(
        Note(line, "ignored", "MIG devices are not counted as GPUs")
        for line in listed.lines
        if MIG.match(text.lines[line - 1])
    )[:1]
    used = {row.line for row in rows if row.key in KEYS} | set(listed.lines)
    return Reading(KIND, (snapshot,), frozenset(used), len(versions) + len(listed.gpus) + len(facts), notes)


def read_gpus(text: Text, row: Row) -> GpuList:
    """The GPUs under their key.

    The first GPU stands beside the key or below it. The list is whole if its indices are dense and another
    key follows: a capture that ends inside it may have lost some.
    """
    found: list[tuple[int, str]] = []
    lines = [row.line]
    first = GPU.fullmatch(row.value)
    if first:
        found.append((int(first["index"]), first["model"]))
    following = row.line + 1
    while following <= len(text.lines):
        line = text.lines[following - 1]
        match = GPU.fullmatch(line)
        if match:
            found.append((int(match["index"]), match["model"]))
        elif not MIG.match(line):
            break
        lines.append(following)
        following += 1
    after = next((line for line in text.lines[following - 1 :] if line.strip()), "")
    dense = [index for index, _ in found] == list(range(len(found)))
    return GpuList(found, dense and LINE.fullmatch(after) is not None, lines)


def engine_facts(text: Text, rows: list[Row], versions: dict[str, str], host: str | None) -> list[JobFact]:
    """The engine, where its version is there: only vLLM's collect_env asks for one."""
    if "engine_version" not in versions:
        return []
    versions["engine"] = "vllm"
    at = At(source=text.source, line=next(row.line for row in rows if row.key == "vLLM Version"))
    pairs = (("engine", "vllm"), ("engine-version", versions["engine_version"]))
    return [JobFact(kind=kind, value=value, engine="vllm", host=host, at=at) for kind, value in pairs]
