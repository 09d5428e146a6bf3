"""Square tables with GPU and NIC headings, as `nvidia-smi topo` prints them. Never shifted.

A cell belongs to a column only if the row has exactly as many cells as the header has columns and the
self cell X stands under the row's own heading. Cells and headings that lost the tab between them
(`NODENODE`, `NIC8NIC9`) are told apart, because no word of these tables is the beginning of another;
that is noted. Everything else that does not fit is refused with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from topocheck.errors import CaptureError
from topocheck.probes.capture.reading import Note, Text
from topocheck.probes.capture.text import is_elision

__all__ = ["Grid", "Row", "Words", "name_ranges", "read_grids", "split_words"]

Words = re.Pattern[str]
"""One cell word of a table; no word may begin another."""

DEVICE = re.compile(r"(?:GPU|NIC)[0-9]{1,4}")
KERNEL_NAME = re.compile(r"[a-z][a-z0-9_.-]{2,40}")
TAIL = re.compile(r"CPU\s*Affinity|NUMA\s*Affinity|GPU\s*NUMA\s*ID")

MOST_COLUMNS = 512
"""More devices than any node has: a wider table is not believed."""

FIX = "give the table as the tool printed it, in a file of its own"


@dataclass(frozen=True, slots=True)
class Row:
    """One row, aligned with the columns of its grid."""

    line: int
    """Line, from 1."""
    cells: tuple[str, ...]
    """One word a column."""
    tail: tuple[str, ...]
    """What follows the cells: affinities."""


@dataclass(slots=True)
class Grid:
    """One table as far as it is there."""

    line: int
    """Line of the header."""
    columns: tuple[str, ...]
    """Headings of the devices."""
    tail: tuple[str, ...]
    """Headings after the devices: CPU Affinity, NUMA Affinity, GPU NUMA ID."""
    end: int
    """Last line that was looked at."""
    rows: dict[str, Row] = field(default_factory=dict)
    """Rows by heading."""
    notes: list[Note] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    """Lines used."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Columns that have no row."""
        return tuple(name for name in self.columns if name not in self.rows)

    @property
    def gaps(self) -> tuple[str, ...]:
        """GPU and NIC numbers that the headings skip."""
        names = set(self.columns)
        last = {name[:3]: int(name[3:]) for name in self.columns if DEVICE.fullmatch(name)}
        wanted = (f"{kind}{number}" for kind, top in last.items() for number in range(top))
        return tuple(name for name in wanted if name not in names)

    def cell(self, row: str, column: int) -> str | None:
        """A cell; None if its row is missing."""
        found = self.rows.get(row)
        return None if found is None else found.cells[column]


def read_grids(text: Text, words: Words, *, affinities: bool) -> Iterator[Grid]:
    """All tables whose first row is made of these words. Raises CaptureError for one that does not align.

    `affinities` says that this kind of table has affinity columns; one that must not have them is
    another kind. Without them the first row must hold more than its self cell to be recognised.
    """
    number = 0
    while number < len(text.lines):
        number += 1
        if "GPU" not in text.lines[number - 1]:
            continue
        header = _header(text.lines[number - 1])
        if header is None or (header.tail and not affinities) or not _begins(text, number, header, words):
            continue
        grid = _grid(text, number, header, words)
        yield grid
        number = grid.end


def split_words(token: str, words: Words) -> list[str] | None:
    """The words that a token is made of; None if it holds anything else."""
    found = words.findall(token)
    return found if "".join(found) == token else None


def name_ranges(names: Sequence[str]) -> str:
    """Names with runs of numbers folded: `GPU3..GPU7, NIC0`."""
    runs: list[list[str]] = []
    for name in names:
        kind, count = name[:3], name[3:]
        follows = runs and count.isdigit() and runs[-1][-1] == f"{kind}{int(count) - 1}"
        runs[-1].append(name) if follows else runs.append([name])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)


@dataclass(frozen=True, slots=True)
class _Header:
    columns: tuple[str, ...]
    tail: tuple[str, ...]
    glued: tuple[str, ...]


def _header(line: str) -> _Header | None:
    """The line as a header, if it can be one: it begins with a GPU and names only devices."""
    start = TAIL.search(line)
    devices = line if start is None else line[: start.start()]
    tail = tuple(TAIL.findall(line)) if start else ()
    columns: list[str] = []
    glued = []
    for token in devices.split():
        names = split_words(token, DEVICE) or token.replace("mlx5_", " mlx5_").split()
        if not all(DEVICE.fullmatch(name) or KERNEL_NAME.fullmatch(name) for name in names):
            return None
        if len(names) > 1:
            glued.append(token)
        columns += names
    if not columns or not columns[0].startswith("GPU") or len(columns) > MOST_COLUMNS:
        return None
    return _Header(tuple(columns), tail, tuple(glued))


