"""Agents: what the numbers of a node's processes prove about the launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from build import TWO, placed, snap

from topocheck.agents import in_plain_blocks
from topocheck.snapshot import FullSnapshot, RankClaim


def node(name: str, node_rank: int | None, ranks: list[int], locals_: Sequence[int | None]) -> FullSnapshot:
    claims = tuple(
        RankClaim(rank=rank, size=8, local_rank=local, node_rank=node_rank, gpu=n)
        for n, (rank, local) in enumerate(zip(ranks, locals_, strict=True))
    )
    return msgspec.structs.replace(snap(name, ranks), ranks=claims)


PLAIN = [0, 1, 2, 3]


def test_blocks_in_the_order_of_the_node_ranks_are_plain() -> None:
    found = placed(TWO, node("node-a", 0, PLAIN, PLAIN), node("node-b", 1, [4, 5, 6, 7], PLAIN))
    assert in_plain_blocks(found)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((1, PLAIN, PLAIN), (0, [4, 5, 6, 7], PLAIN)),
        ((0, PLAIN, PLAIN), (0, [4, 5, 6, 7], PLAIN)),
        ((None, PLAIN, PLAIN), (None, [4, 5, 6, 7], PLAIN)),
        ((0, PLAIN, [None] * 4), (1, [4, 5, 6, 7], PLAIN)),
        ((0, [0, 2, 4, 6], PLAIN), (1, [1, 3, 5, 7], PLAIN)),
        ((0, PLAIN, PLAIN), (1, PLAIN, PLAIN)),
    ],
    ids=["swapped", "one node rank", "no node rank", "no local rank", "cyclic", "ranks twice"],
)
def test_anything_else_is_looked_at_agent_by_agent(first: Any, second: Any) -> None:
    assert not in_plain_blocks(placed(TWO, node("node-a", *first), node("node-b", *second)))
