"""TP and PP: the sizes fit the model."""

from __future__ import annotations

import pytest
from build import TWO, answer, placed, report, snap, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from stating import launch, said

from topocheck.report import Report, RuleReport
from topocheck.rules.model import tensor_divides_model
from topocheck.snapshot import FullSnapshot
from topocheck.splitting import wishes


def whole(plan: str, *views: FullSnapshot) -> Report:
    return report(plan + "\n", *views)


def fits(rule: str, plan: str, *views: FullSnapshot) -> RuleReport:
    """One rule of a plan in one line a key."""
    return answer(whole(plan, *views), rule)


def plan(engine: str, sizes: str, model: str, more: str = "", nodes: int = 1) -> str:
    version = "\nengine_version: 1.3.0" if engine == "tensorrt_llm" else ""
    return f"engine: {engine}{version}\nparallel: {{{sizes}}}\nnodes: {nodes}\nmodel: {{{model}}}\n{more}"


# TP005


def test_heads_that_tp_does_not_divide_name_sizes_that_do() -> None:
    found = fits("TP005", plan("vllm", "tensor: 3", "heads: 64, kv_heads: 8, vocabulary: 128256"))
    text = text_of(found)
    assert "tensor parallel size 3 does not divide 64 attention heads, 8 KV heads" in text
    assert "use one of 1, 2, 4, 8, 16, 32, 64 as" in text


@pytest.mark.parametrize(
    ("engine", "kv_heads", "tensor", "verdict"),
    [
        ("vllm", 8, 16, "pass"),
        ("vllm", 2, 8, "pass"),
        ("vllm", 1, 8, "pass"),
        ("vllm", 6, 8, "fail"),
        ("vllm", 12, 8, "fail"),
        ("sglang", 4, 8, "pass"),
        ("tensorrt_llm", 4, 8, "pass"),
        ("tensorrt_llm", 3, 8, "fail"),
        ("megatron", 8, 8, "pass"),
        ("megatron", 4, 8, "unknown"),
        ("megatron", 6, 8, "fail"),
        ("torchtitan", 4, 8, "unknown"),
        ("torch", 6, 4, "unknown"),
        ("accelerate", 8, 8, "pass"),
    ],
)
def test_kv_heads_go_by_the_engines_rule(engine: str, kv_heads: int, tensor: int, verdict: str) -> None:
    text = plan(engine, f"tensor: {tensor}", f"heads: 48, kv_heads: {kv_heads}")
    assert fits("TP005", text).verdict == verdict


def test_deepspeed_may_give_ranks_unequal_heads() -> None:
    assert fits("TP005", plan("deepspeed", "tensor: 4", "heads: 71, kv_heads: 71")).verdict == "unknown"


def test_a_padded_vocabulary_is_divided_by_tp_or_not() -> None:
    model = "heads: 48, kv_heads: 48, vocabulary: {}"
    found = fits("TP005", plan("vllm", "tensor: 3", model.format(32000)))
    assert "a vocabulary of 32000 (padded to 32000)" in text_of(found)
    assert fits("TP005", plan("vllm", "tensor: 3", model.format(32100))).verdict == "fail"
    assert fits("TP005", plan("vllm", "tensor: 3", model.format(32001))).verdict == "pass"
    assert fits("TP005", plan("vllm", "tensor: 3", model.format(96000))).verdict == "pass"
    assert fits("TP005", plan("vllm", "tensor: 8", model.format(32001))).verdict == "pass"
    assert fits("TP005", plan("megatron", "tensor: 3", model.format(32000))).verdict == "pass"
    assert fits("TP005", plan("vllm", "tensor: 3", "heads: 48, kv_heads: 48")).verdict == "unknown"
    assert fits("TP005", plan("vllm", "tensor: 8", "heads: 48, kv_heads: 48")).verdict == "pass"


def test_what_is_not_known_of_the_model_is_asked_for() -> None:
    found = whole(plan("vllm", "tensor: 4", "layers: 8"))
    assert answer(found, "TP005").verdict == "unknown"
    assert any(gap.need == "the model's attention heads" for gap in found.gaps)
    assert any("KV heads" in gap.need for gap in whole(plan("vllm", "tensor: 4", "heads: 8")).gaps)


