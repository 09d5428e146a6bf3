"""Weights of models: published numbers, files that transformers writes, and hostile ones."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real import require
from safetensors_files import write_file, write_model

from topocheck.engines import ENGINES
from topocheck.errors import InputError, LayoutError
from topocheck.pipeline.architecture import Architecture, parse_architecture, read_architecture
from topocheck.pipeline.checkpoint import read_weights, weigh
from topocheck.pipeline.division import division_of
from topocheck.pipeline.families import FAMILIES
from topocheck.pipeline.safetensors import Stored, read_folder, read_header
from topocheck.pipeline.tensors import place_of
from topocheck.pipeline.weights import (
    Block,
    Division,
    ModelWeights,
    Part,
    Weights,
    rank_weights,
    stage_weights,
)

PUBLISHED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "architectures.json").read_text())
"""Sizes of published models, and their total parameters as their publishers count them."""
CONFIGS: dict[str, dict[str, Any]] = {model["name"]: model["config"] for model in PUBLISHED}

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
}
LATENT = SMALL | {
    "num_key_value_heads": 8,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "moe_intermediate_size": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 12,
}
OPT = {
    "hidden_size": 64,
    "ffn_dim": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
}
TINY: list[tuple[str, dict[str, Any]]] = [
    ("llama", SMALL),
    ("llama", SMALL | {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    ("mistral", SMALL),
    ("granite", SMALL),
    ("gemma", SMALL),
    ("gemma2", SMALL),
    ("gemma3_text", SMALL),
    ("qwen2", SMALL | {"tie_word_embeddings": True}),
    ("qwen3", SMALL | {"head_dim": 16, "attention_bias": True}),
    ("phi3", SMALL),
    ("mixtral", SMALL | {"num_local_experts": 4}),
    (
        "qwen2_moe",
        SMALL | {"num_experts": 8, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48},
    ),
    ("qwen3_moe", SMALL | {"num_experts": 8, "moe_intermediate_size": 32, "decoder_sparse_step": 2}),
    ("qwen3_moe", SMALL | {"num_experts": 8, "moe_intermediate_size": 32, "mlp_only_layers": [2]}),
    ("gpt_oss", SMALL | {"num_local_experts": 4}),
    ("deepseek_v2", LATENT | {"n_shared_experts": 2, "q_lora_rank": None}),
    ("deepseek_v3", LATENT | {"n_shared_experts": 1, "q_lora_rank": 24, "n_group": 2, "topk_group": 1}),
    (
        "glm4_moe",
        SMALL
        | {
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 2,
            "use_qk_norm": True,
            "attention_bias": True,
        },
    ),
    ("gpt2", {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 1000}),
    ("opt", OPT | {"word_embed_proj_dim": 64}),
    ("opt", OPT | {"word_embed_proj_dim": 32, "do_layer_norm_before": False}),
]
"""Models small enough to be built, one a kind of layer."""
FLOAT32_IN_MEMORY = "mlp.gate.weight"
"""DeepSeek's and GLM's router, which transformers 5 keeps in float32 and checkpoints hold in bfloat16."""


def architecture(name: str, **changed: Any) -> Architecture:
    return parse_architecture(json.dumps(CONFIGS[name] | changed), f"{name}/config.json")


def blocks(weights: Weights) -> set[Block]:
    return set(weights.blocks)


@pytest.mark.parametrize("model", PUBLISHED, ids=[model["name"] for model in PUBLISHED])
def test_a_published_model_has_as_many_parameters_as_its_publisher_counts(model: dict[str, Any]) -> None:
    weights = weigh(architecture(model["name"]))
    assert weights.parameters == model["parameters"]
    if "quantization_config" not in model["config"]:
        assert weights.bytes == 2 * model["parameters"]
    if "bytes" in model:
        assert weights.bytes == model["bytes"]


def test_the_published_models_are_of_many_families() -> None:
    assert len({json.dumps(model["config"].get("model_type")) for model in PUBLISHED}) >= 8


def built(kind: str, config: dict[str, Any], device: str) -> Any:
    """A model of transformers with weights in bfloat16."""
    require("torch")
    require("transformers")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch  # noqa: PLC0415 - a second, and only here
        from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

        special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
        with torch.device(device):
            made = AutoConfig.for_model(kind, **config, **special)
            auto: Any = AutoModelForCausalLM
            return auto.from_config(made, dtype=torch.bfloat16)


@pytest.mark.parametrize(("kind", "config"), TINY)
def test_what_transformers_builds_has_the_same_bytes(kind: str, config: dict[str, Any]) -> None:
    model = built(kind, config, "meta")
    held = dict(model.state_dict())
    if model.config.tie_word_embeddings:
        held.pop("lm_head.weight")
    weights = weigh(parse_architecture(json.dumps(model.config.to_dict()), "config.json"))
    assert weights.parameters == sum(tensor.numel() for tensor in held.values())
    assert weights.bytes == sum(
        tensor.numel() * (2 if name.endswith(FLOAT32_IN_MEMORY) else tensor.itemsize)
        for name, tensor in held.items()
    )
    assert all(block.shard != "unknown" for block in everything(weights))
    by_place: dict[object, int] = {}
    for name, tensor in held.items():
        place = place_of(name)[0]
        by_place[place] = by_place.get(place, 0) + tensor.numel()
    assert [by_place[index] for index in range(len(weights.layers))] == [
        layer.parameters for layer in weights.layers
    ]
    assert by_place["embedding"] == weights.embedding.parameters


def everything(weights: ModelWeights) -> Iterator[Block]:
    for part in (*weights.layers, *weights.mtp, weights.embedding, weights.norm, weights.head, weights.other):
        yield from part.blocks


@pytest.mark.parametrize(("kind", "config"), TINY)
def test_the_headers_of_files_that_transformers_writes_say_the_same(
    kind: str, config: dict[str, Any], tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built(kind, config, "cpu").to("cpu").bfloat16().save_pretrained(tmp_path, max_shard_size="60KB")
    by_headers, by_config = read_weights(tmp_path), read_weights(tmp_path / "config.json")
    assert by_headers.source.startswith("headers of ")
    assert by_headers.parameters == by_config.parameters
    assert by_headers.tied is by_config.tied
    for ours, theirs in zip(parts(by_config), parts(by_headers), strict=True):
        assert blocks(ours.of(*EXACT)) == blocks(theirs.of(*EXACT))
        assert ours.of("router").parameters == theirs.of("router").parameters


EXACT: tuple[Part, ...] = (
    "attention",
    "mlp",
    "experts",
    "shared_experts",
    "norm",
    "embedding",
    "head",
    "other",
)
"""Parts that are stored as config.json says; a bias of the router is float32, but .bfloat16() casts it."""


def parts(weights: ModelWeights) -> list[Weights]:
    return [*weights.layers, weights.embedding, weights.norm, weights.head]


def test_deepseek_v3_has_dense_layers_first_and_a_layer_for_multi_token_prediction() -> None:
    weights = weigh(architecture("deepseek-v3"))
    assert len(weights.layers) == 61
    assert not any(layer.of("experts").blocks for layer in weights.layers[:3])
    assert all(layer.of("experts").blocks for layer in weights.layers[3:])
    assert len(weights.mtp) == 1
    assert weights.mtp[0].of("embedding").parameters == weights.mtp[0].of("head").parameters == 129_280 * 7168
    assert any("multi-token prediction" in note for note in weights.notes)
    # fp8: one byte a weight, a float32 for each block of 128 x 128
    experts = weights.layers[3].of("experts")
    assert experts.bytes == experts.parameters + 256 * 3 * (2048 // 128) * (7168 // 128) * 4


def test_a_tower_beside_the_language_model_is_named_and_not_guessed() -> None:
    weights = weigh(architecture("gemma-3-27b-text"))
    assert weights.notes == (
        "The vision part of the model is not counted: config.json alone does not give it.",
    )
    assert weights.tied


def test_quantised_weights_have_the_bytes_of_their_layout() -> None:
    plain = weigh(architecture("llama-3.1-8b"))
    matrix = {"attention": 4096 * (4096 + 1024 + 1024 + 4096), "mlp": 3 * 4096 * 14336}
    for method, each in (("awq", 0.5 + (0.5 + 2) / 128), ("gptq", 0.5 + (0.5 + 2) / 128)):
        quantised = {"quant_method": method, "bits": 4, "group_size": 128}
        weights = weigh(architecture("llama-3.1-8b", quantization_config=quantised))
        assert weights.parameters == plain.parameters
        assert weights.embedding == plain.embedding
        assert weights.head == plain.head
        layer = weights.layers[0]
        for part, count in matrix.items():
            indexes = (
                {"attention": 4 * 4096 * 4, "mlp": 4 * (2 * 4096 + 14336)}[part] if method == "gptq" else 0
            )
            assert layer.of(part).bytes == count * each + indexes  # type: ignore[arg-type]
    skipped = {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["down_proj"]}
    weights = weigh(architecture("llama-3.1-8b", quantization_config=skipped))
    assert weights.layers[0].of("mlp").bytes == 4096 * 14336 * 2 * 0.51953125 + 4096 * 14336 * 2


def test_layers_that_quantisation_skips_differ_from_the_others() -> None:
    quantised = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head", "model.layers.0.mlp", "model.layers.*.self_attn.o_proj"],
    }
    weights = weigh(architecture("qwen3-8b", quantization_config=quantised))
    first, *others = weights.layers
    assert len(set(others)) == 1
    assert first.of("mlp").bytes == 2 * first.of("mlp").parameters
    assert first.of("attention") == others[0].of("attention")
    assert others[0].of("attention").bytes > others[0].of("attention").parameters + 4096 * 4096


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"model_type": "quite_new"},
            "is of the architecture 'quite_new', whose weights topocheck does not know",
        ),
        ({"model_type": None}, "names no model_type"),
        ({"torch_dtype": None}, "names no dtype of the weights: give one: --dtype bfloat16"),
        ({"torch_dtype": "auto"}, "names no dtype of the weights"),
        ({"intermediate_size": None}, "names no intermediate_size"),
        ({"vocab_size": None}, "names no vocab_size"),
        ({"num_hidden_layers": None}, "names no num_hidden_layers"),
        ({"num_hidden_layers": 5000}, "names 5,000 layers: 1,000 are the most"),
        ({"num_hidden_layers": "32"}, "expected a whole number from 1 to 1000000000 for num_hidden_layers"),
        ({"hidden_size": -1}, "expected a whole number from 1 to 1000000000 for hidden_size"),
        ({"tie_word_embeddings": 1}, "expected true or false for tie_word_embeddings"),
        ({"quantization_config": []}, "expected an object for quantization_config"),
        (
            {"quantization_config": {"quant_method": "fp8"}},
            "quantised as 'fp8', whose layout config.json does not",
        ),
        (
            {"quantization_config": {"quant_method": "new"}},
            "quantised as 'new', whose layout config.json does not",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 1]}},
            "expected two whole numbers above 0 for weight_block_size",
        ),
        (
            {"quantization_config": {"quant_method": "awq", "bits": 0}},
            "expected a whole number from 1 to 16 other than 0 for bits",
        ),
    ],
)
def test_what_config_json_does_not_give_is_one_sentence(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        weigh(architecture("llama-3.1-8b", **changed))
    assert str(caught.value).startswith("llama-3.1-8b/config.json: ")
    assert sentence in str(caught.value)


def test_a_dtype_that_is_given_goes_before_the_files() -> None:
    assert weigh(architecture("gpt2", torch_dtype=None), "float32").bytes == 4 * 124_439_808


@given(
    st.dictionaries(
        st.sampled_from(
            [*CONFIGS["deepseek-v3"], "text_config", "head_dim", "mlp_only_layers", "layer_types"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    ),
    st.sampled_from(sorted(CONFIGS)),
)
@settings(max_examples=100, deadline=None)
def test_any_json_is_weighed_or_refused_in_one_sentence(changed: dict[str, Any], name: str) -> None:
    weights = weighed(CONFIGS[name] | changed)
    if isinstance(weights, InputError):
        assert str(weights).isprintable()
    else:
        assert weights.parameters > 0
        assert len(weights.layers) <= 1000


def weighed(config: dict[str, Any]) -> ModelWeights | InputError:
    try:
        return weigh(parse_architecture(json.dumps(config), "c"))
    except InputError as error:
        return error


@pytest.mark.parametrize("data", [b"", b"{", b"null", b"[" * 100_000, b'{"num_hidden_layers": NaN}', b"\xff"])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="is not the JSON of a model's config"):
        parse_architecture(data, "c")


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path, tmp_path / "none", tmp_path / ("x" * 5000), Path("\0")):
        with pytest.raises(InputError, match="give a model's folder or its config"):
            read_architecture(path)


STAGED = ModelWeights(
    layers=tuple(
        Weights(
            (
                Block("attention", "heads", 8, 800, 1600),
                Block("attention", "kv_heads", 2, 200, 400),
                Block("norm", "whole", 1, 10, 20),
                Block("experts", "experts", 6, 6000, 12000, 10),
            )
        )
        for _ in range(3)
    ),
    embedding=Weights((Block("embedding", "vocabulary", 100, 1000, 2000),)),
    norm=Weights((Block("norm", "whole", 1, 10, 20),)),
    head=Weights(),
    tied=True,
)


def test_a_stage_holds_its_layers_and_its_ends() -> None:
    first = stage_weights(STAGED, [(0, 2)], first=True, last=False)
    last = stage_weights(STAGED, [(2, 3)], first=False, last=True)
    whole = stage_weights(STAGED, [(0, 3)], first=True, last=True)
    assert first.parameters == 2 * 7010 + 1000
    assert last.parameters == 7010 + 10 + 1000  # the tied head is a copy
    assert whole.parameters == STAGED.parameters == 3 * 7010 + 1000 + 10
    assert last.of("head").bytes == 2000
    assert stage_weights(STAGED, [(1, 1)], first=False, last=False).bytes == 0
    assert stage_weights(STAGED, [(0, 1), (2, 3)], first=False, last=False).parameters == 2 * 7010


def test_a_rank_holds_its_part() -> None:
    layer = STAGED.layers[0]
    held = rank_weights(layer, Division(tensor=2))
    assert [block.parameters for block in held.blocks] == [400, 100, 10, 3000]
    held = rank_weights(layer, Division(tensor=4, expert=4))
    assert [block.parameters for block in held.blocks] == [200, 100, 10, 2000]  # 2 KV heads, 2 of 6 experts
    held = rank_weights(layer, Division(tensor=4, attention=1, expert=2, expert_tensor=2))
    assert [block.parameters for block in held.blocks] == [800, 200, 10, 1500]
    padded = rank_weights(STAGED.embedding, Division(tensor=4, vocabulary_multiple=64))
    assert padded.parameters == 320  # 100 rows are 128, 32 on each
    assert rank_weights(STAGED.embedding, Division(tensor=3)).parameters == 340


@pytest.mark.parametrize(
    ("division", "sentence"),
    [
        (Division(tensor=3), "8 attention heads are not divisible by 3 ranks"),
        (Division(tensor=1, attention=3), "8 attention heads"),
        (Division(tensor=1, expert_tensor=3), "10 columns of an expert are not divisible by 3 ranks"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(division: Division, sentence: str) -> None:
    with pytest.raises(LayoutError, match=sentence):
        rank_weights(STAGED.layers[0], division)


def test_kv_heads_that_neither_divide_nor_are_divided_are_refused() -> None:
    block = Weights((Block("attention", "kv_heads", 4, 400, 800),))
    with pytest.raises(LayoutError, match="4 KV heads neither divide by 6 ranks nor divide them"):
        rank_weights(block, Division(tensor=6))


def test_weights_of_unknown_division_have_an_answer_for_one_rank_alone() -> None:
    block = Weights((Block("other", "unknown", 1, 7, 14),))
    assert rank_weights(block, Division()) == block
    with pytest.raises(LayoutError, match="is not known"):
        rank_weights(block, Division(tensor=2))


@pytest.mark.parametrize(
    ("engine", "sizes", "expected"),
    [
        ("vllm", {"tensor": 4}, (4, 4, 1, 4)),
        ("vllm", {"tensor": 4, "data": 2}, (4, 4, 1, 8)),
        ("vllm", {"tensor": 4, "data": 2, "expert": 8}, (4, 4, 8, 1)),
        ("sglang", {"tensor": 8, "expert": 4, "attention_data": 2}, (8, 4, 4, 2)),
        ("sglang", {"tensor": 8}, (8, 8, 1, 8)),
        ("tensorrt_llm", {"tensor": 8, "expert": 2, "attention_data": 8}, (8, 1, 2, 4)),
        ("megatron", {"tensor": 2, "data": 4, "expert": 4, "expert_tensor": 1}, (2, 2, 4, 1)),
        ("megatron", {"tensor": 2, "data": 4, "expert": 4}, (2, 2, 4, 2)),
        ("torchtitan", {"tensor": 2, "data_shard": 2, "expert": 4}, (2, 2, 4, 1)),
    ],
)
def test_engines_divide_by_their_own_rules(
    engine: str, sizes: dict[str, int], expected: tuple[int, int, int, int]
) -> None:
    layout = ENGINES[engine].layout(sizes, None, None)
    found = division_of(layout, routed=True, attention_data=sizes.get("attention_data", 1))
    assert (found.tensor, found.heads, found.expert, found.columns_of_experts) == expected


def test_a_folder_is_read_by_its_headers_alone(tmp_path: Path) -> None:
    config = SMALL | {"model_type": "llama", "num_hidden_layers": 1, "torch_dtype": "bfloat16"}
    layer = "model.layers.0."
    write_model(
        tmp_path,
        config,
        [
            {
                "model.embed_tokens.weight": ("BF16", (1000, 64)),
                layer + "self_attn.q_proj.weight": ("BF16", (64, 64)),
                layer + "self_attn.rotary_emb.inv_freq": ("F32", (4,)),
            },
            {layer + "mlp.down_proj.weight": ("F32", (64, 160)), "lm_head.weight": ("BF16", (1000, 64))},
        ],
    )
    weights = read_weights(tmp_path)
    assert weights.source == "headers of 2 safetensors files"
    assert weights.layers[0].parameters == 64 * 64 + 64 * 160
    assert weights.layers[0].bytes == 2 * 64 * 64 + 4 * 64 * 160
    assert weights.head.bytes == weights.embedding.bytes == 2 * 64_000
    assert read_weights(tmp_path, "bfloat16").layers[0].bytes == 2 * (64 * 64 + 64 * 160)
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    tied = read_weights(tmp_path)
    assert tied.head.bytes == 0
    assert tied.tied_head.bytes == 2 * 64_000


def test_packed_weights_count_their_parameters(tmp_path: Path) -> None:
    config = SMALL | {
        "model_type": "quite_new",
        "num_hidden_layers": 1,
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64},
    }
    layer = "model.layers.0.self_attn."
    tensors = {
        layer + "q_proj.qweight": ("I32", (8, 64)),
        layer + "q_proj.qzeros": ("I32", (1, 8)),
        layer + "q_proj.scales": ("F16", (1, 64)),
        layer + "q_proj.g_idx": ("I32", (64,)),
        "vision_tower.encoder.layers.7.conv.weight": ("BF16", (10,)),
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_file(tmp_path / "model.safetensors", tensors)
    weights = read_weights(tmp_path)
    assert weights.layers[0].parameters == 64 * 64
    assert weights.layers[0].bytes == 4 * 8 * 64 + 4 * 8 + 2 * 64 + 4 * 64
    assert weights.other == Weights((Block("other", "whole", 1, 10, 20),))
    assert any(
        "'quite_new' is not known: tensors are divided by their names" in note for note in weights.notes
    )


def header(text: bytes, room: int = 0, length: int | None = None) -> bytes:
    return (len(text) if length is None else length).to_bytes(8, "little") + text + bytes(room)


ENTRY = b'{"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}'


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "has 0 bytes, and its header says that it has 0"),
        (b"\0" * 7, "it is cut short or no safetensors file"),
        (header(ENTRY, length=1 << 63), "its header says that it has 9,223,372,036,854,775,808"),
        (header(ENTRY, length=len(ENTRY) + 5), "it is cut short or no safetensors file"),
        (header(ENTRY), "ends before its tensor 'a': the download is incomplete"),
        (header(ENTRY, 3), "ends before its tensor 'a'"),
        (header(ENTRY[:-1], 4), "has a header that is not the JSON of safetensors"),
        (header(b"[" * 50_000, 4), "has a header that is not the JSON of safetensors"),
        (header(ENTRY.replace(b"[0, 4]", b"[-4, 0]"), 4), "whole numbers from 0"),
        (header(ENTRY.replace(b"[0, 4]", b"[NaN, 4]"), 4), "whole numbers from 0"),
        (header(ENTRY.replace(b"[0, 4]", b"[0, 1e30]"), 4), "whole numbers from 0"),
        (header(ENTRY.replace(b"[0, 4]", b"[4, 0]"), 4), "gives 'a' -4 bytes of data"),
        (header(ENTRY.replace(b"[2]", b"[3]"), 4), "gives 'a' 4 bytes of data, and BF16 of shape [3] has 6"),
        (header(ENTRY.replace(b"[2]", b"[-2]"), 4), "whole numbers from 0"),
        (header(ENTRY.replace(b"BF16", b"BF17"), 4), "has 'a' of the unknown type 'BF17'"),
    ],
)
def test_a_broken_file_is_one_sentence(data: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_header(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert sentence in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_huge_header_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write((100_000_000).to_bytes(8, "little"))
        file.truncate(200_000_000)
    with pytest.raises(InputError, match="has a header of 100,000,000 bytes: 32,000,000 are the most"):
        read_header(path)


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        (
            '{"weight_map": {"a": "../x.safetensors"}}',
            "names the file '../x.safetensors': files of a model lie",
        ),
        ('{"weight_map": {"a": "/etc/passwd"}}', "names the file '/etc/passwd'"),
        ('{"weight_map": {"a": "sub/x.safetensors"}}', "names the file 'sub/x.safetensors'"),
        ('{"weight_map": {"a": ".x.safetensors"}}', "names the file '.x.safetensors'"),
        ('{"weight_map": {"a": "x.safetensors"}}', "x.safetensors: there is no such file: the download is"),
        (
            '{"weight_map": {"b": "real.safetensors"}}',
            "names 'b' in real.safetensors, whose header does not have",
        ),
        ('{"weight_map": {"a": 5}}', "is no index of safetensors files"),
        ("[]", "is no index of safetensors files"),
        ('{"weight_map": ' + "[" * 50_000, "is no index of safetensors files"),
    ],
)
def test_a_broken_index_is_one_sentence(index: str, sentence: str, tmp_path: Path) -> None:
    write_file(tmp_path / "real.safetensors", {"a": ("BF16", (2,))})
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(InputError) as caught:
        read_folder(tmp_path)
    assert sentence in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_layer_that_no_file_has_is_told(tmp_path: Path) -> None:
    layers = {f"model.layers.{layer}.mlp.up_proj.weight": ("BF16", (160, 64)) for layer in (0, 2, 3)}
    write_model(tmp_path, SMALL | {"model_type": "llama"}, [layers])
    with pytest.raises(InputError, match="has 4 layers, and the safetensors files hold nothing of layer 1"):
        read_weights(tmp_path)


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda text: header(text, 8)))
@settings(max_examples=50, deadline=None)
def test_any_bytes_are_a_header_or_one_sentence(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        path.write_bytes(data)
        found = header_of(path)
    assert str(found).isprintable() if isinstance(found, InputError) else all(t.bytes >= 0 for t in found)


def header_of(path: Path) -> list[Stored] | InputError:
    try:
        return read_header(path)
    except InputError as error:
        return error


def test_every_family_of_the_tests_is_known() -> None:
    assert {kind for kind, _ in TINY} <= FAMILIES.keys()
