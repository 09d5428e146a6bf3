"""`nvidia-smi topo -m`: classes of links between GPUs and NICs, and the NUMA node of each GPU.

The table of all driver versions: with or without escapes, NUMA columns and GPU NUMA ID; NIC columns as
`NIC0` with a legend of names below, or as `mlx5_0` in older drivers. Pasted copies have blanks for tabs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from topocheck.probes.capture.grid import Grid, read_grids, split_words
from topocheck.probes.capture.prompt import Section, extent, section_at, sections
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
    LinkMatrix,
    NicId,
    NicShape,
    Source,
)

__all__ = ["KIND", "parse"]

KIND = "nvidia-smi topo -m"

CLASSES = re.compile(r"X|SYS|SOC|NODE|PHB|PXB|PIX|NV[0-9]{1,2}")
"""SOC is what old drivers called SYS."""

LEGEND = re.compile(r"\s*(NIC[0-9]{1,4}):\s*([A-Za-z][\w.+-]{0,60})\s*")
STRAY_LABEL = re.compile(r"(?:GPU|NIC)[0-9]{1,4}|mlx[0-9]_[0-9]{1,4}")
AFFINITY = re.compile(r"[0-9][0-9,-]*|N/A")
NUMA_NODE = re.compile(r"[0-9]{1,3}")


def parse(text: Text) -> list[Reading]:
    """Read every table of a text, one Reading each. Raises CaptureError for one that does not align."""
    grids = list(read_grids(text, CLASSES, affinities=True))
    parts = sections(text) if grids else ()
    readings = [_reading(text, grid, section_at(parts, grid.line)) for grid in grids]
    used = frozenset[int]().union(*(reading.lines for reading in readings))
    return readings + _strays(text, used)


def _reading(text: Text, grid: Grid, section: Section) -> Reading:
    gpus = [name for name in grid.columns if name.startswith("GPU")]
    nics = [name for name in grid.columns if not name.startswith("GPU")]
    names, legend = _legend(text, grid, section)
    notes = [*grid.notes, *_unknown_names(grid, nics, names)]
    classes = _classes(grid, notes)
    lacking = grid.missing + grid.gaps
    of_gpus = extent(not any(name.startswith("GPU") for name in lacking))
    of_links = extent(of_gpus == "all" and not any(note.kind == "contradictory" for note in notes))
    of_nics = extent(of_gpus == "all" and names.keys() <= set(nics) and not set(nics) & set(lacking))
    kernel = [names.get(nic, nic) for nic in nics]
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        coverage=Coverage(gpus=of_gpus, links=of_links, nics=of_nics if nics else None),
        identity=Identity(
            host=Host(name=section.host),
            gpus=tuple(GpuId(nvml=int(gpu[3:])) for gpu in gpus),
            nics=tuple(NicId(name=name) for name in kernel),
        ),
        hardware=Hardware(
            gpus=tuple(GpuShape(numa=_numa(grid, gpu)) for gpu in gpus),
            nics=tuple(NicShape(name=name) for name in kernel),
            matrix=LinkMatrix(
                gpus=tuple(tuple(classes[a, b] for b in gpus) for a in gpus),
                nics=tuple(tuple(classes[a, b] for b in nics) for a in gpus) if nics else (),
            ),
        ),
    )
    facts = sum(len(row.cells) for row in grid.rows.values())
    return Reading(KIND, (snapshot,), frozenset(grid.lines | legend), facts, tuple(notes))


def _classes(grid: Grid, notes: list[Note]) -> dict[tuple[str, str], str | None]:
    """Class of each pair, from either row; None where no row shows it or the two rows differ."""
    classes: dict[tuple[str, str], str | None] = {}
    for b, second in enumerate(grid.columns):
        classes[second, second] = "X"
        for a, first in enumerate(grid.columns[:b]):
            there, back = _class(grid, first, b), _class(grid, second, a)
            found = there or back
            if there and back and there != back:
                found = None
                words = f"{first}-{second} is {there} in row {first} and {back} in row {second}"
                notes.append(Note(grid.rows[first].line, "contradictory", words))
            classes[first, second] = classes[second, first] = found
    return classes


def _class(grid: Grid, row: str, column: int) -> str | None:
    cell = grid.cell(row, column)
    return "SYS" if cell == "SOC" else cell


def _numa(grid: Grid, gpu: str) -> int | None:
    """NUMA node of a GPU; None where the row does not show one single node.

    A range (`0-1`) is a virtual machine that hides its locality. The tail is read only if it has as
    many fields as the header, else a blank field would shift it.
    """
    row = grid.rows.get(gpu)
    headings = [" ".join(heading.split()) for heading in grid.tail]
    if row is None or "NUMA Affinity" not in headings or len(row.tail) != len(headings):
        return None
    if not all(AFFINITY.fullmatch(value) for value in row.tail):
        return None
    value = row.tail[headings.index("NUMA Affinity")]
    return int(value) if NUMA_NODE.fullmatch(value) else None


def _legend(text: Text, grid: Grid, section: Section) -> tuple[dict[str, str], set[int]]:
    """Kernel names below the table, `NIC0: mlx5_0`, and the lines of the legends."""
    names: dict[str, str] = {}
    used = set()
    for number in range(grid.end + 1, min(section.end, grid.end + 2000) + 1):
        line = text.lines[number - 1]
        match = LEGEND.fullmatch(line)
        if match and match[1] not in names:
            names[match[1]] = match[2]
        elif line.strip() and not re.match(r"\s*(?:NIC )?Legend:|\s*[A-Z]{1,4}#?\s+= ", line):
            break
        used.add(number)
    return names, used


def _unknown_names(grid: Grid, nics: Sequence[str], names: dict[str, str]) -> list[Note]:
    """Notes on NICs that table and legend do not both have."""
    notes = []
    bare = [nic for nic in nics if nic.startswith("NIC") and nic not in names]
    if bare:
        words = f"no legend gives the kernel names of {len(bare)} NICs; they keep their headings"
        notes.append(Note(grid.line, "cut", words))
    beyond = [nic for nic in names if nic not in nics]
    if beyond:
        notes.append(Note(grid.end, "cut", f"the legend has {len(beyond)} NICs without a column"))
    return notes


def _strays(text: Text, used: frozenset[int]) -> list[Reading]:
    """Rows whose header was cut away: without columns they say nothing, but the user must know."""
    lines = [
        number
        for number, line in enumerate(text.lines, 1)
        if " X" in line.replace("\t", " ") and number not in used and _is_stray(line)
    ]
    if not lines:
        return []
    many = f"{len(lines)} rows" if len(lines) > 1 else "a row"
    words = f"{many} of a table without its header: the columns are not known, nothing was taken"
    return [Reading(KIND, (), frozenset(lines), 0, (Note(lines[0], "cut", words),))]


def _is_stray(line: str) -> bool:
    tokens = line.split(maxsplit=600)
    if len(tokens) < 3 or not STRAY_LABEL.fullmatch(tokens[0]):
        return False
    cells = [split_words(token, CLASSES) for token in tokens[1:]]
    words = [word for found in cells if found for word in found]
    rest = [token for token, found in zip(tokens[1:], cells, strict=True) if found is None]
    return words.count("X") == 1 and len(words) > 1 and all(AFFINITY.fullmatch(token) for token in rest)
