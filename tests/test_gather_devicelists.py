"""Lists of devices that are recognised by their pattern are what a plain decoder makes of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from topocheck.gather.devicelists import DeviceLists
from topocheck.gpulist import GpuList, NicList
from topocheck.snapshot import GpuId, MigDevice, NicId

PLAIN = msgspec.json.Decoder(tuple[GpuId, ...])


def gpus(host: int, **more: Any) -> tuple[GpuId, ...]:
    """Two GPUs of a host."""
    return tuple(
        GpuId(
            uuid=f"GPU-{host:08x}-0000-4000-8000-{gpu:012x}",
            bus=f"0000:1{gpu}:00.0",
            nvml=gpu,
            scope="host",
            serial=f"16{host:06d}{gpu}",
            **more,
        )
        for gpu in range(2)
    )


def text(items: object) -> bytes:
    """A list as snapshots hold it."""
    return msgspec.json.encode(items)


def taught(*lists: tuple[GpuId, ...]) -> DeviceLists:
    """Lists that have been read, the two of hosts 1 and 2 among them."""
    known = DeviceLists(GpuList)
    for each in (gpus(1), gpus(2), *lists):
        assert known.read(Raw(text(each))) == each
    return known


def test_a_list_with_other_identifiers_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    known = taught()
    monkeypatch.setattr(known, "_decode", None)
    found = known.read(Raw(text(gpus(77))))
    assert found == gpus(77)
    assert found.alike is known.read(Raw(text(gpus(1)))).alike


@pytest.mark.parametrize(
    "changed",
    [
        gpus(3, model="NVIDIA H100"),
        gpus(3, mig=(MigDevice(uuid="MIG-1"),)),
        gpus(3)[:1],
        gpus(3)[::-1],
        (GpuId(uuid="GPU-00000003-0000-4000-8000-000000000000", bus="0000:10:00.0"),),
        (),
    ],
)
def test_a_list_that_differs_in_more_is_decoded(changed: tuple[GpuId, ...]) -> None:
    known = taught(changed)
    assert known.read(Raw(text(changed))) == changed
    assert known.read(Raw(text(gpus(4)))) == gpus(4)


@pytest.mark.parametrize("name", ['GPU-0\\"', "GPU-0\\u0041", "GPU-\u00e4", "GPU 0"])
def test_a_text_that_json_writes_otherwise_is_no_identifier(name: str) -> None:
    odd = text(gpus(1)).replace(b"GPU-00000001", name.encode())
    known = taught()
    assert known.read(Raw(odd)) == PLAIN.decode(odd)
    assert known.read(Raw(odd)) == PLAIN.decode(odd)


def test_equal_identifiers_stay_in_their_places() -> None:
    nics = [
        tuple(
            NicId(
                name=f"mlx5_{nic}",
                guid=f"b83f:d2ff:0000:{host}{nic // 2:03d}",
                card=f"b83f:d2ff:0000:{host}009",
            )
            for nic in range(4)
        )
        for host in range(3)
    ]
    known = DeviceLists(NicList)
    assert [known.read(Raw(text(each))) for each in nics] == nics


def test_a_uuid_that_stands_in_a_slice_too_is_found_where_it_belongs() -> None:
    def sliced(host: int) -> tuple[GpuId, ...]:
        first, second = gpus(host)
        return (msgspec.structs.replace(first, mig=(MigDevice(uuid=second.uuid),)), second)

    known = taught(sliced(1))
    assert [known.read(Raw(text(sliced(host)))) for host in (2, 3)] == [sliced(2), sliced(3)]


@pytest.mark.parametrize("broken", [b"{}", b"null", b'[{"nvml":"0"}]', b'[{"uuid":7}]', b"[1]"])
def test_a_list_of_another_form_is_refused(broken: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        taught().read(Raw(broken))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_list_with_a_damaged_byte_is_read_or_refused_as_it_is_plainly(data: st.DataObject) -> None:
    whole = text(gpus(5))
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:place] + bytes([data.draw(st.integers(0, 255))]) + whole[place + 1 :]
    try:
        msgspec.json.decode(damaged, type=Raw)
        expected = PLAIN.decode(damaged)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
            taught().read(Raw(damaged))
    else:
        assert taught().read(Raw(damaged)) == expected
