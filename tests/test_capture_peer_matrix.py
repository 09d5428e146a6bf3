"""Peer access from nvidia-smi's tables and CUDA's test."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import CaptureError
from topocheck.probes.capture.peer_matrix import parse
from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.text import parse_text, read_text

CAPTURES = Path(__file__).parent / "captures"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared captures are not here")


def read(text: str) -> list[Reading]:
    return parse(parse_text(text.encode(), "p2p.txt"))


def peers(reading: Reading) -> dict[tuple[int, int], str]:
    (snapshot,) = reading.snapshots
    return {(peer.a, peer.b): peer.status for peer in snapshot.hardware.peers}


def test_a_table_of_read_access_gives_every_status_of_row_to_column() -> None:
    (reading,) = parse(read_text(CAPTURES / "p2p-read.txt"))
    assert peers(reading) == {
        (0, 1): "OK",
        (1, 0): "OK",
        (0, 2): "CNS",
        (1, 2): "TNS",
        (2, 0): "NS",
        (2, 1): "DISABLED",
    }
    (snapshot,) = reading.snapshots
    assert snapshot.identity.host.name == "gpu-5"
    assert [gpu.nvml for gpu in snapshot.identity.gpus] == [0, 1, 2]
    assert (snapshot.coverage.gpus, snapshot.coverage.links) == ("all", None)


@pytest.mark.parametrize("command", ["$ nvidia-smi topo -p2p n", "$ cat table", ""])
def test_a_refusal_counts_only_in_a_table_known_to_be_peer_access(command: str) -> None:
    lines = (CAPTURES / "p2p-nvlink.txt").read_text().splitlines()
    (reading,) = read("\n".join([command, *lines[1:]]))
    assert peers(reading) == {(0, 1): "OK", (1, 0): "OK"}
    assert [note.kind for note in reading.notes] == ["ignored"]
    assert reading.notes[0].text.startswith("4 refusals were not taken")


def test_a_peer_table_that_does_not_align_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"^p2p\.txt:2: row GPU0 has 1 cells, the header names 2 columns"):
        read(" \tGPU0\tGPU1\t\n GPU0\tOK\t\n GPU1\tOK\tX\t\n")


def test_tables_of_link_classes_are_left_to_their_own_parser() -> None:
    assert [parse(read_text(path)) for path in sorted(CAPTURES.glob("topo-*.txt"))] == [[]] * 5


def test_the_cuda_test_gives_models_buses_and_access_and_shows_its_contradictions() -> None:
    (reading,) = parse(read_text(CAPTURES / "p2p-cuda.txt"))
    (snapshot,) = reading.snapshots
    assert peers(reading) == {(0, 1): "OK", (1, 0): "OK", (0, 2): "NS", (1, 2): "NS", (2, 1): "NS"}
    assert [gpu.bus for gpu in snapshot.identity.gpus] == ["0000:1a:00.0", "0001:40:00.0", "0000:61:00.0"]
    assert [gpu.nvml for gpu in snapshot.identity.gpus] == [None] * 3
    assert {gpu.model for gpu in snapshot.hardware.gpus} == {"NVIDIA RTX 5880"}
    assert [(note.line, note.kind) for note in reading.notes] == [(16, "contradictory")]
    assert snapshot.coverage.gpus == "all"


def test_bus_ids_are_left_out_while_their_number_base_is_open() -> None:
    device = "Device: {0}, NVIDIA X, pciBusID: {1}, pciDeviceID: 0, pciDomainID:0\n"
    (reading,) = read(device.format(0, "9") + device.format(1, "82"))
    assert [gpu.bus for gpu in reading.snapshots[0].identity.gpus] == ["0000:09:00.0", None]
    assert [note.kind for note in reading.notes] == ["ignored"]
    (reading,) = read(device.format(0, "9") + device.format(1, "82") + device.format(2, "a1"))
    assert [gpu.bus for gpu in reading.snapshots[0].identity.gpus][1] == "0000:82:00.0"


def test_simple_p2p_names_pairs_by_arrows() -> None:
    line = "> Peer access from NVIDIA X (GPU{}) -> NVIDIA X (GPU{}) : {}\n"
    (reading,) = read(line.format(0, 1, "Yes") + line.format(1, 0, "No"))
    assert peers(reading) == {(0, 1): "OK", (1, 0): "NS"}
    assert reading.snapshots[0].coverage.gpus == "part"


def test_a_connectivity_matrix_that_does_not_align_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"^p2p\.txt:3: row 0 of the connectivity matrix"):
        read("P2P Connectivity Matrix\n     D\\D     0     1\n     0\t     0     1\n     1\t     1     1\n")


WORDS = st.sampled_from(
    ["GPU0", "GPU1", "X", "OK", "NS", "U", "\t", "\n", " ", "D\\D", "0", "1",
     "Device=0 CAN Access Peer Device=1",
     "P2P Connectivity Matrix\n", "Device: 0, A, pciBusID: 2, pciDeviceID: 0, pciDomainID:0", "-p2p r", "$ "]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, max_size=50).map("".join) | st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        readings = read(text)
    except CaptureError:
        return
    for reading in readings:
        gpus = len(reading.snapshots[0].identity.gpus)
        assert all(a != b and a < gpus and b < gpus for a, b in peers(reading))


@needs_shared
def test_the_shared_listings_read_as_their_truth_says() -> None:
    (cuda,) = parse(read_text(SHARED / "cases" / "C24-p2p-matrix-1080ti.txt"))
    assert {pair for pair, status in peers(cuda).items() if status == "OK"} == {
        (0, 1),
        (1, 0),
        (2, 3),
        (3, 2),
    }
    assert len(peers(cuda)) == 12
    assert {gpu.model for gpu in cuda.snapshots[0].identity.gpus} == {"GeForce GTX 1080 Ti"}
    (table,) = parse(read_text(SHARED / "machines" / "nvidia_smi" / "hgx-b200-8x-topo-p2p-n.txt"))
    assert (len(peers(table)), set(peers(table).values())) == (56, {"OK"})
