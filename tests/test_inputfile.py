"""Files that a user names are read whole up to a size, or refused in one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import InputError, PlanError
from topocheck.inputfile import read_bytes, read_text


def test_a_file_up_to_the_size_is_read_and_a_larger_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_bytes(b"\xef\xbb\xbf1234")
    assert read_text(path, 7, "is larger") == "1234"
    with pytest.raises(PlanError, match="is larger than that") as refused:
        read_bytes(path, 6, "is larger than that", PlanError)
    assert refused.value.path == str(path)


@pytest.mark.parametrize("name", ["none", "", "a\0b"])
def test_what_cannot_be_read_says_why(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read \("):
        read_bytes(f"{tmp_path}{os.sep}{name}", 9, "is larger")


def test_text_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_bytes(b"a\nb\n\xff")
    with pytest.raises(InputError, match=r"some\.yaml:3: is not UTF-8 text: save it as UTF-8"):
        read_text(path, 99, "is larger")


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_text_or_one_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    assert read_bytes(path, 40, "is larger") == data
    known = data.removeprefix(b"\xef\xbb\xbf").decode(errors="ignore").encode()
    if known == data.removeprefix(b"\xef\xbb\xbf"):
        assert read_text(path, 40, "is larger") == known.decode()
    else:
        with pytest.raises(InputError, match="is not UTF-8 text"):
            read_text(path, 40, "is larger")
