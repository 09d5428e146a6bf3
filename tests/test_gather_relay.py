"""Snapshots among other lines, tagged and cut as launchers hand them on."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from evidence import snapshot, stream
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import SnapshotError
from topocheck.gather.relay import untagged
from topocheck.gather.seal import sealed
from topocheck.gather.stream import is_snapshot, read_snapshots

PIECE = 1024
"""What srun hands on at a time."""


def document(node: int, **changes: Any) -> str:
    """One node's snapshot as the probe prints it."""
    token = f"{node:016x}"
    whole = {"schema": "topocheck.snapshot/1", "token": token, **snapshot(node, **changes)}
    return sealed(json.dumps(whole, separators=(",", ":")).encode(), token).decode()


def read(text: str) -> tuple[list[str], list[str]]:
    """Hosts that were read, and what was told about the rest."""
    notes: list[str] = []
    found = list(read_snapshots(io.BytesIO(text.encode()), "in", notes))
    return [one.identity.host.name or "" for one in found], notes


def pieces(node: int) -> list[str]:
    """A snapshot as srun cuts it."""
    text = document(node)
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


@pytest.mark.parametrize(
    "tag",
    [
        "0: ",
        "  12: ",
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        "[0]<stdout>: ",
        "[1,0][gpu-1:2955]<stdout>: ",
        "[Sun Nov 29 19:26:11 2026]<stdout>: ",
        "[0] ",
        "[pod/serve-0/worker] ",
        "2026-11-29T19:26:11.123456789Z ",
        "[pod/serve-0/worker] 2026-11-29T19:26:11Z ",
        "gpu-1.corp: ",
        "serve-0-1  | ".replace("  ", " "),
    ],
)
def test_a_tag_in_front_is_taken_off(tag: str) -> None:
    text = f"{tag}{document(0)}\n{tag}{document(1)}\n"
    assert untagged(text.encode()) == (tag.encode(), text[len(tag) :].encode())
    assert is_snapshot(text.encode())
    assert read(text) == (["node-a", "node-b"], [])


def test_pieces_that_srun_tags_are_put_together() -> None:
    every = [[f"{node}: {piece}\n" for piece in pieces(node)] for node in range(3)]
    assert min(map(len, every)) > 2
    mixed = [lines.pop(0) for _ in range(max(map(len, every))) for lines in every if lines]
    assert read("".join(mixed)) == (["node-a", "node-b", "node-c"], [])


def test_pieces_keep_the_blanks_at_their_edges() -> None:
    name = "a" + " " * 3000 + "b"
    text = document(0, name=name)
    cut = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    assert any(piece.startswith(" ") for piece in cut)
    assert read("".join(f"0: {piece}\n" for piece in cut)) == ([name], [])


def test_a_piece_that_is_missing_is_told_and_the_others_are_read() -> None:
    lines = [f"0: {piece}\n" for piece in pieces(0)[:-1]]
    hosts, (note,) = read("".join(lines) + f"1: {document(1)}\n")
    assert hosts == ["node-b"]
    assert note.startswith("line 1: cut: begins a snapshot that does not end as it began.")


def test_a_task_that_begins_again_has_not_ended() -> None:
    hosts, notes = read(f"0: {pieces(0)[0]}\n0: {document(1)}\n")
    assert hosts == ["node-b"]
    assert len(notes) == 1


def test_lines_of_others_are_counted_and_shown() -> None:
    text = f'srun: job 12 queued and waiting\n{document(0)}\n\n{{"level": "info"}}\nbye\n'
    hosts, (note,) = read(text)
    assert hosts == ["node-a"]
    assert note == "lines 1, 4, 5: ignored: no snapshot, but 'srun: job 12 queued and waiting' and the like"


def test_a_line_that_was_cut_leaves_the_others() -> None:
    hosts, (note,) = read(f"{document(0)[:-300]}\n{document(1)}\n")
    assert hosts == ["node-b"]
    assert note.startswith("line 1: cut: ")
    assert "srun -l" in note
    assert read(f"{document(0)}\n{document(1)[:-300]}\n")[0] == ["node-a"]


