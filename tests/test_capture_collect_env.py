"""collect_env: versions and GPU models, in both formats."""

from __future__ import annotations

from engine_evidence import CAPTURES, anything, case, facts, fixture, one, read
from hypothesis import given, settings

from topocheck.probes.capture.collect_env import parse
from topocheck.probes.capture.reading import Reading


def gpus(reading: Reading) -> list[tuple[int | None, str | None]]:
    (snapshot,) = reading.snapshots
    assert [gpu.model for gpu in snapshot.hardware.gpus] == [gpu.model for gpu in snapshot.identity.gpus]
    return [(gpu.nvml, gpu.model) for gpu in snapshot.identity.gpus]


def test_the_flat_format() -> None:
    reading = fixture(parse, "collect-env-flat.txt")
    (snapshot,) = reading.snapshots
    software = snapshot.software
    assert (software.torch, software.driver, software.cuda_runtime) == ("2.8.0+cu128", "570.86.10", None)
    assert software.cuda is None  # the driver's CUDA is not shown
    assert gpus(reading) == [(0, "NVIDIA L40S"), (1, "NVIDIA L40S"), (2, "NVIDIA L4")]
    assert snapshot.coverage.gpus == "all"


def test_the_format_with_sections() -> None:
    reading = fixture(parse, "collect-env-sections.txt")
    (snapshot,) = reading.snapshots
    software = snapshot.software
    assert (software.torch, software.driver, software.cuda_runtime) == ("2.9.1+cu130", "580.95.05", "13.0.88")
    assert (software.engine, software.engine_version) == ("vllm", "0.24.0")
    assert facts(reading, "engine-version") == ["0.24.0"]
    assert gpus(reading) == [(0, "NVIDIA H200"), (1, "NVIDIA H200")]


def test_a_list_of_gpus_that_may_be_cut_is_part() -> None:
    text = (CAPTURES / "collect-env-flat.txt").read_text(encoding="utf-8")
    cut = one(parse, text[: text.index("GPU 2")])
    hole = one(parse, text.replace("GPU 1: NVIDIA L40S\n", ""))
    assert (len(gpus(cut)), cut.snapshots[0].coverage.gpus) == (2, "part")
    assert (len(gpus(hole)), hole.snapshots[0].coverage.gpus) == (2, "part")


def test_gpus_that_could_not_be_collected_are_unknown() -> None:
    text = (CAPTURES / "collect-env-flat.txt").read_text(encoding="utf-8")
    begin, end = text.index("GPU models"), text.index("Nvidia driver")
    reading = one(parse, text[:begin] + "GPU models and configuration: Could not collect\n" + text[end:])
    assert gpus(reading) == []
    assert reading.snapshots[0].coverage.gpus is None


def test_slices_are_not_counted() -> None:
    reading = one(
        parse,
        "PyTorch version: 2.6.0\nIs debug build: False\nGPU models and configuration: GPU 0: NVIDIA A30\n"
        "  MIG 1g.6gb      Device  0: \n  MIG 1g.6gb      Device  1: \n\nNvidia driver version: 550.1\n",
    )
    assert gpus(reading) == [(0, "NVIDIA A30")]
    assert [note.kind for note in reading.notes] == ["ignored"]


def test_a_sentence_about_a_version_is_no_report() -> None:
    assert read(parse, "PyTorch version: 2.6.0\nwe use it: always\n") == []


@settings(max_examples=50, deadline=None)
@given(anything("collect-env-flat.txt", "collect-env-sections.txt"))
def test_any_text_is_read_and_whole_lists_are_dense(text: str) -> None:
    for reading in read(parse, text):
        (snapshot,) = reading.snapshots
        if snapshot.coverage.gpus == "all":
            assert [index for index, _ in gpus(reading)] == list(range(len(gpus(reading))))


def test_c61_reads_as_its_truth_says() -> None:
    old = case(parse, "C61-collectenv-old.txt")
    software = old.snapshots[0].software
    assert (software.torch, software.driver, software.cuda_runtime) == (
        "2.6.0+cu124",
        "550.54.14",
        "12.4.131",
    )
    assert gpus(old) == [(0, "NVIDIA GeForce RTX 3090")]
    assert old.snapshots[0].coverage.gpus == "all"
    new = case(parse, "C61-collectenv-new-mixed.txt")
    assert (new.snapshots[0].software.torch, gpus(new)) == ("2.7.0+cu126", [])
    assert new.snapshots[0].coverage.gpus is None