def _begins(text: Text, number: int, header: _Header, words: Words) -> bool:
    """The next line with anything on it is a row of these words."""
    for line in text.lines[number : number + 4]:
        if line.strip():
            found = _split_row(line, header.columns, words)
            return found is not None and (bool(header.tail) or set(found[1]) != {"X"})
    return False


def _grid(text: Text, number: int, header: _Header, words: Words) -> Grid:
    """Read the rows below a header until something else comes."""
    grid = Grid(number, header.columns, header.tail, number, lines={number})
    twice = sorted({name for name in header.columns if header.columns.count(name) > 1})
    if twice:
        raise CaptureError(f"the header names {twice[0]} twice", path=text.source, line=number, fix=FIX)
    grid.notes += [Note(number, "repaired", f"{token} are two headings") for token in header.glued]
    for count in range(number + 1, len(text.lines) + 1):
        line = text.lines[count - 1]
        if not line.strip() or is_elision(line):
            continue
        found = _split_row(line, grid.columns, words)
        if found is None:
            break
        grid.end = count
        grid.lines.add(count)
        _take_row(text, grid, count, found)
    _drop_bare(grid)
    if grid.missing:
        many = f"{len(grid.missing)} rows are" if len(grid.missing) > 1 else "1 row is"
        grid.notes.append(Note(grid.end, "cut", f"{many} missing: {name_ranges(grid.missing)}"))
    if grid.gaps:
        grid.notes.append(Note(number, "cut", f"the headings skip {name_ranges(grid.gaps)}"))
    return grid


def _take_row(text: Text, grid: Grid, line: int, found: _Split) -> None:
    """Put a row into the grid, if it aligns; a short last line of the text is a cut one."""
    label, cells, tail, glued = found
    wanted = len(grid.columns)
    if len(cells) < wanted and not any(rest.strip() for rest in text.lines[line:]):
        grid.notes.append(Note(line, "cut", f"row {label} ends after {len(cells)} of {wanted} cells"))
        return
    problem = None
    if label not in grid.columns:
        problem = f"row {label} has no column"
    elif len(cells) != wanted:
        problem = f"row {label} has {len(cells)} cells, the header names {wanted} columns"
    elif [name for name, cell in zip(grid.columns, cells, strict=True) if cell == "X"] != [label]:
        problem = f"the self cell X of row {label} does not stand in its own column"
    elif label in grid.rows and grid.rows[label].cells != tuple(cells):
        problem = f"row {label} is there twice with different cells"
    if problem:
        raise CaptureError(problem, path=text.source, line=line, fix=FIX)
    grid.notes += [Note(line, "repaired", f"{token} in row {label} is several cells") for token in glued]
    grid.rows.setdefault(label, Row(line, tuple(cells), tuple(tail)))


def _drop_bare(grid: Grid) -> None:
    """Forget GPU rows that end before their affinities, if other rows have them or are missing.

    Such a row was cut or wrapped, and its last word may be a part (`NV1` of `NV12`). Machines that
    print no affinities print none in all rows.
    """
    gpus = [name for name in grid.rows if name.startswith("GPU")]
    bare = [name for name in gpus if grid.tail and not grid.rows[name].tail]
    if len(bare) == len(gpus) and not grid.missing:
        return
    for name in bare:
        grid.notes.append(Note(grid.rows.pop(name).line, "cut", f"row {name} ends before its affinities"))


_Split = tuple[str, list[str], list[str], list[str]]
"""Label, cells, tail, tokens that held several cells."""


def _split_row(line: str, columns: Sequence[str], words: Words) -> _Split | None:
    """A line as a row; None if it is none: no device in front, or no cell behind it."""
    tokens = line.split(maxsplit=MOST_COLUMNS + 16)
    if not tokens:
        return None
    first = tokens[0]
    label = first if first in columns or DEVICE.fullmatch(first) else None
    if label is None:  # the label lost its tab: GPU0X
        label = max((n for n in columns if first.startswith(n)), key=len, default=None)
        if label is None or split_words(first[len(label) :], words) is None:
            return None
        tokens[0:1] = [label, first[len(label) :]]
    cells: list[str] = []
    glued: list[str] = []
    for place, token in enumerate(tokens[1:], 1):
        found = split_words(token, words)
        if found is None:
            tail = tokens[place:]
            break
        cells += found
        glued += [token] if len(found) > 1 else []
    else:
        tail = []
    return (label, cells, tail, glued) if cells else None
