"""The PCI tree has the places that a kernel shows, and no virtual one counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from rooted import DESCRIPTIONS, lay_out, machine, roots_at, unpack_inventory, unpack_tar, unpack_ttar

from topocheck.hardware import Shape
from topocheck.probes.node.hypervisor import parse_board, parse_cpuinfo, read_hypervisor
from topocheck.probes.node.pci import PciTree, build_tree, read_pci
from topocheck.probes.node.pci_function import PciFunction, function_in, parse_path, parse_speed, parse_width
from topocheck.snapshot import GpuShape, Hardware, NicShape, PciLink, PciNode


def shape(tree: PciTree, gpus: list[str], nics: list[str]) -> Shape:
    """A node whose GPUs and NICs lie at these addresses."""
    hardware = Hardware(
        gpus=tuple(GpuShape(pci=tree.places.get(bus), nvlinks=0) for bus in gpus),
        nics=tuple(NicShape(name=bus, pci=tree.places.get(bus)) for bus in nics),
        pci=tree.nodes,
    )
    return Shape(msgspec.json.encode(hardware))


def ends(tree: PciTree, kind: str) -> list[str]:
    return [bus for bus, function in tree.functions.items() if function.kind == kind]


def test_an_hgx_board_has_a_nic_beside_each_gpu(tmp_path: Path) -> None:
    tree, _ = read_pci(machine("hgx-h100", tmp_path))
    gpus, nics = ends(tree, "gpu"), ends(tree, "nic")
    assert (len(gpus), len(nics), len(ends(tree, "nvswitch"))) == (8, 10, 4)
    node = shape(tree, gpus, nics)
    for gpu in range(8):
        links = [node.nic_link(gpu, nic) for nic in range(10)]
        kinds = [link.kind for link in links if link is not None]
        assert kinds.count("PIX") == 1
        assert kinds[gpu] == "PIX"
        assert {*kinds} == {"PIX", "NODE", "SYS"}


def test_only_what_traffic_passes_is_in_the_tree(tmp_path: Path) -> None:
    tree, _ = read_pci(machine("hgx-h100", tmp_path))
    kinds = Counter(node.kind for node in tree.nodes)
    assert kinds == {"root": 10, "bridge": 1 + 1 + 4 + 8 * 4 + 1, "gpu": 8, "nic": 10, "nvswitch": 4}
    assert "0000:0a:00.0" not in tree.places  # the console
    assert "0000:2d:00.0" not in tree.places  # a disk


def test_parents_come_before_children_and_names_are_places(tmp_path: Path) -> None:
    tree, _ = read_pci(machine("roce", tmp_path))
    seen: set[str | None] = {None}
    for node in tree.nodes:
        assert node.parent in seen
        assert node.id.rpartition("/")[0] == (node.parent or "")
        seen.add(node.id)
    assert tree.places["0000:43:00.0"] == "root0/0/0/0/0"
    assert tree.places["0000:44:00.1"] == "root0/0/0/1/1"


def test_equal_machines_have_equal_trees_whatever_their_bus_numbers(tmp_path: Path) -> None:
    text = (DESCRIPTIONS / "roce.txt").read_text(encoding="utf-8")
    lay_out(text, tmp_path / "one")
    lay_out(text.replace("0000:4", "0000:c"), tmp_path / "other")
    one, _ = read_pci(roots_at(tmp_path / "one"))
    other, _ = read_pci(roots_at(tmp_path / "other"))
    assert one.nodes == other.nodes
    assert [*one.places.values()] == [*other.places.values()]
    assert [*one.places] != [*other.places]


def test_a_second_switch_on_the_way_makes_it_pxb(tmp_path: Path) -> None:
    tree, _ = read_pci(machine("roce", tmp_path))
    node = shape(tree, ["0000:43:00.0", "0000:47:00.0"], ["0000:44:00.0"])
    links = [node.nic_link(0, 0), node.nic_link(1, 0), node.link(0, 1)]
    assert [link and link.kind for link in links] == ["PIX", "PXB", "PXB"]


def test_numa_width_speed_and_iommu_are_read(tmp_path: Path) -> None:
    tree, _ = read_pci(machine("roce", tmp_path))
    by_id = {node.id: node for node in tree.nodes}
    assert by_id["root0"] == PciNode(id="root0", kind="root", numa=0)
    assert by_id["root0/0"] == PciNode(
        id="root0/0", parent="root0", kind="bridge", numa=0, max_width=16, max_speed_gts=16.0, iommu="DMA-FQ"
    )
    assert PciLink(node="root0/0/0/0/0", width=8, speed_gts=16.0) in tree.links


def test_a_machine_whose_kernel_lists_no_iommu_group_translates_nothing(tmp_path: Path) -> None:
    text = (DESCRIPTIONS / "roce.txt").read_text(encoding="utf-8").replace(" | iommu_group/type: DMA-FQ", "")
    lay_out(text, tmp_path)
    assert {node.iommu for node in read_pci(roots_at(tmp_path))[0].nodes} == {None}
    (tmp_path / "sys/kernel/iommu_groups").mkdir(parents=True)
    tree, _ = read_pci(roots_at(tmp_path))
    assert {node.iommu for node in tree.nodes if node.kind != "root"} == {"none"}


def test_the_current_link_is_state_and_not_shape(tmp_path: Path) -> None:
    text = (DESCRIPTIONS / "roce.txt").read_text(encoding="utf-8")
    lay_out(text, tmp_path / "one")
    lay_out(text.replace("current_link_width: 8", "current_link_width: 16"), tmp_path / "other")
    one, _ = read_pci(roots_at(tmp_path / "one"))
    other, _ = read_pci(roots_at(tmp_path / "other"))
    assert one.nodes == other.nodes
    assert one.links != other.links


def test_a_tree_of_a_virtual_machine_is_no_evidence(tmp_path: Path) -> None:
    tree, faults = read_pci(machine("efa-vm", tmp_path))
    assert (tree.nodes, dict(tree.places), tree.links) == ((), {}, ())
    assert [function.numa for function in tree.functions.values()] == [0, 0, 0, 1, 1, 1]
    assert [(fault.part, fault.kind) for fault in faults] == [("links", "not-supported")]
    assert "a virtual machine (Some Cloud p9.96xlarge)" in faults[0].reason


def test_a_flat_tree_is_no_evidence_even_if_nobody_names_the_hypervisor(tmp_path: Path) -> None:
    roots = machine("efa-vm", tmp_path)
    (tmp_path / "proc/cpuinfo").write_text("flags : fpu\n")
    tree, faults = read_pci(roots)
    assert tree.nodes == ()
    assert (
        faults[0].reason == "a flat tree, as only virtual machines have: no GPU or NIC hangs below a bridge"
    )


def test_a_tree_without_widths_is_no_evidence(tmp_path: Path) -> None:
    text = (DESCRIPTIONS / "roce.txt").read_text(encoding="utf-8")
    lay_out(text.replace("max_link_width: 16", "max_link_width: 0"), tmp_path)
    tree, faults = read_pci(roots_at(tmp_path))
    assert tree.nodes == ()
    assert faults[0].reason == "no GPU or NIC shows the width of its PCIe link, as in virtual machines"


def test_a_laptop_has_a_small_tree_with_unknown_numa(tmp_path: Path) -> None:
    tree, _ = read_pci(machine("laptop", tmp_path))
    assert [node.kind for node in tree.nodes] == ["root", "bridge", "nic"]
    assert {node.numa for node in tree.nodes} == {None}


def test_a_recorded_kernel_shows_its_two_switches(tmp_path: Path) -> None:
    tree, _ = read_pci(unpack_tar("sysfs/sysfs-qemu-2numa-2switch-rxe.tar.gz", tmp_path))
    node = shape(tree, ["0000:13:00.0", "0000:14:00.0", "0000:83:00.0"], ["0000:15:00.0", "0000:84:00.0"])
    kinds = [
        [link and link.kind for link in (node.nic_link(gpu, 0), node.nic_link(gpu, 1))] for gpu in range(3)
    ]
    assert kinds == [["PIX", "SYS"], ["PIX", "SYS"], ["SYS", "PIX"]]
    assert [node.numa for node in tree.nodes if node.kind == "root"] == [0, 1]
    assert len(tree.nodes) == 9 + 7


def test_a_recording_without_links_shows_no_tree(tmp_path: Path) -> None:
    roots = unpack_inventory("misc/gcm-learn_good-host-inventory.json", tmp_path)
    tree, faults = read_pci(roots)
    assert tree.nodes == ()
    assert {fault.kind for fault in faults} == {"absent"}


def test_a_recording_without_the_bridges_is_flat(tmp_path: Path) -> None:
    roots = unpack_ttar("sysfs_ib/procfs-infiniband-pci.ttar", tmp_path, below="fixtures/")
    tree, faults = read_pci(roots)
    assert tree.nodes == ()
    nic = tree.functions["0000:a2:00.0"]
    assert (nic.kind, nic.numa, nic.width, nic.max_speed_gts) == ("nic", 1, 8, 16.0)
    assert [fault.kind for fault in faults] == ["not-supported"]


def test_disks_alone_make_no_tree_and_no_fault(tmp_path: Path) -> None:
    lay_out("pci pci0000:00/0000:00:1d.0/0000:01:00.0 { class: 0x010802 | vendor: 0x144d }", tmp_path)
    assert read_pci(roots_at(tmp_path)) == (PciTree(), ())


def test_roots_are_counted_by_their_numbers_whatever_the_order_of_the_list() -> None:
    gpus = [
        PciFunction(bus=f"{root}:01.0", path=(f"pci{root}", f"{root}:01.0"), code=0x0302)
        for root in ("0000:e0", "10000:00", "0000:1f", "0001:00")
    ]
    _, places = build_tree(gpus, {})
    assert places == {
        "0000:1f:01.0": "root0/0",
        "0000:e0:01.0": "root1/0",
        "0001:00:01.0": "root2/0",
        "10000:00:01.0": "root3/0",
    }


def test_a_bridge_that_sysfs_hides_still_has_its_place() -> None:
    gpu = PciFunction(
        bus="0000:03:00.0", path=("pci0000:00", "0000:00:01.0", "0000:03:00.0"), code=0x0302, numa=1
    )
    nodes, places = build_tree([gpu], {})
    assert [(node.id, node.kind) for node in nodes] == [
        ("root0", "root"),
        ("root0/0", None),
        ("root0/0/0", "gpu"),
    ]
    assert places["0000:03:00.0"] == "root0/0/0"


@pytest.mark.parametrize(
    ("code", "vendor", "kind"),
    [
        (0x0302, 0x10DE, "gpu"),
        (0x0300, 0x10DE, "gpu"),
        (0x0300, 0x1A03, None),
        (0x0380, 0x1002, "gpu"),
        (0x1200, 0x1002, "gpu"),
        (0x0680, 0x10DE, "nvswitch"),
        (0x0680, 0x8086, None),
        (0x0604, 0x1000, "bridge"),
        (0x0200, 0x17DB, "nic"),
        (0x0207, 0x15B3, "nic"),
        (0x0208, 0x8086, "nic"),
        (0x0108, 0x144D, None),
        (None, None, None),
    ],
)
def test_a_function_is_what_class_and_vendor_say(
    code: int | None, vendor: int | None, kind: str | None
) -> None:
    assert PciFunction(bus="0000:01:00.0", code=code, vendor=vendor).kind == kind


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("../../../devices/pci0000:16/0000:16:01.0", ("pci0000:16", "0000:16:01.0")),
        (
            "../../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0",
            ("pci10000:e0", "10000:e0:06.0", "10000:e1:00.0"),
        ),
        (
            "../../../devices/LNXSYSTM:00/LNXSYBUS:00/VMBUS:01/47505500-0001/pci0001:00/0001:00:00.0",
            ("pci0001:00", "0001:00:00.0"),
        ),
        ("../../../devices/platform/soc/fd500000.pcie", ()),
        ("../../../devices/pci0000:00", ()),
        ("../../../devices/pci0000:00/usb1", ()),
        ("", ()),
    ],
)
def test_a_path_begins_at_the_last_root_complex(target: str, path: tuple[str, ...]) -> None:
    assert parse_path(Path(target).parts) == path


def test_the_innermost_function_of_a_path_counts() -> None:
    assert function_in(Path("pci0000:10/0000:10:00.0/0000:11:00.1/net/eth0").parts) == "0000:11:00.1"
    assert function_in(Path("devices/virtual/net/lo").parts) is None


@pytest.mark.parametrize(
    ("text", "gts"),
    [("16.0 GT/s PCIe", 16.0), ("2.5 GT/s", 2.5), ("32 GT/s PCIe/s", 32.0), ("Unknown", None)],
)
def test_speeds_are_read_in_every_spelling(text: str, gts: float | None) -> None:
    assert parse_speed(text) == gts


@pytest.mark.parametrize(
    ("text", "lanes"), [("16\n", 16), ("0", None), ("63", None), ("255", None), ("", None)]
)
def test_widths_that_nobody_filled_are_not_known(text: str, lanes: int | None) -> None:
    assert parse_width(text) == lanes


def test_x86_processors_tell_of_a_hypervisor_for_certain() -> None:
    assert parse_cpuinfo("flags\t\t: fpu hypervisor sse2\n") is True
    assert parse_cpuinfo("flags\t\t: fpu sse2\n") is False
    assert parse_cpuinfo("Features\t: fp asimd\n") is None


@pytest.mark.parametrize(
    ("vendor", "product", "virtual"),
    [
        ("Amazon EC2", "p5.48xlarge", True),
        ("Amazon EC2", "c7g.metal", False),
        ("QEMU", "KVM Virtual Machine", True),
        ("Google", "Google Compute Engine", True),
        ("Microsoft Corporation", "Virtual Machine", True),
        ("NVIDIA", "GB200 NVL", False),
        ("", "", False),
    ],
)
def test_boards_of_virtual_machines_are_known(vendor: str, product: str, *, virtual: bool) -> None:
    assert parse_board(vendor, product) is virtual


def test_the_board_is_asked_where_the_processor_cannot_say(tmp_path: Path) -> None:
    lay_out(
        "proc/cpuinfo = Features : fp asimd\n"
        "sys/class/dmi/id/sys_vendor = QEMU\n"
        "sys/class/dmi/id/product_name = KVM Virtual Machine",
        tmp_path,
    )
    assert read_hypervisor(roots_at(tmp_path)) == ("QEMU KVM Virtual Machine", ())
