"""What a Hugging Face config.json says of a model's architecture: the sizes that its weights follow from.

Sizes that the file does not name stay None, except those that the model's class in transformers (5.24) fills
in and that published files leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from topocheck.errors import InputError
from topocheck.inputfile import read_config_json

__all__ = ["DTYPES", "Architecture", "Quantisation", "parse_architecture", "read_architecture"]

MOST = 1_000_000_000
MOST_LAYERS = 1_000
MOST_WORDS = 1_000

DTYPES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}
"""Bytes of an element by the name that config.json and engines give."""

KEYS: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "intermediate": ("intermediate_size", "ffn_dim", "n_inner"),
    "vocabulary": ("vocab_size",),
    "positions": ("max_position_embeddings", "n_positions"),
    "embedding_width": ("word_embed_proj_dim",),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token"),
    "expert_intermediate": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts",),
    "shared_intermediate": ("shared_expert_intermediate_size",),
    "first_dense": ("first_k_dense_replace",),
    "moe_every": ("moe_layer_freq", "decoder_sparse_step"),
    "mtp_layers": ("num_nextn_predict_layers",),
    "sliding_window": ("sliding_window",),
}
"""Our names and those of config.json, the one that counts first."""
MAY_BE_ZERO = {"experts", "shared_experts", "first_dense", "mtp_layers", "q_lora_rank", "sliding_window"}
ALTERNATIVES = {"moe_layer_freq": list, "num_local_experts": list}
"""Keys that some files write as a list, one entry a layer: not read."""

FLAGS: Mapping[str, str] = {
    "attention_bias": "attention_bias",
    "mlp_bias": "mlp_bias",
    "qk_norm": "use_qk_norm",
    "norm_before": "do_layer_norm_before",
}

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma": {"tied": True, "head_dim": 256},
    "gemma2": {"tied": True, "head_dim": 256},
    "gemma3_text": {
        "tied": True,
        "head_dim": 256,
        "heads": 8,
        "kv_heads": 4,
        "vocabulary": 262_208,
    },
    "gpt2": {"tied": True},
    "gpt_oss": {"head_dim": 64, "attention_bias": True},
    "opt": {"tied": True},
    "qwen3": {"head_dim": 128},
}
"""What the classes of transformers fill in where published files leave it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """`quantization_config` of a config.json."""

    method: str
    """quant_method: `fp8`, `awq`, `gptq`, `mxfp4`, `compressed-tensors` ..."""
    bits: int | None = None
    """Bits of a weight."""
    group: int | None = None
    """Weights along the input that share a scale; -1 is all."""
    block: tuple[int, int] | None = None
    """Rows and columns that share a scale, for fp8."""
    skipped: tuple[str, ...] = ()
    """Modules that stay as they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Sizes of one model; None where the file does not name them."""

    source: str
    """File, for messages."""
    family: str
    """model_type of the language model: `llama`, `deepseek_v3`; empty where the file has none."""
    layers: int
    """Transformer layers, without those for multi-token prediction."""
    hidden: int | None = None
    heads: int | None = None
    """Attention heads."""
    kv_heads: int | None = None
    """Key-value heads; None is as many as attention heads."""
    head_dim: int | None = None
    """Width of a head; None is hidden / heads."""
    intermediate: int | None = None
    """Columns of a dense feed-forward."""
    vocabulary: int | None = None
    positions: int | None = None
    embedding_width: int | None = None
    """Width of the token embedding where it differs from the hidden size (OPT)."""
    q_lora_rank: int | None = None
    """MLA: rank of the query's down projection; None without."""
    kv_lora_rank: int | None = None
    """MLA: width of the latent that the KV cache holds; None is attention without MLA."""
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    """MLA: width of the rotary key, one for all heads, which the KV cache holds too."""
    v_head_dim: int | None = None
    experts: int | None = None
    """Routed experts of a layer; None or 0 for a dense model."""
    experts_per_token: int | None = None
    expert_intermediate: int | None = None
    """Columns of one expert; None is `intermediate`."""
    shared_experts: int | None = None
    shared_intermediate: int | None = None
    """Columns of all shared experts together; None is shared_experts x expert_intermediate."""
    first_dense: int | None = None
    """Layers at the start that are dense."""
    moe_every: int | None = None
    dense_layers: tuple[int, ...] = ()
    """mlp_only_layers: dense layers by index."""
    mtp_layers: int | None = None
    """Layers for multi-token prediction that follow the last."""
    sliding_window: int | None = None
    """Tokens that a sliding-window layer looks back."""
    layer_types: tuple[str, ...] = ()
    """Kind of attention of each layer, where the file lists it: `sliding_attention`, `full_attention`."""
    attention_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    norm_before: bool = True
    """OPT: norms stand before attention, and one after the last layer."""
    tied: bool = False
    """tie_word_embeddings: the head is the embedding."""
    dtype: str | None = None
    """Data type of the weights; None where the file does not name one that topocheck knows."""
    quantisation: Quantisation | None = None
    towers: tuple[str, ...] = ()
    """Parts that are no language model, by their key: `vision_config`."""

    @property
    def width(self) -> int:
        """Width of a head. Raises InputError where it is not known."""
        return self.head_dim or self.need("hidden") // self.need("heads")

    @property
    def groups(self) -> int:
        """Key-value heads. Raises InputError where they are not known."""
        return self.kv_heads or self.need("heads")

    def need(self, name: str) -> int:
        """A size that must be known. Raises InputError that names the key of config.json."""
        value: int | None = getattr(self, name)
        if value is None:
            raise InputError(f"names no {KEYS[name][0]}", path=self.source, fix="the weights depend on it")
        return value

    def is_moe(self, layer: int) -> bool:
        """Whether a layer has routed experts."""
        if not self.experts or layer in self.dense_layers:
            return False
        every = self.moe_every or 1
        if self.family.startswith("qwen"):
            return (layer + 1) % every == 0
        return layer >= (self.first_dense or 0) and layer % every == 0


