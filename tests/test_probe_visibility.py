"""Which GPUs a process sees, by the lists in its environment."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.node.visibility import container_gpus, visible_gpus
from topocheck.snapshot import GpuId, MigDevice

UUIDS = tuple(f"GPU-{n}a7c0000-31b2-4d0e-9f00-00000000000{n}" for n in range(4))
MODEL = "NVIDIA H100 80GB HBM3"
FOUR = tuple(
    GpuId(uuid=uuid, bus=f"0000:{0x1B + 0x20 * n:02x}:00.0", nvml=n, scope="host", model=MODEL)
    for n, uuid in enumerate(UUIDS)
)
SLICE_UUID = "MIG-51c0ffee-1111-4222-8333-444455556666"
SLICE = MigDevice(uuid=SLICE_UUID, gpu_instance=7, compute_instance=0)
OTHER = MigDevice(uuid="MIG-77c0ffee-1111-4222-8333-444455556666", gpu_instance=8, compute_instance=0)
SLICED = (GpuId(uuid=UUIDS[0], bus="0000:1b:00.0", nvml=0, model=MODEL, mig=(SLICE, OTHER)), *FOUR[1:])
MIXED = (*FOUR[:3], GpuId(uuid=UUIDS[3], bus="0000:0a:00.0", nvml=3, scope="host", model="NVIDIA L4"))
AMD = tuple(GpuId(uuid=f"GPU-{n}d3f0a1b2c3d4e5{n}", bus=f"0000:{n + 3:02x}:00.0") for n in range(4))
ALL = (0, 1, 2, 3)

CUDA_LISTS = {
    "0": (0,),
    "3,1": (3, 1),
    " 2, 1": (2, 1),
    "": (),
    " ": (),
    "-1": (),
    "all": (),
    "NoDevFiles": (),
    "0,2,-1,1": (0, 2),
    "0,4,1": (0,),
    "0,,1": (0,),
    "0,one,1": (0,),
    "0abc,+1,2x": (0, 1, 2),
    "0x3": (0,),
    "00000000000001": (1,),
    "99999999999999999999": (),
    "1,1": (),
    "0,1,0,-1": (),
    "0,-1,0": (0,),
    UUIDS[2]: (2,),
    f"{UUIDS[2]},{UUIDS[0]}": (2, 0),
    "GPU-1a7,GPU-3a7c": (1, 3),
    "GPU-1a7,GPU-1": (),
    "GPU-": (),
    "GPU-ffff": (),
    f"{UUIDS[1]},0": (1,),
    f"0,{UUIDS[1]}": (0,),
    f"{UUIDS[1].upper()}": (),
    "1;2": (1,),
}


@pytest.mark.parametrize(("listed", "expected"), CUDA_LISTS.items(), ids=[repr(t) for t in CUDA_LISTS])
def test_cuda_counts_entries_up_to_the_first_that_is_no_device(
    listed: str, expected: tuple[int, ...]
) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": listed}, FOUR).gpus == expected


def test_no_list_shows_all_and_an_empty_list_none() -> None:
    assert visible_gpus({}, FOUR).gpus == ALL
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}, FOUR).gpus == ()
    assert visible_gpus({}, ()).gpus == ()


def test_what_of_a_list_does_not_count_is_told() -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0,9"}, FOUR).reason == (
        "CUDA_VISIBLE_DEVICES ends before '9', which is no device"
    )
    assert "of another kind" in visible_gpus({"CUDA_VISIBLE_DEVICES": f"0,{UUIDS[1]}"}, FOUR).reason
    assert "twice" in visible_gpus({"CUDA_VISIBLE_DEVICES": "0,0"}, FOUR).reason
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}, FOUR).reason == ""


@pytest.mark.parametrize("listed", ["0", "3,1", None])
def test_indexes_of_several_models_cannot_be_told_without_an_order(listed: str | None) -> None:
    """CUDA puts the fastest first; which is faster nobody says."""
    env = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    found = visible_gpus(env, MIXED)
    assert found.gpus is None
    assert "CUDA_DEVICE_ORDER" in found.reason
    assert visible_gpus(env | {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, MIXED).gpus is None


def test_by_bus_id_means_pci_addresses_and_not_the_order_of_the_list() -> None:
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_gpus(env, MIXED).gpus == (3, 0, 1, 2)
    assert visible_gpus(env | {"CUDA_VISIBLE_DEVICES": "0,1"}, MIXED).gpus == (3, 0)


def test_uuids_need_no_order() -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": f"{UUIDS[3]},{UUIDS[0]}"}, MIXED).gpus == (3, 0)


def test_models_that_are_not_known_may_be_several() -> None:
    unknown = [GpuId(uuid=uuid, bus=gpu.bus) for uuid, gpu in zip(UUIDS, FOUR, strict=True)]
    assert visible_gpus({}, unknown).gpus is None
    assert visible_gpus({}, unknown[:1]).gpus == (0,)


def test_a_gpu_that_could_not_be_read_leaves_numbers_open_and_uuids_too() -> None:
    broken = (*FOUR[:3], GpuId(nvml=3, model=MODEL))
    for env in ({}, {"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": UUIDS[0]}):
        assert visible_gpus(env, broken).gpus is None


def test_the_list_of_an_mps_server_is_not_known() -> None:
    env = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps", "CUDA_VISIBLE_DEVICES": "0"}  # noqa: S108 - a text
    assert visible_gpus(env, FOUR).gpus is None
    assert visible_gpus(env | {"CUDA_VISIBLE_DEVICES": UUIDS[1]}, FOUR).gpus == (1,)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (SLICE.uuid, (0,)),
        (f"{SLICE.uuid},{OTHER.uuid}", (0,)),
        ("MIG-51c0", (0,)),
        (f"MIG-{UUIDS[0]}/7/0", (0,)),
        (f"MIG-{UUIDS[0]}/9/0", ()),
        ("MIG-", ()),
        ("MIG-0000", ()),
        (f"{UUIDS[1]},{SLICE.uuid}", (1,)),
        (UUIDS[0], None),
        ("0", None),
        (None, None),
    ],
)
def test_a_process_uses_one_slice(listed: str | None, expected: tuple[int, ...] | None) -> None:
    """With GPUs in MIG mode indexes hang on what is sliced how."""
    env = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert visible_gpus(env, SLICED, {0}).gpus == expected


def test_slices_that_may_not_be_listed_are_not_taken_for_absent() -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": SLICE.uuid or ""}, FOUR, {0}).gpus is None


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, ALL),
        ({"ROCR_VISIBLE_DEVICES": ""}, ()),
        ({"ROCR_VISIBLE_DEVICES": "-1"}, ()),
        ({"ROCR_VISIBLE_DEVICES": "GPU-XX"}, ()),
        ({"ROCR_VISIBLE_DEVICES": f"3,{AMD[0].uuid},4"}, (3, 0)),
        ({"ROCR_VISIBLE_DEVICES": "1,gpu-2d3,GPU-XX"}, (1, 2)),
        ({"ROCR_VISIBLE_DEVICES": "3,3,1"}, (3,)),
        ({"ROCR_VISIBLE_DEVICES": "0x1,02,3 "}, (1, 2, 3)),
        ({"ROCR_VISIBLE_DEVICES": "1abc"}, ()),
        ({"ROCR_VISIBLE_DEVICES": "08"}, ()),
        ({"HIP_VISIBLE_DEVICES": ""}, ALL),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, (2, 0)),
        ({"HIP_VISIBLE_DEVICES": "2,02"}, (2,)),
        ({"HIP_VISIBLE_DEVICES": "2,2,1"}, (2, 1)),
        ({"HIP_VISIBLE_DEVICES": f"{AMD[3].uuid}"}, (3,)),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, (1,)),
        ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}, (2,)),
        ({"ROCR_VISIBLE_DEVICES": "3,2", "HIP_VISIBLE_DEVICES": "1"}, (2,)),
        ({"ROCR_VISIBLE_DEVICES": "3,2", "HIP_VISIBLE_DEVICES": "2"}, ()),
        ({"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}, ()),
    ],
)
def test_hip_counts_among_what_rocr_leaves(env: dict[str, str], expected: tuple[int, ...]) -> None:
    """The first examples are those of ROCr's own amd_filter_device.h."""
    assert visible_gpus(env, AMD, amd=True).gpus == expected


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("all", ALL),
        ("none", ()),
        ("void", None),
        ("", None),
        (None, None),
        ("2,3", (2, 3)),
        ("3,2", (2, 3)),
        (f"{UUIDS[1]}", (1,)),
        ("4", None),
        ("0:1", None),
        ("/var/run/nvidia-container-devices", None),
    ],
)
def test_a_container_counts_the_gpus_that_it_was_given(
    listed: str | None, expected: tuple[int, ...] | None
) -> None:
    env = {} if listed is None else {"NVIDIA_VISIBLE_DEVICES": listed}
    assert container_gpus(env, FOUR).gpus == expected


