"""Parts of snapshots that many hosts have alike are read once."""

from __future__ import annotations

import pytest
from msgspec import Raw

from topocheck.recognised import Recognised


def test_a_part_is_known_by_its_object_and_by_its_bytes() -> None:
    read: list[bytes] = []

    def reading(raw: bytes) -> list[bytes]:
        read.append(raw)
        return [raw]

    known = Recognised(reading)
    first, again, other = Raw(b'{"a":1}'), Raw(bytes(bytearray(b'{"a":1}'))), Raw(b"{}")
    assert known(first) is known(first) is known(again)
    assert known(other) == [b"{}"]
    assert read == [b'{"a":1}', b"{}"]
    assert list(known.values) == read


def test_what_reading_raises_is_raised_each_time() -> None:
    known = Recognised(int)
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            known(Raw(b"x"))


def test_an_object_in_the_place_of_one_that_is_gone_is_not_taken_for_it() -> None:
    known = Recognised(bytes)
    for number in range(1000):
        assert known(Raw(b"%d" % number)) == b"%d" % number