def test_attention_data_parallelism_leaves_fewer_ranks_for_the_heads() -> None:
    model = "heads: 12, kv_heads: 4"
    assert fits("TP005", plan("sglang", "tensor: 8", model)).verdict == "fail"
    assert fits("TP005", plan("sglang", "tensor: 8, attention_data: 2", model)).verdict == "pass"
    assert fits("TP005", plan("sglang", "tensor: 8, attention_data: 8", model)).verdict == "pass"
    assert fits("TP005", plan("tensorrt_llm", "tensor: 8, attention_data: 8", model)).verdict == "pass"


def test_experts_are_divided_where_the_engine_needs_it() -> None:
    model = "heads: 64, kv_heads: 8, experts: 60"
    assert "does not divide 60 experts" in text_of(
        fits("TP005", plan("sglang", "tensor: 8, expert: 8", model))
    )
    assert fits("TP005", plan("sglang", "tensor: 8, expert: 4", model)).verdict == "pass"
    assert fits("TP005", plan("vllm", "tensor: 8, expert: 8", model)).verdict == "pass"
    alone = "tensor: 1, data: 8, expert: 8"
    assert fits("TP005", plan("megatron", alone, model)).verdict == "fail"
    assert fits("TP005", plan("megatron", alone, "heads: 64, kv_heads: 8")).verdict == "unknown"
    assert fits("TP005", plan("megatron", "tensor: 1, data: 8", model)).verdict == "not-applicable"


@given(
    st.sampled_from(["vllm", "sglang", "megatron", "tensorrt_llm", "torchtitan", "deepspeed"]),
    st.integers(1, 12),
    st.integers(1, 128),
    st.integers(1, 64),
    st.integers(1, 300_000),
)
@settings(max_examples=60, deadline=None)
def test_any_advised_size_is_accepted(engine: str, tensor: int, heads: int, kv: int, vocabulary: int) -> None:
    def text(size: int) -> str:
        return plan(engine, f"tensor: {size}", f"heads: {heads}, kv_heads: {kv}, vocabulary: {vocabulary}")

    found = fits("TP005", text(tensor))
    for finding in found.findings:
        advised = finding.fix.removeprefix("use one of ").partition(" as ")[0].partition(" and ")[0]
        assert all(fits("TP005", text(int(size))).findings == [] for size in advised.split(", ")[:3])


def test_the_rule_is_asked_of_the_plan_alone() -> None:
    found = fits("TP005", plan("vllm", "tensor: 4", "heads: 64, kv_heads: 8"))
    assert (found.verdict, found.basis) == ("pass", None)
    assert tensor_divides_model.severity == "error"


# PP002


def test_an_engine_that_needs_equal_stages_refuses_a_remainder() -> None:
    assert fits("PP002", plan("megatron", "tensor: 2, pipeline: 4", "layers: 60")).verdict == "pass"
    assert "61" in text_of(fits("PP002", plan("megatron", "tensor: 2, pipeline: 4", "layers: 61")))
    assert fits("PP002", plan("vllm", "tensor: 2, pipeline: 4", "layers: 61")).verdict == "pass"


def test_an_override_must_have_one_entry_a_stage_and_the_models_sum() -> None:
    for override, words in (("30,32", "sums to 62"), ("61", "has 1 entries"), ("30,x", "integers")):
        text = plan("vllm", "pipeline: 2", "layers: 61", f"layers: '{override}'")
        assert words in text_of(fits("PP002", text))
    assert fits("PP002", plan("vllm", "pipeline: 2", "layers: 61", "layers: '30,31'")).verdict == "pass"


def test_a_negative_entry_is_told_as_one_and_not_as_an_empty_stage() -> None:
    found = fits("PP002", plan("vllm", "pipeline: 3", "layers: 61", "layers: '40,-5,26'"))
    assert [finding.cause for finding in found.findings] == ["negative stage"]
    assert "stages 1 are given a negative number" in text_of(found)
    found = fits("PP002", plan("sglang", "pipeline: 2", "layers: 61", "layers: '70,-9'"))
    assert "others reach layer 69 of 0..60" in text_of(found)


def test_fewer_layers_than_stages_leave_some_empty() -> None:
    found = fits("PP002", plan("vllm", "pipeline: 4", "layers: 3"))
    assert "stages 3 of 0..3 get no layer out of 3" in text_of(found)
    assert fits("PP002", plan("tensorrt_llm", "pipeline: 4", "layers: 3")).verdict == "fail"
    assert fits("PP002", plan("vllm", "pipeline: 4", "layers: 8", "layers: '3,0,3,2'")).verdict == "fail"


