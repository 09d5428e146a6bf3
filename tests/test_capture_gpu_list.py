"""`nvidia-smi -L`: the registry of GPUs, whatever tasks see of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.gpu_list import parse
from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.text import parse_text, read_text
from topocheck.snapshot import Coverage

CAPTURES = Path(__file__).parent / "captures"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared captures are not here")
ONE, TWO, THREE, FOUR = (f"GPU-5a5a0000-1b1b-2c2c-3d3d-00000000000{n}" for n in (1, 2, 3, 4))


def read(text: str) -> list[Reading]:
    return parse(parse_text(text.encode(), "gpus.txt"))


def gpus(reading: Reading) -> list[tuple[str | None, int | None, str]]:
    return [(gpu.uuid, gpu.nvml, gpu.scope) for gpu in reading.snapshots[0].identity.gpus]


def listing(*rows: tuple[int, str]) -> str:
    return "".join(f"GPU {index}: NVIDIA L40S (UUID: {uuid})\n" for index, uuid in rows)


def test_a_list_under_its_command_is_whole() -> None:
    (reading,) = read("root@gpu-1:~# nvidia-smi -L\n" + listing((0, ONE), (1, TWO)))
    assert gpus(reading) == [(ONE, 0, "unknown"), (TWO, 1, "unknown")]
    (snapshot,) = reading.snapshots
    assert snapshot.coverage == Coverage(gpus="all")
    assert [gpu.model for gpu in snapshot.hardware.gpus] == ["NVIDIA L40S"] * 2
    assert snapshot.identity.host.name == "gpu-1"


@pytest.mark.parametrize(
    "text",
    [
        listing((0, ONE), (1, TWO)),
        "$ nvidia-smi -L | head -2\n" + listing((0, ONE), (1, TWO)),
        "$ nvidia-smi -L -i 0\n" + listing((0, ONE)),
        "$ nvidia-smi -L\n" + listing((0, ONE)) + "....\n" + listing((7, TWO)),
        "$ nvidia-smi -L\n" + listing((0, ONE), (2, TWO)),
    ],
)
def test_a_list_that_may_be_cut_is_part(text: str) -> None:
    (reading,) = read(text)
    assert reading.snapshots[0].coverage == Coverage(gpus="part")


def test_lists_of_several_tasks_are_united_by_uuid() -> None:
    named, unnamed = parse(read_text(CAPTURES / "gpu-list-tasks.txt"))
    assert gpus(named) == [(ONE, 0, "unknown"), (TWO, 1, "unknown")]
    assert named.snapshots[0].identity.host.name == "gpu-21"
    assert named.snapshots[0].coverage.gpus == "all"
    assert gpus(unnamed) == [(THREE, 0, "task"), (FOUR, 0, "task")]
    assert unnamed.snapshots[0].coverage.gpus == "part"
    assert "whether they ran on one host is not shown" in unnamed.notes[0].text


def test_lines_with_a_task_number_are_separated_by_it() -> None:
    lines = [f"{task}: {line}\n" for line in listing((0, ONE), (1, TWO)).splitlines() for task in (0, 1)]
    (reading,) = read("$ srun -l -w gpu-1 -n2 nvidia-smi -L\n" + "".join(lines))
    assert gpus(reading) == [(ONE, 0, "unknown"), (TWO, 1, "unknown")]


def test_mig_devices_are_noted_and_not_counted_and_a_lost_gpu_is_a_fault() -> None:
    listed, fault = parse(read_text(CAPTURES / "gpu-list-mig.txt"))
    assert gpus(listed) == [(ONE, 0, "unknown"), (TWO, 1, "unknown")]
    assert [(note.line, note.kind) for note in listed.notes] == [(2, "ignored")]
    assert listed.snapshots[0].coverage.gpus == "part"
    first, second = (gpu.mig for gpu in listed.snapshots[0].identity.gpus)
    assert [slice_.uuid for slice_ in first or ()] == [
        "MIG-11111111-2222-3333-4444-555555555555",
        "MIG-11111111-2222-3333-4444-666666666666",
    ]
    assert second == ()
    (snapshot,) = fault.snapshots
    assert snapshot.identity.host.name == "gpu-8"
    assert [(found.part, found.kind) for found in snapshot.faults] == [("gpus", "broken")]
    assert snapshot.coverage == Coverage()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "absent"),
        ("Failed to initialize NVML: Driver/library version mismatch", "broken"),
        ("Failed to initialize NVML: Insufficient Permissions", "not-permitted"),
        ("No devices were found", "absent"),
    ],
)
def test_an_error_of_nvidia_smi_is_a_fault_and_no_list_of_zero_gpus(line: str, kind: str) -> None:
    (reading,) = read(f"root@gpu-1:~# nvidia-smi\n{line}\n")
    (snapshot,) = reading.snapshots
    assert [(fault.kind, fault.reason) for fault in snapshot.faults] == [(kind, line)]
    assert snapshot.coverage.gpus is None


def test_a_redacted_uuid_is_unknown() -> None:
    (reading,) = read("$ nvidia-smi -L\nGPU 0: NVIDIA L4 (UUID: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)\n")
    assert gpus(reading) == [(None, 0, "unknown")]
    assert [note.kind for note in reading.notes] == ["cut"]


def test_listings_of_links_are_left_to_their_own_parser() -> None:
    assert [parse(read_text(path)) for path in sorted(CAPTURES.glob("nvlink-*.txt"))] == [[]] * 4


LINES = st.sampled_from(
    ["GPU 0: A (UUID: " + ONE + ")", "GPU 1: A (UUID: " + TWO + ")", "0: GPU 0: B (UUID: " + ONE + ")",
     "....", "", "  MIG 1g.10gb     Device  0: (UUID: MIG-1)", "\t Link 0: 25 GB/s",
     "$ nvidia-smi -L", "GPU 0: A (UUID: x)", "No devices were found", "text", "root@gpu-1:~# nvidia-smi -L"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(LINES, max_size=14).map("\n".join)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200)
)
def test_any_text_is_read_and_no_uuid_comes_twice(text: str) -> None:
    for reading in read(text):
        uuids = [uuid for uuid, _, _ in gpus(reading) if uuid and len(reading.notes) == 0]
        assert len(set(uuids)) == len(uuids)


@needs_shared
def test_the_shared_lists_read_as_their_truth_says() -> None:
    (reading,) = parse(read_text(SHARED / "cases" / "C15-srun-nvidia-smi-L.txt"))
    found = [f"GPU-00000000-0000-0000-0000-00000000000{n}" for n in (1, 2)]
    assert gpus(reading) == [(found[0], 0, "unknown"), (found[1], 1, "unknown")]
    assert reading.snapshots[0].identity.host.name == "node1"
    (reading,) = parse(read_text(SHARED / "machines" / "nvidia_smi" / "hgx-b200-8x-L.txt"))
    assert len({uuid for uuid, _, _ in gpus(reading)}) == 8
