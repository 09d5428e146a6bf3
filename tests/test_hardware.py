"""One node's hardware: links, NVSwitches, PCI classes, nearest NICs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.hardware import NEAREST_FIRST, Link, Shape
from topocheck.snapshot import GpuShape, Hardware, LinkMatrix, NicShape, NvLink, PciNode, PeerAccess


def shape(*gpus: GpuShape, **parts: Any) -> Shape:
    return Shape(msgspec.json.encode(Hardware(gpus=gpus, **parts)))


def links(*peers: int | None, active: bool | None = True) -> tuple[NvLink, ...]:
    """One link to each GPU; None leads to a switch."""
    return tuple(
        NvLink(link=n, active=active, remote="switch" if peer is None else "gpu", peer=peer)
        for n, peer in enumerate(peers)
    )


def table(cells: str, nics: str = "") -> LinkMatrix:
    """Rows by line, `-` for a cell that was not shown."""

    def rows(text: str) -> tuple[tuple[str | None, ...], ...]:
        lines = [line.split() for line in text.strip().splitlines()]
        return tuple(tuple(None if cell == "-" else cell for cell in line) for line in lines)

    return LinkMatrix(gpus=rows(cells), nics=rows(nics))


def test_parallel_links_are_one_edge_with_a_count() -> None:
    found = shape(GpuShape(links=links(1, 1)), GpuShape(links=links(0, 0)))
    assert found.link(0, 1) == found.link(1, 0) == Link("NV", 2)
    assert str(found.link(0, 1)) == "NV2"
    assert found.nvlinks(0) == 2


def test_links_to_switches_join_every_pair_with_the_lesser_number() -> None:
    found = shape(GpuShape(links=links(*[None] * 18)), GpuShape(links=links(*[None] * 12)))
    assert found.link(0, 1) == Link("NV", 12, switched=True)
    assert found.nvswitch(0) is True
    counted = shape(GpuShape(nvlinks=18, nvswitch=True), GpuShape(nvlinks=18, nvswitch=True))
    assert counted.link(0, 1) == Link("NV", 18, switched=True)


def test_a_link_that_is_down_joins_nothing() -> None:
    found = shape(GpuShape(links=links(1, active=False)), GpuShape(links=links(0, active=False)))
    assert found.link(0, 1) == Link("PCI")
    assert found.nvlinks(0) == 0


def test_a_link_whose_state_is_not_known_is_neither_a_link_nor_none() -> None:
    found = shape(GpuShape(links=links(1, active=None)), GpuShape(links=links(0, active=None)))
    assert found.link(0, 1) is None
    assert found.nvlinks(0) is None
    hidden = shape(GpuShape(links=links(None, active=None)), GpuShape(links=links(None)))
    assert hidden.link(0, 1) is None


def test_a_hidden_far_end_may_be_any_gpu() -> None:
    dark = GpuShape(links=(NvLink(link=0, active=True),))
    assert shape(dark, dark).link(0, 1) is None
    assert shape(msgspec.structs.replace(dark, nvswitch=True), GpuShape(links=links(None))).link(0, 1)


def test_no_links_at_all_is_a_proof_and_links_that_were_not_read_are_none() -> None:
    assert shape(GpuShape(links=()), GpuShape(nvlinks=0)).link(0, 1) == Link("PCI")
    assert shape(GpuShape(), GpuShape()).link(0, 1) is None


def test_a_table_answers_from_either_row_and_only_what_it_shows() -> None:
    found = shape(*[GpuShape()] * 3, matrix=table("X NV4 -\n- X PHB\n- - X"))
    assert found.link(1, 0) == Link("NV", 4)
    assert found.link(1, 2) == Link("PHB")
    assert found.link(0, 2) is None
    assert found.link(0, 0) is None
    assert found.table_row(0) is None
    assert found.table_row(1) == [Link("NV", 4), Link("PHB")]


@pytest.mark.parametrize("cell", ["", "NV", "NVx", "OK", "XYZ"])
def test_a_word_that_is_no_class_is_no_answer(cell: str) -> None:
    rows = (("X", cell), (cell, "X"))
    assert shape(GpuShape(), GpuShape(), matrix=LinkMatrix(gpus=rows)).link(0, 1) is None


TREE = (
    PciNode(id="r0", numa=0),
    PciNode(id="u0", parent="r0"),
    PciNode(id="d0", parent="u0"),
    PciNode(id="d1", parent="u0"),
    PciNode(id="u1", parent="d1"),
    PciNode(id="d2", parent="u1"),
    PciNode(id="r1", numa=0),
    PciNode(id="r2", numa=1),
    PciNode(id="r3"),
)


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        ("d0", "d0", "PIX"),
        ("d0", "d1", "PIX"),
        ("d0", "d2", "PXB"),
        ("d0", "r0", "PHB"),
        ("d0", "r1", "NODE"),
        ("d0", "r2", "SYS"),
        ("d0", "r3", "PCI"),
        ("d0", "lost", "PCI"),
    ],
)
def test_pci_classes_follow_the_tree(a: str, b: str, kind: str) -> None:
    found = shape(GpuShape(links=(), pci=a), GpuShape(links=(), pci=b), pci=TREE)
    assert found.link(0, 1) == Link(kind)


def test_the_nearest_nics_are_all_that_tie() -> None:
    nics = tuple(NicShape(name=f"mlx5_{n}") for n in range(3))
    found = shape(GpuShape(), GpuShape(), nics=nics, matrix=table("X SYS\nSYS X", "SYS PIX PIX\nNODE SYS -"))
    assert found.nearest_nics(0) == ("PIX", nics[1:])
    assert found.nearest_nics(1) is None  # the device that is not shown may be the nearest
    assert found.nearest_nics(9) is None
    assert shape(GpuShape()).nearest_nics(0) is None


def test_a_nic_is_near_by_the_tree_where_no_table_says_so() -> None:
    nics = (NicShape(name="a", pci="d1"), NicShape(name="b", pci="r2"))
    assert shape(GpuShape(pci="d0"), nics=nics, pci=TREE).nearest_nics(0) == ("PIX", nics[:1])


def test_peer_access_has_a_direction() -> None:
    found = shape(GpuShape(), GpuShape(), peers=(PeerAccess(a=0, b=1, status="OK"),))
    assert (found.peer(0, 1), found.peer(1, 0)) == ("OK", None)


def test_a_shape_says_what_it_is() -> None:
    found = shape(GpuShape(model="A"), GpuShape(), nics=(NicShape(name="m"),))
    assert found.title() == "2 x A / GPU, 1 NIC"
    assert shape().title() == "no GPU shown"
    assert found.models == {"A", None}


def test_the_graph_has_one_vertex_for_all_switches() -> None:
    found = shape(GpuShape(links=links(None, None)), GpuShape(links=links(None)), nics=(NicShape(name="m"),))
    assert sorted(found.graph.nodes) == [("gpu", 0), ("gpu", 1), ("nic", 0), ("nvswitch", 0)]
    assert found.graph.edges[("gpu", 0), ("nvswitch", 0)]["nvlinks"] == 2


LINK = st.builds(
    NvLink,
    link=st.integers(0, 3),
    active=st.sampled_from([True, False, None]),
    remote=st.sampled_from(["gpu", "switch", "cpu", None]),
    peer=st.sampled_from([0, 1, 2, None]),
)
GPU = st.builds(
    GpuShape,
    links=st.none() | st.lists(LINK, max_size=4).map(tuple),
    nvlinks=st.sampled_from([None, 0, 4]),
    nvswitch=st.sampled_from([None, True, False]),
    pci=st.sampled_from([None, "d0", "d2", "r2", "lost"]),
)
CELL = st.sampled_from([None, "NV4", "PIX", "SYS", "??"])


@given(st.lists(GPU, min_size=3, max_size=3), st.none() | st.lists(CELL, min_size=9, max_size=9))
@settings(max_examples=100, deadline=None)
def test_a_link_is_the_same_from_both_ends_and_nvlink_needs_a_link_that_is_up(
    gpus: list[GpuShape], cells: list[str | None] | None
) -> None:
    matrix = LinkMatrix(gpus=tuple(tuple(cells[n : n + 3]) for n in (0, 3, 6))) if cells else None
    found = shape(*gpus, pci=TREE, matrix=matrix)
    for a in range(3):
        for b in range(3):
            link = found.link(a, b)
            assert link == found.link(b, a)
            assert link is None or link.kind in {*NEAREST_FIRST, "NV", "PCI"}
            if link is not None and link.nvlink and matrix is None:
                up = [
                    gpu.nvlinks or any(each.active for each in gpu.links or ()) for gpu in (gpus[a], gpus[b])
                ]
                assert any(up)
        found.nvlinks(a)
        found.nvswitch(a)
        found.table_row(a)
