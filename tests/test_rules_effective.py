"""OBS: the sizes in force are the plan's."""

from __future__ import annotations

import pytest
from build import TWO, text_of
from stating import Fact, of, said

from topocheck.report import RuleReport

REPLICAS = "engine: vllm\nparallel: {tensor: 4, data: 2}\nnodes: [node-a, node-b]\n"
ATTENTION = "engine: sglang\nparallel: {tensor: 8, attention_data: 8}\nnodes: [node-a, node-b]\n"


def sizes(*facts: Fact, text: str = TWO, engine: str | None = "vllm") -> RuleReport:
    return of("OBS001", said(*facts, source="serve.log", engine=engine), text=text)


def test_sizes_in_force_pass_and_what_was_only_asked_for_cannot() -> None:
    assert sizes(("size", "tensor", "4"), ("size", "pipeline", "2")).verdict == "pass"
    assert sizes(("requested-size", "tensor", "4")).verdict == "unknown"
    assert sizes(("requested-size", "tensor", "8")).verdict == "fail"
    assert of("OBS001").verdict == "unknown"


def test_what_is_in_force_goes_before_what_was_asked_for() -> None:
    in_force = ("size", "tensor", "4"), ("size", "pipeline", "2")
    assert sizes(("requested-size", "tensor", "8"), *in_force).verdict == "pass"


def test_an_axis_whose_size_nothing_shows_in_force_is_unknown() -> None:
    assert sizes(("size", "tensor", "4")).verdict == "unknown"
    assert sizes(("size", "tensor", "4"), ("requested-size", "pipeline", "2")).verdict == "unknown"


def test_all_axes_that_differ_are_one_finding() -> None:
    found = sizes(("size", "tensor", "8"), ("size", "pipeline", "1"))
    [only] = found.findings
    assert only.subjects == [
        "tensor 8 in force, the plan says 4",
        "pipeline 1 in force, the plan says 2",
    ]
    assert "serve.log:2 size pipeline 1" in text_of(found)


def test_a_dense_replica_that_shows_data_1_contradicts_nothing() -> None:
    both = ("size", "tensor", "4"), ("size", "data", "1")
    assert sizes(*both, text=REPLICAS).verdict == "pass"
    assert sizes(("size", "tensor", "4"), ("size", "data", "4"), text=REPLICAS).verdict == "fail"


def test_a_data_size_that_the_plan_leaves_out_is_derived() -> None:
    assert sizes(("size", "tensor", "4"), ("size", "pipeline", "2"), ("size", "data", "8")).verdict == "pass"
    training = "engine: megatron\nparallel: {tensor: 4, pipeline: 2}\nnodes: [node-a, node-b]\n"
    facts = ("size", "tensor", "4"), ("size", "data", "2"), ("size", "pipeline", "2")
    assert sizes(*facts, text=training, engine="megatron").verdict == "pass"
    declared = training.replace("pipeline: 2", "pipeline: 2, data: 1")
    assert sizes(*facts, text=declared, engine="megatron").verdict == "fail"


def test_axes_that_the_engine_or_the_plan_does_not_name_are_not_compared() -> None:
    both = ("size", "tensor", "4"), ("size", "pipeline", "2")
    assert sizes(*both, ("size", "expert", "4"), ("size", "data_shard", "8")).verdict == "pass"
    experts = TWO.replace("pipeline: 2", "pipeline: 2, expert: 4")
    assert sizes(*both, ("size", "expert", "4"), text=experts).verdict == "pass"
    assert sizes(("size", "expert", "8"), text=experts).verdict == "fail"


def test_attention_data_parallelism_is_not_data_parallelism() -> None:
    new = ("requested-size", "attention_data", "8"), ("requested-size", "data", "1")
    assert sizes(*new, text=ATTENTION, engine="sglang").findings == []
    old = ("requested-size", "tensor", "8"), ("rank-coordinate", "data", "7")
    assert sizes(*old, text=ATTENTION, engine="sglang").findings == []
    declared = ATTENTION.replace("tensor: 8", "tensor: 8, data: 1")
    assert sizes(*old, text=declared, engine="sglang").findings == []
    beyond = ("rank-coordinate", "data", "8")
    assert sizes(beyond, text=declared, engine="sglang").verdict == "fail"
    assert sizes(("requested-size", "attention_data", "4"), text=ATTENTION, engine="sglang").verdict == "fail"


def test_a_coordinate_beyond_its_axis_is_told() -> None:
    found = sizes(("rank-coordinate", "tensor", "4"))
    assert "a rank bears tensor coordinate 4, beyond tensor 4" in text_of(found)
    assert sizes(("rank-coordinate", "tensor", "3")).findings == []
    assert sizes(("rank-coordinate", "moe_data", "9")).findings == []


@pytest.mark.parametrize(
    ("engine", "log", "verdict"),
    [("vllm", "sglang", "unknown"), ("torch", "megatron", "fail"), ("deepspeed", "megatron", "fail")],
)
def test_the_log_of_another_engine_counts_only_where_the_job_may_print_it(
    engine: str, log: str, verdict: str
) -> None:
    order = "order: 'pp,dp,tp'\n" if engine == "torch" else ""
    text = f"engine: {engine}\nparallel: {{tensor: 4, pipeline: 2}}\nnodes: [node-a, node-b]\n{order}"
    assert sizes(("size", "tensor", "8"), text=text, engine=log).verdict == verdict


def test_a_value_that_is_no_number_says_nothing() -> None:
    assert sizes(("size", "tensor", "auto"), ("size", "pipeline", "2")).verdict == "unknown"


def test_layers_in_force_are_compared_with_the_plans_own_list() -> None:
    text = f"{TWO}model: {{layers: 9}}\nlayers: '5,4'\n"
    force = ("size", "tensor", "4")
    assert sizes(force, ("layers", "", "5,4"), text=text).verdict == "pass"
    assert "layers 4,5, the plan says 5,4" in text_of(sizes(force, ("layers", "", "4, 5"), text=text))
    assert sizes(force, ("layers", "", "1,0"), text=text).verdict == "pass"
    assert sizes(force, ("layers", "", "4,5")).verdict == "pass"
