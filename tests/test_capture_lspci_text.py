"""`lspci`, plain and with everything."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from torn_text import read, texts

from topocheck.errors import CaptureError
from topocheck.hardware import Shape
from topocheck.probes.capture.lspci_text import parse
from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.text import read_text
from topocheck.snapshot import FullSnapshot

CAPTURES = Path(__file__).parent / "captures"
MACHINES = Path(__file__).resolve().parents[2] / "shared" / "data" / "machines"
VERBOSE = (CAPTURES / "lspci-vvv.txt").read_text(encoding="utf-8")
H100 = "NVIDIA Corporation GH100 [H100 SXM5 80GB]"


def only(readings: list[Reading]) -> FullSnapshot:
    (reading,) = readings
    (snapshot,) = reading.snapshots
    return snapshot


@pytest.mark.parametrize(
    "line",
    [
        f"3b:00.0 3D controller: {H100} (rev a1)",
        f"0000:3b:00.0 3D controller [0302]: {H100} [10de:2330] (rev a1)",
        "3b:00.0 0302: 10de:2330 (rev a1)",
        "3b:00.0 VGA compatible controller [0300]: NVIDIA Corporation Device [10de:2704] (rev a1)",
    ],
)
def test_a_gpu_is_known_by_its_bus_id(line: str) -> None:
    snapshot = only(parse(read(f"root@gpu-40:~# lspci\n{line}\n")))
    assert [gpu.bus for gpu in snapshot.identity.gpus] == ["0000:3b:00.0"]
    assert (snapshot.identity.host.name, snapshot.coverage.gpus) == ("gpu-40", "part")
    assert snapshot.hardware.pci == ()


def test_nvswitches_are_counted() -> None:
    snapshot = only(
        parse(read("0005:00:00.0 Bridge [0680]: NVIDIA Corporation Device [10de:22a3] (rev a1)\n" * 2))
    )
    assert snapshot.observed
    assert [(fact.kind, fact.value) for fact in snapshot.observed.facts] == [("nvswitches", "2")]


def test_the_verbose_form_shows_tree_links_and_access_control() -> None:
    snapshot = only(parse(read(VERBOSE)))
    nodes = {node.id: node for node in snapshot.hardware.pci}
    gpu = snapshot.hardware.gpus[0]
    assert (gpu.pci, gpu.numa) == ("root0/0/0/0/0", 0)
    assert nodes["root0/0"].acs == ("SrcValid",)
    assert nodes["root0/0/0"].acs == ()  # its capabilities are shown and hold none
    assert nodes["root0/0/0/0"].acs == ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")
    assert nodes["root0/0/0/1"].acs is None  # not shown in detail
    assert (nodes["root0/0/0/0/0"].max_width, nodes["root0/0/0/0/0"].max_speed_gts) == (16, 32.0)
    assert ("root0/0/0/0/0", 8, 2.5) in [
        (link.node, link.width, link.speed_gts) for link in snapshot.state.pci
    ]
    shape = Shape(msgspec.json.encode(snapshot.hardware))
    assert shape._pci_class(gpu.pci, "root0/0/0/1/0") == "PIX"  # noqa: SLF001 - NICs have no name here


@pytest.mark.parametrize(
    "text",
    [
        VERBOSE[VERBOSE.index("02:00.0") :],
        "$ lspci -vvv | grep -v ISA\n" + VERBOSE[VERBOSE.index("01:00.0") :],
        "$ lspci -vvv\n...\n" + VERBOSE[VERBOSE.index("01:00.0") :],
    ],
)
def test_a_tree_that_may_lack_bridges_is_not_taken(text: str) -> None:
    (reading,) = parse(read(text))
    snapshot = only([reading])
    assert (snapshot.hardware.pci, snapshot.hardware.gpus[0].pci) == ((), None)
    assert "cut" in {note.kind for note in reading.notes}


def test_the_tree_of_a_virtual_machine_is_not_taken() -> None:
    virtual = "06:00.0 Ethernet controller: Red Hat, Inc. Virtio 1.0 network device (rev 01)\n"
    (reading,) = parse(read(VERBOSE + virtual))
    assert only([reading]).hardware.pci == ()
    assert [note.kind for note in reading.notes] == ["ignored"]


def test_access_control_that_grep_left_alone_is_a_fact() -> None:
    line = (
        "\t\tACSCtl:\tSrcValid{0} TransBlk- ReqRedir{1} CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n"
    )
    lines = line.format("+", "+") + line.format("-", "-") * 2
    snapshot = only(parse(read("root@gpu-41:~# lspci -vvv | grep ACSCtl\n" + lines)))
    assert snapshot.observed
    assert [(fact.kind, fact.value) for fact in snapshot.observed.facts] == [
        ("acs", "SrcValid ReqRedir"),
        ("acs", ""),
    ]
    assert (snapshot.identity.host.name, snapshot.identity.gpus) == ("gpu-41", ())


def test_a_gpu_that_fell_off_the_bus_is_a_fault_and_one_of_another_driver_no_gpu_of_the_job() -> None:
    text = f"3b:00.0 3D controller: {H100} (rev ff)\n5e:00.0 3D controller: {H100} (rev a1)\n"
    text += "\tKernel driver in use: vfio-pci\n"
    snapshot = only(parse(read(text)))
    assert snapshot.identity.gpus == ()
    assert [(fault.part, fault.kind) for fault in snapshot.faults] == [("gpus", "broken")]


def test_bridges_that_contradict_each_other_are_refused() -> None:
    text = VERBOSE.replace("secondary=04, subordinate=04", "secondary=03, subordinate=03")
    with pytest.raises(CaptureError, match="two bridges lead to bus 0000:03"):
        parse(read(text))
    circle = VERBOSE.replace("secondary=01, subordinate=06", "secondary=00, subordinate=06").replace(
        "primary=01, secondary=02", "primary=01, secondary=01"
    )
    with pytest.raises(CaptureError, match="form a circle"):
        parse(read(circle.replace("02:00.0 PCI", "01:01.0 PCI")))


@pytest.mark.parametrize(
    "text", ["3b:00.0 is a time\n", "00:1f.0 ISA bridge: Intel Corporation X\n", "12:00.0 am: tea\n"]
)
def test_other_text_is_left_alone(text: str) -> None:
    assert parse(read(text)) == []


@settings(max_examples=60, deadline=None)
@given(texts("lspci-vvv.txt"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        readings = parse(read(text))
    except CaptureError:
        return
    for reading in readings:
        Shape(msgspec.json.encode(only([reading]).hardware))


@pytest.mark.skipif(not MACHINES.exists(), reason="the shared captures are not here")
def test_the_shared_listing_reads_as_its_truth_says() -> None:
    snapshot = only(parse(read_text(MACHINES / "misc" / "gpud-a100-azure-lspci-nn.txt")))
    domains = [(gpu.bus or "")[:4] for gpu in snapshot.identity.gpus]
    assert domains == ["0001", "0002", "0003", "0004", "000b", "000c", "000d", "000e"]
    assert snapshot.observed
    assert [(fact.kind, fact.value) for fact in snapshot.observed.facts] == [("nvswitches", "6")]
