"""Which data replicas are worlds of their own: by the plan, else by the evidence, else it is assumed."""

from __future__ import annotations

import msgspec
import pytest
from build import comm, inventory, log, plan, snap
from made_worlds import carrier, of, replica_log

from topocheck.inventory import Inventory
from topocheck.replicas import Part, parts_of
from topocheck.snapshot import FullSnapshot, JobFact

OPEN = "engine: vllm\nparallel: {tensor: 4, data: 2}\nnodes: [node-a]\n"
"""It does not say whether the model is dense."""
DENSE = OPEN + "model: {layers: 32}\n"


def names(text: str, *snapshots: FullSnapshot) -> list[str]:
    return [part.name for part in parts_of(plan(text), inventory(*snapshots))[0]]


def stating(kind: str, name: str, value: str) -> FullSnapshot:
    fact = JobFact(kind=kind, name=name, value=value, engine="vllm")
    return msgspec.structs.replace(log("node-a"), job=(fact,), observed=None)


def test_a_dense_model_makes_a_world_of_each_replica() -> None:
    parts, assumed = parts_of(plan(DENSE), Inventory())
    assert [(part.name, part.replica, part.first_gpus) for part in parts] == [
        ("dp0", 0, ()),
        ("dp1", 1, (4,)),
    ]
    assert all(part.plan.parallel.data is None and part.plan.nodes == ("node-a",) for part in parts)
    assert assumed == []


@pytest.mark.parametrize(
    "text",
    [
        DENSE.replace("layers: 32", "experts: 64"),
        OPEN.replace("data: 2", "data: 2, expert: 8"),
        DENSE + "engine_version: 0.11.2\n",
        "engine: megatron\nparallel: {tensor: 4, data: 2}\nnodes: 1\n",
        "engine: vllm\nparallel: {tensor: 4}\nnodes: 1\n",
    ],
    ids=["experts", "expert parallel", "old vLLM", "Megatron", "no replicas"],
)
def test_one_world_stays_one(text: str) -> None:
    assert parts_of(plan(text), Inventory()) == ([Part("", plan(text))], [])


def test_what_nothing_tells_is_assumed_and_said() -> None:
    parts, assumed = parts_of(plan(OPEN), Inventory())
    assert [part.name for part in parts] == [""]
    assert "one world, as those of a mixture of experts are" in assumed[0]


def test_claims_tell() -> None:
    assert names(OPEN, carrier("node-a", of("", range(8), 8))) == [""]
    assert names(OPEN, carrier("node-a", of("", range(4), 4), of("", range(4), 4, first=4))) == ["dp0", "dp1"]
    assert names(OPEN, carrier("node-a", of("dp0", range(4), 4))) == ["dp0", "dp1"]
    assert names(OPEN, carrier("node-a", of("dp1", range(4, 8), None))) == [""], "ranks past one replica"


def test_communicators_tell() -> None:
    assert names(OPEN, replica_log("node-a", 0, 4)) == ["dp0", "dp1"]
    whole = log("node-a", comm("0xa", range(8), size=8), count=8)
    assert names(OPEN, whole) == [""]
    assert names(OPEN, whole, replica_log("node-a", 0, 4)) == [""], "groups of one world are smaller than it"


def test_statements_of_the_engine_tell() -> None:
    assert names(OPEN, stating("world", "", "4")) == ["dp0", "dp1"]
    assert names(OPEN, stating("world", "", "8")) == [""]
    assert names(OPEN, stating("rank-coordinate", "data", "1")) == [""], "workers of a dense model bear none"
    assert names(OPEN, stating("world", "", "9" * 40)) == [""]


def test_evidence_goes_before_the_model_of_the_plan() -> None:
    assert names(DENSE, log("node-a", comm("0xa", range(8), size=8), count=8)) == [""]


def test_sglang_replicates_on_one_node_only() -> None:
    text = "engine: sglang\nparallel: {tensor: 2, data: 4}\nnodes: 1\n"
    assert names(text) == ["dp0", "dp1", "dp2", "dp3"]
    assert names(text.replace("nodes: 1", "nodes: 2")) == [""], "it refuses that"


def test_replicas_that_the_nodes_do_not_divide_stay_one_world() -> None:
    assert names(DENSE.replace("[node-a]", "3")) == [""], "vLLM refuses it, in its own words"


def test_a_declared_world_has_replicas_of_its_own() -> None:
    text = """engine: vllm
model: {layers: 32}
worlds:
  prefill: {parallel: {tensor: 2}, nodes: [node-a]}
  decode: {parallel: {tensor: 2, data: 2}, nodes: [node-a]}
"""
    parts, _ = parts_of(plan(text), Inventory())
    found = [(part.name, part.first_gpus) for part in parts]
    assert found == [("prefill", ()), ("decode.dp0", (2,)), ("decode.dp1", (4,))]


def test_replicas_over_several_nodes_take_whole_ones() -> None:
    text = DENSE.replace("data: 2", "pipeline: 2, data: 2").replace("[node-a]", "[a, b, c, d]")
    parts, _ = parts_of(plan(text), inventory(snap("a")))
    assert [part.plan.nodes for part in parts] == [("a", "b"), ("c", "d")]
    assert [part.first_gpus for part in parts] == [(), ()]
