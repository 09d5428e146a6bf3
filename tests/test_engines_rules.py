"""Rules of the engines beyond the golden vectors: versions, refusals in the engine's words, properties."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.engines import ENGINES, find
from topocheck.engines.layout import Layout, Slot
from topocheck.engines.sglang import slots as sglang_slots
from topocheck.engines.tensorrt_llm import slots as tensorrt_llm_slots
from topocheck.errors import LayoutError, UnknownLayoutError

FACTORS = st.sampled_from([1, 1, 2, 2, 3, 4])
PARTS = st.sampled_from([1, 1, 1, 2, 2, 4])
SUBDIVIDING = {"attention_data", "decode_context", "expert", "expert_tensor", "moe_data"}
NO_OPTIONS: Mapping[str, object] = {}


def layout(engine: str, version: str | None = None, /, order: str | None = None, **sizes: int) -> Layout:
    return ENGINES[engine].layout(sizes, version, order)


def counts(
    engine: str, layers: int, stages: int, override: str | None = None, **options: object
) -> list[int]:
    split = ENGINES[engine].split(layers, stages, override, None, options)
    return [sum(end - first for first, end in split.held(stage)) for stage in range(stages)]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """A layout of any engine: sizes that it takes, those that it refuses left out."""
    engine = draw(st.sampled_from(sorted(ENGINES)))
    sizes = {key: draw(PARTS if key in SUBDIVIDING else FACTORS) for key in ENGINES[engine].sizes}
    if engine in {"sglang", "tensorrt_llm"}:
        sizes["tensor"] *= 4
    if engine == "tensorrt_llm":
        sizes["attention_data"] = sizes["tensor"]
    order = "pp,dp,dp_replicate,dp_shard,cp,sp,tp" if engine == "torch" else None
    if engine == "vllm":
        sizes["expert"] = sizes["data"] * sizes["context"] * sizes["tensor"]
    try:
        return ENGINES[engine].layout(sizes, "1.3.0" if engine == "tensorrt_llm" else None, order)
    except LayoutError:
        axes = {key: size for key, size in sizes.items() if key not in SUBDIVIDING | {"context", "sequence"}}
        return ENGINES[engine].layout({**axes, "data_replicate": 1, "attention_data": 1}, None, order)


@settings(max_examples=300, deadline=None)
@given(layouts())
def test_each_rank_is_in_exactly_one_group_of_each_kind(found: Layout) -> None:
    for kind in (*found.sizes, *found.extra):
        groups = found.groups(kind)
        if kind == "embedding":
            ends = [(line[0], line[-1]) for line in found.groups("pipeline")]
            assert [tuple(group) for group in groups] == ends
            continue
        assert sorted(rank for group in groups for rank in group) == list(range(found.world)), kind
        assert {len(group) for group in groups} == {found.size(kind)}, kind


@settings(max_examples=100, deadline=None)
@given(layouts(), st.integers(1, 8))
def test_no_two_ranks_share_a_gpu_where_the_engine_places_them(found: Layout, nodes: int) -> None:
    if found.world % nodes:
        return
    try:
        slots = ENGINES[found.engine].slots(found, [found.world // nodes] * nodes)
    except LayoutError:
        return
    assert slots is not None
    assert len(slots) == found.world == len(set(slots))
    assert {slot.node for slot in slots} == set(range(nodes))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(ENGINES)), st.integers(1, 200), st.integers(1, 16))
def test_a_default_split_covers_the_model_once(engine: str, layers: int, stages: int) -> None:
    try:
        split = ENGINES[engine].split(layers, stages, None, None, NO_OPTIONS)
    except LayoutError:
        return
    assert len(split.ranges) == stages
    assert [layer for first, end in split.ranges for layer in range(first, end)] == list(range(layers))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(ENGINES)), st.text(alphabet="0123456789,-+_ Etm L|()*x\u0663", max_size=30))
def test_any_override_is_read_or_refused_in_one_sentence(engine: str, override: str) -> None:
    try:
        split = ENGINES[engine].split(8, 2, override, None, NO_OPTIONS)
    except LayoutError as error:
        sentence = str(error)
    else:
        sentence = split.rule
        assert split.ranges[-1][1] == 8
    assert sentence.isprintable()


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["megatron", "torch"]), st.text(alphabet="tpcedg-, ", max_size=20))
def test_any_order_is_read_or_refused(engine: str, order: str) -> None:
    try:
        found = layout(engine, order=order, tensor=2, pipeline=2, data=2)
    except LayoutError:
        return
    assert found.world == 8


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_size_that_the_engine_does_not_take_is_refused_with_those_it_takes(engine: str) -> None:
    with pytest.raises(LayoutError, match=re.escape(", ".join(ENGINES[engine].sizes))):
        layout(engine, moe_tensor=2)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_size_below_one_is_refused(engine: str) -> None:
    with pytest.raises(LayoutError, match="must be 1 or more, not 0"):
        layout(engine, tensor=0)


@pytest.mark.parametrize("engine", sorted(name for name, engine in ENGINES.items() if not engine.orders))
def test_an_engine_with_a_fixed_order_takes_none(engine: str) -> None:
    with pytest.raises(LayoutError, match="takes no order"):
        layout(engine, order="tp-pp-dp", tensor=2)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_an_option_that_the_split_does_not_take_is_refused(engine: str) -> None:
    with pytest.raises(LayoutError, match="no option 'chunks'"):
        counts(engine, 8, 1, chunks=2)


def test_a_vllm_override_that_does_not_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(LayoutError, match="sums to 62, the model has 61 layers"):
        counts("vllm", 61, 4, "15,15,16,16")
    with pytest.raises(LayoutError, match="has 3 entries, the pipeline has 4 stages"):
        counts("vllm", 61, 4, "20,20,21")


def test_vllm_decode_context_groups_changed_between_0_24_and_0_33() -> None:
    def laid(version: str | None) -> Layout:
        return layout("vllm", version, tensor=4, context=2, decode_context=2)

    old, new = laid("0.24.0"), laid(None)
    assert [list(group) for group in old.groups("decode_context")] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [list(group) for group in new.groups("decode_context")] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert (old.version, new.version) == ("0.24.0", "0.33.0")
    with pytest.raises(UnknownLayoutError, match=r"0\.28\.1"):
        laid("0.28.1")
    assert layout("vllm", None, tensor=4, decode_context=2).version is None


def test_vllm_refuses_sizes_that_do_not_divide() -> None:
    with pytest.raises(LayoutError, match="not divisible by decode context parallel size 3"):
        layout("vllm", tensor=4, decode_context=3)
    with pytest.raises(LayoutError, match="data x context x tensor = 8, it cannot be 4"):
        layout("vllm", tensor=4, data=2, expert=4)
    with pytest.raises(LayoutError, match="no prefill context parallel size"):
        layout("vllm", "0.11.2", tensor=4, context=2)


def test_vllm_refuses_replicas_that_do_not_fit_the_nodes() -> None:
    with pytest.raises(LayoutError, match="world size 16 is not divisible by nnodes 3"):
        ENGINES["vllm"].slots(layout("vllm", tensor=8, pipeline=2), [8, 8, 8])
    with pytest.raises(LayoutError, match="5 data parallel replicas of 2 ranks do not fit 2 nodes"):
        ENGINES["vllm"].slots(layout("vllm", tensor=2, data=5), [5, 5])


def test_sglang_put_the_whole_remainder_on_the_last_stage_up_to_0_5_5() -> None:
    def ends(version: str | None) -> tuple[tuple[int, int], ...]:
        return ENGINES["sglang"].split(61, 8, None, version, NO_OPTIONS).ranges[-2:]

    assert ends("0.5.5.post3") == ((42, 49), (49, 61))
    assert ends("0.5.6") == ends(None) == ((45, 53), (53, 61))


def test_sglang_gives_one_gpu_to_two_ranks_where_its_step_does_not_scale_the_pipeline() -> None:
    found = sglang_slots(layout("sglang", tensor=2, pipeline=2), [4], gpu_id_step=2)
    assert [slot.gpu for slot in found] == [0, 2, 2, 4]


def test_sglang_refuses_nodes_on_which_it_would_start_the_wrong_stages() -> None:
    for tensor, pipeline, nodes in ((2, 3, 2), (3, 2, 3), (3, 4, 3)):
        with pytest.raises(LayoutError, match="divides the other"):
            sglang_slots(layout("sglang", tensor=tensor, pipeline=pipeline), [1] * nodes)
    with pytest.raises(LayoutError, match="dp_size 2 is not supported with nnodes 2"):
        sglang_slots(layout("sglang", tensor=2, data=2), [2, 2])


def test_sglang_refuses_parts_that_do_not_divide_the_tensor_size() -> None:
    with pytest.raises(LayoutError, match="tp_size 8 is not divisible by attention_data 3 x context 1"):
        layout("sglang", tensor=8, attention_data=3)


def test_tensorrt_llm_needs_a_version_where_tensor_meets_context() -> None:
    def laid(version: str | None) -> Layout:
        return layout("tensorrt_llm", version, tensor=4, context=2)

    assert laid("1.1.0").groups("tensor")[0] == range(4)
    assert laid("1.3.0").groups("tensor")[0] == range(0, 8, 2)
    for version in (None, "1.2.0rc6"):
        with pytest.raises(UnknownLayoutError, match=r"during 1\.2"):
            laid(version)
    assert layout("tensorrt_llm", tensor=4, pipeline=2).world == 8


def test_tensorrt_llm_takes_the_gpu_of_its_global_rank() -> None:
    found = tensorrt_llm_slots(layout("tensorrt_llm", tensor=4, pipeline=2), [4, 4], visible_gpus=[8, 8])
    assert [slot.gpu for slot in found] == [0, 1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(LayoutError, match="shows no GPU"):
        tensorrt_llm_slots(layout("tensorrt_llm", tensor=4), [4], visible_gpus=[0])


def test_tensorrt_llm_reads_pp_partition_with_its_brackets() -> None:
    assert counts("tensorrt_llm", 61, 4, "[16, 15, 15, 15]") == [16, 15, 15, 15]


def test_megatron_speaks_its_own_words_when_it_refuses() -> None:
    with pytest.raises(LayoutError, match=r"world_size \(16\) is not divisible by .* size \(12\)"):
        layout("megatron", tensor=2, pipeline=2, data=4, expert=3)
    with pytest.raises(LayoutError, match="when not using pp-last rank ordering"):
        layout("megatron", order="tp-cp-ep-pp-dp", tensor=2, pipeline=2, context=2, data=2)
    with pytest.raises(LayoutError, match=r"the size of \(cp\) is \(2\), but the order \(tp-dp-pp\)"):
        layout("megatron", order="tp-dp-pp", tensor=2, context=2)
    with pytest.raises(LayoutError, match="pipeline parallel groups are expected to be the same"):
        layout("megatron", order="tp-pp-ep-dp-cp", tensor=2, pipeline=2, data=2, expert=2, expert_tensor=1)
    with pytest.raises(LayoutError, match=r"num_layers \(61\) is not divisible by .* \(4\)"):
        counts("megatron", 61, 4)


def test_megatron_with_context_keeps_pp_inside_dp_only_if_expert_ranks_are_as_many() -> None:
    found = layout(
        "megatron", order="tp-cp-ep-pp-dp", tensor=2, pipeline=2, context=2, data=2, expert=2, expert_tensor=2
    )
    assert found.groups("pipeline")[0] == range(0, 8, 4)


def test_a_megatron_layout_string_cannot_fill_the_memory() -> None:
    for text in ("E" + "t*9" * 2_000 + "L", "Et*999999999L", "E(t*9999)*9999L"):
        with pytest.raises(LayoutError):
            counts("megatron", 8, 2, text)


def test_megatron_takes_counts_for_each_stage_as_a_layout_would_say_them() -> None:
    assert counts("megatron", 61, 4, "15,16,16,14") == [15, 16, 16, 14]
    with pytest.raises(LayoutError, match="pipeline layout sums to 60, the model has 61 layers"):
        counts("megatron", 61, 4, "Et*15|t*16|t*16|t*13L")
    with pytest.raises(LayoutError, match="first and last stage sum to 60, the model has 61 layers"):
        counts(
            "megatron",
            61,
            2,
            num_layers_in_first_pipeline_stage=31,
            num_layers_in_last_pipeline_stage=29,
        )


def test_deepspeed_numbers_local_ranks_by_the_global_rank() -> None:
    found = ENGINES["deepspeed"].slots(layout("deepspeed", data=10), [6, 4])
    assert found is not None
    assert found[6:] == [Slot(1, 2), Slot(1, 3), Slot(1, 0), Slot(1, 1)]


def test_deepspeed_balances_only_weights_that_it_is_given() -> None:
    with pytest.raises(UnknownLayoutError, match="needs the weights"):
        counts("deepspeed", 8, 2, partition_method="parameters")
    with pytest.raises(LayoutError, match="weights has 2 entries, the model has 8 layers"):
        counts("deepspeed", 8, 2, partition_method="parameters", weights=[1, 2])


def test_a_device_mesh_of_several_dimensions_needs_its_order() -> None:
    with pytest.raises(UnknownLayoutError, match="pp,tp"):
        layout("torch", tensor=4, pipeline=2)
    inner_pipeline = layout("torch", order="tensor, pipeline", tensor=4, pipeline=2)
    assert inner_pipeline.groups("tensor")[0] == range(0, 8, 2)
    assert layout("torch", data=8).groups("data") == (range(8),)
    with pytest.raises(LayoutError, match="does not have pipeline"):
        layout("torch", order="tp", tensor=4, pipeline=2)
    with pytest.raises(UnknownLayoutError, match="give layers"):
        counts("torch", 8, 2)


def test_torchtitan_folds_a_v_and_counts_virtual_stages() -> None:
    split = ENGINES["torchtitan"].split(6, 2, None, None, {"virtual_stages_per_rank": 2, "style": "v"})
    assert split.ranges == ((0, 1), (1, 3), (3, 5), (5, 6))
    assert split.chunks == (((0, 1), (5, 6)), ((1, 3), (3, 5)))
    assert counts("torchtitan", 6, 2, layers_per_stage=4) == [3, 3]
    with pytest.raises(LayoutError, match="3 virtual stages of 3 layers are not divisible by 2 stages"):
        counts("torchtitan", 6, 2, layers_per_stage=3)
    with pytest.raises(LayoutError, match="dp_shard x cp x tp = 4 is not divisible by ep 3"):
        layout("torchtitan", data_shard=2, tensor=2, expert=3)


def test_accelerate_refuses_what_its_parallelism_config_refuses() -> None:
    with pytest.raises(LayoutError, match="mutually exclusive, got cp_size=2 and sp_size=2"):
        layout("accelerate", context=2, sequence=2)
    with pytest.raises(LayoutError, match="pure data parallelism"):
        layout("accelerate", data_replicate=2, tensor=2)
    with pytest.raises(LayoutError, match="no pipeline axis"):
        counts("accelerate", 8, 2)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("vLLM", "vllm"),
        ("SGLang", "sglang"),
        ("trtllm", "tensorrt_llm"),
        ("TensorRT-LLM", "tensorrt_llm"),
        ("Megatron-LM", "megatron"),
        ("megatron-core", "megatron"),
        ("DeepSpeed", "deepspeed"),
        ("PyTorch", "torch"),
        ("torchtitan", "torchtitan"),
        ("accelerate", "accelerate"),
    ],
)
def test_engines_are_found_by_the_names_people_write(spelling: str, name: str) -> None:
    assert find(spelling).name == name


def test_an_unknown_engine_is_refused_with_a_suggestion() -> None:
    with pytest.raises(LayoutError, match="did you mean 'deepspeed'"):
        find("deepsped")
    with pytest.raises(LayoutError, match="Megatron-Core's groups: name the engine 'megatron'"):
        find("NeMo")
    with pytest.raises(LayoutError, match="known are vllm, sglang"):
        find("")


def test_a_version_that_is_no_release_is_refused_where_it_would_decide() -> None:
    with pytest.raises(LayoutError, match="'main' is not a release"):
        layout("tensorrt_llm", "main", tensor=4, context=2)
    assert layout("tensorrt_llm", "main", tensor=4).world == 4
