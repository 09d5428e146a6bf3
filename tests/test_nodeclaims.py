"""Node ranks that launchers and engines give: places of nodes, and ranks where the engine goes by them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from build import FOUR, answer, comm, inventory, log, placed, report, snap, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from stating import launch, said

from topocheck.nodeclaims import follows, in_force, numberings
from topocheck.snapshot import FullSnapshot, JobFact, NodeClaim

SGLANG = "engine: sglang\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\n"
VLLM = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\n"
MEGATRON = "engine: megatron\nparallel: {tensor: 4, pipeline: 2, data: 1}\nnodes: 2\n"
NAMED = SGLANG.replace("nodes: 2", "nodes: [node-a, node-b]")
COMMAND = launch(("engine", "", "vllm"), ("unresolved", "--node-rank", "$LWS_WORKER_INDEX"), engine="vllm")


def pod(name: str, index: int, *, family: str = "lws", world: str = "serve-0", **parts: Any) -> FullSnapshot:
    """A healthy node whose launcher gives it an index."""
    claim = NodeClaim(node_rank=index, nodes=2, family=family, world=world)
    return msgspec.structs.replace(snap(name, **parts), node_claim=claim)


def exchanged(**parts: Any) -> list[FullSnapshot]:
    """Two pods whose indexes are not in the order of their names."""
    return [pod("node-a", 1, **parts), pod("node-b", 0, **parts)]


# places


@pytest.mark.parametrize("text", [SGLANG, VLLM, MEGATRON])
def test_a_node_claim_binds_a_node_to_its_place(text: str) -> None:
    nodes = placed(text, *exchanged()).nodes
    assert [(node.name, node.bound_by) for node in nodes] == [
        ("node-b", "node rank"),
        ("node-a", "node rank"),
    ]


def test_names_in_the_plan_go_before_node_claims() -> None:
    nodes = placed(NAMED, *exchanged()).nodes
    assert [(node.name, node.bound_by) for node in nodes] == [("node-a", "name"), ("node-b", "name")]


def test_ranks_that_were_seen_go_before_the_index_of_a_pod() -> None:
    seen = [log("node-a", comm("0x1", range(4))), log("node-b", comm("0x1", range(4, 8), host="node-b"))]
    nodes = placed(VLLM, *exchanged(), *seen).nodes
    assert [(node.name, node.bound_by) for node in nodes] == [
        ("node-a", "ranks seen"),
        ("node-b", "ranks seen"),
    ]


@pytest.mark.parametrize(
    "views",
    [
        [pod("node-a", 0), pod("node-b", 0)],
        [pod("node-a", 0), pod("node-b", 2)],
        [pod("node-a", 0), pod("node-b", 1, world="serve-1")],
        [pod("node-a", 0), pod("node-b", 1, family="slurm", world="")],
        [pod("node-a", 0), pod("node-a", 1), pod("node-b", 2)],
    ],
    ids=["twice", "beyond", "two groups", "two families", "pods of one host"],
)
def test_numbers_at_odds_tell_no_places_and_no_ranks(views: list[FullSnapshot]) -> None:
    placement = placed(SGLANG, *views)
    assert {node.bound_by for node in placement.nodes} <= {"assumed", "none"}
    assert placement.phase == "predicted"


def test_agents_that_find_their_order_themselves_are_not_bound_by_node_rank() -> None:
    def agents(backend: str) -> str:
        kind = {"family": "torchrun", "world": "", "environment": {"PET_RDZV_BACKEND": backend}}
        return placed(MEGATRON, *exchanged(**kind)).nodes[0].bound_by

    assert agents("static") == "node rank"
    assert agents("c10d") == "assumed"


def test_rank_without_local_rank_numbers_no_nodes() -> None:
    assert numberings(inventory(*exchanged(family="script", world="")), "megatron") == []


# ranks


def test_sglangs_ranks_follow_from_the_node_ranks_and_are_claimed() -> None:
    found = report(SGLANG, *exchanged(), whole=True)
    assert found.phase == "claimed"
    assert found.placement is not None
    first = found.placement.ranks[0].sources["claimed"]
    assert (first.node, first.source) == (
        "node-b",
        "SGLang's formula, node rank 0 by LeaderWorkerSet serve-0",
    )
    words = "ranks by SGLang's formula from the node rank that each node claims (LeaderWorkerSet serve-0)"
    assert any(words in one for one in found.assumptions)
    assert not any("nothing claims or shows them yet" in one for one in found.assumptions)
    for rule in ("ID001", "ID002", "ID003", "ID004", "ID010", "TP001", "TP002"):
        assert (rule, answer(found, rule).verdict) == (rule, "pass")
        assert (rule, answer(found, rule).basis) == (rule, "claimed")
    assert answer(found, "ID006").verdict == "not-applicable"
    assert answer(found, "ID007").verdict == "pass"


def test_ranks_that_follow_against_the_names_of_the_plan_are_on_other_nodes() -> None:
    found = report(NAMED, *exchanged())
    assert "ranks 0..3 are on node-b, not node-a" in text_of(answer(found, "ID010"))
    assert "SGLang's formula, node rank 0" in text_of(answer(found, "ID010"))


def test_nodes_without_a_claim_leave_their_ranks_open() -> None:
    placement = placed(SGLANG, pod("node-a", 1), snap("node-b"))
    assert placement.phase == "claimed"
    assert placement.unplaced == [0, 1, 2, 3]
    found = report(SGLANG, pod("node-a", 1), snap("node-b"))
    assert answer(found, "TP001").verdict == "unknown"
    assert answer(found, "ID001").findings == []


def test_vllm_needs_its_mp_executor_and_megatron_takes_no_ranks_from_nodes() -> None:
    assert placed(VLLM, *exchanged()).phase == "predicted"
    assert placed(VLLM, *exchanged(), COMMAND).phase == "claimed"
    assert placed(MEGATRON, *exchanged()).phase == "predicted"


def option(name: str, value: str, engine: str) -> JobFact:
    return JobFact(kind="option", name=name, value=value, engine=engine)


def test_ray_has_an_order_of_its_own() -> None:
    told = JobFact(kind="node-rank", value="1", engine="vllm")
    backend = "--distributed-executor-backend"
    assert follows("vllm", [told])
    assert follows("vllm", [option(backend, "mp", "vllm")])
    assert not follows("vllm", [told, option(backend, "ray", "vllm")])
    assert not follows("vllm", [option(backend, "mp", "vllm"), option(backend, "ray", "vllm")])
    assert follows("sglang", [])
    assert not follows("sglang", [option("--use-ray", "true", "sglang")])
    assert not follows("megatron", [told])


def test_claims_of_processes_go_before_what_follows_from_nodes() -> None:
    views = [pod("node-a", 1, ranks=range(4)), pod("node-b", 0, ranks=range(4, 8))]
    placement = placed(SGLANG, *views)
    assert placement.facts.by_node_rank == ""
    assert placement.placed.node[0] == placement.nodes.index(
        next(node for node in placement.nodes if node.name == "node-a")
    )


@pytest.mark.parametrize(
    ("devices", "gpu"),
    [(None, 0), ("3,2,1,0", 3), ("GPU-1,GPU-2", None), ("", None), ("9", None)],
)
def test_the_gpu_follows_from_the_devices_that_are_visible(devices: str | None, gpu: int | None) -> None:
    shown = {"NCCL_DEBUG": "INFO"} | ({} if devices is None else {"CUDA_VISIBLE_DEVICES": devices})
    column = placed(SGLANG, *exchanged(environment=shown)).placed
    assert column.gpu[0] == gpu


def test_an_engines_own_node_rank_goes_before_the_index_of_the_pod() -> None:
    logs = [
        said(("node-rank", "", f"{rank}"), source=f"{name}.log", engine="sglang", host=name)
        for rank, name in enumerate(("node-a", "node-b"))
    ]
    placement = placed(SGLANG, *exchanged(), *logs)
    assert [node.name for node in placement.nodes] == ["node-a", "node-b"]
    assert (
        placement.placed.at[4].source == "SGLang's formula, node rank 1 by SGLang's --node-rank, node-b.log:1"
    )


def test_ranks_seen_against_the_engines_own_node_rank_are_on_other_nodes() -> None:
    logs = [
        said(("node-rank", "", f"{rank}"), source=f"{name}.log", engine="vllm", host=name)
        for rank, name in enumerate(("node-b", "node-a"))
    ]
    seen = [log("node-a", comm("0x1", range(4))), log("node-b", comm("0x1", range(4, 8), host="node-b"))]
    found = report(VLLM, snap("node-a"), snap("node-b"), *seen, *logs)
    assert "ranks 0..3 are on node-a, not node-b" in text_of(answer(found, "ID010"))


def test_a_job_of_one_node_has_one_place() -> None:
    assert placed(FOUR, pod("node-a", 0)).nodes[0].bound_by == "name"


# ID007


def rule(*views: FullSnapshot, text: str = SGLANG) -> Any:
    return answer(report(text, *views), "ID007")


def test_two_pods_of_one_group_with_one_index_are_told() -> None:
    found = rule(pod("node-a", 0), pod("node-b", 0))
    assert "node rank 0 is on node-a, node-b" in text_of(found)
    assert "LeaderWorkerSet serve-0" in text_of(found)
    assert rule(pod("node-a", 0), pod("node-b", 1)).verdict == "pass"


def test_one_index_in_two_groups_is_no_clash() -> None:
    assert rule(pod("node-a", 0), pod("node-b", 0, world="serve-1")).findings == []


@pytest.mark.parametrize("family", ["indexed_job", "jobset", "lws"])
def test_one_index_in_groups_that_nobody_names_is_unknown(family: str) -> None:
    found = rule(pod("node-a", 0, family=family, world=""), pod("node-b", 0, family=family, world=""))
    assert (found.verdict, found.findings) == ("unknown", [])


@pytest.mark.parametrize("family", ["torchrun", "slurm", "kubeflow_trainer"])
def test_one_node_rank_that_people_set_is_a_clash_without_a_group(family: str) -> None:
    found = rule(pod("node-a", 0, family=family, world=""), pod("node-b", 0, family=family, world=""))
    assert found.verdict == "fail"


def test_an_index_beyond_the_nodes_is_told_unless_pods_share_a_host() -> None:
    assert "node ranks 2 exist and the plan has 2 nodes" in text_of(rule(pod("node-a", 0), pod("node-b", 2)))
    shared = [pod("node-a", 0), pod("node-a", 1), pod("node-b", 2), pod("node-b", 3)]
    assert rule(*shared).findings == []


def test_a_node_without_an_index_is_unknown() -> None:
    assert rule(pod("node-a", 0), snap("node-b")).verdict == "unknown"


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["", "g0", "g1"])), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_any_claims_give_places_inside_the_plan_and_each_once(claims: list[tuple[int, str]]) -> None:
    views = [pod(f"n{place}", index, world=world) for place, (index, world) in enumerate(claims)]
    found = inventory(*views)
    numbering = in_force(found, "sglang", 4)
    if numbering is not None:
        assert sorted(set(numbering.settled)) == sorted(index for index, _ in claims)
        assert max(numbering.settled) < 4
    placement = placed(SGLANG.replace("pipeline: 2", "pipeline: 4").replace("nodes: 2", "nodes: 4"), *views)
    assert sorted(node.index for node in placement.nodes) == list(range(len(placement.nodes)))
