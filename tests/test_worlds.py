"""A job of several worlds is declared in the plan, and each world is a plan of its own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import LayoutError
from topocheck.plan import Model, NodeRange, Parallel, Plan, World
from topocheck.worlds import deal, first_gpus, ranks_of, world_plan, worlds_of

FOUR = Parallel(tensor=4)


def plan(**fields: object) -> Plan:
    return Plan(**{"engine": "vllm", "parallel": FOUR, "nodes": ("q1", "q2"), **fields})  # type: ignore[arg-type]


def test_a_plan_of_one_world_is_its_only_world() -> None:
    one = plan()
    assert worlds_of(one) == [("", one)]
    assert first_gpus(one) == [()]


def test_equal_worlds_are_numbered_and_get_the_nodes_in_order() -> None:
    found = worlds_of(plan(nodes=("q1", "q2", "q3", "q4"), worlds=2))
    assert [(name, world.nodes) for name, world in found] == [("0", ("q1", "q2")), ("1", ("q3", "q4"))]
    assert all(world.worlds == 1 and world.parallel == FOUR for _, world in found)


def test_more_worlds_than_nodes_share_them() -> None:
    shared = plan(worlds=4)
    assert [world.nodes for _, world in worlds_of(shared)] == [("q1",), ("q1",), ("q2",), ("q2",)]
    assert first_gpus(shared) == [(), (4,), (), (4,)]
    unnamed = plan(nodes=1, worlds=3)
    assert [world.nodes for _, world in worlds_of(unnamed)] == [1, 1, 1]
    assert first_gpus(unnamed) == [(0,), (4,), (8,)]


def test_a_number_of_worlds_that_the_nodes_do_not_divide_is_refused() -> None:
    with pytest.raises(LayoutError, match="3 worlds cannot be dealt to 2 nodes"):
        worlds_of(plan(worlds=3))
    with pytest.raises(LayoutError, match="cannot be dealt to 1 to 4 nodes"):
        worlds_of(plan(nodes=NodeRange(min=1, max=4), worlds=2))
    assert deal(NodeRange(min=2, max=2), 2) is None


def test_a_world_inherits_what_it_does_not_give() -> None:
    found = dict(
        worlds_of(
            plan(
                model=Model(layers=8),
                worlds={"prefill": World(), "decode": World(parallel=Parallel(pipeline=2), nodes=("q9",))},
            )
        )
    )
    assert found["prefill"] == plan(model=Model(layers=8))
    assert found["decode"].parallel == Parallel(pipeline=2), "what it gives stands whole"
    assert (found["decode"].nodes, found["decode"].model) == (("q9",), Model(layers=8))


def test_a_world_of_another_engine_takes_neither_version_nor_order_nor_layers() -> None:
    whole = plan(engine="megatron", engine_version="0.20.0", order="tp-pp-dp", layers="Et*8L")
    other = world_plan(whole, World(engine="sglang"))
    assert (other.engine_version, other.order, other.layers) == (None, None, None)
    assert world_plan(whole, World(engine="sglang", engine_version="0.5.23")).engine_version == "0.5.23"
    assert world_plan(whole, World(engine="megatron")).order == "tp-pp-dp"


def test_worlds_on_one_node_use_its_gpus_one_after_the_other() -> None:
    whole = plan(
        worlds={
            "small": World(parallel=Parallel(tensor=2), nodes=("q1",)),
            "wide": World(parallel=Parallel(tensor=2, pipeline=2), nodes=("q1", "q2")),
            "last": World(parallel=Parallel(tensor=1), nodes=("q2",)),
        }
    )
    assert first_gpus(whole) == [(), (2, 0), (2,)]


def test_sizes_that_an_engine_refuses_have_no_number_of_ranks() -> None:
    assert ranks_of(plan(parallel=Parallel(tensor=4, expert=3))) is None
    assert ranks_of(plan(parallel=Parallel(tensor=4, pipeline=2, data=3))) == 24


@settings(max_examples=50, deadline=None)
@given(nodes=st.integers(1, 12), worlds=st.integers(1, 24))
def test_every_node_is_dealt_as_often_as_any_other(nodes: int, worlds: int) -> None:
    names = tuple(f"n{number}" for number in range(nodes))
    shares = deal(names, worlds)
    if nodes % worlds and worlds % nodes:
        assert shares is None
        return
    assert shares is not None
    dealt = [name for share in shares for name in share]  # type: ignore[union-attr]
    assert [len(share) for share in shares] == [max(nodes // worlds, 1)] * worlds  # type: ignore[arg-type]
    assert list(dict.fromkeys(dealt)) == list(names)
    assert {dealt.count(name) for name in names} == {max(worlds // nodes, 1)}
    assert deal(nodes, worlds) == [max(nodes // worlds, 1)] * worlds
