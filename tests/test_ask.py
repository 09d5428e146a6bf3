"""How a rule gets facts, and how what is missing is noted."""

from __future__ import annotations

from build import TWO, full, gpus, log, pair, placed, running, snap

from topocheck.ask import Ask, Device
from topocheck.snapshot import FullSnapshot, Host, Identity, PeerAccess


def ask(*views: FullSnapshot) -> Ask:
    return Ask(placed(TWO, *views))


def needs(asked: Ask) -> list[tuple[str, tuple[str, ...]]]:
    return [(gap.need, gap.about) for gap in asked.gaps]


def test_what_is_known_leaves_no_gap() -> None:
    asked = ask(*pair())
    a, b = asked.device(0), asked.device(1)
    assert a
    assert b
    assert str(asked.node(4)) == "node-b"
    assert str(asked.link(a, b)) == "NV18"
    assert asked.peer(a, b) == "OK"
    assert asked.gpu_count(a.node) == 4
    assert (asked.gaps, asked.basis) == ([], "claimed")
    assert asked.asked >= 5


def test_a_rank_without_a_node_is_none_and_all_of_them_are_one_gap() -> None:
    asked = ask(snap("node-a", range(4)))
    assert asked.node(6) is None
    assert asked.device(5) is None
    assert list(asked.nodes(range(8))) == [0, 1, 2, 3]
    assert list(asked.devices(range(8))) == [0, 1, 2, 3]
    assert set(needs(asked)) == {("which node and GPU a rank is on", ("ranks 4..7",))}


def test_a_rank_without_a_gpu_is_told_apart_from_one_without_a_node() -> None:
    known = snap("node-a", range(4))
    views = [log("node-a", ranks=tuple(type(c)(rank=c.rank) if c.rank < 2 else c for c in known.ranks))]
    asked = ask(*views)
    assert list(asked.devices(range(8))) == [2, 3]
    assert needs(asked) == [("which node and GPU a rank is on", ("ranks 0, 1", "ranks 4..7"))]


def test_what_would_help_hangs_on_the_phase() -> None:
    for views, word in (([snap("node-a", range(4))], "probe"), (running()[:1], "NCCL_DEBUG")):
        asked = ask(*views)
        asked.node(7)
        assert word in asked.gaps[0].supply


def test_a_predicted_index_is_resolved_by_nvml_order() -> None:
    turned = Identity(host=Host(name="node-a", boot_id="b"), gpus=gpus("node-a")[::-1])
    asked = ask(snap("node-a", identity=turned), snap("node-b"))
    device = asked.device(0)
    assert device
    assert (device.ordinal, device.index, asked.basis) == (3, 0, "predicted")
    assert str(device.node.gpu_name(3)) in str(device)


def test_a_predicted_index_that_no_gpu_has_is_a_gap() -> None:
    asked = ask(snap("node-a", count=2), snap("node-b", count=2, coverage=full(gpus="part")))
    assert asked.device(3) is None
    assert asked.device(7) is None
    assert [(gap.need, gap.about, gap.because) for gap in asked.gaps] == [
        ("GPU 3", ("node-a",), "ID015"),
        ("the list of GPUs", ("node-b",), None),
    ]


def test_a_link_that_nothing_shows_is_a_gap() -> None:
    asked = ask(*running())
    a, b = asked.device(0), asked.device(1)
    assert a
    assert b
    assert asked.link(a, b) is None
    assert asked.link(a, Device(a.node, 99)) is None
    assert asked.peer(a, b) is None
    assert {gap.part for gap in asked.gaps} == {"links", "peers"}


def peers(*shown: PeerAccess) -> Ask:
    view = snap("node-a", range(4))
    hardware = type(view.hardware)(gpus=view.hardware.gpus, peers=shown)
    return ask(snap("node-a", range(4), hardware=hardware))


def test_peer_access_needs_both_directions_and_a_refusal_only_one() -> None:
    one_way = peers(PeerAccess(a=0, b=1, status="OK"))
    a, b = one_way.device(0), one_way.device(1)
    assert a
    assert b
    assert one_way.peer(a, b) is None
    assert one_way.gaps
    refused = peers(PeerAccess(a=1, b=0, status="NS"))
    a, b = refused.device(0), refused.device(1)
    assert a
    assert b
    assert (refused.peer(a, b), refused.gaps) == ("NS", [])


def test_the_weakest_basis_counts() -> None:
    asked = ask(*pair())
    asked.rest_on("observed")
    asked.rest_on("predicted")
    asked.rest_on("claimed")
    assert asked.basis == "predicted"


def test_a_list_that_is_not_whole_has_no_number() -> None:
    asked = ask(snap("node-a", coverage=full(gpus="part")))
    assert asked.gpu_count(asked.placement.nodes[0]) is None
    assert asked.gpu_count(asked.placement.nodes[1]) is None
    assert [gap.about for gap in asked.gaps] == [("node-a",), ("node-b",)]
