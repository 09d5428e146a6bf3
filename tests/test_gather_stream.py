"""Snapshots that were read are written again."""

from __future__ import annotations

import msgspec

from topocheck.demo.job import healthy_nodes, snapshot_of
from topocheck.gather.stream import decode_snapshot, encode_snapshot


def test_a_snapshot_that_was_read_is_written_again() -> None:
    read = decode_snapshot(msgspec.json.encode(snapshot_of(healthy_nodes()[0])), "x", None)
    again = decode_snapshot(encode_snapshot(read), "x", None)
    assert again.identity == read.identity
    assert bytes(again.hardware) == bytes(read.hardware)
    assert again.ranks == read.ranks
