"""Options of an engine's layer split under `layers:` of a plan."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.engines import ENGINES
from topocheck.engines.layout import LayerSplit
from topocheck.errors import LayoutError, PlanError
from topocheck.layers import layer_split, options_of, override_of, split_of
from topocheck.plan import Model, Parallel, Plan
from topocheck.planfile import parse_plan

LINES = "engine: {engine}\nparallel: {{pipeline: 4}}\nnodes: 1\nmodel: {{layers: 48}}\nlayers: {layers}\n"


def read(engine: str, layers: str) -> Plan:
    return parse_plan(LINES.format(engine=engine, layers=layers), "plan.yaml")


def split(engine: str, layers: str) -> LayerSplit:
    found = split_of(read(engine, layers), 4)
    assert found is not None
    return found


def refusal(engine: str, layers: str) -> str:
    with pytest.raises(PlanError) as caught:
        read(engine, layers)
    return str(caught.value)


@pytest.mark.parametrize(
    ("engine", "layers", "options"),
    [
        (
            "megatron",
            "{first_stage: 10, last_stage: 8, virtual_stages: 2}",
            {
                "num_layers_in_first_pipeline_stage": 10,
                "num_layers_in_last_pipeline_stage": 8,
                "virtual_pipeline_model_parallel_size": 2,
            },
        ),
        (
            "megatron",
            "{account_for_embedding: true, account_for_loss: false}",
            {
                "account_for_embedding_in_pipeline_split": True,
                "account_for_loss_in_pipeline_split": False,
            },
        ),
        ("torchtitan", "{virtual_stages: 2, style: v}", {"virtual_stages_per_rank": 2, "style": "v"}),
        ("torchtitan", "{layers_per_stage: 6}", {"layers_per_stage": 6}),
        (
            "deepspeed",
            "{partition_method: parameters, weights: [1, 2.5]}",
            {"partition_method": "parameters", "weights": (1, 2.5)},
        ),
    ],
)
def test_options_are_read_in_the_plans_words(engine: str, layers: str, options: dict[str, object]) -> None:
    plan = read(engine, layers)
    assert options_of(plan) == options
    assert override_of(plan) is None


@pytest.mark.parametrize(
    ("layers", "ranges"),
    [
        ("{first_stage: 10, last_stage: 8}", [(0, 10), (10, 25), (25, 40), (40, 48)]),
        ("{layout: 'Et*10|t*15|t*15|t*8L'}", [(0, 10), (10, 25), (25, 40), (40, 48)]),
        ("'Et*10|t*15|t*15|t*8L'", [(0, 10), (10, 25), (25, 40), (40, 48)]),
    ],
)
def test_they_split_the_layers_as_the_flags_do(layers: str, ranges: list[tuple[int, int]]) -> None:
    assert list(split("megatron", layers).ranges) == ranges


def test_layers_of_a_virtual_stage_give_their_number() -> None:
    assert split("megatron", "{layers_per_virtual_stage: 6}") == split("megatron", "{virtual_stages: 2}")
    for layers, said in (
        ("{layers_per_virtual_stage: 5}", "48 layers on 4 stages are not divisible"),
        ("{layers_per_virtual_stage: 6, virtual_stages: 2}", "say the same"),
        ("{layers_per_virtual_stage: 6, first_stage: 9}", "give virtual_pipeline_model_parallel_size"),
        ("{layout: 'Et*48|||L', first_stage: 9}", "does not go together with a pipeline layout"),
    ):
        with pytest.raises(LayoutError, match=said):
            split("megatron", layers)


def test_what_the_engine_refuses_leaves_a_report_without_layers() -> None:
    plan = read("megatron", "{first_stage: 10}")
    layout = ENGINES["megatron"].layout({"pipeline": 4}, None, None)
    assert layer_split(plan, layout) is None
    assert layer_split(read("megatron", "{first_stage: 9}"), layout) is not None


@pytest.mark.parametrize(
    ("engine", "layers", "said"),
    [
        ("megatron", "{first_stge: 9}", "5: Megatron-Core's layer split has no option 'first_stge': did"),
        ("megatron", "{decoder_first_pipeline_num_layers: 9}", "did you mean 'first_stage'?"),
        ("megatron", "{num_layers_in_last_pipeline_stage: 9}", "did you mean 'last_stage'?"),
        ("megatron", "{style: v}", "it takes first_stage, last_stage,"),
        ("vllm", "{first_stage: 9}", "vLLM's layer split has no option 'first_stage': it takes none"),
        ("megatron", "{first_stage: nine}", 'a whole number for layers.first_stage, got the text "nine"'),
        ("megatron", "{first_stage: 010}", "a number, true or false, or text for layers.first_stage"),
        ("megatron", "{first_stage: -1}", "expected a number, true or false, or text"),
        ("megatron", "{account_for_loss: 1}", "expected true or false for layers.account_for_loss"),
        ("megatron", "{account_for_loss: yes}", "true or false for layers.account_for_loss, got the yes/no"),
        ("megatron", "{first_stage: 1, first_stage: 2}", "stands twice"),
        ("megatron", "{first_stage: [1]}", "expected a whole number for layers.first_stage, got a list"),
        ("deepspeed", "{weights: [1, x]}", "expected a number in layers.weights"),
        ("deepspeed", "{weights: []}", "got a list"),
    ],
)  # fmt: skip
def test_what_is_no_option_is_refused_with_its_line(engine: str, layers: str, said: str) -> None:
    assert said in refusal(engine, layers)


def test_no_options_are_no_override() -> None:
    assert options_of(read("megatron", "{}")) == {}


VALUES = st.one_of(
    st.integers(-2, 60),
    st.booleans(),
    st.text(max_size=6),
    st.lists(st.integers(0, 3), max_size=3),
    st.none(),
)


@given(
    st.sampled_from(sorted(ENGINES)),
    st.dictionaries(
        st.sampled_from(
            sorted({one.word or one.name for engine in ENGINES.values() for one in engine.options} | {"x"})
        ),
        VALUES,
        max_size=3,
    ),
)
@settings(max_examples=150, deadline=None)
def test_any_mapping_is_read_or_refused_in_one_sentence(engine: str, layers: dict[str, object]) -> None:
    text = LINES.format(engine=engine, layers=json.dumps(layers, ensure_ascii=False))
    try:
        plan = parse_plan(text, "plan.yaml")
        found = split_of(plan, 4)
    except (PlanError, LayoutError) as error:
        sentence = str(error)
        assert sentence.isprintable()
        return
    assert found is not None
    held = sorted(pair for stage in range(4) for pair in found.held(stage))
    assert [layer for first, end in held for layer in range(first, end)] == list(range(48))


def test_a_plan_without_a_model_has_no_split() -> None:
    plan = Plan(engine="megatron", parallel=Parallel(pipeline=4), nodes=1, layers={"first_stage": 9})
    assert split_of(plan, 4) is None
    assert split_of(Plan(engine="megatron", nodes=1, model=Model(hidden=8), layers=(3, 5)), 2) is not None
