"""Which layers a Megatron-Core stage builds.

Facts from megatron/core/transformer/transformer_block.py (get_num_layers_to_build), transformer_layer.py
(get_transformer_layer_offset), pipeline_parallel_layer_layout.py and transformer_config.py of core 0.20.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from topocheck.engines.engine import Option
from topocheck.engines.layers import as_declared, check_split, chunked, declared_counts, number
from topocheck.engines.layout import LayerSplit
from topocheck.engines.modules import EMBEDDING_COPY, Modules, at_the_ends
from topocheck.engines.modules import MTP as MTP_MODULE
from topocheck.errors import LayoutError

__all__ = ["OPTIONS", "modules", "split"]

FIRST = "num_layers_in_first_pipeline_stage"
LAST = "num_layers_in_last_pipeline_stage"
EMBEDDING = "account_for_embedding_in_pipeline_split"
LOSS = "account_for_loss_in_pipeline_split"
VIRTUAL = "virtual_pipeline_model_parallel_size"
PER_CHUNK = "num_layers_per_virtual_pipeline_stage"
MTP = "mtp_num_layers"
LAYOUT = "pipeline_model_parallel_layout"
OPTIONS = (
    Option(FIRST, "number", "first_stage"),
    Option(LAST, "number", "last_stage"),
    Option(EMBEDDING, "flag", "account_for_embedding"),
    Option(LOSS, "flag", "account_for_loss"),
    Option(VIRTUAL, "number", "virtual_stages"),
    Option(PER_CHUNK, "number", "layers_per_virtual_stage"),
    Option(MTP, "number", "mtp_layers"),
    Option(LAYOUT, "text", "layout"),
)
NAMES = tuple(option.name for option in OPTIONS)

LONGEST_TEXT = 4_000
LONGEST_REPEAT = 10_000
"""Characters of a layout string and of one repetition in it: above any model, below what fills memory."""


def split(
    layers: int, stages: int, override: str | None, version: str | None, options: Mapping[str, object]
) -> LayerSplit:
    """Layers must divide evenly, unless options or a layout say otherwise.

    `override` is a pipeline_model_parallel_layout string (`Et*15|t*16|t*16|t*14L`) or a count for each
    stage (`15,16,16,14`), which such a layout expresses. Options, by the names of TransformerConfig:
    num_layers_in_first_pipeline_stage and num_layers_in_last_pipeline_stage (integers; the rest is divided
    evenly), account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split (booleans; each
    counts as one layer of the first or last stage), virtual_pipeline_model_parallel_size (chunks a stage) or
    num_layers_per_virtual_pipeline_stage, from which it follows, mtp_num_layers (checked against the layout),
    pipeline_model_parallel_layout (in place of `override`).
    """
    check_split("Megatron-Core", layers, stages, options, NAMES)
    layout = options.get(LAYOUT)
    if layout is not None and (override is not None or not isinstance(layout, str)):
        raise LayoutError(f"Megatron-Core: {LAYOUT} must be one text such as Et*15|t*16|t*16|t*14L")
    override = override if layout is None else str(layout)
    if override is None:
        return _divided(layers, stages, options)
    for key in (FIRST, LAST, EMBEDDING, LOSS, PER_CHUNK):
        if options.get(key):
            raise LayoutError(f"Megatron-Core: {key} does not go together with a pipeline layout")
    if re.fullmatch(r"[0-9,\s-]*", override):
        counts = declared_counts("layers", override, layers, stages)
        return chunked(counts, stages, as_declared("layers", counts))
    return _by_layout(layers, stages, override, options)


def _divided(layers: int, stages: int, options: Mapping[str, object]) -> LayerSplit:
    chunks = _chunks(layers, stages, options)
    first, last = number(options, FIRST), number(options, LAST)
    embedding, loss = _flag(options, EMBEDDING), _flag(options, LOSS)
    if first is None and last is None:
        counts = _uniform(layers, stages, embedding=embedding, loss=loss)
        rule = "Megatron-Core: the same number of layers in each stage"
    elif embedding or loss:
        raise LayoutError(f"Megatron-Core: {EMBEDDING} and {LOSS} do not go together with {FIRST} or {LAST}")
    else:
        counts = _between(layers, stages, first, last)
        given = ((FIRST, first), (LAST, last))
        rule = "Megatron-Core: " + ", ".join(f"{key}={value}" for key, value in given if value is not None)
    if any(count % chunks for count in counts):
        raise LayoutError(f"Megatron-Core: stages of {counts} layers are not divisible by {VIRTUAL} {chunks}")
    virtual = [count // chunks for count in counts] * chunks
    virtual[0] -= embedding
    virtual[-1] -= loss
    if min(virtual) < 0:
        raise LayoutError(f"Megatron-Core: {layers} layers are too few for {stages} stages")
    return chunked(virtual, stages, rule)


def _chunks(layers: int, stages: int, options: Mapping[str, object]) -> int:
    """Virtual stages a stage; of layers a virtual stage as megatron/training/arguments.py derives it."""
    chunks, each = number(options, VIRTUAL, least=1), number(options, PER_CHUNK, least=1)
    if each is None:
        return chunks or 1
    if chunks is not None:
        raise LayoutError(f"Megatron-Core: {VIRTUAL} and {PER_CHUNK} say the same: give one of them")
    if any(number(options, key) is not None for key in (FIRST, LAST)):
        raise LayoutError(f"Megatron-Core: with {FIRST} or {LAST}, give {VIRTUAL} and not {PER_CHUNK}")
    items = layers + _flag(options, EMBEDDING) + _flag(options, LOSS)
    if items % (stages * each):
        raise LayoutError(
            f"Megatron-Core: {items} layers on {stages} stages are not divisible by {PER_CHUNK} {each}"
        )
    return items // stages // each


def _flag(options: Mapping[str, object], key: str) -> bool:
    value = options.get(key, False)
    if not isinstance(value, bool):
        raise LayoutError(f"{key} must be true or false, not {value!r}")
    return value


def _uniform(layers: int, stages: int, *, embedding: bool, loss: bool) -> list[int]:
    """Counts that still hold the embedding and the loss, where these are accounted for."""
    items = layers + embedding + loss
    if items % stages:
        counted = " with embedding or loss counted" if embedding or loss else ""
        raise LayoutError(
            f"Megatron-Core: num_layers ({items}{counted}) is not divisible by "
            f"pipeline_model_parallel_size ({stages})"
        )
    return [items // stages] * stages


def _between(layers: int, stages: int, first: int | None, last: int | None) -> list[int]:
    """Fixed counts at the ends, the rest evenly in between."""
    head = [] if first is None else [first]
    tail = [] if last is None else [last]
    middle = stages - len(head) - len(tail)
    rest = layers - sum(head) - sum(tail)
    if middle < 0:
        raise LayoutError(f"Megatron-Core: {FIRST} and {LAST} need two stages, there is {stages}")
    if middle == 0 and rest:
        raise LayoutError(
            f"Megatron-Core: first and last stage sum to {layers - rest}, the model has {layers} layers"
        )
    if rest < 0 or (middle and rest % middle):
        raise LayoutError(
            f"Megatron-Core: the {rest} layers between first and last stage (of {layers}) are not divisible "
            f"by the {middle} stages between them"
        )
    return head + [rest // middle if middle else 0] * middle + tail


def _by_layout(layers: int, stages: int, text: str, options: Mapping[str, object]) -> LayerSplit:
    """pipeline_model_parallel_layout: virtual stage k is chunk k // PP of stage k % PP."""
    parts = _unrolled(text).split("|")
    whole = "".join(parts)
    if set(whole) - set("EtmL"):
        raise LayoutError(f"Megatron-Core: pipeline layout {text[:80]!r} must be of E, t, m, L and |")
    if not whole.startswith("E") or not whole.endswith("L") or whole.count("E") + whole.count("L") != 2:
        raise LayoutError(
            f"Megatron-Core: pipeline layout {text[:80]!r} must begin with its only E, end with its only L"
        )
    if len(parts) % stages:
        raise LayoutError(
            f"Megatron-Core: pipeline layout has {len(parts)} stages, not divisible by "
            f"pipeline_model_parallel_size ({stages})"
        )
    if whole.count("t") != layers:
        raise LayoutError(
            f"Megatron-Core: pipeline layout sums to {whole.count('t')}, the model has {layers} layers"
        )
    for key, found in ((VIRTUAL, len(parts) // stages), (MTP, whole.count("m"))):
        wanted = number(options, key)
        if wanted is not None and wanted != found:
            raise LayoutError(f"Megatron-Core: pipeline layout has {found} for {key}, which is {wanted}")
    split = chunked([part.count("t") for part in parts], stages, f"pipeline_model_parallel_layout={text}")
    others = {
        name: tuple(place for place, part in enumerate(parts) if sign in part)
        for name, sign in (("embedding", "E"), ("mtp", "m"), ("loss", "L"))
        if sign in whole
    }
    return replace(split, others=others)


def _unrolled(text: str) -> str:
    """Commas dropped, `(ab|)*3` and `t*3` written out: one round each, as parse_str_to_list does it."""
    if len(text) > LONGEST_TEXT:
        raise LayoutError(f"Megatron-Core: pipeline layout is longer than {LONGEST_TEXT} characters")
    text = re.sub(r"\(([^)]+)\)\*([0-9]+)", _repeated, text.replace(",", ""))
    return re.sub(r"(.)\*([0-9]+)", _repeated, text)


def _repeated(match: re.Match[str]) -> str:
    if len(match[2]) > 6 or len(match[1]) * int(match[2]) > LONGEST_REPEAT:
        raise LayoutError(f"Megatron-Core: pipeline layout repeats {match[1][:20]!r} too often")
    return match[1] * int(match[2])


def modules(
    stages: int, split: LayerSplit | None, tied: bool | None, options: Mapping[str, object]
) -> Modules:
    """Embedding first; final norm, head and loss last (gpt_model.py: pre_process, post_process).

    Tied weights are held by the first and the last stage, which all-reduce their gradients. MTP layers run
    on the last stage unless a layout puts them elsewhere, and need the embedding too.
    """
    held = [list(names) for names in at_the_ends(stages, stages - 1, tied)]
    places = split.others.get("mtp", ()) if split is not None else ()
    if not places and options.get(MTP):
        places = (stages - 1,)
    for stage in {place % stages for place in places}:
        held[stage].append(MTP_MODULE)
        if stage and EMBEDDING_COPY not in held[stage]:
            held[stage].append(EMBEDDING_COPY)
    held[-1].append("loss")
    return tuple(map(tuple, held))
