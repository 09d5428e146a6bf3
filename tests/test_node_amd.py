"""AMD GPUs and their XGMI links, as the kernel's compute driver lists them."""

from __future__ import annotations

from pathlib import Path

from rooted import machine

from topocheck.probes.node.amd import AmdGpus, parse_properties, read_amd
from topocheck.probes.node.pci import PciTree, read_pci
from topocheck.snapshot import GpuId, NvLink


def test_four_gpus_of_one_hive_are_joined_pairwise(tmp_path: Path) -> None:
    roots = machine("amd-mi300x", tmp_path)
    tree, _ = read_pci(roots)
    gpus, faults = read_amd(roots, tree)
    assert gpus.ids[1] == GpuId(uuid="GPU-5a1e00000000b101", bus="0000:31:00.0", hive="77de41c3a90b2264")
    shape = gpus.shapes[1]
    assert (shape.model, shape.memory_bytes, shape.numa, shape.pci) == (
        "AMD gfx942",
        206141652992,
        0,
        "root1/0/0",
    )
    assert [[link.peer for link in shape.links or ()] for shape in gpus.shapes] == [
        [1, 2, 3],
        [0, 2, 3],
        [0, 1, 3],
        [0, 1, 2],
    ]
    assert (gpus.whole, faults) == (True, ())


def test_a_gpu_that_a_container_may_not_see_leaves_a_link_without_a_peer(tmp_path: Path) -> None:
    roots = machine("amd-mi300x", tmp_path)
    (tmp_path / "sys/devices/virtual/kfd/kfd/topology/nodes/4/properties").unlink()
    gpus, faults = read_amd(roots, PciTree())
    assert (len(gpus.ids), gpus.whole) == (3, False)
    assert (gpus.shapes[0].links or ())[2] == NvLink(link=2, active=True, remote="gpu")
    assert [(fault.part, fault.kind) for fault in faults] == [("gpus", "absent")]


def test_the_driver_is_missed_only_where_such_a_gpu_is(tmp_path: Path) -> None:
    nvidia = machine("hgx-h100", tmp_path / "nvidia")
    assert read_amd(nvidia, read_pci(nvidia)[0]) == (AmdGpus(), ())
    amd = machine("amd-mi300x", tmp_path / "amd")
    (tmp_path / "amd/sys/class/kfd/kfd").unlink()
    gpus, faults = read_amd(amd, read_pci(amd)[0])
    assert gpus == AmdGpus()
    assert [(fault.part, fault.kind) for fault in faults] == [("gpus", "absent")]


def test_links_that_cannot_be_read_are_not_known(tmp_path: Path) -> None:
    roots = machine("amd-mi300x", tmp_path)
    (tmp_path / "sys/devices/virtual/kfd/kfd/topology/nodes/2/io_links/1/properties").unlink()
    gpus, _ = read_amd(roots, PciTree())
    assert [shape.links is None for shape in gpus.shapes] == [False, True, False, False]


def test_properties_are_names_and_numbers() -> None:
    assert parse_properties("simd_count 1216\nname x\nhive_id 18446744073709551615\n\n") == {
        "simd_count": 1216,
        "hive_id": 18446744073709551615,
    }
