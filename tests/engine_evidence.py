"""What a parser of engine logs gave, in the shape that tests ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import strategies as st

from topocheck.probes.capture.reading import Parser, Reading
from topocheck.probes.capture.text import parse_text, read_text
from topocheck.snapshot import CommRank, FullSnapshot

__all__ = [
    "CAPTURES",
    "anything",
    "case",
    "claims",
    "facts",
    "fixture",
    "hosts",
    "members",
    "named",
    "notes",
    "one",
    "read",
    "sound",
]

CAPTURES = Path(__file__).parent / "captures"
CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"


def read(parse: Parser, text: str) -> list[Reading]:
    return parse(parse_text(text.encode(), "x.log"))


def one(parse: Parser, text: str) -> Reading:
    (reading,) = read(parse, text)
    return reading


def fixture(parse: Parser, name: str) -> Reading:
    (reading,) = parse(read_text(CAPTURES / name, name))
    return reading


def case(parse: Parser, name: str) -> Reading:
    """The one reading of a shared case; skips where the cases are not."""
    path = CASES / name
    if not path.exists():
        pytest.skip("the shared cases are not here")
    (reading,) = parse(read_text(path, name))
    return reading


def hosts(reading: Reading) -> dict[str | None, FullSnapshot]:
    return {snapshot.identity.host.name: snapshot for snapshot in reading.snapshots}


def facts(reading: Reading, kind: str) -> list[str]:
    """Values of one kind, in the order of the lines."""
    return [fact.value for snapshot in reading.snapshots for fact in snapshot.job if fact.kind == kind]


def named(reading: Reading, kind: str) -> dict[str, str]:
    """Values of one kind by name; the last one counts."""
    return {
        fact.name: fact.value for snapshot in reading.snapshots for fact in snapshot.job if fact.kind == kind
    }


def members(reading: Reading) -> dict[tuple[str | None, str, int], CommRank]:
    """Members of communicators by (host, communicator, rank)."""
    return {
        (host, comm.comm, comm.rank): comm
        for host, snapshot in hosts(reading).items()
        for comm in (snapshot.observed.comms if snapshot.observed else ())
    }


def claims(reading: Reading) -> dict[int, tuple[str | None, int | None, int | None, int | None]]:
    """Rank -> host, local rank, node rank, NVML index of its GPU."""
    return {
        claim.rank: (
            host,
            claim.local_rank,
            claim.node_rank,
            None if claim.gpu is None else snapshot.identity.gpus[claim.gpu].nvml,
        )
        for host, snapshot in hosts(reading).items()
        for claim in snapshot.ranks
    }


def notes(reading: Reading) -> list[tuple[int | None, str]]:
    return [(note.line, note.kind) for note in reading.notes]


def anything(*captures: str) -> st.SearchStrategy[str]:
    """Any text, and lines of these captures in any order, cut anywhere and run together."""
    lines = [line for name in captures for line in (CAPTURES / name).read_text(encoding="utf-8").splitlines()]
    pieces = st.builds(lambda line, begin, end: line[begin:end], st.sampled_from(lines), ZERO, END)
    mixed = st.lists(st.sampled_from(lines) | pieces | st.just(""), max_size=12)
    joined = st.builds(lambda parts, glue: glue.join(parts), mixed, st.sampled_from(["\n", "\n", " "]))
    return joined | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)


ZERO = st.integers(0, 30)
END = st.integers(20, 400)


def sound(reading: Reading) -> bool:
    """Every line that is named exists, and no rank lies outside its world."""
    positive = all(line > 0 for line in reading.lines) and reading.facts >= 0
    inside = all(comm.size is None or 0 <= comm.rank < comm.size for comm in members(reading).values())
    gpus = all(
        claim.gpu is None or claim.gpu < len(snapshot.identity.gpus)
        for snapshot in reading.snapshots
        for claim in snapshot.ranks
    )
    return positive and inside and gpus
