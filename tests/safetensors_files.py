"""Safetensors files as a model has them: true headers, and data that is a hole in the file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

__all__ = ["WIDTHS", "write_file", "write_model"]

WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4, "U8": 1, "F8_E4M3": 1}
"""Bytes of an element."""

Tensors = Mapping[str, tuple[str, Sequence[int]]]


def write_file(path: Path, tensors: Tensors) -> None:
    """One file with these tensors, each as (dtype, shape)."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, (dtype, shape) in tensors.items():
        end = place + prod(shape) * WIDTHS[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + place)


def write_model(folder: Path, config: object, files: Sequence[Tensors]) -> None:
    """A folder with config.json, an index and these files."""
    (folder / "config.json").write_text(json.dumps(config))
    homes: dict[str, str] = {}
    for number, tensors in enumerate(files, 1):
        name = f"model-{number:05}-of-{len(files):05}.safetensors"
        write_file(folder / name, tensors)
        homes |= dict.fromkeys(tensors, name)
    index = {"metadata": {"total_size": 0}, "weight_map": homes}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