ENTRIES = st.one_of(
    st.sampled_from([*UUIDS, "0", "1", "3", "4", "-1", "", "GPU-", "MIG-", SLICE_UUID, "2x", "all", " 1"]),
    st.text(max_size=12),
    st.integers().map(str),
)
LISTS = st.one_of(st.lists(ENTRIES, max_size=6).map(",".join), st.text(max_size=40))
NAMES = st.sampled_from(
    [
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
    ]
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(NAMES, LISTS, max_size=4),
    st.sampled_from([FOUR, MIXED, SLICED, AMD, (), FOUR[:1], (GpuId(), GpuId())]),
    st.booleans(),
    st.booleans(),
)
def test_any_list_shows_gpus_that_are_there_each_once_or_says_why_not(
    env: dict[str, str], gpus: tuple[GpuId, ...], amd: bool, sliced: bool
) -> None:
    for found in (
        visible_gpus(env, gpus, {0} if sliced and gpus else (), amd=amd),
        container_gpus(env, gpus),
    ):
        if found.gpus is None:
            assert found.reason
        else:
            assert len(set(found.gpus)) == len(found.gpus)
            assert set(found.gpus) <= set(range(len(gpus)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True), st.booleans())
def test_indexes_and_uuids_of_one_list_show_the_same(places: list[int], by_uuid: bool) -> None:
    listed = ",".join(UUIDS[place] if by_uuid else str(place) for place in places)
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": listed}, FOUR).gpus == tuple(places)
