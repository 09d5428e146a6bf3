"""A plan written out: groups, coordinates, layers and modules of every rank."""

from __future__ import annotations

import contextlib
import itertools
import json
from math import prod

import jsonschema
import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from topocheck.declaration import Declaration
from topocheck.declared import crowded, declare, declare_all, describe, document
from topocheck.engines import ENGINES
from topocheck.errors import LayoutError
from topocheck.plan import Model, Parallel, Plan, World
from topocheck.schema import schema_for

SIZES = st.dictionaries(
    st.sampled_from(["tensor", "pipeline", "data", "context", "expert", "decode_context", "data_shard"]),
    st.integers(1, 6),
)


def written(plan: Plan, world: int | None = None) -> Declaration:
    found = document([declare(plan, world)])
    assert isinstance(found, Declaration)
    return found


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    engine = draw(st.sampled_from(sorted(ENGINES)))
    sizes = {name: size for name, size in draw(SIZES).items() if name in ENGINES[engine].sizes}
    layers = draw(st.none() | st.integers(1, 40))
    return Plan(
        engine=engine,
        engine_version="1.3.0" if engine == "tensorrt_llm" else None,
        parallel=Parallel(**sizes),
        nodes=draw(st.integers(1, 6)),
        order="pp,dp,cp,tp" if engine == "torch" else None,
        model=None
        if layers is None
        else Model(layers=layers, tied=draw(st.sampled_from([None, False, True]))),
    )


@given(plans())
@settings(max_examples=150, deadline=None)
def test_groups_partition_the_world_and_coordinates_are_the_rank(plan: Plan) -> None:
    try:
        found = written(plan)
    except LayoutError:
        assume(False)
    ranks = list(range(found.world))
    assert {"tp", "pp", "dp"} <= found.groups.keys()
    for kind, groups in found.groups.items():
        members = sorted(itertools.chain.from_iterable(groups))
        if kind == "embedding":  # the ends of each pipeline
            assert len(set(members)) == len(members)
        elif (plan.engine, kind) not in {("tensorrt_llm", "ep"), ("tensorrt_llm", "etp")}:
            assert members == ranks, kind
        assert len({len(group) for group in groups}) == 1
        assert groups == sorted(groups, key=lambda group: group[0])
    assert prod(found.sizes.values()) == found.world
    for rank in found.ranks:
        index = 0
        for axis, size in found.sizes.items():  # slowest first
            index = index * size + rank.coordinates[axis]
        assert index == rank.rank
        for kind, place in rank.coordinates.items():
            mine = [group for group in found.groups.get(kind, []) if rank.rank in group]
            assert not mine or mine[0].index(rank.rank) == place


@given(plans())
@settings(max_examples=100, deadline=None)
def test_layers_of_the_stages_cover_the_model_once(plan: Plan) -> None:
    try:
        found = written(plan)
    except LayoutError:
        assume(False)
    held = [stage.layers for stage in found.stages]
    assert [stage.stage for stage in found.stages] == list(range(len(found.stages)))
    if plan.model is None:
        assert held == [None] * len(found.stages)
        return
    ranges = sorted(pair for layers in held for pair in layers or ())
    covered = [layer for first, end in ranges for layer in range(first, end)]
    assert covered == list(range(plan.model.layers or 0))
    for rank in found.ranks:
        assert rank.layers == held[rank.coordinates.get("pp", 0)]


@given(plans())
@settings(max_examples=100, deadline=None)
def test_every_document_fits_the_schema(plan: Plan) -> None:
    try:
        found = written(plan)
    except LayoutError:
        assume(False)
    plain = json.loads(msgspec.json.encode(found))
    jsonschema.Draft202012Validator(schema_for("declared")).validate(plain)
    assert next(iter(plain)) == "schema"
    assert all(list(rank)[:2] == ["rank", "coordinates"] for rank in plain["ranks"])


def test_a_job_of_several_worlds_fits_the_schema() -> None:
    small = World(parallel=Parallel(tensor=2), nodes=("a",))
    plan = Plan(engine="vllm", nodes=("a",), worlds={"prefill": small, "decode": small})
    worlds = declare_all(plan)
    plain = json.loads(msgspec.json.encode(document(worlds)))
    validator = jsonschema.Draft202012Validator(schema_for("declared"))
    validator.validate(plain)
    assert [rank["gpu_index"] for rank in plain["ranks"]] == [0, 1, 2, 3]
    assert not validator.is_valid({**plain, "ranks": None})


