"""The sizes of a model come from its config.json, or a sentence says why not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import PlanError
from topocheck.modelconfig import parse_config, read_config
from topocheck.plan import Model

DENSE = {
    "architectures": ["SomeForCausalLM"],
    "num_hidden_layers": 36,
    "hidden_size": 3072,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "vocab_size": 151000,
    "rope_scaling": None,
}


def test_a_dense_model_is_read() -> None:
    model = Model(layers=36, hidden=3072, heads=24, kv_heads=8, vocabulary=151000)
    assert parse_config(json.dumps(DENSE), "config.json") == model


@pytest.mark.parametrize("key", ["num_experts", "n_routed_experts", "num_local_experts"])
def test_experts_have_three_names(key: str) -> None:
    assert parse_config(json.dumps(DENSE | {key: 60}), "c").experts == 60
    assert parse_config(json.dumps(DENSE | {key: None}), "c").experts is None
    assert parse_config(json.dumps(DENSE | {key: 0}), "c").experts == 0


def test_the_language_part_of_a_multimodal_model_goes_first() -> None:
    nested = {"vocab_size": 9, "hidden_size": 5, "text_config": {"hidden_size": 7, "num_hidden_layers": 3}}
    assert parse_config(json.dumps(nested), "c") == Model(layers=3, hidden=7, vocabulary=9)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"num_hidden_layers": "36"}, "expected a whole number from 1 to 1000000000 for num_hidden_layers"),
        ({"num_hidden_layers": True}, "expected a whole number from 1 to 1000000000 for num_hidden_layers"),
        ({"num_hidden_layers": 36.0}, "expected a whole number from 1 to 1000000000 for num_hidden_layers"),
        ({"hidden_size": 0}, "expected a whole number from 1 to 1000000000 for hidden_size"),
        (
            {"num_key_value_heads": [8, 4]},
            "expected a whole number from 1 to 1000000000 for num_key_value_heads",
        ),
        ({"model_type": "x"}, "has none of num_hidden_layers"),
        ([1], "is not the JSON of a model's config.json"),
    ],
)
def test_a_size_that_cannot_be_read_is_refused(config: Any, sentence: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_config(json.dumps(config), "folder/config.json")
    assert str(caught.value).startswith(f"folder/config.json: {sentence}")


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path, tmp_path / "none", tmp_path / ("x" * 5000)):
        with pytest.raises(PlanError, match="'model' takes the path of a config"):
            read_config(path)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "weights.json"
    with large.open("wb") as file:
        file.truncate(20_000_000)
    with pytest.raises(PlanError, match="is larger than 10 MB"):
        read_config(large)


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"null"])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(PlanError, match="is not the JSON of a model's config"):
        parse_config(data, "c")


@given(
    st.dictionaries(
        st.sampled_from([*DENSE, "num_experts", "text_config"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(list(DENSE)), inner),
        ),
    )
)
@settings(max_examples=50, deadline=None)
def test_any_json_is_a_model_or_one_sentence(config: dict[str, Any]) -> None:
    model = parsed(config)
    if isinstance(model, PlanError):
        assert str(model).isprintable()
    else:
        assert all(size is None or size >= 0 for size in (model.layers, model.hidden, model.experts))


def parsed(config: dict[str, Any]) -> Model | PlanError:
    try:
        return parse_config(json.dumps(config), "c")
    except PlanError as error:
        return error
