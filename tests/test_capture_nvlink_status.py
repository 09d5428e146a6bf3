"""`nvidia-smi nvlink`: links up, down and not shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.nvlink_status import parse
from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.text import parse_text, read_text
from topocheck.snapshot import GpuShape

CAPTURES = Path(__file__).parent / "captures"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared captures are not here")


def read(text: str) -> list[Reading]:
    return parse(parse_text(text.encode(), "nvlink.txt"))


def only(path: Path) -> Reading:
    (reading,) = parse(read_text(path))
    return reading


def shapes(reading: Reading) -> tuple[GpuShape, ...]:
    return reading.snapshots[0].hardware.gpus


def states(shape: GpuShape) -> list[bool | None] | None:
    return None if shape.links is None else [link.active for link in shape.links]


def test_links_are_up_down_or_all_inactive() -> None:
    reading = only(CAPTURES / "nvlink-s.txt")
    whole, some, dark = shapes(reading)
    assert states(whole) == [True] * 8
    assert states(some) == [number not in (2, 7) for number in range(8)]
    assert (dark.links, dark.nvlinks) == (None, 0)
    (snapshot,) = reading.snapshots
    assert (snapshot.coverage.gpus, snapshot.coverage.links) == ("all", "part")
    assert [gpu.nvml for gpu in snapshot.identity.gpus] == [0, 1, 2]
    assert snapshot.identity.host.name == "gpu-9"


def test_links_at_an_elision_are_unknown_and_the_list_is_part() -> None:
    reading = only(CAPTURES / "nvlink-s-elided.txt")
    assert [states(shape) for shape in shapes(reading)] == [None]
    assert reading.snapshots[0].coverage.gpus == "part"
    assert {note.kind for note in reading.notes} == {"cut"}


def test_a_last_gpu_with_fewer_links_than_its_peers_was_cut_off() -> None:
    reading = only(CAPTURES / "nvlink-s-cut.txt")
    assert [states(shape) for shape in shapes(reading)] == [[True] * 8, None]
    assert reading.snapshots[0].coverage.gpus == "part"


def test_links_that_the_numbering_skips_are_unknown() -> None:
    gpu = "GPU 0: A (UUID: GPU-5a5a0000-1b1b-2c2c-3d3d-000000000001)\n"
    (reading,) = read("$ nvidia-smi nvlink -s\n" + gpu + "\t Link 0: 25 GB/s\n\t Link 2: <inactive>\n")
    assert states(shapes(reading)[0]) == [True, None, False]


def test_hidden_far_ends_are_noted_and_are_no_state() -> None:
    reading = only(CAPTURES / "nvlink-r.txt")
    assert [(shape.links, shape.nvlinks) for shape in shapes(reading)] == [(None, None)]
    assert [note.kind for note in reading.notes] == ["ignored"]


def test_plain_lists_are_left_to_their_own_parser() -> None:
    assert [parse(read_text(path)) for path in sorted(CAPTURES.glob("gpu-list-*.txt"))] == [[]] * 2


LINES = st.sampled_from(
    ["GPU 0: A (UUID: GPU-1)", "GPU 1: A (UUID: GPU-2)", "\t Link 0: 25 GB/s", "\t Link 1: <inactive>",
     "....", "",
     "\t Link 5: Remote Device 00000008:07:00.0: Link 3", "\t Link 99: N/A", "text", "$ nvidia-smi nvlink -s",
     "NVML: Unable to retrieve NVLink information as all links are inactive", "0:  Link 0: 25 GB/s"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(LINES, max_size=16).map("\n".join)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200)
)
def test_any_text_is_read(text: str) -> None:
    for reading in read(text):
        for shape in shapes(reading):
            assert shape.links is None or [link.link for link in shape.links] == list(range(len(shape.links)))


@needs_shared
def test_the_shared_listings_read_as_their_truth_says() -> None:
    c27 = only(SHARED / "cases" / "C27-nvlink-s-inactive.txt")
    assert [states(shape) for shape in shapes(c27)] == [[True, True, True, False, True, False]]
    assert (c27.snapshots[0].identity.gpus[0].nvml, c27.snapshots[0].coverage.gpus) == (3, "part")
    machines = SHARED / "machines" / "nvidia_smi"
    good = only(machines / "azurehc-good_nvlink_status.txt")
    assert [states(shape) for shape in shapes(good)] == [[True] * 12]
    bad = only(machines / "azurehc-bad_nvlink_status.txt")
    assert [(gpu.nvml, shape.nvlinks) for gpu, shape in
            zip(bad.snapshots[0].identity.gpus, shapes(bad), strict=True)] == [(6, 0)]  # fmt: skip
    b200 = only(machines / "hgx-b200-8x-nvlink-s.txt")
    assert [states(shape) for shape in shapes(b200)] == [[True] * 18] * 8
    assert len(shapes(only(machines / "hgx-b200-8x-nvlink-R-first2gpus.txt"))) == 2