@pytest.mark.parametrize(
    ("engine", "tied", "layers", "modules"),
    [
        ("vllm", None, None, [["embedding"], [], ["final_norm", "head"]]),
        ("vllm", True, None, [["embedding"], [], ["final_norm", "head", "embedding_copy"]]),
        ("sglang", True, None, [["embedding"], [], ["final_norm", "head", "embedding_copy"]]),
        ("tensorrt_llm", False, None, [["embedding"], [], ["final_norm", "head"]]),
        ("megatron", False, None, [["embedding"], [], ["final_norm", "head", "loss"]]),
        ("megatron", True, None, [["embedding"], [], ["final_norm", "head", "embedding_copy", "loss"]]),
        (
            "megatron",
            False,
            {"mtp_layers": 1},
            [["embedding"], [], ["final_norm", "head", "mtp", "embedding_copy", "loss"]],
        ),
        (
            "megatron",
            False,
            "Ettt|ttt|ttt|ttt|ttm|tL",
            [["embedding"], ["mtp", "embedding_copy"], ["final_norm", "head", "loss"]],
        ),
        ("torchtitan", None, None, [["embedding"], [], ["final_norm", "head"]]),
        (
            "torchtitan",
            None,
            {"virtual_stages": 2, "style": "v"},
            [["embedding", "final_norm", "head"], [], []],
        ),
        ("deepspeed", True, None, [None, None, None]),
        ("torch", None, (5, 5, 5), [None, None, None]),
    ],
)
def test_modules_of_each_stage_are_the_engines(
    engine: str, tied: bool | None, layers: object, modules: object
) -> None:
    plan = Plan(
        engine=engine,
        parallel=Parallel(pipeline=3),
        nodes=1,
        model=Model(layers=15, tied=tied),
        layers=layers,  # type: ignore[arg-type]
    )
    assert [stage.modules for stage in written(plan).stages] == modules


def test_tied_weights_on_one_stage_need_no_copy() -> None:
    for engine in ("vllm", "megatron"):
        plan = Plan(engine=engine, nodes=1, model=Model(layers=4, tied=True))
        (stage,) = written(plan).stages
        assert stage.modules is not None
        assert "embedding_copy" not in stage.modules


def test_positions_in_groups_that_divide_an_axis_are_coordinates() -> None:
    sizes = Parallel(tensor=4, pipeline=2, expert=2, attention_data=2)
    rank = written(Plan(engine="sglang", parallel=sizes, nodes=1)).ranks[6]
    assert rank.coordinates == {
        "dp": 0,
        "pp": 1,
        "tp": 2,
        "attn_dp": 1,
        "attn_tp": 0,
        "ep": 1,
        "etp": 0,
    }


def test_groups_of_two_axes_are_no_coordinates() -> None:
    sizes = Parallel(tensor=2, pipeline=2, data=2, context=2, expert=2)
    found = written(Plan(engine="megatron", parallel=sizes, nodes=2))
    assert set(found.groups) - set(found.ranks[0].coordinates) == {
        "tp_cp",
        "tp_pp",
        "dp_cp",
        "etp_ep",
        "embedding",
    }
    assert found.ranks[0].coordinates.keys() >= {"tp", "cp", "dp", "pp", "ep", "etp", "edp"}


def test_a_gpu_of_two_ranks_is_found() -> None:
    one = declare(Plan(engine="vllm", parallel=Parallel(tensor=4), nodes=1))
    assert crowded(one) == []
    assert crowded(msgspec.structs.replace(one, gpus=[0, 1, 0, 3])) == [(0, 0, [0, 2])]


def test_the_order_of_a_ray_job_is_told_as_verify_tells_it() -> None:
    plan = Plan(engine="vllm", launcher="ray", parallel=Parallel(tensor=2, pipeline=2), nodes=("a", "b"))
    assert any("Ray places the ranks" in line for line in declare(plan).assumptions)


@given(st.sampled_from(sorted(ENGINES)), st.integers(1, 40), st.integers(1, 6), st.text(max_size=20))
@settings(max_examples=100, deadline=None)
def test_any_override_is_written_out_or_refused(engine: str, layers: int, stages: int, text: str) -> None:
    plan = Plan(
        engine=engine, parallel=Parallel(pipeline=stages), nodes=1, model=Model(layers=layers), layers=text
    )
    with contextlib.suppress(LayoutError):
        assert len(describe(declare(plan)).stages) == stages
