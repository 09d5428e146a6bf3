"""`nvidia-smi -L`: index, name and UUID of each GPU that one process may see.

Several tasks of a job may have printed their lists one after the other. The same index in two lists is
then not the same GPU, and the same UUID is not two: the registry is the union by UUID. An index counts
for the whole union only if one list shows all of it; otherwise it is the task's own numbering.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from topocheck.probes.capture.gpu_block import Block, View, read_views
from topocheck.probes.capture.prompt import extent, section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import (
    SCHEMA,
    Coverage,
    FullSnapshot,
    GpuId,
    GpuShape,
    Hardware,
    Host,
    Identity,
    MigDevice,
    ProbeFault,
    Scope,
    Source,
)

__all__ = ["KIND", "parse"]

KIND = "nvidia-smi -L"

MIG = re.compile(r"\s*MIG (?P<profile>\S{1,40})(?:\s+Device\s+\d+:\s+\(UUID: (?P<uuid>MIG-[\w/-]{1,80})\))?")

FAILURES = (
    "Unable to determine the device handle for",
    "NVIDIA-SMI has failed",
    "Failed to initialize NVML",
    "No devices were found",
)
"""What nvidia-smi prints in place of some or all GPUs."""


def parse(text: Text) -> list[Reading]:
    """Read every list of GPUs, one Reading for each host or, where no host is named, for each command."""
    views: dict[str | int, list[View]] = {}
    for view in read_views(text):
        if not view.about_links:
            views.setdefault(view.section.host or view.section.start, []).append(view)
    failures = [
        number
        for number, line in enumerate(text.lines, 1)
        if len(line) < 400 and any(words in line for words in FAILURES)
    ]
    readings = [_reading(text, found, failures) for found in views.values()]
    return readings + _faults(text, failures)


def _reading(text: Text, views: Sequence[View], failures: Sequence[int]) -> Reading:
    union = {_key(block): block for view in reversed(views) for block in reversed(view.blocks)}
    full = [view for view in views if {_key(block) for block in view.blocks} == union.keys()]
    scope: Scope = "unknown" if full else "task"
    blocks = full[0].blocks if full else sorted(union.values(), key=lambda block: block.line)
    host = views[0].section.host
    notes = [*_notes(views, union.keys(), host), *_mig_notes(blocks)]
    whole = any(_is_whole(view, failures) for view in full)
    listed = whole or any(map(_slices, blocks))  # else the lines of slices may have been left out
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        coverage=Coverage(gpus=extent(whole)),
        identity=Identity(
            host=Host(name=host),
            gpus=tuple(
                GpuId(
                    uuid=block.uuid,
                    nvml=block.index,
                    scope=scope,
                    model=block.model,
                    mig=_slices(block) or (() if listed else None),
                )
                for block in blocks
            ),
        ),
        hardware=Hardware(gpus=tuple(GpuShape(model=block.model) for block in blocks)),
    )
    lines = frozenset[int]().union(*(view.lines for view in views))
    return Reading(KIND, (snapshot,), lines, len(blocks), tuple(notes))


def _is_whole(view: View, failures: Sequence[int]) -> bool:
    """The list shows every GPU that its process saw: its command is there and no GPU is missing in it."""
    section = view.section
    failed = any(section.start <= number <= section.end for number in failures)
    dense = [block.index for block in view.blocks] == list(range(len(view.blocks)))
    return section.lists_all("nvidia-smi") and not view.elided and not failed and dense


def _key(block: Block) -> str:
    """What tells a GPU from others: its UUID, or its index where the UUID is not readable."""
    return block.uuid or f"index {block.index}"


def _notes(views: Sequence[View], union: Iterable[str], host: str | None) -> Iterator[Note]:
    everything = set(union)
    for view in views:
        keys = [_key(block) for block in view.blocks]
        first = view.blocks[0].line
        if len(set(keys)) < len(keys):
            yield Note(first, "contradictory", "one list names a GPU twice")
        if view.elided:
            yield Note(view.elided[0], "cut", "GPUs were left out of the list")
        if any(block.uuid is None for block in view.blocks):
            yield Note(first, "cut", "UUIDs are redacted or cut; these GPUs are known by index only")
    narrow = [view for view in views if {_key(block) for block in view.blocks} < everything]
    if narrow:
        words = f"{len(narrow)} of {len(views)} lists show fewer than all {len(everything)} GPUs"
        words += ": tasks see different GPUs"
        if host is None:
            words += "; whether they ran on one host is not shown"
        yield Note(narrow[0].blocks[0].line, "cut", words)


def _slices(block: Block) -> tuple[MigDevice, ...]:
    """MIG devices listed below a GPU."""
    found = [match for _, line in block.body if (match := MIG.match(line))]
    return tuple(
        MigDevice(uuid=match["uuid"], name=f"{block.model} MIG {match['profile']}") for match in found
    )


def _mig_notes(blocks: Iterable[Block]) -> Iterator[Note]:
    for block in blocks:
        slices = len(_slices(block))
        if slices:
            words = f"GPU {block.index} is divided into {slices} MIG devices, which are not counted as GPUs"
            yield Note(block.line, "ignored", words)


def _faults(text: Text, failures: Sequence[int]) -> list[Reading]:
    """nvidia-smi's own error lines: GPUs that could not be asked are neither present nor absent."""
    parts = sections(text) if failures else ()
    readings = []
    for number in failures:
        line = text.lines[number - 1].strip()
        refused = "permission" in line.lower()
        absent = "No devices" in line or "communicate with the NVIDIA driver" in line
        fault = ProbeFault(
            part="gpus",
            kind="not-permitted" if refused else "absent" if absent else "broken",
            path="nvidia-smi",
            reason=line,
        )
        snapshot = FullSnapshot(
            schema=SCHEMA,
            sources=(Source(name=text.source, kind=KIND),),
            identity=Identity(host=Host(name=section_at(parts, number).host)),
            faults=(fault,),
        )
        readings.append(Reading(KIND, (snapshot,), frozenset({number}), 1))
    return readings
