"""`nvidia-smi --query-gpu`: columns by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.gpu_query import parse
from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.text import parse_text, read_text
from topocheck.snapshot import GpuId, GpuState

CAPTURES = Path(__file__).parent / "captures"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared captures are not here")
ONE, TWO = (f"GPU-5a5a0000-1b1b-2c2c-3d3d-00000000000{n}" for n in (1, 2))


def read(text: str) -> list[Reading]:
    return parse(parse_text(text.encode(), "gpus.csv"))


def test_the_header_names_the_columns_and_absent_values_are_none() -> None:
    (reading,) = parse(read_text(CAPTURES / "gpu-query.csv"))
    (found,) = reading.snapshots
    assert found.identity.gpus == (
        GpuId(uuid=ONE, bus="0000:3b:00.0", nvml=0, model="NVIDIA H20", serial="1650000000001"),
        GpuId(uuid=TWO, bus="0000:5e:00.0", nvml=1, model="NVIDIA H20"),
    )
    assert [gpu.memory_bytes for gpu in found.hardware.gpus] == [97871 * 2**20] * 2
    assert found.state.gpus == (GpuState(gpu=0, memory_used_bytes=4 * 2**20),)
    assert found.software.driver == "570.86.15"
    assert found.coverage.gpus == "all"


def test_without_a_header_the_command_names_the_columns_and_processes_are_no_gpus() -> None:
    (reading,) = parse(read_text(CAPTURES / "gpu-query-noheader.txt"))
    (found,) = reading.snapshots
    assert [(gpu.nvml, gpu.bus) for gpu in found.identity.gpus] == [(0, "0001:00:00.0"), (1, "0002:00:00.0")]
    assert found.identity.host.name == "gpu-2"


def test_a_line_with_other_fields_ends_the_table_and_makes_it_part() -> None:
    (reading,) = read(f"index, uuid\n0, {ONE}\n1\n2, {TWO}\n")
    assert len(reading.snapshots[0].identity.gpus) == 1
    assert reading.snapshots[0].coverage.gpus == "part"
    assert [(note.line, note.kind) for note in reading.notes] == [(3, "cut")]


@pytest.mark.parametrize(
    "text",
    ["index, name, pid\n0, a, 1\n", "name\nA100\n", "index, uuid\n", "index, uuid\n0, 1\n", "a, b\nc, d\n"],
)
def test_other_tables_are_not_read(text: str) -> None:
    assert read(text) == []


def test_a_selection_is_part_and_two_drivers_contradict_each_other() -> None:
    (reading,) = read(
        f"$ nvidia-smi -i 0,1 --query-gpu=uuid,driver_version --format=csv\n"
        f"uuid, driver_version\n{ONE}, 550.1\n{TWO}, 550.2\n"
    )
    assert reading.snapshots[0].coverage.gpus == "part"
    assert reading.snapshots[0].software.driver is None
    assert [note.kind for note in reading.notes] == ["contradictory"]


FIELDS = st.sampled_from(
    ["index", "uuid", "pci.bus_id", "name", "pid", ", ", ",", "\n", "0", ONE, "00000000:3B:00.0", "[N/A]",
     "memory.total [MiB]", "80 MiB", "$ nvidia-smi --query-gpu=index,uuid --format=csv,noheader"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(FIELDS, max_size=40).map("".join)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200)
)
def test_any_text_is_read(text: str) -> None:
    for reading in read(text):
        (found,) = reading.snapshots
        assert len(found.identity.gpus) == len(found.hardware.gpus) > 0


@needs_shared
def test_the_shared_query_reads_as_its_index_says() -> None:
    (reading,) = parse(read_text(SHARED / "machines" / "nvidia_smi" / "aws-p5.48xlarge-gpu_count.txt"))
    buses = [gpu.bus for gpu in reading.snapshots[0].identity.gpus]
    assert buses == [f"0000:{bus}:00.0" for bus in ("53", "64", "75", "86", "97", "a8", "b9", "ca")]
