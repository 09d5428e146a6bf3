"""What the engines' own functions answered, against what topocheck answers.

The vectors in tests/engines/ were made by running the functions of the engines (TensorRT-LLM's arithmetic
was typed anew). `refused` marks sizes for which the engine raises, or would start the wrong stages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from topocheck.engines import ENGINES
from topocheck.engines.layout import Layout, Slots
from topocheck.engines.sglang import slots as sglang_slots
from topocheck.errors import LayoutError

FOLDER = Path(__file__).parent / "engines"
LAYOUTS: list[dict[str, Any]] = json.loads((FOLDER / "rank_layouts.json").read_text())
SPLITS: list[dict[str, Any]] = json.loads((FOLDER / "layer_partitions.json").read_text())

UNSPLIT = {"attention_tensor": "tensor", "expert_tensor": "tensor", "tensor_pipeline": "pipeline"}
"""Groups that the engine builds in any case, and the ones that they equal where nothing divides them."""
PRODUCTS = {
    "data_context": ("data", "context"),
    "tensor_context": ("tensor", "context"),
    "tensor_pipeline": ("tensor", "pipeline"),
    "tensor_expert": ("expert_tensor", "expert"),
    "data_shard_context": ("data_shard", "context"),
}
"""Groups over two axes; where one has a single rank, the engine's list is that of the other."""


def name(vector: dict[str, Any]) -> str:
    sizes = vector.get("sizes") or {key: vector[key] for key in ("layers", "stages")}
    return f"{vector['engine']}-" + ",".join(f"{key}{size}" for key, size in sizes.items() if size > 1)


def asked_sizes(vector: dict[str, Any]) -> dict[str, int]:
    """vLLM was run as for a MoE model, whose expert group is not the user's number."""
    sizes: dict[str, int] = dict(vector["sizes"])
    if vector["engine"] == "vllm" and "groups" in vector:
        sizes["expert"] = len(vector["groups"]["expert"][0])
    return sizes


def layout_of(vector: dict[str, Any]) -> Layout:
    return ENGINES[vector["engine"]].layout(asked_sizes(vector), vector["version"], vector.get("order"))


def groups_of(layout: Layout, kind: str) -> list[list[int]]:
    if kind not in layout.extra and kind in PRODUCTS:
        kind = max(PRODUCTS[kind], key=layout.size)
    if kind not in layout.extra and kind not in layout.sizes:
        kind = UNSPLIT.get(kind, kind)
    return [list(group) for group in layout.groups(kind)]


@pytest.mark.parametrize("vector", [v for v in LAYOUTS if "groups" in v], ids=name)
def test_every_group_of_every_kind_is_the_engines_own(vector: dict[str, Any]) -> None:
    layout = layout_of(vector)
    assert layout.world == vector["world"]
    found = {kind: groups_of(layout, kind) for kind in vector["groups"]}
    assert found == vector["groups"]


@pytest.mark.parametrize("vector", [v for v in LAYOUTS if "slots" in v and "refused" not in v], ids=name)
def test_every_rank_is_on_the_node_and_gpu_that_the_engine_gives_it(vector: dict[str, Any]) -> None:
    layout = layout_of(vector)
    nodes = [layout.world // vector["nodes"]] * vector["nodes"]
    if vector["engine"] == "sglang":
        found = sglang_slots(layout, nodes, **vector["gpu"])
    else:
        found = ENGINES[vector["engine"]].slots(layout, nodes) or Slots([], [])
    assert [[slot.node, slot.gpu] for slot in found] == vector["slots"]


@pytest.mark.parametrize("vector", [v for v in LAYOUTS if "refused" in v], ids=name)
def test_sizes_that_the_engine_refuses_are_refused(vector: dict[str, Any]) -> None:
    def laid_and_placed() -> None:
        layout = layout_of(vector)
        ENGINES[vector["engine"]].slots(layout, [1] * vector.get("nodes", 1))

    with pytest.raises(LayoutError):
        laid_and_placed()


@pytest.mark.parametrize("vector", SPLITS, ids=name)
def test_every_stage_holds_the_layers_that_the_engine_gives_it(vector: dict[str, Any]) -> None:
    engine = ENGINES[vector["engine"]]
    asked = (vector["layers"], vector["stages"], vector.get("override"), vector["version"])
    if vector.get("refused"):
        with pytest.raises(LayoutError):
            engine.split(*asked, vector.get("options", {}))
        return
    split = engine.split(*asked, vector.get("options", {}))
    held = [[list(part) for part in split.held(stage)] for stage in range(vector["stages"])]
    assert held == vector.get("chunks", [[part] for part in vector.get("ranges", ())])
