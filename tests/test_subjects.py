"""What rules are asked over."""

from __future__ import annotations

import msgspec
from build import A40, FOUR, L40S, TWO, full, gpus, log, pair, placed, plan, running, snap
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.rule import NotApplicable, situations
from topocheck.snapshot import Coverage, Host, Identity
from topocheck.stagepairs import stage_boundaries, stage_pairs
from topocheck.subjects import (
    crossings,
    every_rank_told,
    loads,
    replica_of,
    tensor_groups,
    without_nvlink,
)

MANY = "engine: vllm\nparallel: {tensor: 4, pipeline: 10}\nnodes: 10\n"
DATA = "engine: vllm\nparallel: {tensor: 2, pipeline: 2, data: 2}\nnodes: 2\n"


def cluster(count: int = 10) -> list[object]:
    return [snap(f"n{n}", range(4 * n, 4 * n + 4), size=40) for n in range(count)]


def test_equal_situations_are_one() -> None:
    found = placed(MANY, *cluster())  # type: ignore[arg-type]
    groups = tensor_groups(found)
    assert not isinstance(groups, NotApplicable)
    assert [len(members) for members in groups.values()] == [10]
    assert [len(members) for members in loads(found).values()] == [10]


def test_a_node_that_numbers_its_gpus_otherwise_is_another_situation() -> None:
    turned = Identity(host=Host(name="node-b", boot_id="b"), gpus=gpus("node-b")[::-1])
    found = placed(TWO, snap("node-a"), snap("node-b", identity=turned))
    groups = tensor_groups(found)
    assert not isinstance(groups, NotApplicable)
    assert len(groups) == 2
    assert len(loads(found)) == 2


def test_groups_on_several_nodes_or_on_unknown_hardware_stand_alone() -> None:
    wide = placed("engine: vllm\nparallel: {tensor: 8}\nnodes: 2\n", *pair())
    assert len(tensor_groups(wide)) == 1  # type: ignore[arg-type]
    bare = placed(TWO, *running())
    assert len(tensor_groups(bare)) == 2  # type: ignore[arg-type]


def test_ranks_without_a_node_are_one_situation() -> None:
    found = placed(MANY, log("n0"))
    assert [str(key) for key in tensor_groups(placed(MANY.replace("10\n", "7\n"), log("n0")))] == ["unplaced"]  # type: ignore[union-attr]
    bare = loads(placed(MANY.replace("nodes: 10", "nodes: 7")))
    assert list(bare) == ["unplaced"]
    assert found.unplaced == []


def test_one_stage_has_no_boundary_and_stages_in_one_node_have_none_between_nodes() -> None:
    assert isinstance(stage_boundaries(placed(FOUR)), NotApplicable)
    inside = placed("engine: vllm\nparallel: {tensor: 2, pipeline: 2}\nnodes: 1\n", snap())
    assert stage_boundaries(inside) == NotApplicable("neighbouring stages share their node everywhere")


def test_boundaries_are_pairs_of_nodes_with_a_pair_of_ranks() -> None:
    found = stage_boundaries(placed(TWO, *pair()))
    assert [str(boundary) for members in found.values() for boundary in members] == [  # type: ignore[union-attr]
        "node-a - node-b (rank 0 -> 4)"
    ]


def test_a_boundary_whose_node_is_not_known_is_asked_all_the_same() -> None:
    found = stage_boundaries(placed(MANY, *cluster(3)))  # type: ignore[arg-type]
    assert not isinstance(found, NotApplicable)
    assert [str(members[0]) for members in found.values()] == [
        "n0 - n1 (rank 0 -> 4)",
        "n1 - n2 (rank 4 -> 8)",
        "boundaries of ranks 12..39",
    ]
    alone = stage_boundaries(placed(TWO, snap("node-a", range(4))))
    assert [str(members[0]) for members in alone.values()] == ["boundaries of ranks 4..7"]  # type: ignore[union-attr]


def test_groups_of_every_kind_make_nodes_talk() -> None:
    apart = placed(DATA.replace("vllm", "megatron"))
    assert not isinstance(crossings(apart), NotApplicable)
    assert isinstance(crossings(placed("engine: vllm\nnodes: 1\n")), NotApplicable)
    assert crossings(placed(FOUR)) == NotApplicable("no group crosses nodes")


