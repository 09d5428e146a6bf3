"""`nvidia-smi -q`: whole, and what grep leaves of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from torn_text import read, texts

from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.smi_query import parse
from topocheck.probes.capture.text import read_text
from topocheck.snapshot import Fabric, FullSnapshot, MigDevice, Platform, Process

CAPTURES = Path(__file__).parent / "captures"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared captures are not here")
QUERY = (CAPTURES / "smi-q.txt").read_text(encoding="utf-8")


def only(readings: list[Reading]) -> FullSnapshot:
    (reading,) = readings
    (snapshot,) = reading.snapshots
    return snapshot


def test_a_whole_query_tells_identity_shape_state_and_software() -> None:
    snapshot = only(parse(read(QUERY)))
    assert (snapshot.identity.host.name, snapshot.coverage.gpus) == ("gpu-31", "all")
    assert (snapshot.software.driver, snapshot.software.cuda) == ("575.51.03", "12.9")
    first, second = snapshot.identity.gpus
    assert (first.uuid, first.bus) == ("GPU-5a5a0000-1b1b-2c2c-3d3d-0000000000a1", "0008:01:00.0")
    assert (first.nvml, first.minor, first.module, first.serial) == (0, 0, 3, "1320500112233")
    assert first.platform == Platform(
        chassis="7777000011112222", slot=12, tray=4, host=1, module=3, guid="1122334455667788"
    )
    assert (second.serial, second.module, second.platform) == (None, None, None)
    assert [(gpu.model, gpu.memory_bytes, gpu.mig) for gpu in snapshot.hardware.gpus] == [
        ("NVIDIA GB300", 1000 << 20, False),
        ("NVIDIA GB300", 1000 << 20, True),
    ]


def test_state_is_read_where_it_is_stated_and_unknown_elsewhere() -> None:
    first, second = only(parse(read(QUERY))).state.gpus
    assert (first.memory_used_bytes, first.memory_reserved_bytes) == (20 << 20, 10 << 20)
    assert (first.compute_mode, first.ecc, first.mig_pending) == ("Exclusive_Process", True, True)
    assert (first.ecc_corrected, first.ecc_uncorrected) == (9, 6)
    assert (first.rows_remapped, first.remap_pending, first.remap_failed) == (3, True, False)
    assert first.throttle == ("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown")
    assert (second.memory_used_bytes, second.ecc, second.ecc_corrected, second.throttle) == (None,) * 4


def test_only_processes_that_compute_are_listed() -> None:
    first, second = only(parse(read(QUERY))).state.gpus
    assert first.processes == (Process(pid=4711, memory_bytes=12 << 20, name="python3: worker"),)
    assert second.processes == ()


def test_mig_devices_are_the_gpus_own() -> None:
    first, second = only(parse(read(QUERY))).identity.gpus
    assert first.mig == ()
    assert second.mig == (
        MigDevice(gpu_instance=2, compute_instance=0),
        MigDevice(gpu_instance=5, compute_instance=1),
    )


def test_the_fabric_is_read_field_by_field() -> None:
    good, waiting = only(parse(read(QUERY))).fabric
    assert (good.gpus, good.cluster_uuid, good.clique) == ((0,), "0a0b0c0d111142228333445566778899", 7)
    assert (good.state, good.status, good.health) == ("Completed", "Success", "Unhealthy")
    assert good.health_mask == 1 | 2 << 2 | 1 << 4 | 2 << 6 | 1 << 8
    assert (waiting.gpus, waiting.state, waiting.status) == ((1,), "In Progress", None)
    assert (waiting.cluster_uuid, waiting.clique, waiting.health_mask) == (None, None, None)
    assert good.at
    assert (
        good.at.line == QUERY.split("\n").index("        State                             : Completed") + 1
    )


def test_fewer_gpus_than_are_attached_are_a_part_without_indexes() -> None:
    (reading,) = parse(read(QUERY.replace(": 2\nGPU", ": 8\nGPU")))
    snapshot = only([reading])
    assert snapshot.coverage.gpus == "part"
    assert [gpu.nvml for gpu in snapshot.identity.gpus] == [None, None]
    assert [note.text for note in reading.notes] == [
        "2 GPUs are listed and 8 are attached: the others are not known"
    ]


def test_a_query_that_lost_its_header_is_a_part() -> None:
    snapshot = only(parse(read(QUERY[QUERY.index("GPU 00000008") :])))
    assert len(snapshot.identity.gpus) == 2
    assert (snapshot.coverage.gpus, snapshot.software.driver) == ("part", None)


def test_fabrics_that_grep_left_without_their_gpus_are_of_some_gpu() -> None:
    (reading,) = parse(read_text(CAPTURES / "smi-q-grep.txt"))
    snapshot = only([reading])
    assert snapshot.identity.gpus == ()
    assert snapshot.identity.host.name == "gpu-32"
    assert [(fabric.unnamed, fabric.gpus, fabric.status) for fabric in snapshot.fabric] == [
        (True, (), "Insufficient Resources"),
        (True, (), "Success"),
    ]
    assert snapshot.coverage.gpus is None
    assert [note.kind for note in reading.notes] == ["cut"]


def test_a_fabric_that_lost_its_indents_is_read() -> None:
    text = "Fabric\nState : Completed\nStatus : Success\nCliqueId : 3\nClusterUUID : N/A\nProcesses : None\n"
    (fabric,) = only(parse(read(text))).fabric
    assert (fabric.state, fabric.status, fabric.clique, fabric.cluster_uuid) == (
        "Completed", "Success", 3, None,
    )  # fmt: skip


def test_gpus_that_agree_share_one_fabric() -> None:
    block = "GPU 00000000:{}:00.0\n    Fabric\n        State   : Completed\n        Status  : Success\n"
    snapshot = only(parse(read(block.format("1B") + block.format("3D"))))
    assert [fabric.gpus for fabric in snapshot.fabric] == [(0, 1)]


def test_a_gpu_that_is_listed_twice_is_a_contradiction() -> None:
    gpu = "GPU 00000000:1B:00.0\n    Product Name : NVIDIA L4\n"
    (reading,) = parse(read(gpu * 2))
    assert [note.kind for note in reading.notes] == ["contradictory"]


@pytest.mark.parametrize(
    "text",
    [
        "GPU 00000000:1B:00.0\n",
        "Fabric\nis soft\n",
        "    Fabric\n        Material : wool\n",
        "Driver Version : 1\n",
    ],
)
def test_other_text_is_left_alone(text: str) -> None:
    assert parse(read(text)) == []


@settings(max_examples=60, deadline=None)
@given(texts("smi-q.txt", "smi-q-grep.txt"))
def test_any_text_is_read(text: str) -> None:
    for reading in parse(read(text)):
        (snapshot,) = reading.snapshots
        count = len(snapshot.identity.gpus)
        assert count == len(snapshot.hardware.gpus)
        assert all(0 <= gpu < count for fabric in snapshot.fabric for gpu in fabric.gpus)
        assert all(0 <= state.gpu < count for state in snapshot.state.gpus)
        assert all(isinstance(fabric, Fabric) and fabric.state for fabric in snapshot.fabric)


@needs_shared
def test_the_shared_query_reads_as_its_truth_says() -> None:
    (reading,) = parse(read_text(SHARED / "machines" / "nvidia_smi" / "thamada-h100-sxm-8x-q.txt"))
    snapshot = only([reading])
    assert snapshot.coverage.gpus == "all"
    assert [gpu.module for gpu in snapshot.identity.gpus] == [2, 4, 1, 3, 6, 8, 5, 7]
    buses = [(gpu.bus or "").split(":")[1] for gpu in snapshot.identity.gpus]
    assert buses == ["18", "2a", "3a", "5d", "9a", "ab", "ba", "db"]
    (fabric,) = snapshot.fabric
    assert (fabric.state, fabric.clique, fabric.cluster_uuid) == ("Completed", 0, "0" * 32)
    assert fabric.gpus == tuple(range(8))
    assert reading.notes == ()


@needs_shared
def test_the_shared_block_without_its_gpu_reads_as_its_truth_says() -> None:
    snapshot = only(parse(read_text(SHARED / "cases" / "C31-fabric-q-insufficient.txt")))
    (fabric,) = snapshot.fabric
    assert (fabric.state, fabric.status) == ("Completed", "Insufficient Resources")
    assert (fabric.clique, fabric.cluster_uuid, fabric.unnamed) == (0, "0" * 32, True)