def test_a_line_put_together_from_two_is_no_snapshot() -> None:
    """Without tags the head of one task and the tail of another may well be JSON."""
    first, second = document(0), document(1)
    assert len(first) == len(second)
    mixed = first[:PIECE] + second[PIECE:]
    assert json.loads(mixed)
    hosts, (note,) = read(f"{document(2)}\n{mixed}\n")
    assert hosts == ["node-c"]
    assert note.startswith("line 2: cut: ")
    with pytest.raises(SnapshotError, match="in:1: begins as one snapshot and ends as another"):
        read(f"{mixed}\n")


def test_what_was_put_in_between_is_found_by_its_length() -> None:
    """Links of GPUs repeat, so that a piece of another task may fit anywhere among them."""
    text = document(0)
    part = re.search(r'(?:\{"link":[0-9]+,"active":true,"remote":"switch"\},){3}', text)
    assert part is not None
    mixed = text.replace(part[0], part[0] * 2, 1)
    assert json.loads(mixed)
    with pytest.raises(SnapshotError, match="in:1: is longer or shorter than it says"):
        read(f"{mixed}\n{document(1)[:-300]}\n")
    assert read(f"{mixed}\n{document(1)}\n") == (["node-a", "node-b"], [])


def test_a_snapshot_that_was_written_anew_is_read() -> None:
    """By jq, for instance: another length, and nothing wrong."""
    text = json.dumps(json.loads(document(0)), indent=None)
    assert read(f"{text}\n{document(1)}\n") == (["node-a", "node-b"], [])


@pytest.mark.parametrize("text", [document(0)[:-300], f"0: {document(0)[:-300]}\n", f"{pieces(0)[0]}\nx\n"])
def test_nothing_but_cut_lines_is_an_error(text: str) -> None:
    with pytest.raises(SnapshotError, match=r"^in:1: "):
        read(text)


def test_a_snapshot_that_is_wrong_is_an_error_among_good_ones_too() -> None:
    wrong = document(1, ranks=[{"rank": "three"}])
    with pytest.raises(SnapshotError, match="in:2: expected `int`"):
        read(f"{document(0)}\n{wrong}\n")
    with pytest.raises(SnapshotError, match=r"in:2: has schema 'topocheck\.snapshot/9'"):
        read(stream(snapshot(0), snapshot(1, schema="topocheck.snapshot/9")))


def test_one_document_over_several_lines_is_read_as_one() -> None:
    text = json.dumps(snapshot(0), indent=1)
    assert is_snapshot(text.encode())
    assert read(text) == (["node-a"], [])


def test_text_of_other_tools_is_no_stream_of_snapshots() -> None:
    for text in ("gpu-1:71:71 [0] NCCL INFO comm 0x1", '{"a": 1}\n', "see topocheck.snapshot/1\n", ""):
        assert not is_snapshot(text.encode())


LINES = st.one_of(
    st.sampled_from([document(0), document(1)[:700], *pieces(1)[:2], *(f"1: {p}" for p in pieces(1))]),
    st.text(max_size=30),
    st.sampled_from(["0: ", "[1,0]<stdout>:", "{", "}", '{"schema":"topocheck.snapshot/1"}', "\t"]),
)


def tried(text: str) -> tuple[list[str], list[str]]:
    """As `read`; nothing where that is refused with its line."""
    try:
        return read(text)
    except SnapshotError as error:
        if error.line is None and "`schema`" not in str(error):  # one whole document that is no snapshot
            raise
        return [], []


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES, max_size=12))
def test_any_lines_are_read_told_or_refused(lines: list[str]) -> None:
    hosts, notes = tried("\n".join(lines))
    assert set(hosts) <= {"node-a", "node-b"}
    assert all(note.startswith("line") for note in notes)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=30, max_size=60))
def test_tagged_pieces_come_together_in_any_order_of_tasks(turns: list[int]) -> None:
    waiting = [[f"{node}: {piece}\n" for piece in pieces(node)] for node in range(3)]
    text = "".join(waiting[turn].pop(0) for turn in turns if waiting[turn])
    hosts, notes = read(text + "".join(line for lines in waiting for line in lines))
    assert sorted(hosts) == ["node-a", "node-b", "node-c"]
    assert notes == []
