"""Captures torn apart: what pasting, grep and cut files make of a tool's output, and worse."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from topocheck.probes.capture.reading import Text
from topocheck.probes.capture.text import parse_text

__all__ = ["read", "texts"]

CAPTURES = Path(__file__).parent / "captures"

NOISE = (
    "",
    "...",
    "text",
    "--",
    "$ date",
    "root@gpu-99:~# ",
    "key : value",
    "\t",
    "| a | b |",
    "<object>",
    "[tid 1]",
)


def read(text: str, name: str = "capture.txt") -> Text:
    """A text as a parser gets it."""
    return parse_text(text.encode(), name)


def texts(*names: str) -> st.SearchStrategy[str]:
    """Texts made of these captures: their lines in any order, a piece of one, one with wrong characters."""
    captures = [(CAPTURES / name).read_text(encoding="utf-8") for name in names]
    lines = st.sampled_from([*NOISE, *dict.fromkeys("\n".join(captures).split("\n"))])
    shuffled = st.lists(lines, max_size=30).map("\n".join)
    whole = st.sampled_from(captures)
    pieces = st.tuples(whole, st.integers(0, 4000), st.integers(0, 4000)).map(
        lambda torn: torn[0][torn[1] : torn[1] + torn[2]]
    )
    broken = st.tuples(
        whole, st.integers(0, 4000), st.sampled_from(['"', "<", ":", "9" * 30, "\t", " ", "é"])
    ).map(lambda torn: torn[0][: torn[1]] + torn[2] + torn[0][torn[1] + 1 :])
    plain = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=120)
    return shuffled | pieces | broken | plain