def test_a_stage_of_embedding_or_head_alone_is_not_empty() -> None:
    text = plan("megatron", "pipeline: 4", "layers: 8", "layers: 'E|t*4|t*4|L'")
    assert fits("PP002", text).verdict == "pass"
    text = plan("megatron", "pipeline: 4", "layers: 8", "layers: 'Et*4||t*4|L'")
    assert fits("PP002", text).verdict == "fail"


def test_virtual_stages_that_leave_a_stage_with_layers_are_no_empty_stage() -> None:
    text = plan("megatron", "pipeline: 2", "layers: 4", "layers: 'Ett|t||tL'")
    assert fits("PP002", text).verdict == "pass"


def test_a_script_that_decides_the_split_leaves_it_open() -> None:
    for engine in ("torch",):
        assert fits("PP002", plan(engine, "pipeline: 2", "layers: 9")).verdict == "unknown"
        assert fits("PP002", plan(engine, "pipeline: 2", "layers: 9", "layers: [4, 5]")).verdict == "pass"


def test_a_version_that_is_no_release_leaves_the_split_open() -> None:
    text = plan("sglang", "pipeline: 2", "layers: 9", "engine_version: main")
    assert fits("PP002", text).verdict == "unknown"


def test_options_of_a_megatron_log_or_command_decide_what_is_accepted() -> None:
    text = plan("megatron", "pipeline: 4", "layers: 62")
    assert fits("PP002", text).verdict == "fail"
    both = said(
        ("option", "--account-for-embedding-in-pipeline-split", "True"),
        ("option", "--account-for-loss-in-pipeline-split", "True"),
        source="train.log",
        engine="megatron",
    )
    assert fits("PP002", text, both).verdict == "pass"
    ends = launch(("option", "first-stage-layers", "16"), ("option", "last-stage-layers", "16"))
    assert fits("PP002", text, ends).verdict == "pass"
    odd = launch(("option", "first-stage-layers", "15"), engine="megatron")
    found = fits("PP002", text, odd)
    assert "launch.sh:1 first-stage-layers 15" in text_of(found)
    chunks = launch(("option", "virtual-stages", "4"))
    assert fits("PP002", plan("megatron", "pipeline: 4", "layers: 24"), chunks).verdict == "fail"
    layers = launch(("option", "layers-per-virtual-stage", "3"))
    assert fits("PP002", plan("megatron", "pipeline: 4", "layers: 24"), layers).verdict == "pass"


def test_an_override_of_the_environment_or_the_command_counts_where_the_plan_has_none() -> None:
    text = plan("vllm", "tensor: 2, pipeline: 2", "layers: 61")
    bad = snap("node-a", range(4), environment={"VLLM_PP_LAYER_PARTITION": "30,30"})
    assert "VLLM_PP_LAYER_PARTITION=30,30 on node-a" in text_of(fits("PP002", text, bad))
    assert fits("PP002", f"{text}layers: '30,31'", bad).verdict == "pass"
    asked = launch(("option", "VLLM_PP_LAYER_PARTITION", "30,30"), engine="vllm")
    assert fits("PP002", text, asked).verdict == "fail"
    other = snap("node-a", range(4), environment={"SGLANG_PP_LAYER_PARTITION": "30,30"})
    assert fits("PP002", text, other).verdict == "pass"


def test_a_split_that_vllm_logs_may_be_a_draft_models() -> None:
    text = plan("vllm", "pipeline: 2", "layers: 61")
    draft = said(("layers", "", "1,0"), source="serve.log", engine="vllm")
    assert fits("PP002", text, draft).verdict == "pass"


def test_one_stage_is_no_split_unless_the_plan_lists_its_layers() -> None:
    assert fits("PP002", plan("vllm", "tensor: 2", "layers: 61")).verdict == "not-applicable"
    assert fits("PP002", plan("vllm", "tensor: 2", "layers: 61", "layers: '60'")).verdict == "fail"


@given(st.lists(st.integers(-3, 9), min_size=1, max_size=5), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_an_override_passes_exactly_if_it_covers_the_model_once(counts: list[int], layers: int) -> None:
    override = ",".join(map(str, counts))
    text = plan("vllm", f"pipeline: {len(counts)}", f"layers: {layers}", f"layers: '{override}'")
    good = sum(counts) == layers and min(counts) > 0
    assert (fits("PP002", text).verdict == "pass") == good


def test_the_splits_of_the_plan_are_asked_once_for_each_wish() -> None:
    placement = placed(TWO, *[snap("node-a", environment={"VLLM_PP_LAYER_PARTITION": "3,5"})])
    assert [wish.override for wish in wishes(placement)] == ["3,5"]
