"""Nodes that show the same are one kind, and nothing that a rule sees is lost by that."""

from __future__ import annotations

import msgspec
import pytest
from build import TWO, fact, log, pair, placed, snap

from topocheck.kinds import by_kind, kinds
from topocheck.snapshot import (
    Clock,
    FullSnapshot,
    GpuState,
    Limits,
    Process,
    Software,
    State,
    Verbs,
)

PLAN = "engine: vllm\nparallel: {tensor: 4, pipeline: 4}\nnodes: 4\n"
NAMES = ("node-a", "node-b", "node-c", "node-d")


def nodes(odd: FullSnapshot | None = None) -> list[FullSnapshot]:
    """Four equal nodes; the third may be another."""
    made = [snap(name, range(4 * n, 4 * n + 4), size=16) for n, name in enumerate(NAMES)]
    return made if odd is None else [*made[:2], odd, made[3]]


def names(*views: FullSnapshot) -> list[list[str]]:
    return [[node.name for node in members] for members in kinds(placed(PLAN, *views))]


def third(**parts: object) -> FullSnapshot:
    return msgspec.structs.replace(nodes()[2], **parts)


def test_equal_nodes_are_one_kind_whatever_their_identity() -> None:
    assert names(*nodes()) == [list(NAMES)]


@pytest.mark.parametrize(
    "odd",
    [
        third(software=Software(driver="550.1")),
        third(limits=Limits(scope="task", memlock_bytes=65536)),
        third(verbs=Verbs(scope="task", library=False)),
        third(environment={"NCCL_P2P_DISABLE": "1"}),
        third(state=State(clock=Clock(synchronised=False))),
        third(state=State(gpus=(GpuState(gpu=0, processes=(Process(pid=4),)),))),
        third(ranks=()),
        snap("node-c", range(8, 12), size=16, count=3),
        snap("node-c", range(8, 12), size=16, nvlinks=[18, 18, 12, 18]),
        log("node-c", facts=[fact("hca", "mlx5_0:1/IB", host="node-c")]),
    ],
)
def test_a_node_that_shows_something_else_is_a_kind_of_its_own(odd: FullSnapshot) -> None:
    found = names(*nodes(odd))
    assert ["node-c"] in found
    assert sum(map(len, found)) == 4


def test_pods_that_differ_by_their_containers_id_alone_are_one_kind() -> None:
    views = [
        msgspec.structs.replace(
            view, limits=Limits(scope="container", memlock_bytes=-1, container=f"{n}" * 64)
        )
        for n, view in enumerate(nodes())
    ]
    assert names(*views) == [list(NAMES)]


def test_nodes_that_nobody_saw_are_one_kind() -> None:
    assert names(nodes()[0]) == [["node-a"], ["node 1", "node 2", "node 3"]]


def test_a_key_is_asked_once_for_each_kind_and_its_nodes_stand_in_order() -> None:
    asked = []

    def key(node: object) -> int:
        asked.append(node)
        return 0

    view = third(software=Software(driver="550.1"))
    found = by_kind(placed(PLAN, *nodes(view)), key)
    assert len(asked) == 2
    assert [node.name for node in found[0]] == list(NAMES)


def test_kinds_of_one_placement_are_sorted_once() -> None:
    placement = placed(TWO, *pair())
    assert kinds(placement) is kinds(placement)


def test_models_that_only_lists_show_tell_equal_shapes_apart() -> None:
    views = []
    for name, model in zip(NAMES, ("NVIDIA L40S", "NVIDIA L40S", "NVIDIA A40", "NVIDIA L40S"), strict=True):
        view = snap(name, count=4, model=None)
        gpus = tuple(msgspec.structs.replace(gpu, model=model) for gpu in view.identity.gpus)
        views.append(
            msgspec.structs.replace(view, identity=msgspec.structs.replace(view.identity, gpus=gpus))
        )
    assert names(*views) == [["node-a", "node-b", "node-d"], ["node-c"]]
    whole = placed(PLAN, *views).nodes
    assert whole[0].kind == whole[1].kind != whole[2].kind
