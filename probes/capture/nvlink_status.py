"""`nvidia-smi nvlink -s` (rate of each link) and `nvlink -R` (device at its far end).

The rates are raw signalling rates (26.562 GB/s is a link of nominal 25), so only up and down is taken
from them. A far end `FFFFFFFF:FF:FF.0` is an NVSwitch that the driver hides; far ends with an address
may be switches or GPUs, which this text alone does not tell. So the lists never prove that two GPUs are
not joined, and the coverage of links is `part`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from topocheck.probes.capture.gpu_block import Block, View, read_views
from topocheck.probes.capture.prompt import extent
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.probes.capture.text import stated
from topocheck.snapshot import (
    SCHEMA,
    Coverage,
    FullSnapshot,
    GpuId,
    GpuShape,
    Hardware,
    Host,
    Identity,
    NvLink,
    Source,
)

__all__ = ["KIND", "parse"]

KIND = "nvidia-smi nvlink"

LINK = re.compile(r"(?:[0-9]{1,6}: )?\s*Link ([0-9]{1,2}): (.+)")
RATE = re.compile(r"[0-9.]{1,12} [GM]B/s")
INACTIVE = re.compile(r"<?inactive>?", re.IGNORECASE)
REMOTE = re.compile(r"Remote Device ([0-9A-Fa-f:.]{1,24}): Link [0-9]{1,3}")
ALL_INACTIVE = "all links are inactive"


def parse(text: Text) -> list[Reading]:
    """Read every listing of link states, one Reading each."""
    views = [view for view in read_views(text) if view.about_links]
    return [reading for view in views if (reading := _reading(text, view)) is not None]


def _reading(text: Text, view: View) -> Reading | None:
    links = [_links(block) for block in view.blocks]
    silent = [ALL_INACTIVE in " ".join(line for _, line in block.body) for block in view.blocks]
    facts = sum(map(len, links)) + sum(silent)
    if not facts:
        return None
    notes = list(_notes(view, links))
    for number in _cut_short(view, links):
        links[number] = {}
        words = f"links of GPU {view.blocks[number].index} were cut off: its links are not known"
        notes.append(Note(view.blocks[number].line, "cut", words))
    shapes = [
        _shape(block, found, none) for block, found, none in zip(view.blocks, links, silent, strict=True)
    ]
    cut = any(note.kind == "cut" for note in notes)
    whole = view.section.lists_all("nvidia-smi") and not cut
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        coverage=Coverage(gpus=extent(whole), links="part"),
        identity=Identity(
            host=Host(name=view.section.host),
            gpus=tuple(GpuId(uuid=b.uuid, nvml=b.index, model=b.model) for b in view.blocks),
        ),
        hardware=Hardware(gpus=tuple(shapes)),
    )
    return Reading(KIND, (snapshot,), view.lines, facts, tuple(notes))


def _links(block: Block) -> dict[int, bool | None]:
    """Links of one GPU by number: up, down, or None where only its far end is shown."""
    links: dict[int, bool | None] = {}
    for _, line in block.body:
        match = LINK.fullmatch(line.rstrip())
        if match is None or stated(match[2]) is None:
            continue
        if RATE.fullmatch(match[2]):
            links[int(match[1])] = True
        elif INACTIVE.fullmatch(match[2]):
            links[int(match[1])] = False
        elif REMOTE.fullmatch(match[2]):
            links.setdefault(int(match[1]), None)
    return links


def _shape(block: Block, links: dict[int, bool | None], all_inactive: bool) -> GpuShape:
    """One GPU. Links that the numbering skips exist and are unknown; far ends alone are no state."""
    if any(state is not None for state in links.values()):
        numbers = range(max(links) + 1)
        return GpuShape(
            model=block.model,
            links=tuple(NvLink(link=number, active=links.get(number)) for number in numbers),
        )
    return GpuShape(model=block.model, nvlinks=0 if all_inactive else None)


def _cut_short(view: View, links: list[dict[int, bool | None]]) -> list[int]:
    """GPUs at a cut, or at the end of the listing, that show fewer links than another of their model.

    nvidia-smi prints inactive links too, so a shorter list is a cut one. At a cut with nothing to
    compare, the list may be short as well.
    """
    short = []
    for number, block in enumerate(view.blocks):
        if not links[number] or not (block.cut or block is view.blocks[-1]):
            continue
        others = [
            len(found)
            for other, found in zip(view.blocks, links, strict=True)
            if other is not block and other.model == block.model
        ]
        if len(links[number]) < max(others, default=0) or (block.cut and not others):
            short.append(number)
    return short


def _notes(view: View, links: list[dict[int, bool | None]]) -> Iterator[Note]:
    if view.elided:
        yield Note(view.elided[0], "cut", "GPUs or links were left out of the listing")
    for block, found in zip(view.blocks, links, strict=True):
        gaps = [number for number in range(max(found, default=-1)) if number not in found]
        if gaps:
            words = f"GPU {block.index} skips links {', '.join(map(str, gaps))}: their state is not known"
            yield Note(block.line, "cut", words)
    hidden = any("FFFFFFFF:FF:FF" in line.upper() for block in view.blocks for _, line in block.body)
    if hidden:
        words = "the far ends of the links are NVSwitches that the driver hides (FFFFFFFF:FF:FF.0)"
        yield Note(view.blocks[0].line, "ignored", words)