def read_architecture(path: Path) -> Architecture:
    """Architecture of a config.json, or of a folder that holds one. Raises InputError that names the file.

    Only regular files are read: a plan is untrusted and may name a device or a pipe.
    """
    file, data = read_config_json(path, "give a model's folder or its config.json")
    return parse_architecture(data, file)


def parse_architecture(data: bytes | str, source: str) -> Architecture:
    """Architecture in the text of a config.json. Raises InputError.

    Sizes of the language part of a multimodal model stand under `text_config`, which goes before the top
    level.
    """
    try:
        config = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise InputError("is not the JSON of a model's config.json", path=source) from None
    inner = config.get("text_config")
    parts = [inner, config] if isinstance(inner, dict) else [config]
    reader = _Reader(parts, source)
    family = reader.word("model_type")
    defaults = dict(DEFAULTS.get(family, {}))
    fields: dict[str, Any] = {**defaults, **reader.sizes(), **reader.flags()}
    if "layers" not in fields:
        raise InputError("names no num_hidden_layers", path=source, fix="is it a model's config.json?")
    if fields["layers"] > MOST_LAYERS:
        raise InputError(f"names {fields['layers']:,} layers: {MOST_LAYERS:,} are the most", path=source)
    return Architecture(
        source=source,
        family=family,
        dtype=reader.dtype(),
        quantisation=reader.quantisation(),
        dense_layers=reader.numbers("mlp_only_layers"),
        layer_types=reader.words("layer_types"),
        towers=tuple(sorted(key for key in ("audio_config", "vision_config") if config.get(key))),
        **{key: value for key, value in fields.items() if value is not None},
    )


class _Reader:
    """Values of the parts of a config.json, the first part that has a key counts."""

    def __init__(self, parts: list[dict[str, Any]], source: str) -> None:
        self.parts = parts
        self.source = source

    def value(self, *keys: str) -> tuple[str, Any]:
        """The key that is there, and its value; None where none is."""
        for part in self.parts:
            for key in keys:
                if part.get(key) is not None:
                    return key, part[key]
        return keys[0], None

    def bad(self, expected: str, key: str) -> InputError:
        return InputError(f"expected {expected} for {key}", path=self.source)

    def sizes(self) -> dict[str, int]:
        found = {}
        for name, keys in KEYS.items():
            key, value = self.value(*keys)
            if value is None or isinstance(value, ALTERNATIVES.get(key, ())):
                continue
            least = 0 if name in MAY_BE_ZERO else 1
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
                raise self.bad(f"a whole number from {least} to {MOST}", key)
            found[name] = value
        return found

    def flags(self) -> dict[str, bool]:
        found = {}
        for name, key in (*FLAGS.items(), ("tied", "tie_word_embeddings")):
            value = self.value(key)[1]
            if value is not None:
                if not isinstance(value, bool):
                    raise self.bad("true or false", key)
                found[name] = value
        return found

    def word(self, key: str) -> str:
        value = self.value(key)[1]
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > 100 or not value.isprintable():
            raise self.bad("a short word", key)
        return value

    def words(self, key: str) -> tuple[str, ...]:
        value = self.value(key)[1]
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self.bad("a list of words", key)
        return tuple(value[:MOST_LAYERS])

    def numbers(self, key: str) -> tuple[int, ...]:
        value = self.value(key)[1]
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            raise self.bad("a list of whole numbers", key)
        return tuple(value[:MOST_LAYERS])

    def dtype(self) -> str | None:
        name = self.value("dtype", "torch_dtype")[1]
        name = name.removeprefix("torch.") if isinstance(name, str) else None
        return name if name in DTYPES else None

    def quantisation(self) -> Quantisation | None:
        given = self.value("quantization_config", "compression_config")[1]
        if given is None:
            return None
        if not isinstance(given, dict):
            raise self.bad("an object", "quantization_config")
        inside = _Reader([given], self.source)
        _, block = inside.value("weight_block_size")
        return Quantisation(
            method=inside.word("quant_method") or "unnamed",
            bits=inside.bounded("bits", 1, 16) or inside.bits_of_groups(),
            group=inside.bounded("group_size", -1, MOST),
            block=inside.block(block),
            skipped=inside.words("modules_to_not_convert")[:MOST_WORDS],
        )

    def bounded(self, key: str, least: int, most: int) -> int | None:
        value = self.value(key)[1]
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most or not value:
            raise self.bad(f"a whole number from {least} to {most} other than 0", key)
        return value

    def bits_of_groups(self) -> int | None:
        """config_groups.*.weights.num_bits of compressed-tensors, where all groups agree."""
        groups = self.value("config_groups")[1]
        weights = (
            [g.get("weights") for g in groups.values() if isinstance(g, dict)]
            if isinstance(groups, dict)
            else []
        )
        bits = {
            w.get("num_bits") for w in weights[:100] if isinstance(w, dict) and _is_size(w.get("num_bits"))
        }
        return bits.pop() if len(bits) == 1 else None

    def block(self, value: Any) -> tuple[int, int] | None:
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 2 or not all(_is_size(item) for item in value):
            raise self.bad("two whole numbers above 0", "weight_block_size")
        return value[0], value[1]


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST
