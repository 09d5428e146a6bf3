"""Geometry of the placement map."""

from __future__ import annotations

import random

import msgspec
import pytest
import sample_report

from topocheck.render.boxes import MOST_CELLS
from topocheck.render.map import Drawing, draw
from topocheck.render.route import Box, Rect
from topocheck.report import DeviceReport, GroupReport, PlacementReport


def marked(placement: PlacementReport, *marks: GroupReport) -> PlacementReport:
    """The placement with these marks only."""
    return msgspec.structs.replace(placement, marks=list(marks))


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes share any space."""
    return (
        one.x < other.x + other.w
        and other.x < one.x + one.w
        and one.y < other.y + other.h
        and other.y < one.y + one.h
    )


def inside(drawing: Drawing) -> bool:
    """Whether every box lies within the drawing."""
    bottom = drawing.top + drawing.height
    return all(
        box.x >= 0 and box.x + box.w <= drawing.width and drawing.top <= box.y and box.y + box.h <= bottom
        for box in drawing.boxes
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 16, 72])
@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 17, 64])
def test_boxes_lie_apart_and_cells_inside_their_box(nodes: int, size: int) -> None:
    drawing = draw(sample_report.placed(tensor=size, pipeline=nodes, size=size))
    assert inside(drawing)
    for number, box in enumerate(drawing.boxes):
        assert not any(overlap(box, other) for other in drawing.boxes[:number])
        for cell in box.cells:
            assert box.x < cell.x
            assert cell.x + cell.w < box.x + box.w
            assert box.y < cell.y
            assert cell.y + cell.h < box.y + box.h


def test_each_rank_has_one_cell_with_its_gpu_and_group() -> None:
    drawing = draw(sample_report.placed())
    cells = [cell for box in drawing.boxes for cell in box.cells]
    assert [cell.label for cell in cells] == [str(rank) for rank in range(8)]
    assert [cell.gpu for cell in cells[:4]] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    assert [cell.fills for cell in cells] == [(0, 0, 0)] * 4 + [(1, 1, 0)] * 4
    assert drawing.legends == {
        "tensor": [(0, "TP group 0: ranks 0..3"), (1, "TP group 1: ranks 4..7")],
        "stage": [(0, "stage 0"), (1, "stage 1")],
        "replica": [(0, "replica 0")],
    }


def test_a_frame_goes_around_neighbours_of_one_stage() -> None:
    drawing = draw(sample_report.placed(order=[0, 1, 4, 5, 2, 3, 6, 7]))
    assert [[label for _, label in box.runs] for box in drawing.boxes] == [["stage 0", "stage 1"]] * 2


def test_an_arrow_leads_from_each_stage_to_the_next_node() -> None:
    drawing = draw(sample_report.placed(tensor=4, pipeline=4))
    assert [arrow.label for arrow in drawing.arrows] == ["S0→S1", "S1→S2", "S2→S3"]
    assert draw(sample_report.placed(order=[0, 1, 4, 5, 2, 3, 6, 7])).arrows == []


def test_a_row_holds_whole_pipelines() -> None:
    drawing = draw(sample_report.placed(tensor=4, pipeline=3, data=4))
    assert [box.row for box in drawing.boxes] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_a_split_group_is_joined_once_between_its_nodes() -> None:
    placement = sample_report.split_group().placement
    assert placement is not None
    drawing = draw(placement)
    assert [link.label for link in drawing.links] == ["TP001", "TP001", "PP004"]
    assert {cell.severity for box in drawing.boxes for cell in box.cells} == {"error"}


def test_a_group_inside_one_node_is_marked_without_a_line() -> None:
    mark = GroupReport(rule="TP002", severity="warning", ranks=[0, 1, 2, 3], kind="group")
    drawing = draw(marked(sample_report.placed(), mark))
    assert drawing.links == []
    assert [cell.severity for cell in drawing.boxes[0].cells] == ["warning"] * 4
    assert [cell.severity for cell in drawing.boxes[1].cells] == [""] * 4


def test_the_worst_mark_of_a_gpu_shows() -> None:
    marks = [
        GroupReport(rule="PP004", severity="warning", ranks=[0, 4], kind="edge"),
        GroupReport(rule="CAP001", severity="error", ranks=[0], kind="gpu"),
    ]
    cell = draw(marked(sample_report.placed(), *marks)).boxes[0].cells[0]
    assert cell.severity == "error"
    assert "marked by CAP001" in cell.title


def test_two_ranks_on_one_gpu_share_its_cell_and_both_are_marked() -> None:
    placement = sample_report.placed()
    first = placement.nodes[0]
    gpus = [msgspec.structs.replace(first.gpus[0], ranks=[0, 1]), *first.gpus[2:]]
    shared = msgspec.structs.replace(
        placement, nodes=[msgspec.structs.replace(first, gpus=gpus), *placement.nodes[1:]]
    )
    mark = GroupReport(rule="PP003", severity="error", ranks=[1, 5], kind="edge")
    drawing = draw(marked(shared, mark))
    assert drawing.boxes[0].cells[0].label == "0+1"
    assert len(drawing.links) == 1


def test_an_idle_gpu_is_shown_as_idle() -> None:
    placement = sample_report.placed()
    first = placement.nodes[0]
    idle = msgspec.structs.replace(first.gpus[0], ranks=[])
    nodes = [msgspec.structs.replace(first, gpus=[*first.gpus, idle]), *placement.nodes[1:]]
    cells = draw(msgspec.structs.replace(placement, nodes=nodes)).boxes[0].cells
    assert [cell.label for cell in cells] == ["0", "1", "2", "3", "idle"]


def test_ranks_of_an_unseen_node_stand_in_it_with_an_unknown_gpu() -> None:
    placement = sample_report.unknown_only().placement
    assert placement is not None
    box = draw(placement).boxes[1]
    assert not box.seen
    assert "no evidence seen" in box.note
    assert [(cell.label, cell.gpu, cell.known) for cell in box.cells] == [
        (str(rank), "GPU ?", False) for rank in range(4, 8)
    ]


def test_ranks_without_a_node_are_never_put_on_one() -> None:
    placement = sample_report.placed()
    ranks = [msgspec.structs.replace(rank, node=None, gpu=None) for rank in placement.ranks]
    drawing = draw(msgspec.structs.replace(placement, ranks=ranks, nodes=[]))
    assert [box.name for box in drawing.boxes] == ["node not known"]
    assert len(drawing.boxes[0].cells) == 8


def test_what_is_not_drawn_is_said() -> None:
    placement = sample_report.placed(tensor=8, pipeline=20)
    ranks = [msgspec.structs.replace(rank, node=None, gpu=None) for rank in placement.ranks]
    drawing = draw(msgspec.structs.replace(placement, ranks=ranks, nodes=[]))
    assert len(drawing.boxes[0].cells) == MOST_CELLS
    assert drawing.left_out == ["node not known: 88 more cells are not drawn."]


def test_nodes_that_share_a_name_do_not_double_their_ranks() -> None:
    placement = sample_report.placed(names="gpu")
    labels = [cell.label for box in draw(placement).boxes for cell in box.cells]
    assert sorted(labels, key=int) == [str(rank) for rank in range(8)]


def test_very_many_wrong_edges_are_cut_and_said_so() -> None:
    marks = [
        GroupReport(rule="PP003", severity="error", ranks=[rank, rank + 128], kind="edge")
        for rank in range(128)
    ]
    drawing = draw(marked(sample_report.placed(tensor=8, pipeline=32), *marks))
    assert len(drawing.links) == 48
    assert drawing.crowded
    assert drawing.left_out == ["80 more wrong edges have no line; their GPUs are marked."]


def test_marks_of_ranks_that_nobody_placed_are_survived() -> None:
    mark = GroupReport(rule="ID001", severity="error", ranks=[99, 100], kind="edge")
    assert draw(marked(sample_report.placed(), mark)).links == []


def test_an_empty_placement_gives_an_empty_drawing() -> None:
    placement = sample_report.placed()
    drawing = draw(msgspec.structs.replace(placement, ranks=[], nodes=[]))
    assert drawing.boxes == []
    assert drawing.width > 0
    assert drawing.height > 0


def test_any_order_of_ranks_gives_a_drawing_inside_its_frame() -> None:
    dice = random.Random(7)  # noqa: S311  a shuffle, not a secret
    for _ in range(20):
        order = list(range(64))
        dice.shuffle(order)
        drawing = draw(sample_report.placed(tensor=4, pipeline=4, data=4, size=8, order=order))
        assert inside(drawing)
        assert all(drawing.top <= arrow.y <= drawing.top + drawing.height for arrow in drawing.arrows)


def test_signs_of_wrong_edges_do_not_lie_on_each_other() -> None:
    marks = [
        GroupReport(rule="PP003", severity="error", ranks=[rank, rank + 4], kind="edge") for rank in range(4)
    ]
    marks += [GroupReport(rule="TP001", severity="error", ranks=[0, 1, 2, 3, 4, 5, 6, 7], kind="group")]
    links = draw(marked(sample_report.placed(), *marks)).links
    frames = [Rect(link.x - 33, link.y - 9, 66, 18) for link in links]
    assert len(frames) == 5
    for number, frame in enumerate(frames):
        assert not any(frame.overlaps(other) for other in frames[:number])


def in_domains(placement: PlacementReport, size: int) -> PlacementReport:
    """The placement with every so many nodes in one NVLink domain, dealt in turn."""
    count = len(placement.nodes) // size
    nodes = [
        msgspec.structs.replace(node, domain=f"rack-{node.position % count}") for node in placement.nodes
    ]
    return msgspec.structs.replace(placement, nodes=nodes)


def test_nodes_of_one_nvlink_domain_stand_together_in_a_frame() -> None:
    drawing = draw(in_domains(sample_report.placed(tensor=4, pipeline=6), 3))
    assert [box.name for box in drawing.boxes] == [f"gpu-{node:04d}" for node in (0, 2, 4, 1, 3, 5)]
    assert [label for _, label in drawing.frames] == ["domain rack-0", "domain rack-1"]
    first, second = (frame for frame, _ in drawing.frames)
    assert not first.overlaps(second)
    assert all(first.overlaps(box.frame) for box in drawing.boxes[:3])
    assert inside(drawing)


def test_nodes_below_one_switch_stand_together_where_no_domain_is_shown() -> None:
    placement = sample_report.placed(tensor=4, pipeline=6)
    nodes = [
        msgspec.structs.replace(
            node, switch=f"leaf{node.position % 2}", domain="d" if node.position > 3 else None
        )
        for node in placement.nodes
    ]
    drawing = draw(msgspec.structs.replace(placement, nodes=nodes))
    assert [label for _, label in drawing.frames] == ["switch leaf0", "switch leaf1", "domain d"]
    assert [box.name for box in drawing.boxes] == [f"gpu-{node:04d}" for node in (0, 2, 1, 3, 4, 5)]


def test_an_arrow_tells_the_devices_of_both_ends_their_rails_and_rate() -> None:
    placement = sample_report.placed()
    devices = [DeviceReport(name=f"mlx5_{number}", rate_gbps=400, rail=number) for number in range(4)]
    fast = msgspec.structs.replace(placement.shapes[0], devices=devices)
    (arrow,) = draw(msgspec.structs.replace(placement, shapes=[fast])).arrows
    assert arrow.nics == ["4\N{MULTIPLICATION SIGN}400G", "rails 0..3"]
    assert "rank 0 mlx5_0 rail 0 to rank 4 mlx5_0 rail 0 400G" in arrow.title
    (plain,) = draw(placement).arrows
    assert plain.nics == []


def test_rails_that_differ_are_said_to_differ() -> None:
    placement = sample_report.placed()
    shapes = [
        msgspec.structs.replace(
            placement.shapes[0],
            devices=[DeviceReport(name=f"mlx5_{place}", rail=rail) for place, rail in enumerate(rails)],
        )
        for rails in ((0, 1, 2, 3), (1, 2, 3, 0))
    ]
    nodes = [msgspec.structs.replace(node, shape=node.position) for node in placement.nodes]
    (arrow,) = draw(msgspec.structs.replace(placement, shapes=shapes, nodes=nodes)).arrows
    assert arrow.nics == ["rails differ"]


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ([["X", "NV18"], ["NV18", "X"]], "NV18 between all pairs"),
        ([["X", "SYS"], ["SYS", "X"]], "no NVLink"),
        ([["X", None], [None, "X"]], "links not known"),
        ([["X", "NV4", "SYS"], ["NV4", "X", "SYS"], ["SYS", "SYS", "X"]], "NVLink on 1 of 3 pairs"),
        (
            [["X", "NV4", None], ["NV4", "X", "SYS"], [None, "SYS", "X"]],
            "NVLink on 1 of 3 pairs, 1 not known",
        ),
    ],
)
def test_a_box_says_what_joins_its_gpus(links: list[list[str | None]], words: str) -> None:
    placement = sample_report.placed()
    shape = msgspec.structs.replace(placement.shapes[0], links=links)
    assert draw(msgspec.structs.replace(placement, shapes=[shape])).boxes[0].links == words


def test_cell_and_pointer_call_a_gpu_by_the_same_number() -> None:
    placement = sample_report.placed()
    gpus = [msgspec.structs.replace(gpu, uuid=None, bus=None, index=7) for gpu in placement.nodes[0].gpus]
    nodes = [msgspec.structs.replace(placement.nodes[0], gpus=gpus)]
    cell = draw(msgspec.structs.replace(placement, nodes=nodes)).boxes[0].cells[0]
    assert cell.gpu == "GPU 7"
    assert cell.title.endswith("GPU 7")
