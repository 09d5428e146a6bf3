"""The sizes of a model from its Hugging Face config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from topocheck.errors import PlanError
from topocheck.inputfile import read_config_json
from topocheck.plan import Model
from topocheck.spelling import CONFIG_KEYS

__all__ = ["ConfigModel", "parse_config", "read_config"]

TIED = "tie_word_embeddings"
FIX = "'model' takes the path of a config.json, or layers, hidden, heads ... of the model"


class ConfigModel(Model, frozen=True, kw_only=True):
    """Sizes that were read from a config.json, with its text: weights follow from more than the sizes."""

    source: str
    """The file."""
    text: bytes
    """Its text."""


def read_config(path: Path) -> ConfigModel:
    """Model of a config.json, or of a folder that holds one. Raises PlanError that names the file.

    Only regular files are read: a plan is untrusted and may name a device or a pipe.
    """
    file, data = read_config_json(path, FIX, PlanError)
    return ConfigModel(**msgspec.structs.asdict(parse_config(data, file)), source=file, text=data)


def parse_config(data: bytes | str, source: str) -> Model:
    """Model of the text of a config.json. Raises PlanError.

    Sizes that the file does not name stay None; those of the language part of a multimodal model stand
    under `text_config`, which goes before the top level.
    """
    try:
        config = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise PlanError("is not the JSON of a model's config.json", path=source, fix=FIX) from error
    inner = config.get("text_config")
    parts = [inner, config] if isinstance(inner, dict) else [config]
    sizes: dict[str, int] = {}
    for part in parts:
        for key, ours in CONFIG_KEYS.items():
            if ours not in sizes and part.get(key) is not None:
                sizes[ours] = _size(part[key], key, source)
    if not sizes:
        problem = f"has none of {', '.join(CONFIG_KEYS)}"
        raise PlanError(problem, path=source, fix=FIX)
    tied = next((part[TIED] for part in parts if isinstance(part.get(TIED), bool)), None)
    return Model(**sizes, tied=tied)


def _size(value: object, key: str, source: str) -> int:
    least = 0 if CONFIG_KEYS[key] == "experts" else 1
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= 1_000_000_000:
        return value
    problem = f"expected a whole number from {least} to 1000000000 for {key}"
    raise PlanError(problem, path=source, fix="write the model's sizes into the plan instead")
