"""Meshes and their lines, whatever the engine."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.engines.layout import Axes, Group, LayerSplit, Layout, Lines

NAMES = ("data", "pipeline", "context", "tensor")
MESHES = st.tuples(*(st.integers(1, 5) for _ in NAMES)).map(
    lambda sizes: tuple(zip(NAMES, sizes, strict=True))
)
SOME = st.sets(st.sampled_from(NAMES)).map(lambda names: tuple(sorted(names)))


def layout_of(axes: Axes) -> Layout:
    return Layout("torch", None, axes)


@settings(max_examples=50, deadline=None)
@given(MESHES)
def test_coordinates_lead_back_to_the_rank(axes: Axes) -> None:
    layout = layout_of(axes)
    for rank in range(layout.world):
        at = layout.coordinates(rank)
        assert sum(at[name] * layout.strides[name] for name in at) == rank
        assert all(0 <= at[name] < size for name, size in axes)


@settings(max_examples=50, deadline=None)
@given(MESHES, SOME)
def test_each_rank_lies_on_exactly_one_line_and_members_agree_on_all_other_axes(
    axes: Axes, along: tuple[str, ...]
) -> None:
    layout = layout_of(axes)
    groups = list(Lines(axes, along))
    assert sorted(rank for group in groups for rank in group) == list(range(layout.world))
    assert [group[0] for group in groups] == sorted(group[0] for group in groups)
    assert len(groups) == len(Lines(axes, along))
    for group in groups:
        fixed = [{k: v for k, v in layout.coordinates(r).items() if k not in along} for r in group]
        assert all(position == fixed[0] for position in fixed)
        assert list(group) == sorted(group)


def test_the_groups_of_100_000_ranks_are_ranges() -> None:
    layout = layout_of((("data", 1_250), ("pipeline", 10), ("context", 1), ("tensor", 8)))
    for kind in NAMES:
        assert all(isinstance(group, range) for group in layout.groups(kind))
    stages = Lines(layout.axes, ("pipeline", "tensor"))
    assert list(stages)[-1] == range(99_920, 100_000)


def test_an_axis_that_the_engine_lacks_gives_groups_of_one() -> None:
    layout = layout_of((("pipeline", 2), ("tensor", 2)))
    assert [list(group) for group in layout.groups("context")] == [[0], [1], [2], [3]]
    assert layout.size("context") == 1
    assert layout.coordinate(3, "context") == 0


def test_kinds_are_those_with_more_than_one_rank() -> None:
    axes = (("data", 1), ("pipeline", 2), ("tensor", 4))
    extra: dict[str, Lines | tuple[Group, ...]] = {
        "expert": Lines(axes, ("data", "tensor")),
        "expert_tensor": Lines(axes, ("data",)),
        "decode_context": tuple((rank, rank + 4) for rank in range(4)),
    }
    layout = Layout("vllm", None, axes, extra)
    assert layout.kinds() == ("pipeline", "tensor", "expert", "decode_context")
    assert layout.size("expert") == 4
    assert layout.size("decode_context") == 2


def test_ends_are_the_first_and_last_rank_of_each_line() -> None:
    axes = (("pipeline", 4), ("tensor", 2))
    assert list(Lines(axes, ("pipeline",), ends=True)) == [(0, 6), (1, 7)]


def test_a_stage_holds_its_range_or_its_chunks() -> None:
    assert LayerSplit(((0, 4), (4, 8))).held(1) == ((4, 8),)
    chunks = (((0, 2), (4, 6)), ((2, 4), (6, 8)))
    assert LayerSplit(((0, 2), (2, 4), (4, 6), (6, 8)), chunks=chunks).held(1) == ((2, 4), (6, 8))
