"""hwloc's XML: the tree of sysfs, NVLinks by bandwidth."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from torn_text import read, texts

from topocheck.errors import CaptureError
from topocheck.hardware import Shape
from topocheck.probes.capture.hwloc_xml import parse
from topocheck.probes.capture.text import read_text
from topocheck.snapshot import FullSnapshot, NicId

CAPTURES = Path(__file__).parent / "captures"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "machines" / "hwloc"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared captures are not here")
DOCUMENT = (CAPTURES / "hwloc.xml").read_text(encoding="utf-8")


def only(text: str) -> FullSnapshot:
    (reading,) = parse(read(text))
    (snapshot,) = reading.snapshots
    return snapshot


def shape(snapshot: FullSnapshot) -> Shape:
    return Shape(msgspec.json.encode(snapshot.hardware))


def test_devices_and_their_identity() -> None:
    snapshot = only(DOCUMENT)
    assert snapshot.identity.host.name == "gpu-36"
    assert [(gpu.bus, gpu.nvml, (gpu.uuid or "")[-2:], gpu.serial) for gpu in snapshot.identity.gpus] == [
        ("0000:03:00.0", 0, "d1", "77"),
        ("0000:81:00.0", 1, "d2", None),
    ]
    assert snapshot.identity.nics == (
        NicId(name="mlx5_4", bus="0000:04:00.0", guid="5a5a:0300:0000:00e1", card="5a5a:0300:0000:00e1"),
    )
    assert (snapshot.coverage.gpus, snapshot.coverage.nics) == ("all", "all")
    (port,) = snapshot.network.nics[0].ports
    assert (port.has_lid, port.gids_cut, snapshot.state.ports[0].lid) == (True, True, 27)
    assert snapshot.hardware.nics[0].ports[0].state == "ACTIVE"


def test_distances_and_numa_nodes_are_those_of_the_tree() -> None:
    snapshot = only(DOCUMENT)
    assert [gpu.numa for gpu in snapshot.hardware.gpus] == [0, 1]
    nearest = shape(snapshot).nearest_nics(0)
    assert nearest
    assert (nearest[0], [nic.name for nic in nearest[1]]) == ("PIX", ["mlx5_4"])
    far = shape(snapshot).nearest_nics(1)
    assert far
    assert far[0] == "SYS"


def test_bandwidth_is_links_by_the_kind_of_nvlink() -> None:
    assert str(shape(only(DOCUMENT)).link(0, 1)) == "NV4"
    pascal = DOCUMENT.replace("NVIDIA A100-SXM4-40GB", "Tesla P100-SXM2-16GB")
    assert str(shape(only(pascal)).link(0, 1)) == "NV5"


def test_a_bandwidth_that_is_no_multiple_is_unknown() -> None:
    (reading,) = parse(read(DOCUMENT.replace("100000", "90000")))
    assert shape(reading.snapshots[0]).link(0, 1) is None
    assert {note.kind for note in reading.notes} == {"ignored"}


def test_without_nvml_the_gpus_of_the_bus_are_a_part() -> None:
    snapshot = only(DOCUMENT.replace('name="nvml1"', 'name="opencl0d1"'))
    assert [gpu.nvml for gpu in snapshot.identity.gpus] == [0, None]
    assert snapshot.coverage.gpus == "part"


@pytest.mark.parametrize(
    ("old", "new"),
    [("Example 9000", "KVM Virtual Machine"), ('bridge_type="1-1"', 'bridge_type="0-0"')],
)
def test_a_tree_that_a_hypervisor_made_up_is_not_taken(old: str, new: str) -> None:
    (reading,) = parse(read(DOCUMENT.replace(old, new)))
    assert reading.snapshots[0].hardware.pci == ()
    assert "ignored" in {note.kind for note in reading.notes}


def test_a_cut_or_circular_document_is_refused() -> None:
    with pytest.raises(CaptureError, match="ends before </topology>"):
        parse(read(DOCUMENT[: DOCUMENT.index("<distances2hetero")]))
    with pytest.raises(CaptureError, match="form no tree"):
        parse(read(DOCUMENT.replace('pci_busid="0000:02:00.0"', 'pci_busid="0000:01:00.0"')))


def test_a_topology_without_gpus_and_nics_is_nobodys() -> None:
    text = '<topology version="2.0">\n<object type="Machine" gp_index="1"/>\n</topology>\n'
    assert parse(read(text)) == []


@settings(max_examples=60, deadline=None)
@given(texts("hwloc.xml"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        readings = parse(read(text))
    except CaptureError:
        return
    for reading in readings:
        shape(reading.snapshots[0])


@needs_shared
def test_the_shared_machines_read_as_their_truth_says() -> None:
    dgx2, lassen, pascal = (
        parse(read_text(SHARED / name))[0].snapshots[0]
        for name in ("hwloc-nvidiaDGX2.xml", "llnl-coral-lassen.xml", "llnl-cts1-pascal.xml")
    )
    graph = shape(dgx2)
    assert graph.gpus == 16
    assert {str(graph.link(0, other)) for other in range(1, 16)} == {"NV6"}
    assert dgx2.identity.nics == ()
    assert (lassen.identity.host.name, pascal.identity.host.name) == ("lassen28", "pascal4")
    near = [shape(lassen).nearest_nics(gpu) for gpu in range(4)]
    names = [[nic.name for nic in found[1]] for found in near if found]
    assert names == [["mlx5_0", "mlx5_1"]] * 2 + [["mlx5_2", "mlx5_3"]] * 2
    assert {found[0] for found in near if found} == {"NODE"}  # they meet at the socket alone
    assert {(found[0], found[1][0].name) for gpu in (0, 1) if (found := shape(pascal).nearest_nics(gpu))} == {
        ("PIX", "mlx5_0")
    }
