"""What the engines' own functions answered, against what topocheck answers.

The vectors in tests/engines/ were made by running the functions of the engines (TensorRT-LLM's arithmetic
was typed anew). `refused` marks sizes for which the engine raises, or would start the wrong stages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import engine_vectors
import pytest

from topocheck.declared import declare
from topocheck.engines import ENGINES
from topocheck.engines.layout import Layout, Lines, Slots
from topocheck.errors import LayoutError
from topocheck.launchers.ray import actor_name, bundle_order, worker_order
from topocheck.plan import Parallel, Plan

FOLDER = Path(__file__).parent / "engines"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "engines"
LAYOUTS: list[dict[str, Any]] = json.loads((FOLDER / "rank_layouts.json").read_text())
SPLITS: list[dict[str, Any]] = json.loads((FOLDER / "layer_partitions.json").read_text())

UNSPLIT = {"attention_tensor": "tensor", "expert_tensor": "tensor"}
"""Groups that the engine builds in any case, and the ones that they equal where nothing divides them."""
PRODUCTS = {
    "data_context": ("data", "context"),
    "tensor_context": ("tensor", "context"),
    "tensor_pipeline": ("tensor", "pipeline"),
    "tensor_expert": ("expert_tensor", "expert"),
    "data_shard_context": ("data_shard", "context"),
    "expert_data": ("data_shard", "context", "tensor"),
}
"""Groups over several axes, which topocheck keeps only where more than one of them has several ranks."""


def name(vector: dict[str, Any]) -> str:
    sizes = vector.get("sizes") or {key: vector[key] for key in ("layers", "stages")}
    return f"{vector['engine']}-" + ",".join(f"{key}{size}" for key, size in sizes.items() if size > 1)


def having(*keys: str) -> list[dict[str, Any]]:
    """Layout vectors that the engine accepts and that say something of this kind."""
    return [vector for vector in LAYOUTS if "refused" not in vector and set(keys) <= vector.keys()]


def asked_sizes(vector: dict[str, Any]) -> dict[str, int]:
    """vLLM was run as for a MoE model, whose expert group is not the user's number."""
    sizes: dict[str, int] = dict(vector["sizes"])
    if vector["engine"] == "vllm" and "groups" in vector:
        sizes["expert"] = len(vector["groups"]["expert"][0])
    return sizes


def layout_of(vector: dict[str, Any]) -> Layout:
    return ENGINES[vector["engine"]].layout(asked_sizes(vector), vector["version"], vector.get("order"))


def groups_of(layout: Layout, kind: str) -> list[list[int]]:
    groups = layout.groups(UNSPLIT.get(kind, kind))
    if kind in layout.extra or kind in layout.sizes:
        groups = layout.groups(kind)
    elif kind in PRODUCTS and layout.sizes.keys() >= set(PRODUCTS[kind]):
        groups = tuple(Lines(layout.axes, PRODUCTS[kind]))
    elif kind in PRODUCTS:  # two axes of another mesh, of which one has a single rank
        groups = layout.groups(max(PRODUCTS[kind], key=layout.size))
    return [list(group) for group in groups]


@pytest.mark.parametrize("vector", having("groups"), ids=name)
def test_every_group_of_every_kind_is_the_engines_own(vector: dict[str, Any]) -> None:
    layout = layout_of(vector)
    assert layout.world == vector["world"]
    found = {kind: groups_of(layout, kind) for kind in vector["groups"]}
    assert found == vector["groups"]


@pytest.mark.parametrize("vector", having("coordinates"), ids=name)
def test_every_rank_has_the_coordinates_that_the_engine_gives_it(vector: dict[str, Any]) -> None:
    layout = layout_of(vector)
    found = {}
    for axis in vector["coordinates"]:
        place = {rank: at for group in groups_of(layout, axis) for at, rank in enumerate(group)}
        found[axis] = [place[rank] for rank in range(layout.world)]
    assert found == vector["coordinates"]


@pytest.mark.parametrize("vector", having("slots"), ids=name)
def test_every_rank_is_on_the_node_and_gpu_that_the_engine_gives_it(vector: dict[str, Any]) -> None:
    layout = layout_of(vector)
    nodes = [layout.world // vector["nodes"]] * vector["nodes"]
    found = ENGINES[vector["engine"]].slots(layout, nodes, **vector.get("gpu", {})) or Slots([], [])
    assert [[slot.node, slot.gpu] for slot in found] == vector["slots"]


@pytest.mark.parametrize("vector", having("bundles"), ids=name)
def test_bundles_become_ranks_in_the_order_of_rays_newer_executor(vector: dict[str, Any]) -> None:
    assert bundle_order(vector["bundles"], vector["driver"]) == vector["ranked"]
    sizes = layout_of(vector).sizes
    assert [actor_name(sizes, rank) for rank in range(vector["world"])] == vector["actors"]


@pytest.mark.parametrize("vector", having("workers"), ids=name)
def test_workers_become_ranks_in_the_order_of_rays_older_executor(vector: dict[str, Any]) -> None:
    assert worker_order(vector["workers"], vector["driver"]) == vector["ranked"]


@pytest.mark.parametrize("vector", [v for v in LAYOUTS if "refused" in v], ids=name)
def test_sizes_that_the_engine_refuses_are_refused(vector: dict[str, Any]) -> None:
    plan = Plan(
        engine=vector["engine"],
        engine_version=vector["version"],
        parallel=Parallel(**vector["sizes"]),
        order=vector.get("order"),
        nodes=vector.get("nodes", 1),
    )

    def laid_and_placed() -> None:
        layout = declare(plan, vector["world"]).layout
        nodes = [layout.world // vector.get("nodes", 1)] * vector.get("nodes", 1)
        ENGINES[vector["engine"]].slots(layout, nodes, **vector.get("gpu", {}))

    with pytest.raises(LayoutError, match=ENGINES[vector["engine"]].title):
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
    if "ends" in vector:
        places = [
            (k % vector["stages"], k // vector["stages"], n) for n, at in split.others.items() for k in at
        ]
        assert sorted(places) == [(stage, chunk, has) for stage, chunk, (has,) in vector["ends"]]


def test_each_vector_says_something_that_a_test_looks_at() -> None:
    asked = {id(vector) for key in ("groups", "slots", "refused") for vector in LAYOUTS if key in vector}
    assert asked == set(map(id, LAYOUTS))
    assert all({"chunks", "ranges", "refused"} & vector.keys() for vector in SPLITS)


@pytest.mark.parametrize(
    ("file", "ours", "rename"),
    [
        ("rank_layouts.json", LAYOUTS, engine_vectors.layout),
        ("layer_partitions.json", SPLITS, engine_vectors.split),
    ],
)
def test_no_vector_of_the_engines_is_left_out(
    file: str, ours: list[dict[str, Any]], rename: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    if not (SHARED / file).exists():
        pytest.skip(f"the engines' own vectors are not here: {file}")
    theirs = json.loads((SHARED / file).read_text())
    assert len(ours) == len(theirs)
    assert Counter(map(canonical, map(rename, theirs))) == Counter(map(canonical, ours))


def canonical(vector: dict[str, Any]) -> str:
    """A vector as text, whatever the order of its keys."""
    return json.dumps(vector, sort_keys=True)
