"""Weights of a model from its folder: config.json, and the headers of its safetensors files if any.

With files, what they hold counts. Without, the shapes follow from config.json for families that topocheck
knows; for others, and for quantisations whose layout config.json does not fix, the files are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path

from topocheck.errors import InputError
from topocheck.pipeline.architecture import DTYPES, Architecture, Quantisation, read_architecture
from topocheck.pipeline.families import FAMILIES, Entry, end_entries, layer_entries, mtp_entries
from topocheck.pipeline.safetensors import Stored, read_folder
from topocheck.pipeline.tensors import End, blocks_of, holds_parameters, is_buffer, is_linear, place_of
from topocheck.pipeline.weights import Block, ModelWeights, Weights, merged

__all__ = ["read_weights", "weigh", "weigh_stored"]

FIX = "give the folder with its safetensors files: their headers say it"
FLOATS = {"F64", "F32", "F16", "BF16"}


def read_weights(path: Path, dtype: str | None = None) -> ModelWeights:
    """Weights of the model in a folder, or of a config.json alone.

    `dtype` is the data type that the engine loads weights into that are not quantised, in place of the one of
    the files. Raises InputError, with what is missing.
    """
    sizes = read_architecture(path)
    stored, files = read_folder(path) if path.is_dir() else ([], 0)
    return weigh_stored(sizes, stored, files, dtype) if files else weigh(sizes, dtype)


def weigh(sizes: Architecture, dtype: str | None = None) -> ModelWeights:
    """Weights by the architecture alone. Raises InputError for what config.json does not fix."""
    family = FAMILIES.get(sizes.family)
    if family is None:
        raise InputError(
            f"is of the architecture {sizes.family!r}, whose weights topocheck does not know"
            if sizes.family
            else "names no model_type",
            path=sizes.source,
            fix=FIX,
        )
    dtype = dtype or sizes.dtype
    if dtype is None:
        raise InputError("names no dtype of the weights", path=sizes.source, fix="give one: --dtype bfloat16")
    scale = _Scale(sizes, DTYPES[dtype])
    kinds: dict[tuple[bool, frozenset[str]], Weights] = {}

    def layer(index: int) -> Weights:
        moe = sizes.is_moe(index)
        entries = list(layer_entries(family, sizes, moe=moe))
        kept = scale.kept(entries, index)
        if (moe, kept) not in kinds:
            kinds[moe, kept] = scale.weights(entries, kept)
        return kinds[moe, kept]

    extra = sizes.mtp_layers or 0 if family.mtp else 0
    entries = list(mtp_entries(family, sizes)) if extra else []
    mtp = scale.weights(entries, scale.kept(entries, sizes.layers))
    ends: dict[int | End, list[Block]] = {}
    for entry in end_entries(family, sizes):
        end, name = place_of(entry.name)
        ends.setdefault(end, []).extend(scale.blocks(name, entry, quantised=False))
    return _model(
        sizes,
        tuple(layer(index) for index in range(sizes.layers)),
        ends,
        mtp=(mtp,) * extra,
        dtype=dtype,
        source="config.json",
    )


class _Scale:
    """Parameters and bytes of entries as a checkpoint with this data type and quantisation holds them."""

    def __init__(self, sizes: Architecture, width: int) -> None:
        self.sizes = sizes
        self.width = width
        self.method = sizes.quantisation
        self.skipped = frozenset(self.method.skipped if self.method else ())
        if self.method is not None and not _is_known(self.method):
            raise InputError(
                f"has weights quantised as {self.method.method!r}, whose layout config.json does not fix",
                path=sizes.source,
                fix=FIX,
            )

    def kept(self, entries: Iterable[Entry], index: int) -> frozenset[str]:
        """Entries of a layer that quantisation leaves as they are."""
        if self.method is None:
            return frozenset()
        return frozenset(e.name for e in entries if not self.takes(e) or self.is_skipped(index, e.name))

    def takes(self, entry: Entry) -> bool:
        if self.method is not None and self.method.method == "mxfp4":
            return entry.name in {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}
        return is_linear(entry.name)

    def is_skipped(self, index: int, name: str) -> bool:
        """modules_to_not_convert: whole names, beginnings or endings of names; `*` is any layer."""
        words = name.removesuffix(".weight").split(".")
        for prefix in (["model", "layers", str(index)], ["model", "layers", "*"]):
            whole = [*prefix, *words]
            cuts = range(1, len(whole) + 1)
            if any(".".join(whole[:n]) in self.skipped or ".".join(whole[-n:]) in self.skipped for n in cuts):
                return True
        return False

    def weights(self, entries: Iterable[Entry], kept: frozenset[str]) -> Weights:
        return merged(
            block
            for entry in entries
            for block in self.blocks(
                entry.name, entry, quantised=self.method is not None and entry.name not in kept
            )
        )

    def blocks(self, name: str, entry: Entry, *, quantised: bool) -> Iterator[Block]:
        parameters = prod(entry.shape)
        if quantised and self.method is not None:
            size = _quantised_bytes(entry.shape, self.method)
        else:
            size = parameters * (4 if name.endswith("e_score_correction_bias") else self.width)
        return blocks_of(name, parameters * entry.copies, size * entry.copies, entry.shape, self.sizes)


def _is_known(method: Quantisation) -> bool:
    """Whether config.json fixes the layout of the quantised weights."""
    if method.method == "fp8":
        return method.block is not None
    if method.method in {"awq", "gptq"}:
        return method.bits in {4, 8} and method.group is not None
    return method.method == "mxfp4"


def _quantised_bytes(shape: tuple[int, ...], method: Quantisation) -> int:
    """Bytes of one matrix with its scales and zero points.

    fp8: a byte a weight and a float32 a block (`weight_scale_inv`). AWQ, GPTQ: `qweight` and `qzeros` packed
    into int32, float16 `scales` a group, and GPTQ's int32 `g_idx`. MXFP4: 4 bits a weight and a byte for 32.
    """
    if method.method == "mxfp4":
        return prod(shape) // 2 + prod(shape) // 32
    rows, columns = shape
    if method.block is not None and method.method == "fp8":
        return rows * columns + 4 * -(-rows // method.block[0]) * -(-columns // method.block[1])
    bits, group = method.bits or 4, method.group or -1
    groups = 1 if group < 0 else -(-columns // group)
    packed = rows * columns * bits // 8 + groups * rows * bits // 8
    return packed + 2 * groups * rows + (4 * columns if method.method == "gptq" else 0)


def weigh_stored(
    sizes: Architecture, stored: Iterable[Stored], files: int, dtype: str | None = None
) -> ModelWeights:
    """Weights as the headers of the files have them. Raises InputError where a layer is missing."""
    places: dict[int | End, list[Block]] = {}
    for tensor in stored:
        if is_buffer(tensor.name):
            continue
        place, name = place_of(tensor.name)
        if place == "head" and sizes.tied and name.startswith(("lm_head.", "embed_out.")):
            continue  # a copy of the embedding, which engines do not load
        size = tensor.bytes
        if dtype is not None and tensor.dtype in FLOATS and holds_parameters(tensor.name):
            size = tensor.elements * DTYPES[dtype]
        parameters = _parameters(tensor, sizes.quantisation)
        if place == "other":
            places.setdefault(place, []).append(Block("other", "whole", 1, parameters, size))
        else:
            places.setdefault(place, []).extend(blocks_of(name, parameters, size, tensor.shape, sizes))
    missing = next((index for index in range(sizes.layers) if index not in places), None)
    if missing is not None:
        raise InputError(
            f"has {sizes.layers} layers, and the safetensors files hold nothing of layer {missing}",
            path=sizes.source,
            fix="config.json and files belong to different models",
        )
    beyond = sorted(place for place in places if isinstance(place, int) and place >= sizes.layers)
    return _model(
        sizes,
        tuple(merged(places[index]) for index in range(sizes.layers)),
        places,
        mtp=tuple(merged(places[index]) for index in beyond),
        dtype=dtype or sizes.dtype or "",
        source=f"headers of {files} safetensors file{'s' * (files > 1)}",
    )


def _parameters(tensor: Stored, method: Quantisation | None) -> int:
    """Parameters of the model that a tensor holds: packed weights hold several in an element."""
    if not holds_parameters(tensor.name):
        return 0
    if tensor.name.endswith((".qweight", ".weight_packed")) and tensor.dtype in {"I32", "U8"}:
        return tensor.bytes * 8 // ((method.bits if method else None) or 4)
    if tensor.name.endswith("_blocks") or (tensor.dtype == "U8" and method is not None):
        return tensor.elements * 2
    return tensor.elements


def _model(
    sizes: Architecture,
    layers: tuple[Weights, ...],
    ends: Mapping[int | End, list[Block]],
    *,
    mtp: tuple[Weights, ...],
    dtype: str,
    source: str,
) -> ModelWeights:
    return ModelWeights(
        layers=layers,
        embedding=merged(ends.get("embedding", ())),
        norm=merged(ends.get("norm", ())),
        head=merged(ends.get("head", ())),
        other=merged(ends.get("other", ())),
        tied=sizes.tied,
        mtp=mtp,
        dtype=dtype,
        quantisation=sizes.quantisation.method if sizes.quantisation else "",
        source=source,
        notes=tuple(_notes(sizes, ends, mtp, source)),
    )


def _notes(
    sizes: Architecture, ends: Mapping[int | End, list[Block]], mtp: tuple[Weights, ...], source: str
) -> Iterator[str]:
    """What was assumed or left out."""
    if source == "config.json":
        if sizes.towers:
            names = " and ".join(name.removesuffix("_config") for name in sizes.towers)
            yield f"The {names} part of the model is not counted: config.json alone does not give it."
        if sizes.quantisation:
            yield (
                f"Bytes of weights quantised as {sizes.quantisation.method} are those of its usual layout; "
                "the headers of the files would give them exactly."
            )
    elif sizes.family not in FAMILIES:
        yield f"The architecture {sizes.family!r} is not known: tensors are divided by their names alone."
    if mtp:
        size = sum(weights.bytes for weights in mtp)
        yield (
            f"{len(mtp)} layer{'s' * (len(mtp) > 1)} for multi-token prediction with {size:,} bytes "
            f"follow{'s' * (len(mtp) == 1)} layer {sizes.layers - 1}: loaded for speculative decoding alone."
        )
    if ends.get("other"):
        yield "What stands in no layer (vision tower ...) counts whole on each rank of the first stage."
    if not sizes.tied and source != "config.json" and not ends.get("head"):
        yield "The files hold no output head, and config.json does not tie it to the embedding."
