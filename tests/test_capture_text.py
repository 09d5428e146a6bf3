"""Bytes of captures as clean lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import CaptureError
from topocheck.probes.capture.text import is_elision, parse_text, read_text, stated


def lines(data: bytes) -> tuple[str, ...]:
    return parse_text(data, "capture.txt").lines


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_text_is_decoded_by_its_byte_order_mark(encoding: str) -> None:
    assert lines("GPU0 ➜ é\n\tX\n".encode(encoding)) == ("GPU0 ➜ é", "\tX")


def test_stray_bytes_are_replaced_and_the_rest_is_kept() -> None:
    assert lines(b"node-a \xff\xfe ok\nnext") == ("node-a \ufffd\ufffd ok", "next")


@pytest.mark.parametrize("data", [b"\x7fELF\x02\x01\x00\x00", "GPU0".encode("utf-16-le"), b"a\nb\0c"])
def test_binary_data_is_refused_with_one_sentence(data: bytes) -> None:
    with pytest.raises(CaptureError, match=r"^capture\.txt:\d+: is not text: a NUL byte is in it: .+$"):
        lines(data)


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("\t\x1b[4mGPU0\tGPU1\x1b[0m", "\tGPU0\tGPU1"),
        ("\x1b]0;root@node\x07prompt", "prompt"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(B\x1b[?25lshown\x1b7\x1b=", "shown"),
        ("[0m node-a:12:34 [0] NCCL INFO x", "node-a:12:34 [0] NCCL INFO x"),
        ("\t[4mGPU0\tGPU NUMA ID[0m", "\tGPU0\tGPU NUMA ID"),
        ("[1,4]<stdout>:x [0] y", "[1,4]<stdout>:x [0] y"),
        ("a\x07b\x00c".replace("\x00", ""), "abc"),
        ("GPU0\u00a0 X\u200b", "GPU0  X"),
        ("10%\r100%", "10% 100%"),
    ],
)
def test_what_a_terminal_added_is_taken_away(raw: str, clean: str) -> None:
    assert lines((raw + "\nsecond\n").encode()) == (clean, "second")


def test_lines_are_counted_by_newlines_whatever_ends_them() -> None:
    assert lines(b"a\r\nb\r\r\nc\x0bd\xe2\x80\xa8e\n") == ("a", "b", "cde")
    assert lines(b"a\rb\rc") == ("a", "b", "c")
    assert lines(b"") == ()
    assert lines(b"\n\n") == ("", "")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_no_control_character_but_tab_is_passed_on(data: bytes) -> None:
    try:
        text = parse_text(data, "x")
    except CaptureError:
        return
    assert all(char == "\t" or (char >= " " and not "\x7f" <= char <= "\x9f") for char in "".join(text.lines))


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "topo.txt"
    with pytest.raises(CaptureError, match=r"topo\.txt: cannot be read \(No such file or directory\)"):
        read_text(missing)
    missing.write_bytes(b"GPU0\n")
    assert read_text(missing, "node-a=topo.txt").source == "node-a=topo.txt"


def test_words_of_absence_are_no_values() -> None:
    absent = ["N/A", " [N/A]", "Not Supported", "[Not Supported]", "[Unknown Error]", "", "ERR!"]
    absent.append("[Requested functionality has been deprecated]")
    assert [stated(word) for word in absent] == [None] * len(absent)
    assert stated(" 0 ") == "0"


def test_elisions_are_told_from_text() -> None:
    assert all(map(is_elision, ["....", " ... ", "…", "[...]", "[truncated]", "... truncated 40 lines"]))
    assert not any(map(is_elision, ["", ".", "GPU0 ...", "a.b", "cutting edge"]))
