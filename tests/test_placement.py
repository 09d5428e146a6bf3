"""Plan and snapshots joined."""

from __future__ import annotations

import pytest
from build import (
    FOUR,
    GB200,
    RING,
    TWO,
    claims,
    comm,
    edge,
    full,
    gpus,
    log,
    pair,
    placed,
    plan,
    running,
    snap,
)

from topocheck.errors import LayoutError
from topocheck.snapshot import FullSnapshot, GpuId, Host, Identity

SEVEN = "engine: vllm\nparallel: {pipeline: 7}\nnodes: 2\n"


@pytest.mark.parametrize(
    ("views", "phase"),
    [
        ([], "predicted"),
        ([snap("node-a"), snap("node-b")], "predicted"),
        (pair(), "claimed"),
        (running(), "observed"),
        ([*pair(), log("node-b", edges=[edge(0, 1, "P2P/IPC", comm=None)])], "observed"),
        ([snap(), log(None, ranks=claims([0]))], "claimed"),
        ([snap(), log(None, comm(RING, [0]))], "observed"),
    ],
)
def test_the_phase_is_the_strongest_kind_of_evidence_that_exists_anywhere(
    views: list[FullSnapshot], phase: str
) -> None:
    assert placed(TWO, *views).phase == phase


def test_the_columns_stand_side_by_side_and_are_never_mixed() -> None:
    found = placed(TWO, *pair(), log("node-a", comm(RING, [0, 1])))
    assert found.columns["predicted"].node == [0] * 4 + [1] * 4
    assert found.columns["claimed"].node == [0] * 4 + [1] * 4
    assert found.columns["observed"].node == [0, 0] + [None] * 6
    assert found.placed is found.columns["observed"]
    assert found.unplaced == [2, 3, 4, 5, 6, 7]
    assert found.ranks_on == {0: [0, 1]}


def test_nodes_are_the_plans_places_then_hosts_with_ranks_that_have_none() -> None:
    found = placed(TWO, *pair(), snap("node-z", [8]), snap("spare"))
    assert [(node.name, node.bound_by) for node in found.nodes] == [
        ("node-a", "name"),
        ("node-b", "name"),
        ("node-z", "not in the plan"),
    ]
    assert (found.expected, found.unused) == (2, ("spare",))


def test_a_place_without_evidence_keeps_its_name() -> None:
    nodes = placed(TWO, snap("node-b")).nodes
    assert [(node.name, node.bound_by, node.machine is None) for node in nodes] == [
        ("node-a", "none", True),
        ("node-b", "name", False),
    ]
    assert [node.name for node in placed(plan(nodes=2)).nodes] == ["node 0", "node 1"]


def test_text_without_a_host_stands_for_the_only_node_and_for_none_of_several() -> None:
    bare = snap(None, boot=None, identity=Identity(host=Host(), gpus=gpus()))
    assert placed(FOUR.replace("[node-a]", "1"), bare).nodes[0].shape
    named = placed(FOUR, bare).nodes[0]
    assert (named.name, named.bound_by, named.shape is not None) == ("node-a", "name", True)
    beside = placed(FOUR, bare, snap("other"))
    assert beside.nodes[0].shape
    assert beside.unused == ("other",)
    assert all(node.machine is None for node in placed(TWO, bare).nodes)


def test_ranks_that_do_not_divide_over_the_nodes_are_predicted_nowhere() -> None:
    found = placed(SEVEN)
    assert found.phase == "predicted"
    assert found.placed.empty
    assert found.unplaced == list(range(7))


def test_sizes_that_the_engine_refuses_are_an_error_of_the_plan() -> None:
    with pytest.raises(LayoutError):
        placed("engine: vllm\nparallel: {tensor: 2, expert: 3}\nnodes: 1\n")


def test_there_is_a_reading_for_each_order_of_nodes_that_the_evidence_allows() -> None:
    found = placed(plan(nodes=2), snap("node-a"), snap("node-b", count=3))
    names = [[node.name for node in each.nodes] for each in found.variants()]
    assert names == [["node-a", "node-b"], ["node-b", "node-a"]]
    assert len(placed(TWO, snap("node-a"), snap("node-b", count=3)).variants()) == 1


def test_what_was_assumed_is_said() -> None:
    words = " ".join(placed(plan(nodes=2), snap("node-a"), snap("node-b")).assumptions)
    assert "CUDA_VISIBLE_DEVICES" in words
    assert "order of the nodes" in words
    assert placed(TWO, *running()).assumptions == []


def test_a_node_knows_the_models_of_all_its_gpus_or_says_that_it_does_not() -> None:
    def models(*views: FullSnapshot) -> frozenset[str | None]:
        return placed(FOUR, *views).nodes[0].models

    assert models(snap()) == {"NVIDIA H100 80GB HBM3"}
    assert models(snap(model=None)) == {None}
    assert models() == {None}
    shown = Identity(host=Host(name="node-a"), gpus=tuple(GpuId(nvml=n, model=GB200) for n in range(4)))
    assert models(log("node-a", identity=shown)) == {GB200}
    assert models(log("node-a", identity=shown, count=4), snap(model=None)) == {GB200}
    assert models(snap(models=[GB200, None, GB200, GB200])) == {GB200, None}


def test_nodes_of_one_kind_have_one_hardware_and_one_numbering() -> None:
    turned = Identity(host=Host(name="node-b", boot_id="b"), gpus=gpus("node-b")[::-1])
    kinds = [
        placed(TWO, *views).nodes
        for views in ([snap("node-a"), snap("node-b")], [snap(), snap("node-b", identity=turned)])
    ]
    assert kinds[0][0].kind == kinds[0][1].kind
    assert kinds[1][0].kind != kinds[1][1].kind
    part = placed(TWO, snap("node-a"), snap("node-b", coverage=full(gpus="part"))).nodes
    assert part[0].kind != part[1].kind
    assert placed(TWO).nodes[0].kind is None


def test_what_is_derived_is_derived_once() -> None:
    found, made = placed(TWO), []
    for _ in range(3):
        found.keep("thing", lambda _: made.append(1))
    assert made == [1]


def test_statements_of_logs_are_sorted_by_node() -> None:
    found = placed(TWO, *running())
    assert sorted(found.facts_by_node) == [0, 1]
    assert {fact.kind for fact in found.facts_by_node[1]} == {"hca", "network"}
