"""A decoder that recognises hardware by its bytes gives what a plain one gives, whatever the document."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.demo.job import healthy_nodes, snapshot_of
from topocheck.gather.decoder import MOST_KNOWN, SnapshotDecoder
from topocheck.snapshot import Snapshot

KNOWN = msgspec.json.encode(snapshot_of(healthy_nodes()[0]))
OTHER = msgspec.json.encode(snapshot_of(healthy_nodes()[1]))
HARDWARE = bytes(msgspec.json.decode(KNOWN, type=Snapshot).hardware)
PLAIN = msgspec.json.Decoder(Snapshot)


def taught() -> SnapshotDecoder:
    """A decoder that has seen one document."""
    decoder = SnapshotDecoder()
    decoder.decode(KNOWN)
    return decoder


def document(*parts: str) -> bytes:
    """A document of these members, in this order."""
    identity = '"identity":{"host":{"name":"gpu-a"}}'
    return ('{"schema":"topocheck.snapshot/1",' + ",".join([identity, *parts]) + "}").encode()


def plainly(text: bytes) -> tuple[Snapshot, bytes]:
    """What a plain decoder gives, its hardware as bytes: raw values compare by their bytes alone."""
    return whole(PLAIN.decode(text))


def whole(snapshot: Snapshot) -> tuple[Snapshot, bytes]:
    """A snapshot in a form that compares."""
    empty = msgspec.Raw(b"")
    fields = msgspec.structs.asdict(snapshot) | dict.fromkeys(("hardware", "environment", "network"), empty)
    return Snapshot(**fields), b"|".join(
        map(bytes, (snapshot.hardware, snapshot.environment, snapshot.network))
    )


def test_equal_hardware_of_another_machine_is_one_object() -> None:
    decoder = SnapshotDecoder()
    first, second = decoder.decode(KNOWN), decoder.decode(OTHER)
    assert first.hardware is second.hardware
    assert first.identity.host.name != second.identity.host.name
    assert whole(second) == plainly(OTHER)


def test_hardware_that_differs_in_one_byte_is_read() -> None:
    changed = OTHER.replace(b'"active":true', b'"active":null', 1)
    assert whole(taught().decode(changed)) == plainly(changed)


KNOWN_TEXT = HARDWARE.decode()


@pytest.mark.parametrize(
    "text",
    [
        document(f'"hardware":{KNOWN_TEXT}'),
        document(f'"hardware": {KNOWN_TEXT}'),
        document(f'"newer":{{"hardware":{KNOWN_TEXT}}}'),
        document(f'"newer":{{"hardware":{KNOWN_TEXT}}},"hardware":{{"gpus":[]}}'),
        document(f'"hardware":{{"gpus":[]}},"hardware":{KNOWN_TEXT}'),
        document(f'"hardware":{KNOWN_TEXT},"hardware":{{"gpus":[]}}'),
        document(f'"x\\"hardware":{KNOWN_TEXT},"hardware":{{"gpus":[]}}'),
        document(f'"run":"\\"hardware\\":","hardware":{KNOWN_TEXT}'),
        document('"run":"no hardware at all"'),
    ],
    ids=["compact", "blank", "nested", "nested and own", "twice", "twice known", "quoted", "in text", "none"],
)
def test_a_document_means_what_it_says_wherever_the_known_bytes_stand(text: bytes) -> None:
    assert whole(taught().decode(text)) == plainly(text)


@pytest.mark.parametrize(
    "text",
    [
        KNOWN[:-1],
        KNOWN.replace(b'"size":8', b'"size":"8"'),
        KNOWN + KNOWN,
        KNOWN.replace(b'"run":"demo"', b'"run":"\xff"'),
    ],
    ids=["cut", "wrong type", "two", "not UTF-8"],
)
def test_a_fault_is_told_as_a_plain_decoder_tells_it(text: bytes) -> None:
    def fault(decoder: Any) -> str:
        with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)) as caught:
            decoder.decode(text)
        return f"{type(caught.value).__name__}: {caught.value}"

    assert fault(taught()) == fault(PLAIN)


def test_no_more_kinds_are_kept_than_allowed() -> None:
    decoder = SnapshotDecoder()
    for number in range(MOST_KNOWN + 3):
        snapshot = json.loads(KNOWN)
        snapshot["hardware"]["gpus"][0]["memory_bytes"] = number
        text = json.dumps(snapshot).encode()
        assert whole(decoder.decode(text)) == plainly(text)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_document_with_a_damaged_byte_is_read_or_refused_alike(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(OTHER) - 1))
    damaged = OTHER[:place] + bytes([data.draw(st.integers(0, 255))]) + OTHER[place + 1 :]
    try:
        expected = plainly(damaged)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        with pytest.raises(type(error)):
            taught().decode(damaged)
    else:
        assert whole(taught().decode(damaged)) == expected


SHARED_TEXT = KNOWN[KNOWN.index(b'"hardware":') :].partition(b',"fabric"')[0].decode()


def test_all_shared_parts_of_another_machine_are_the_same_objects() -> None:
    decoder = taught()
    first, second = decoder.decode(KNOWN), decoder.decode(OTHER)
    for name in ("hardware", "environment", "network", "software", "verbs", "coverage", "sources"):
        assert getattr(first, name) is getattr(second, name), name


@pytest.mark.parametrize(
    "text",
    [
        document(SHARED_TEXT),
        document(SHARED_TEXT, '"software":{"driver":"1"}'),
        document(SHARED_TEXT, '"environment":{"A":"b"}'),
        document('"verbs":null', SHARED_TEXT),
        document(SHARED_TEXT, '"verbs":null'),
        document(SHARED_TEXT, '"sources":[]'),
        document(SHARED_TEXT, '"coverage":{}'),
        document('"software":{"driver":"1"}', SHARED_TEXT),
        document(SHARED_TEXT, '"network":{}'),
        document(SHARED_TEXT, '"hardware":{}'),
        document(f'"newer":{{{SHARED_TEXT}}}'),
        document(SHARED_TEXT + "1"),
    ],
    ids=[
        "once",
        "versions",
        "variables",
        "null",
        "then null",
        "then none",
        "coverage",
        "before",
        "network",
        "hardware",
        "nested",
        "broken",
    ],
)
def test_a_document_with_a_shared_part_twice_means_what_it_says(text: bytes) -> None:
    try:
        expected = plainly(text)
    except msgspec.MsgspecError as error:
        with pytest.raises(type(error)):
            taught().decode(text)
    else:
        assert whole(taught().decode(text)) == expected
