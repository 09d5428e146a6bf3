"""A kept report, checked: the file itself, the inputs that it names, the verdict over them.

A check finds the same, or a difference, or that it cannot be decided; what it finds names the place. It
finds what was changed by accident or by hand. Whoever writes a whole new page with a digest of its own makes
another report: against that helps only a digest kept elsewhere, or a run over the same inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import msgspec

from topocheck import __version__
from topocheck.inputfile import file_digest
from topocheck.keptreport import Kept
from topocheck.render import html, json_report
from topocheck.render.embedded import Embedded, digest_of, seal_of
from topocheck.render.lean import as_lean_as
from topocheck.render.text import printable, shorten
from topocheck.report import InputReport, Report
from topocheck.sourcecode import source_digest

__all__ = [
    "Checked",
    "Given",
    "check_file",
    "check_inputs",
    "check_verdict",
    "given_files",
    "pair",
    "same_code",
]

State = Literal["same", "differs", "undecided"]
MOST_SHOWN = 40
MARGIN = 12


@dataclass(frozen=True, slots=True)
class Checked:
    """What one check found."""

    what: str
    """What was looked at: `page`, `input nodes.jsonl`."""
    state: State
    said: str


@dataclass(frozen=True, slots=True)
class Given:
    """A file that the user gave for the check."""

    path: str
    digest: str


def same_code(report: Report) -> str:
    """Empty if the code that runs is the one that made the report, else in what they differ."""
    mine = f"topocheck {__version__}"
    if report.tool != mine:
        return f"made by {report.tool[:60]}, and this is {mine}"
    build = report.audit.build if report.audit is not None else ""
    if build and build != source_digest():
        return f"made by another build of {mine}"
    return ""


def check_file(kept: Kept) -> Iterator[Checked]:
    """The file alone: digests, and whether the page is what its report renders to."""
    block, other = kept.embedded, same_code(kept.report)
    if block is None:
        if other:
            yield Checked("report", "undecided", f"was {other}: how that writes it is not known")
        else:
            yield compare_texts(
                "report", kept.document, json_report.render(kept.report), "what topocheck writes"
            )
        return
    if other:
        yield Checked("page", "undecided", f"was {other}: only its digests can be checked")
    else:
        yield check_page(kept, block)
    yield check_digest(kept, block.digest)
    yield check_seal(kept.text)


def check_page(kept: Kept, block: Embedded) -> Checked:
    """The page against what its report renders to. One that cannot be rendered was never written here."""
    try:
        page = html.render(kept.report, block)
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        said = (
            f"holds a report that topocheck never writes: it cannot be rendered ({shorten(repr(error), 80)})"
        )
        return Checked("page", "differs", said)
    return compare_texts("page", kept.text, page, "what its report renders to")


def check_digest(kept: Kept, said: str) -> Checked:
    """The report in a page against the digest that the page states."""
    found = digest_of(kept.document)
    if found == said:
        return Checked("report", "same", f"has the digest that the page states, {said}")
    return Checked(
        "report", "differs", f"has {found}, and the page states {said}: one of the two was changed"
    )


def check_seal(page: str) -> Checked:
    """The page against the digest in its last line."""
    seal = seal_of(page)
    if seal is None:
        return Checked("page", "differs", "does not end with its digest: it was cut off or added to")
    if seal[0] != seal[1]:
        return Checked("page", "differs", f"has {seal[1]}, and its last line says {seal[0]}: it was changed")
    return Checked("page", "same", "has the digest that its last line states")


def compare_texts(what: str, found: str, expected: str, named: str) -> Checked:
    """A text against what it should be, byte for byte, with the first place in which they differ."""
    if found == expected:
        return Checked(what, "same", f"is {named}, byte for byte")
    pairs = enumerate(zip_longest(found.split("\n"), expected.split("\n")), 1)
    line, (mine, right) = next((number, both) for number, both in pairs if both[0] != both[1])
    if mine is None:
        return Checked(what, "differs", f"is not {named}: it ends in line {line - 1}")
    if right is None:
        return Checked(what, "differs", f"is not {named}: line {line} is added, {excerpt(mine, 0)}")
    both = zip_longest(mine, right)
    column = next(number for number, pair in enumerate(both) if pair[0] != pair[1])
    return Checked(
        what,
        "differs",
        f"is not {named}: line {line}, column {column + 1} has {excerpt(mine, column)}, expected "
        f"{excerpt(right, column)}",
    )


def excerpt(line: str, column: int) -> str:
    """What stands around a place of a line, in quotes."""
    start = max(0, column - MARGIN)
    said = printable(line[start : start + MOST_SHOWN])
    return f'"{"..." if start else ""}{said}{"..." if start + MOST_SHOWN < len(line) else ""}"'


def given_files(paths: Iterable[str]) -> list[Given]:
    """Digests of files as they are now. Raises InputError for one that cannot be read."""
    return [Given(path, file_digest(path)) for path in paths]


def pair(
    recorded: Sequence[InputReport], given: Sequence[Given]
) -> tuple[list[tuple[InputReport, Given | None]], list[Given]]:
    """Each recorded input with the file that is meant, and the files that are left.

    Meant is the file of the same name; else one of the same bytes, wherever it lies now; else the one whose
    path ends most alike.
    """
    left = list(given)
    found: dict[int, Given] = {}
    likeness = (
        lambda one, file: file.path == one.name,
        lambda one, file: bool(one.digest) and file.digest == one.digest,
        lambda one, file: Path(file.path).name == Path(one.name).name,
    )
    for alike in likeness:
        for number, one in enumerate(recorded):
            meant = [file for file in left if number not in found and alike(one, file)]
            if meant:
                found[number] = max(meant, key=lambda file: common_end(file.path, one.name))
                left.remove(found[number])
    return [(one, found.get(number)) for number, one in enumerate(recorded)], left


def common_end(one: str, other: str) -> int:
    """How many last parts two paths share."""
    parts = zip(reversed(Path(one).parts), reversed(Path(other).parts), strict=False)
    count = 0
    for mine, its in parts:
        if mine != its:
            break
        count += 1
    return count


def check_inputs(
    pairs: Sequence[tuple[InputReport, Given | None]], extra: Sequence[Given]
) -> Iterator[Checked]:
    """Each input by its digest; one that is not given proves nothing."""
    for one, file in pairs:
        what = f"input {one.name}"
        if not one.digest:
            yield Checked(what, "undecided", "has no digest in the report")
        elif file is None:
            yield Checked(what, "undecided", "is missing: it is not among what was given")
        elif file.digest != one.digest:
            yield Checked(
                what, "differs", f"is changed: {file.path} has {file.digest}, recorded is {one.digest}"
            )
        else:
            where = "" if file.path == one.name else f", now {file.path}"
            yield Checked(what, "same", f"has the recorded digest{where}")
    for file in extra:
        yield Checked(f"input {file.path}", "differs", "is extra: the report names no such input")


def check_verdict(kept: Report, again: Report) -> Checked:
    """The answer of the report against that of a run over the same inputs."""
    place = next(differences(told(kept), told(as_lean_as(kept, again)), ""), "")
    if not place:
        return Checked(
            "verdict", "same", f"is again {again.verdict}, exit code {again.exit_code}: {again.sentence}"
        )
    other = same_code(kept)
    state: State = "undecided" if other else "differs"
    said = f"is another in a run over the same inputs: {place}"
    return Checked("verdict", state, f"{said}; the report was {other}" if other else said)


def told(report: Report) -> Any:
    """A report as plain data, without what says which code made it."""
    audit = report.audit and msgspec.structs.replace(report.audit, build="")
    return msgspec.to_builtins(msgspec.structs.replace(report, tool="", audit=audit))


def differences(kept: Any, again: Any, place: str) -> Iterator[str]:
    """Places in which two documents differ, in their order."""
    if isinstance(kept, dict) and isinstance(again, dict):
        for key in [*kept, *(key for key in again if key not in kept)]:
            yield from differences(kept.get(key), again.get(key), f"{place}.{key}" if place else str(key))
    elif isinstance(kept, list) and isinstance(again, list):
        for number, (mine, its) in enumerate(zip_longest(kept, again)):
            name = mine.get("id", number) if isinstance(mine, dict) else number
            yield from differences(mine, its, f"{place}[{name}]")
    elif kept != again:
        yield f"{place} is {shorten(repr(again), 120)}, the report has {shorten(repr(kept), 120)}"
