"""The order of GPUs by nvidia-smi and by CUDA."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from torn_text import read, texts

from topocheck.probes.capture.gpu_order import parse
from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.text import read_text

CAPTURES = Path(__file__).parent / "captures"
CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
LISTS = (CAPTURES / "gpu-orders.txt").read_text(encoding="utf-8")


def facts(reading: Reading) -> dict[str, str]:
    (snapshot,) = reading.snapshots
    return {fact.kind: fact.value for fact in snapshot.observed.facts} if snapshot.observed else {}


def test_two_lists_tie_cudas_numbers_to_nvidia_smis() -> None:
    (reading,) = parse(read(LISTS))
    (snapshot,) = reading.snapshots
    assert facts(reading) == {
        "cuda-models": "NVIDIA H100 PCIe, NVIDIA L40S, NVIDIA L40S",
        "cuda-order": "1,0,2",
    }
    assert [(gpu.nvml, gpu.model) for gpu in snapshot.identity.gpus] == [
        (0, "NVIDIA L40S"), (1, "NVIDIA H100 PCIe"), (2, "NVIDIA L40S"),
    ]  # fmt: skip
    assert [shape.memory_bytes for shape in snapshot.hardware.gpus] == [45000 << 20, 81000 << 20, 45000 << 20]
    assert snapshot.coverage.gpus == "all"


@pytest.mark.parametrize(
    ("old", "new"),
    [("CUDA:2 (NVIDIA L40S", "CUDA:2 (NVIDIA L4"), ("CUDA:2 ", "CUDA:3 "), ("2: NVIDIA L40S\n", "")],
)
def test_lists_that_do_not_agree_tie_nothing(old: str, new: str) -> None:
    (reading,) = parse(read(LISTS.replace(old, new)))
    assert "cuda-order" not in facts(reading)
    assert reading.snapshots[0].coverage.gpus == "part"
    assert [note.kind for note in reading.notes] == ["ignored"]


def test_cudas_list_alone_names_no_gpu_of_the_node() -> None:
    (reading,) = parse(read('Device 0: "NVIDIA H100 PCIe"\nDevice 1: "NVIDIA L40S"\n'))
    (snapshot,) = reading.snapshots
    assert facts(reading) == {"cuda-models": "NVIDIA H100 PCIe, NVIDIA L40S"}
    assert (snapshot.identity.gpus, snapshot.coverage.gpus) == ((), None)


def test_one_number_with_two_models_is_a_contradiction() -> None:
    (reading,) = parse(read("CUDA:0 NVIDIA L40S\nCUDA:0 NVIDIA L4\n"))
    assert [note.kind for note in reading.notes] == ["contradictory"]


@pytest.mark.parametrize(
    "text", ["cuda:0 DONE\n", "device cuda:0 NVIDIA L4\n", "0: NVIDIA L4\n", "CUDA:0 is up\n"]
)
def test_other_text_is_left_alone(text: str) -> None:
    assert parse(read(text)) == []


@settings(max_examples=60, deadline=None)
@given(texts("gpu-orders.txt"))
def test_any_text_is_read(text: str) -> None:
    for reading in parse(read(text)):
        order = facts(reading).get("cuda-order")
        count = len(reading.snapshots[0].identity.gpus)
        assert order is None or sorted(map(int, order.split(","))) == list(range(count))


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_the_shared_lists_read_as_their_truth_says() -> None:
    (reading,) = parse(read_text(CASES / "C19-gpu-order-lists.txt"))
    assert facts(reading)["cuda-order"] == "1,2,0,3"
    models = [gpu.model for gpu in reading.snapshots[0].identity.gpus]
    assert models == ["RTX 3090", "A6000", "A6000", "RTX 3090"]
