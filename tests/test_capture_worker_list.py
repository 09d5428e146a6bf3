"""Ray's list of workers: the place in the list is the rank."""

from __future__ import annotations

from engine_evidence import CAPTURES, anything, case, claims, facts, fixture, notes, one, read, sound
from hypothesis import given, settings

from topocheck.probes.capture.worker_list import parse


def test_the_last_list_counts_and_a_broken_id_is_joined() -> None:
    reading = fixture(parse, "ray-workers.txt")
    assert claims(reading) == {
        0: ("feed0001", None, None, 2),
        1: ("feed0002", None, None, 0),
        2: ("feed0002", None, None, 1),
        3: ("feed0001", None, None, 3),
    }
    assert facts(reading, "world") == ["4"]
    assert {snapshot.coverage.ranks for snapshot in reading.snapshots} == {"all"}
    assert {snapshot.coverage.gpus for snapshot in reading.snapshots} == {"part"}
    assert notes(reading) == [(1, "ignored")]


def test_a_list_that_is_cut_keeps_its_first_ranks() -> None:
    text = (CAPTURES / "ray-workers.txt").read_text(encoding="utf-8").splitlines()[1]
    reading = one(parse, text)
    assert claims(reading).keys() == {0, 1}
    assert facts(reading, "world") == []
    assert {snapshot.coverage.ranks for snapshot in reading.snapshots} == {"part"}
    assert [kind for _, kind in notes(reading)] == ["cut"]


def test_a_worker_with_several_gpus_or_an_unknown_id_has_no_gpu_of_its_own() -> None:
    reading = one(parse, "worker_node_and_gpu_ids: [('n1', [0, 1]), ('n1', ['MIG-x']), ('n1', ['MIG-y'])]")
    assert claims(reading) == dict.fromkeys(range(3), ("n1", None, None, None))


def test_gpus_by_uuid() -> None:
    uuid = "GPU-5a5a0000-1b1b-2c2c-3d3d-000000000001"
    (snapshot,) = one(parse, f"worker_node_and_gpu_ids = [('n1', ['{uuid}'])]").snapshots
    assert snapshot.identity.gpus[snapshot.ranks[0].gpu or 0].uuid == uuid


@settings(max_examples=50, deadline=None)
@given(anything("ray-workers.txt"))
def test_any_text_is_read_soundly(text: str) -> None:
    assert all(sound(reading) for reading in read(parse, text))


def test_c01_reads_as_its_truth_says() -> None:
    reading = case(parse, "C01-ray-worker-gpu-ids.txt")
    order = [(host[0], gpu) for host, _, _, gpu in (claims(reading)[rank] for rank in range(8)) if host]
    assert order == [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("b", 3), ("a", 1), ("a", 2), ("a", 3)]
    assert facts(reading, "world") == ["8"]