def test_a_replica_is_what_differs_along_the_axes_outside_one_copy() -> None:
    found = placed(DATA)
    assert [replica_of(found, rank) for rank in range(8)] == [0] * 4 + [1] * 4


def test_a_rank_is_missing_only_if_every_node_told_all_of_them() -> None:
    assert every_rank_told(placed(TWO, *pair()))
    assert not every_rank_told(placed(TWO, snap("node-a", range(4))))
    assert not every_rank_told(placed(TWO, snap("node-a", range(4)), snap("node-b", [4], coverage=full())))
    assert not every_rank_told(placed(TWO, *pair(), log(None, ranks=pair()[0].ranks)))
    assert not every_rank_told(placed(TWO, *running()))
    whole = [msgspec.structs.replace(view, coverage=Coverage(observed="all")) for view in running()]
    assert every_rank_told(placed(TWO, *whole))


def test_before_the_launch_no_rank_is_missing() -> None:
    looked = [snap(name, coverage=full(ranks="all", observed="all")) for name in ("node-a", "node-b")]
    assert not every_rank_told(placed(TWO, *looked))


def test_no_nvlink_is_proven_by_the_models_of_all_nodes() -> None:
    both = [snap(name, model=L40S) for name in ("node-a", "node-b")]
    assert without_nvlink(placed(TWO, *both)) == NotApplicable("NVIDIA L40S has no NVLink")
    assert without_nvlink(placed(TWO, both[0])) is None
    assert without_nvlink(placed(TWO, both[0], snap("node-b", model=A40))) is None
    assert without_nvlink(placed(TWO, both[0], snap("node-b", count=0))) is None
    assert without_nvlink(placed(TWO)) is None


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.sets(st.integers(0, 47)))
@settings(max_examples=60, deadline=None)
def test_every_rank_is_in_one_group_and_one_load(
    tensor: int, pipeline: int, nodes: int, seen: set[int]
) -> None:
    world = tensor * pipeline * nodes
    text = (
        f"engine: vllm\nparallel: {{tensor: {tensor}, pipeline: {pipeline}, data: {nodes}}}\nnodes: {nodes}\n"
    )
    views = [snap(f"n{n}", [r for r in seen if r % nodes == n and r < world][:4]) for n in range(nodes)]
    found = placed(plan(text), *views)
    told = sorted(rank for members in loads(found).values() for load in members for rank in load.ranks)
    assert told == list(range(world))
    groups = tensor_groups(found)
    if not isinstance(groups, NotApplicable):
        ranks = sorted(rank for members in groups.values() for group in members for rank in group.ranks)
        assert ranks == list(range(world))


def test_subjects_of_one_situation_are_made_where_they_are_looked_at() -> None:
    made: list[int] = []

    def make(number: int) -> str:
        made.append(number)
        return f"subject {number}"

    found = situations(["even", "odd", "even"], make, [4, 7, 8], range(9))
    assert list(found) == ["even", "odd"]
    assert [len(alike) for alike in found.values()] == [2, 1]
    assert made == []
    assert found["even"][0] == "subject 4"
    assert list(found["even"][1:]) == ["subject 8"]
    assert made == [4, 8]


def test_stage_pairs_share_equal_gpus_and_have_their_ranks_in_runs_where_they_follow_each_other() -> None:
    found = stage_pairs(placed(MANY, *cluster()))  # type: ignore[arg-type]
    assert [(pair.a, pair.b, pair.ranks) for pair in found[:2]] == [(0, 1, range(4)), (1, 2, range(4, 8))]
    assert found[0].lower is found[1].lower is found[0].upper


def test_ranks_that_go_to_and_fro_between_two_nodes_are_one_pair() -> None:
    turned = [snap("node-a", [0, 2, 4, 6]), snap("node-b", [1, 3, 5, 7])]
    found = stage_pairs(placed("engine: vllm\nparallel: {tensor: 1, pipeline: 8}\nnodes: 2\n", *turned))
    assert [(pair.a, pair.b, list(pair.ranks)) for pair in found] == [(0, 1, [0, 2, 4, 6]), (1, 0, [1, 3, 5])]
