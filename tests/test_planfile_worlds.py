"""`worlds:` is read strictly: what is misspelt, contradictory or too much is refused with its line."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import PlanError
from topocheck.plan import Parallel, Plan, World
from topocheck.planfile import parse_plan
from topocheck.schema import schema_for

HEAD = "engine: vllm\nparallel: {tensor: 4}\nnodes: [a, b]\n"
POOLS = """engine: vllm
worlds:
  prefill: {parallel: {tensor: 4}, nodes: [p0, p1]}
  decode:
    parallel: {tensor: 8}
    nodes: d[0-3]
    workload: {output_tokens: 512}
"""


def refusal(text: str) -> str:
    with pytest.raises(PlanError) as caught:
        parse_plan(text, "plan.yaml")
    return str(caught.value)


def test_worlds_are_named_with_what_is_their_own() -> None:
    read = parse_plan(POOLS, "plan.yaml")
    assert isinstance(read.worlds, dict)
    assert list(read.worlds) == ["prefill", "decode"]
    assert read.worlds["prefill"] == World(parallel=Parallel(tensor=4), nodes=("p0", "p1"))
    assert read.worlds["decode"].nodes == ("d0", "d1", "d2", "d3")
    assert read.nodes == ("p0", "p1", "d0", "d1", "d2", "d3"), "of the job, where only its worlds give nodes"


def test_equal_worlds_are_a_number() -> None:
    assert parse_plan(HEAD + "worlds: 2\n", "plan.yaml").worlds == 2
    assert parse_plan(HEAD, "plan.yaml").worlds == 1


def test_engine_and_nodes_may_stand_in_the_worlds_alone() -> None:
    text = "worlds:\n  a: {engine: vllm, nodes: 2}\n  b: {engine: sglang, nodes: {min: 1, max: 3}}\n"
    read = parse_plan(text, "plan.yaml")
    assert (read.engine, read.nodes) == ("vllm", 5)
    assert refusal("worlds:\n  a: {engine: vllm, nodes: 2}\n  b: {engine: sglang}\n").startswith(
        "plan.yaml:1: no 'nodes' in the plan"
    )
    assert "no 'engine' in the plan" in refusal("worlds:\n  a: {engine: vllm, nodes: 2}\n  b: {nodes: 2}\n")


@pytest.mark.parametrize(
    ("worlds", "message"),
    [
        ("worlds: 3", "plan.yaml:4: 3 worlds do not divide the nodes: name each world and its nodes"),
        ("worlds: 0", "plan.yaml:4: expected a whole number from 1 to"),
        ("worlds: two", "plan.yaml:4: expected a whole number for worlds"),
        ("worlds: {}", "plan.yaml:4: no world in worlds"),
        ("worlds: [a, b]", "plan.yaml:4: expected keys and values for worlds, got a list"),
        ("worlds:\n  a:\n", "plan.yaml:5: expected keys and values for worlds.a, got nothing"),
        ("worlds:\n  a b: {}\n", "plan.yaml:5: 'a b' is no name of a world"),
        ("worlds:\n  a: {}\n  a: {}\n", "plan.yaml:6: key 'a' stands twice, in lines 5 and 6"),
        ("worlds:\n  a:\n    paralel: {tensor: 2}\n", "plan.yaml:6: unknown key 'paralel' in worlds.a"),
        ("worlds:\n  a: {tensor: 2}\n", "plan.yaml:5: unknown key 'tensor' in worlds.a: it belongs under"),
        (
            "worlds:\n  a: {policy: {}}\n",
            "plan.yaml:5: unknown key 'policy' in worlds.a: it belongs at the top",
        ),
        ("worlds:\n  a: {worlds: 2}\n", "plan.yaml:5: unknown key 'worlds' in worlds.a"),
        ("worlds:\n  a: {engine: vlm}\n", "plan.yaml:5: unknown engine 'vlm': did you mean 'vllm'?"),
        ("worlds:\n  a: {nodes: [x, x]}\n", "plan.yaml:5: node 'x' stands twice"),
        ("worlds:\n  a:\n    parallel:\n      moe_data: 2\n", "plan.yaml:7: vLLM has no size 'moe_data'"),
        ("worlds:\n  a: {order: tp-pp-dp}\n", "plan.yaml:5: vLLM takes no order of the axes"),
        (
            "worlds:\n  a: {parallel: {tensor: 20000000}}\n",
            "plan.yaml:5: the sizes make a world of 20,000,000",
        ),
        ("worlds: 4000000", "plan.yaml:4: expected a whole number from 1 to 1000000"),
        ("world: 2", "plan.yaml:4: unknown key 'world': did you mean 'worlds'?"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(worlds: str, message: str) -> None:
    assert refusal(f"{HEAD}{worlds}\n").startswith(message)


def test_worlds_of_more_ranks_than_there_can_be_are_refused() -> None:
    text = "engine: vllm\nparallel: {tensor: 8}\nnodes: 1000000\nworlds: 1000000\n"
    assert parse_plan(text, "plan.yaml").worlds == 1_000_000
    assert refusal(text.replace("8}", "16}")).startswith(
        "plan.yaml:4: the worlds have 16,000,000 ranks together"
    )


def test_sizes_of_the_top_are_checked_with_the_engine_of_each_world() -> None:
    head = "engine: sglang\nparallel: {tensor: 4, moe_data: 2}\nnodes: 2\n"
    assert refusal(head + "worlds:\n  a: {}\n  b: {engine: vllm}\n").startswith(
        "plan.yaml:2: vLLM has no size 'moe_data'"
    )


@pytest.mark.parametrize("text", [POOLS, HEAD + "worlds: 2\n", HEAD + "worlds: {a: {nodes: 2}, b: {}}\n"])
def test_the_schema_takes_what_the_reader_takes(text: str) -> None:
    jsonschema.validate(yaml.safe_load(text), schema_for("plan"))
    assert isinstance(parse_plan(text, "plan.yaml"), Plan)


@pytest.mark.parametrize("worlds", ["0", "{a: {paralel: {}}}", "[2]", "{a: 2}"])
def test_the_schema_refuses_what_the_reader_refuses(worlds: str) -> None:
    text = f"{HEAD}worlds: {worlds}\n"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), schema_for("plan"))
    refusal(text)


SCALARS = st.one_of(st.integers(-3, 40), st.sampled_from(["vllm", "sglang", "a", "q[1-3]", ""]), st.none())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["a", "b", "engine", "parallel", "nodes", "tensor", "min", "max", "model", "x"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(worlds=VALUES)
def test_anything_under_worlds_is_read_or_refused_in_one_sentence(worlds: object) -> None:
    said = outcome(HEAD + "worlds: " + json.dumps(worlds) + "\n")
    assert said == "read" or (said.startswith("plan.yaml:") and "\n" not in said)


def outcome(text: str) -> str:
    try:
        read = parse_plan(text, "plan.yaml")
    except PlanError as error:
        return str(error)
    return "read" if isinstance(read.worlds, (int, dict)) else "neither"
