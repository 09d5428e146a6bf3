"""A PCI tree from functions: places, equal machines, circles."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.pci_tree import PciFunction, PciTree, build_tree, kind_of


def machine(domain: str) -> list[PciFunction]:
    """A switch with a GPU and a NIC below, and a root port with a disk."""

    def bus(text: str) -> str:
        return f"{domain}:{text}"

    return [
        PciFunction(bus=bus("00:01.0"), kind="bridge", root="pci0", acs=("SrcValid",)),
        PciFunction(bus=bus("01:00.0"), kind="bridge", root="pci0", above=bus("00:01.0")),
        PciFunction(bus=bus("02:00.0"), kind="bridge", root="pci0", above=bus("01:00.0")),
        PciFunction(bus=bus("02:01.0"), kind="bridge", root="pci0", above=bus("01:00.0")),
        PciFunction(bus=bus("03:00.0"), kind="gpu", root="pci0", above=bus("02:00.0"), numa=1, width=16),
        PciFunction(bus=bus("04:00.0"), kind="nic", root="pci0", above=bus("02:01.0"), numa=1),
        PciFunction(bus=bus("00:02.0"), kind="bridge", root="pci0"),
        PciFunction(bus=bus("05:00.0"), kind=None, root="pci0", above=bus("00:02.0")),
    ]


def test_only_the_way_of_the_jobs_traffic_is_kept() -> None:
    tree = build_tree(machine("0000"))
    assert [(node.id, node.kind) for node in tree.nodes] == [
        ("root0", "root"),
        ("root0/0", "bridge"),
        ("root0/0/0", "bridge"),
        ("root0/0/0/0", "bridge"),
        ("root0/0/0/0/0", "gpu"),
        ("root0/0/0/1", "bridge"),
        ("root0/0/0/1/0", "nic"),
    ]
    assert tree.places["0000:04:00.0"] == "root0/0/0/1/0"
    assert [(link.node, link.width) for link in tree.links] == [("root0/0/0/0/0", 16)]
    assert tree.nodes[0].numa == 1
    assert tree.nodes[1].acs == ("SrcValid",)


def test_equal_machines_have_equal_trees() -> None:
    assert build_tree(machine("0000")).nodes == build_tree(reversed(machine("0007"))).nodes


def test_devices_without_bridges_have_no_distances() -> None:
    flat = [PciFunction(bus=f"000{n}:00:00.0", kind="gpu", root=f"pci{n}") for n in range(4)]
    assert build_tree(flat) == PciTree()
    assert build_tree([]) == PciTree()


def test_bridges_in_a_circle_are_refused() -> None:
    one = PciFunction(bus="0000:01:00.0", kind="bridge", above="0000:02:00.0")
    two = PciFunction(bus="0000:02:00.0", kind="bridge", above="0000:01:00.0")
    gpu = PciFunction(bus="0000:03:00.0", kind="gpu", above="0000:02:00.0")
    with pytest.raises(ValueError, match="0000:03"):
        build_tree([one, two, gpu])


@pytest.mark.parametrize(
    ("code", "vendor", "kind"),
    [(0x0302, 0x10DE, "gpu"), (0x0300, 0x10DE, "gpu"), (0x0300, 0x1A03, None), (0x0380, 0x1002, "gpu"),
     (0x1200, 0x1002, "gpu"), (0x0604, 0x8086, "bridge"), (0x0680, 0x10DE, "nvswitch"),
     (0x0680, 0x8086, None), (0x0207, 0x15B3, "nic"), (0x0200, 0x8086, "nic"), (0x0108, 0x144D, None)],
)  # fmt: skip
def test_class_and_vendor_tell_what_a_function_is(code: int, vendor: int, kind: str | None) -> None:
    assert kind_of(code, vendor) == kind


BUSES = [f"0000:0{n}:00.0" for n in range(6)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["gpu", "nic", "bridge", None]), st.integers(-1, 4)), max_size=6))
def test_any_tree_has_its_parents_first(found: list[tuple[str | None, int]]) -> None:
    functions = [
        PciFunction(bus=bus, kind=kind, root="pci0", above=BUSES[above] if 0 <= above < len(found) else None)
        for bus, (kind, above) in zip(BUSES, found, strict=False)
    ]
    try:
        tree = build_tree(functions)
    except ValueError:
        return
    seen: set[str | None] = {None}
    for node in tree.nodes:
        assert node.parent in seen
        seen.add(node.id)
