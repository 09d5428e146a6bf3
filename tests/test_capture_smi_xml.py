"""`nvidia-smi -q -x`: whole and cut documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from torn_text import read, texts

from topocheck.errors import CaptureError
from topocheck.probes.capture.smi_xml import parse
from topocheck.probes.capture.text import read_text
from topocheck.snapshot import FullSnapshot, MigDevice, Process

CAPTURES = Path(__file__).parent / "captures"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "machines" / "nvidia_smi"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared captures are not here")
QUERY = (CAPTURES / "smi-q-x.xml").read_text(encoding="utf-8")


def only(text: str) -> FullSnapshot:
    (reading,) = parse(read(text))
    (snapshot,) = reading.snapshots
    return snapshot


def test_a_whole_document_tells_identity_shape_and_state() -> None:
    snapshot = only("root@gpu-38:~# nvidia-smi -q -x\n" + QUERY)
    assert (snapshot.identity.host.name, snapshot.coverage.gpus) == ("gpu-38", "all")
    assert (snapshot.software.driver, snapshot.software.cuda) == ("580.65.06", "13.0")
    first, second = snapshot.identity.gpus
    assert (first.bus, first.nvml, first.minor, first.module) == ("0000:3d:00.0", 0, 2, 6)
    assert first.serial is None
    assert first.mig == (MigDevice(gpu_instance=1, compute_instance=0),)
    # Its section shows neither mode nor slices.
    assert (second.bus, second.nvml, second.mig) == ("0000:5e:00.0", 1, None)
    assert [gpu.memory_bytes for gpu in snapshot.hardware.gpus] == [143771 << 20, None]
    state, bare = snapshot.state.gpus
    assert (state.ecc, state.ecc_corrected, state.ecc_uncorrected) == (False, 5, 1)
    assert (state.rows_remapped, state.remap_pending, state.remap_failed) == (3, False, True)
    assert (state.mig_pending, state.throttle) == (False, ("gpu_idle",))
    assert state.processes == (Process(pid=90210, name="trainer"),)
    assert (bare.processes, bare.memory_used_bytes, bare.throttle) == ((), None, None)


def test_the_fabric_of_a_gpu_and_its_line() -> None:
    (fabric,) = only(QUERY).fabric
    assert (fabric.gpus, fabric.state, fabric.cluster_uuid) == ((0,), "Completed", "0" * 32)
    assert fabric.health_mask == 2 | 5 << 8
    assert fabric.at
    assert fabric.at.line == QUERY.split("\n").index("\t\t\t<state>Completed</state>") + 1


def test_a_cut_document_gives_the_gpus_that_are_complete() -> None:
    (reading,) = parse(read(QUERY[: QUERY.index("<product_name>", QUERY.index("5E:00.0"))]))
    (snapshot,) = reading.snapshots
    assert [gpu.bus for gpu in snapshot.identity.gpus] == ["0000:3d:00.0"]
    assert (snapshot.coverage.gpus, snapshot.identity.gpus[0].nvml) == ("part", None)
    assert [note.kind for note in reading.notes] == ["cut"]


def test_a_document_with_fewer_gpus_than_are_attached_is_a_part() -> None:
    assert only(QUERY.replace("<attached_gpus>2", "<attached_gpus>8")).coverage.gpus == "part"


def test_text_behind_the_document_is_no_part_of_it() -> None:
    text = QUERY.rstrip("\n") + " $ date\n<broken\n"
    (reading,) = parse(read(text))
    assert max(reading.lines) == QUERY.count("\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (QUERY.replace("</uuid>", "</id>"), 25),
        (QUERY.replace("NVIDIA H200", "&amazing;", 1), 9),
        (QUERY.replace("5E:00.0", "3D:00.0"), 3),
        ("<nvidia_smi_log>" + "<gpu>" * 200, 1),
        ("<nvidia_smi_log\n", 1),
    ],
)
def test_broken_xml_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(CaptureError) as refused:
        parse(read(text))
    assert refused.value.line == line


def test_entities_are_never_resolved() -> None:
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n'
    with pytest.raises(CaptureError, match="undefined entity"):
        parse(read(bomb + "<nvidia_smi_log><driver_version>&b;</driver_version></nvidia_smi_log>"))


@settings(max_examples=60, deadline=None)
@given(texts("smi-q-x.xml"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        readings = parse(read(text))
    except CaptureError:
        return
    for reading in readings:
        (snapshot,) = reading.snapshots
        assert len(snapshot.identity.gpus) == len(snapshot.hardware.gpus)


@needs_shared
def test_the_shared_documents_read_as_their_truth_says() -> None:
    (reading,) = parse(read_text(SHARED / "telegraf-a100-sxm4-v12-q-x.xml"))
    (snapshot,) = reading.snapshots
    (gpu,) = snapshot.identity.gpus
    assert (gpu.model, len(gpu.mig or ()), snapshot.hardware.gpus[0].mig) == (
        "NVIDIA A100-SXM4-80GB",
        4,
        True,
    )
    assert snapshot.fabric == ()  # N/A is no fabric
    assert snapshot.coverage.gpus == "part"  # one of four is in the file
    (reading,) = parse(read_text(SHARED / "telegraf-tesla-t4-q-x.xml"))
    (snapshot,) = reading.snapshots
    assert [(gpu.model, gpu.bus) for gpu in snapshot.identity.gpus] == [("Tesla T4", "0000:00:1e.0")]
    assert (snapshot.software.driver, snapshot.coverage.gpus) == ("515.105.01", "all")
    assert [process.pid for process in snapshot.state.gpus[0].processes or ()] == [5762]
