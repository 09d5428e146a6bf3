"""Placement map of many nodes."""

from __future__ import annotations

import msgspec
import pytest
import sample_report

from topocheck.render.overview import overview, worst_nodes
from topocheck.report import PlacementReport


def swept(nodes: int, *, rows: int | None = 8, marked: tuple[int, ...] = ()) -> PlacementReport:
    """Placement of a big job."""
    placement = sample_report.swept(nodes, rows=rows, marked=marked).placement
    assert placement is not None
    return placement


@pytest.mark.parametrize("rows", [0, None])
def test_a_node_is_marked_whether_or_not_its_ranks_are_listed(rows: int | None) -> None:
    paths = overview(swept(200, rows=rows, marked=(3, 77))).paths
    assert [(path.status, path.count) for path in paths] == [("clear", 198), ("error", 2)]
    assert paths[1].sign


def test_a_healthy_cluster_is_one_line_for_each_row() -> None:
    (path,) = overview(swept(12_500)).paths
    assert path.d.count("M") == -(-12_500 // 120)
    assert path.sign == ""


def test_a_node_without_evidence_is_not_shown_as_clear() -> None:
    placement = swept(100)
    nodes = [msgspec.structs.replace(node, seen=node.position % 10 != 0) for node in placement.nodes]
    paths = overview(msgspec.structs.replace(placement, nodes=nodes)).paths
    assert {path.status: path.count for path in paths} == {"clear": 90, "unseen": 10}


def test_the_nodes_shown_in_detail_are_those_of_the_worst_marks() -> None:
    placement = swept(200, marked=(150, 3, 20))
    assert worst_nodes(placement, 2) == {"gpu-0150", "gpu-0003"}
    assert worst_nodes(swept(200), 8) == frozenset()


def test_a_mark_over_more_nodes_than_fit_shows_its_first_ones() -> None:
    placement = swept(200, marked=(5,))
    wide = msgspec.structs.replace(placement.marks[0], ranks=list(range(0, 160, 8)))
    assert len(worst_nodes(msgspec.structs.replace(placement, marks=[wide]), 8)) == 8


def test_names_beside_the_rows_are_few_and_those_of_the_first_nodes() -> None:
    drawing = overview(swept(12_500))
    assert drawing.names[0][1] == "gpu-0000"
    assert len(drawing.names) <= 24


def test_nodes_of_one_domain_lie_beside_each_other_with_a_gap_before_the_next() -> None:
    placement = swept(8, marked=(3,))
    nodes = [msgspec.structs.replace(node, domain=f"rack-{node.position % 2}") for node in placement.nodes]
    drawing = overview(msgspec.structs.replace(placement, nodes=nodes))
    assert drawing.grouped
    assert drawing.slots == "0 5 1 6 2 7 3 8"
    assert {path.status: path.count for path in drawing.paths} == {"clear": 7, "error": 1}
    assert overview(placement).slots == ""


def test_a_domain_never_breaks_over_two_rows() -> None:
    placement = swept(200)
    nodes = [msgspec.structs.replace(node, domain=f"rack-{node.position // 18}") for node in placement.nodes]
    slots = list(map(int, overview(msgspec.structs.replace(placement, nodes=nodes)).slots.split()))
    for start in range(0, 198, 18):
        assert len({slot // 40 for slot in slots[start : start + 18]}) == 1
    assert len(set(slots)) == 200
