"""The order in which CUDA numbers GPUs, beside nvidia-smi's: two lists of models.

CUDA puts the fastest first unless CUDA_DEVICE_ORDER=PCI_BUS_ID, so on a machine with several models its
numbers are others than nvidia-smi's. Lists of models tell which numbers belong together as far as models
differ; GPUs of one model keep their order in both. The facts, in the vocabulary of LogFact:

| kind | value |
|---|---|
| `cuda-models` | models by CUDA's number: `RTX A6000, NVIDIA GeForce RTX 3090` |
| `cuda-order` | nvidia-smi's index of each CUDA device: `1,0`; where both lists are shown and agree |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topocheck.probes.capture.prompt import Section, extent, section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
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
    LogFact,
    Observed,
    Source,
)

__all__ = ["KIND", "parse"]

KIND = "GPU order"

CUDA = re.compile(
    r"\s*(?:CUDA|cuda):(?P<index>[0-9]{1,3})[: ]\s*\(?(?P<model>[A-Z][\w .-]{1,80}?)"
    r"(?:,\s*(?P<size>[0-9]{2,8}(?:\.[0-9]{1,6})?) ?(?:MB|MiB))?\)?\s*"
)
"""`CUDA:0 NAME, 48685.3125MB`, as programs print torch's device properties; their MB are MiB."""
DEVICE = re.compile(r"\s*Device (?P<index>[0-9]{1,3}): \"(?P<model>[A-Z][\w .-]{1,80})\"\s*")
"""CUDA's deviceQuery."""
SMI = re.compile(r"\s*(?:GPU )?(?P<index>[0-9]{1,3}): (?P<model>[A-Z][\w .-]{1,80}?)\s*")
NAMED = re.compile(r"NVIDIA|GeForce|RTX|GTX|Tesla|Quadro|TITAN|Radeon|Instinct|\b[A-Z]{1,2}[0-9]{1,4}\b")
"""Models have such a word; `cuda:0 DONE` is no device."""
TITLE = re.compile(r"\s*(?:[#$>*]\s*)?(?:\S{0,20}\s)?nvidia-smi\b[^|]{0,60}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Device:
    """One line of a list."""

    line: int
    model: str
    memory_bytes: int | None = None


def parse(text: Text) -> list[Reading]:
    """Read CUDA's lists, each with nvidia-smi's list nearest to it, one Reading for each host."""
    likely = [n for n, line in enumerate(text.lines, 1) if ":" in line and _cuda(n, line)]
    if not likely:
        return []
    parts = sections(text)
    hosts: dict[str | None, list[int]] = {}
    for number in likely:
        hosts.setdefault(section_at(parts, number).host, []).append(number)
    return [_reading(text, parts, host, numbers) for host, numbers in hosts.items()]


def _cuda(number: int, line: str) -> tuple[int, Device] | None:
    """CUDA's number and the device, if the line is of one of its lists."""
    match = CUDA.fullmatch(line) or DEVICE.fullmatch(line) if len(line) < 200 else None
    if match is None or not NAMED.search(match["model"]):
        return None
    size = match.groupdict().get("size")
    memory = int(float(size) * (1 << 20)) if size else None
    return int(match["index"]), Device(number, " ".join(match["model"].split()), memory)


def _reading(text: Text, parts: Sequence[Section], host: str | None, numbers: list[int]) -> Reading:
    cuda: dict[int, Device] = {}
    notes: list[Note] = []
    for number in numbers:
        found = _cuda(number, text.lines[number - 1])
        if found and cuda.setdefault(found[0], found[1]).model != found[1].model:
            words = f"CUDA device {found[0]} is another model here than in line {cuda[found[0]].line}"
            notes.append(Note(number, "contradictory", words))
    smi = {} if notes else dict(_smi(text, parts, host))
    order = None if notes else _match(cuda, smi)
    if smi and order is None and not notes:
        words = "nvidia-smi's list and CUDA's have other models: nothing ties their numbers"
        notes.append(Note(numbers[0], "ignored", words))
    memory = {} if order is None else {index: cuda[n].memory_bytes for n, index in enumerate(order)}
    listed = sorted(smi.items())
    facts = tuple(_facts(text, cuda, order))
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        coverage=Coverage(gpus=extent(order is not None) if listed else None, observed="part"),
        identity=Identity(
            host=Host(name=host),
            gpus=tuple(GpuId(nvml=index, model=device.model) for index, device in listed),
        ),
        hardware=Hardware(
            gpus=tuple(
                GpuShape(model=device.model, memory_bytes=memory.get(index)) for index, device in listed
            )
        ),
        observed=Observed(facts=facts),
    )
    lines = frozenset([*numbers, *(device.line for device in smi.values())])
    return Reading(KIND, (snapshot,), lines, len(cuda) + len(smi), tuple(notes))


def _smi(text: Text, parts: Sequence[Section], host: str | None) -> Iterator[tuple[int, Device]]:
    """nvidia-smi's list, below a line that names it: indexes from 0 in order."""
    inside, expected = False, 0
    for number, line in enumerate(text.lines, 1):
        match = SMI.fullmatch(line) if inside and len(line) < 200 else None
        if match and int(match["index"]) == expected and section_at(parts, number).host == host:
            yield expected, Device(number, " ".join(match["model"].split()))
            expected += 1
        elif line.strip():
            if expected:
                return
            inside = "nvidia-smi" in line and len(line) < 200 and TITLE.fullmatch(line) is not None


def _match(cuda: dict[int, Device], smi: dict[int, Device]) -> list[int] | None:
    """nvidia-smi's index of each CUDA device; None unless both lists have the same models as often."""
    if sorted(cuda) != list(range(len(cuda))) or len(cuda) != len(smi):
        return None
    free = sorted(smi)
    order = []
    for number in sorted(cuda):
        index = next((index for index in free if _same(cuda[number].model, smi[index].model)), None)
        if index is None:
            return None
        free.remove(index)
        order.append(index)
    return order


def _same(one: str, other: str) -> bool:
    """Two names of one model: one of them may leave vendor and brand out, but no word at its end."""
    first, second = one.split(), other.split()
    short = min(len(first), len(second))
    return first[-short:] == second[-short:]


def _facts(text: Text, cuda: dict[int, Device], order: list[int] | None) -> Iterator[LogFact]:
    if sorted(cuda) == list(range(len(cuda))):
        at = At(source=text.source, line=cuda[0].line)
        models = ", ".join(cuda[number].model for number in sorted(cuda))
        yield LogFact(kind="cuda-models", value=models, at=at)
        if order is not None:
            yield LogFact(kind="cuda-order", value=",".join(map(str, order)), at=at)
