"""Every shape of line that an engine leaves at its start, and what is taken from it.

The files in `start_lines/` have such a line, or a block of lines, and below it what it states: `member` and
`claim` are ranks, `software` is a version in force, the others are statements about the job by kind and name.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import CaptureError
from topocheck.probes.capture.recognise import read_capture

Facts = dict[str, str]
FOLDER = Path(__file__).parent / "start_lines"
GIVES = "=> "


def blocks(engine: str) -> list[tuple[str, Facts]]:
    """Lines of one engine, each with what it states."""
    found = []
    for block in (FOLDER / f"{engine}.txt").read_text().strip().split("\n\n"):
        lines = block.split("\n")
        told = [line.removeprefix(GIVES).partition(" = ") for line in lines if line.startswith(GIVES)]
        text = "\n".join(line for line in lines if not line.startswith(GIVES))
        found.append((text, {key: value for key, _, value in told}))
    return found


SECTIONS = {path.stem: blocks(path.stem) for path in sorted(FOLDER.glob("*.txt"))}
LINES = [pair for pairs in SECTIONS.values() for pair in pairs]


def taken(text: str) -> Facts:
    """All that any parser takes from a text."""
    found: Facts = {}
    for reading in read_capture(text.encode() + b"\n", "x"):
        for snapshot in reading.snapshots:
            found |= {f"{fact.kind} {fact.name}".strip(): fact.value for fact in snapshot.job}
            found |= {f"claim {one.rank}": str(snapshot.identity.host.name) for one in snapshot.ranks}
            software = snapshot.software
            versions = {name: getattr(software, name) for name in software.__struct_fields__}
            found |= {f"software {name}": value for name, value in versions.items() if value is not None}
            for one in snapshot.observed.comms if snapshot.observed else ():
                known = {"world": one.size, "cuda": one.cuda, "pid": one.pid}
                words = [f"{key} {number}" for key, number in known.items() if number is not None]
                found[f"member {one.rank}"] = ", ".join(words)
    return found


@pytest.mark.parametrize(("line", "facts"), LINES, ids=lambda part: str(part)[:60])
def test_a_line_of_an_engines_start_is_read(line: str, facts: Facts) -> None:
    found = taken(line)
    assert facts
    assert {key: found.get(key) for key in facts} == facts


@pytest.mark.parametrize("engine", SECTIONS)
def test_all_lines_of_an_engine_together_state_what_each_of_them_does(engine: str) -> None:
    found = taken("\n".join(line for line, _ in SECTIONS[engine]))
    assert {key for _, facts in SECTIONS[engine] for key in facts} <= found.keys()


@given(st.lists(st.sampled_from([line for line, _ in LINES]), min_size=1, max_size=20), st.data())
@settings(max_examples=50, deadline=None)
def test_lines_that_are_cut_anywhere_are_read_or_refused_by_name(
    lines: list[str], data: st.DataObject
) -> None:
    text = "\n".join(line[: data.draw(st.integers(0, len(line)))] for line in lines)
    try:
        taken(text)
    except CaptureError as error:
        assert "nothing that topocheck recognises" in str(error)  # noqa: PT017 - both outcomes are right
