"""A packed list of GPUs is the list that was packed."""

from __future__ import annotations

import pytest

from topocheck.gpulist import GpuList, NicList
from topocheck.snapshot import GpuId, MigDevice, NicId, Platform

GPUS = (
    GpuId(uuid="GPU-0a", bus="0000:18:00.0", nvml=0, scope="host", serial="165", module=1, minor=0),
    GpuId(nvml=1, scope="task", model="NVIDIA H100", mig=(MigDevice(uuid="MIG-1", gpu_instance=3),)),
    GpuId(platform=Platform(chassis="c", slot=4), hive="00000000000000ff"),
)


def test_a_list_gives_back_every_field_of_every_gpu() -> None:
    packed = GpuList.of(GPUS)
    assert tuple(packed) == GPUS
    assert [packed[place] for place in range(3)] == list(GPUS)
    assert packed[1:] == GPUS[1:]
    assert packed[-1] == GPUS[-1]
    assert len(packed) == 3
    assert GPUS[1] in packed


def test_a_list_of_devices_gives_back_every_device() -> None:
    nics = (NicId(name="mlx5_0", bus="0000:1a:00.0", guid="b83f:d203:0012:a38e"), NicId(name="mlx5_1"))
    assert tuple(NicList.of(nics)) == nics
    assert NicList.of(nics)[1] == nics[1]


def test_a_place_beyond_the_list_is_an_error() -> None:
    with pytest.raises(IndexError):
        GpuList.of(GPUS)[3]


def test_an_empty_list_is_empty() -> None:
    assert not GpuList.of(())
    assert list(GpuList.of(())) == []


def test_identifiers_of_any_text_are_given_back() -> None:
    odd = (GpuId(uuid="GPU-0a\nGPU-0b", serial="1"), GpuId(uuid="", serial="2\n"), GpuId(serial="\u00ff"))
    assert tuple(GpuList.of(odd)) == odd
    assert GpuList.of(odd).uuids == [b"GPU-0a\nGPU-0b", b""]


def test_what_equal_hosts_have_alike_is_equal_and_no_identifier_is_in_it() -> None:
    one, two = (GpuList.of([GpuId(uuid=f"GPU-{host}", bus="0000:18:00.0", serial=host)]) for host in "ab")
    assert one.alike == two.alike
    assert (one.uuids, two.uuids) == ([b"GPU-a"], [b"GPU-b"])
    assert one[0].bus == two[0].bus == "0000:18:00.0"
    assert "GPU-a" not in repr(one.alike)


def test_a_list_equals_the_tuple_of_its_entries() -> None:
    assert GpuList.of(GPUS) == GPUS
    assert GpuList.of(GPUS) == GPUS
    assert hash(GpuList.of(GPUS)) == hash(GPUS)
    assert GpuList.of(GPUS) != GPUS[:2]
    assert GpuList.of(GPUS) != 3
