"""The KV cache is arithmetic, activations and buffers are bounds, and a budget is what an engine may take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import InputError, LayoutError
from topocheck.pipeline.architecture import Architecture, parse_architecture
from topocheck.pipeline.bounds import Bounds, exactly
from topocheck.pipeline.capacity import (
    GIB,
    Budget,
    Cache,
    Load,
    Need,
    activation_bytes,
    assumptions,
    budget_of,
    cache_bytes,
    caches_of,
    gib,
)

GROUPED = {
    "model_type": "llama",
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
LATENT = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
}
EVERY_HEAD = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
}


def model(config: dict[str, Any]) -> Architecture:
    return parse_architecture(json.dumps(config), "config.json")


def one_token(config: dict[str, Any], tensor: int = 1, element_bytes: int = 2) -> float:
    """Bytes of one token in all layers on one rank."""
    load = Load(tokens=1, sequences=exactly(1), tensor=tensor, element_bytes=element_bytes)
    return cache_bytes(caches_of(model(config)), load).low


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (GROUPED, 327_680),  # 80 layers x 2 x 8 heads x 128 x 2 bytes
        (EVERY_HEAD, 524_288),  # as many KV heads as heads
        (LATENT, 70_272),  # 61 layers x (512 + 64) x 2 bytes
    ],
    ids=["GQA", "MHA", "MLA"],
)
def test_a_token_has_the_bytes_of_the_hand_calculation(config: dict[str, Any], size: int) -> None:
    assert one_token(config) == size
    assert one_token(config, element_bytes=1) == size / 2


def test_kv_heads_divide_and_are_copied_where_there_are_fewer_than_ranks() -> None:
    assert [one_token(GROUPED, tensor) for tensor in (1, 2, 8, 16)] == [327_680, 163_840, 40_960, 40_960]
    with pytest.raises(LayoutError, match="8 KV heads neither divide by 6 ranks"):
        one_token(GROUPED, 6)


def test_a_latent_is_on_every_rank() -> None:
    assert one_token(LATENT, 8) == one_token(LATENT)


def test_head_dim_goes_before_hidden_by_heads() -> None:
    assert one_token(GROUPED | {"head_dim": 64}) == 327_680 / 2


def test_tokens_round_up_to_whole_blocks_at_the_upper_bound_alone() -> None:
    load = Load(tokens=130, sequences=exactly(3))
    found = cache_bytes([Cache(heads=8, width=256)], load)
    assert (found.low, found.high) == (3 * 130 * 8 * 256 * 2, 3 * 256 * 8 * 256 * 2)


def test_sliding_layers_count_their_window_at_the_lower_bound_alone() -> None:
    kinds = ["sliding_attention"] * 3 + ["full_attention"]
    sizes = {"num_hidden_layers": 4, "sliding_window": 128, "layer_types": kinds}
    load = Load(tokens=1024, sequences=exactly(1))
    plain = cache_bytes(caches_of(model(GROUPED | {"num_hidden_layers": 4})), load)
    found = cache_bytes(caches_of(model(GROUPED | sizes)), load)
    assert found.low == plain.low * (3 * 128 + 1024) / (4 * 1024)
    assert found.high == plain.high


def test_a_window_without_a_list_of_layers_may_hold_for_any_of_them() -> None:
    load = Load(tokens=1024, sequences=exactly(1))
    plain = cache_bytes(caches_of(model(GROUPED)), load)
    found = cache_bytes(caches_of(model(GROUPED | {"sliding_window": 256})), load)
    assert (found.low, found.high) == (plain.low / 4, plain.high)


def test_layers_of_an_unknown_kind_may_keep_nothing_or_everything() -> None:
    sizes = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
    load = Load(tokens=128, sequences=exactly(1))
    found = cache_bytes(caches_of(model(GROUPED | sizes)), load)
    assert found.high == 2 * found.low > 0


def test_ranks_of_a_decode_context_group_share_the_tokens() -> None:
    caches = caches_of(model(LATENT))
    whole = cache_bytes(caches, Load(tokens=1000, sequences=exactly(8)))
    part = cache_bytes(caches, Load(tokens=1000, sequences=exactly(8), contexts=4))
    assert part.low == whole.low / 4


def test_a_size_that_is_missing_is_named() -> None:
    with pytest.raises(InputError, match="names no num_attention_heads"):
        caches_of(model({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64}))
    with pytest.raises(InputError, match="names no qk_rope_head_dim"):
        caches_of(model({key: value for key, value in LATENT.items() if key != "qk_rope_head_dim"}))


@given(
    st.integers(0, 100_000),
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([GROUPED, LATENT, GROUPED | {"sliding_window": 4096}]),
)
@settings(max_examples=50, deadline=None)
def test_more_sequences_and_tokens_need_more_and_bounds_are_in_order(
    tokens: int, sequences: int, more: int, tensor: int, config: dict[str, Any]
) -> None:
    caches = caches_of(model(config))

    def size(tokens: int, sequences: int) -> Bounds:
        return cache_bytes(caches, Load(tokens=tokens, sequences=exactly(sequences), tensor=tensor))

    assert size(tokens, sequences).low <= size(tokens, sequences + more).low
    assert size(tokens, sequences).high <= size(tokens + more, sequences).high
    assert size(0, sequences) == size(tokens, 0) == exactly(0)


def test_activations_grow_with_rows_and_logits_stand_on_the_last_stage() -> None:
    middle = activation_bytes(exactly(8192), 5120, 2, sampled=exactly(64), vocabulary=None)
    last = activation_bytes(exactly(8192), 5120, 2, sampled=exactly(64), vocabulary=128_000)
    assert (middle.low, middle.high) == (2 * 8192 * 5120 * 2, 32 * 8192 * 5120 * 2)
    assert (last.low, last.high) == (middle.low, middle.high + 64 * 128_000 * 8)


def need(weights: int = 40, cache: int = 20) -> Need:
    return Need(
        weights=exactly(weights * GIB),
        cache=exactly(cache * GIB),
        activations=Bounds(1 * GIB, 3 * GIB),
        buffers=Bounds(1 * GIB, 2 * GIB),
    )


def test_what_is_free_is_bounded_by_both_bounds_of_the_need() -> None:
    budget = budget_of("vllm", 80 * GIB, 0.9)
    assert (budget.least_free(need()), budget.most_free(need())) == (7 * GIB, 10 * GIB)
    assert budget.most_free(need(cache=40)) < 0


def test_a_part_that_is_not_given_lies_between_the_default_and_all() -> None:
    assert budget_of("vllm", 100, None).share == Bounds(0.9, 1)
    assert budget_of("sglang", 100, None).share == Bounds(0.8, 1)
    assert budget_of("tensorrt_llm", 100, 0.5).share == exactly(0.5)


def test_sglang_keeps_weights_and_cache_in_its_part_and_the_rest_beside() -> None:
    budget = budget_of("sglang", 80 * GIB, 0.75)
    assert budget.static
    assert budget.most_free(need()) == 0  # 60 GiB of weights and cache in 60 GiB
    assert budget.most_free(need(cache=21)) == -GIB
    assert Budget(memory_bytes=61 * GIB, share=exactly(1), static=True).most_free(need()) == -GIB


def test_sizes_are_said_with_their_bounds() -> None:
    assert gib(exactly(70 * GIB)) == "70 GiB"
    assert gib(Bounds(8 * GIB, 9.125 * GIB)) == "8 to 9.12 GiB"
    assert need().words() == "weights 40 GiB, KV cache 20 GiB, activations 1 to 3 GiB, buffers 1 to 2 GiB"
    assert all(word.endswith(".") for word in assumptions())
