"""Pairs of nodes that neighbouring pipeline stages lie on, and the boundaries between nodes among them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import NamedTuple

from topocheck.placement import Placement
from topocheck.rule import NotApplicable, Situations
from topocheck.subjects import Boundary, Gpus, Places, unknown_boundary

__all__ = ["StagePair", "boundary_of", "stage_boundaries", "stage_pairs", "stages_together"]


class StagePair(NamedTuple):
    """Two nodes, or one, and the ranks of the first that have their next stage on the second."""

    a: int
    b: int
    ranks: Sequence[int]
    """Ranks of the lower stage, ascending."""
    lower: Gpus
    """Their GPUs; of equal ones one object over all pairs."""
    upper: Gpus
    """GPUs of the ranks of the next stage."""


def stage_pairs(placement: Placement) -> list[StagePair]:
    """All pairs of nodes that neighbouring stages lie on, as far as they are known, by their lowest ranks."""
    return placement.keep("stage pairs", find_pairs)


def find_pairs(placement: Placement) -> list[StagePair]:
    """Pairs with their GPUs."""
    gpu = placement.placed.gpu
    upper = gpu[placement.layout.strides["pipeline"] :]  # of the next stage's rank, by that of the lower
    one: dict[Gpus, Gpus] = {}
    found = []
    for (a, b), ranks in stage_places(placement).items():
        if a is None or b is None:
            continue
        if isinstance(ranks, range):
            near, far = gpu[ranks.start : ranks.stop], upper[ranks.start : ranks.stop]
        else:
            near, far = [gpu[rank] for rank in ranks], [upper[rank] for rank in ranks]
        here, there = tuple(near), tuple(far)
        found.append(StagePair(a, b, ranks, one.setdefault(here, here), one.setdefault(there, there)))
    return found


def stage_places(placement: Placement) -> dict[Places, Sequence[int]]:
    """Ranks that have a next stage, by the nodes of both. Those of two nodes mostly follow each other."""
    column, stride = placement.placed.node, placement.layout.strides["pipeline"]
    span = stride * placement.layout.sizes["pipeline"]
    found: dict[Places, Sequence[int]] = {}
    for start in range(0, placement.world, span):
        rank = start
        pairs = zip(column[start : start + span - stride], column[start + stride : start + span], strict=True)
        for pair, run in groupby(pairs):
            here = range(rank, rank + len(list(run)))
            rank = here.stop
            known = found.setdefault(pair, here)
            if isinstance(known, list):
                known.extend(here)
            elif known is not here:
                found[pair] = [*known, *here]
    return found


def stages_together(placement: Placement) -> NotApplicable | None:
    """Proof that no two stages that follow each other lie on two nodes."""
    if placement.layout.size("pipeline") == 1:
        return NotApplicable("one pipeline stage")
    if placement.unplaced or any(pair.a != pair.b for pair in stage_pairs(placement)):
        return None
    return NotApplicable("neighbouring stages share their node everywhere")


def stage_boundaries(placement: Placement) -> Situations[Boundary] | NotApplicable:
    """Pairs of nodes that neighbouring pipeline stages join."""
    together = stages_together(placement)
    if together is not None:
        return together
    apart = [pair for pair in stage_pairs(placement) if pair.a != pair.b]
    found: dict[Hashable, list[Boundary]] = {
        (pair.a, pair.b): [boundary_of(placement, pair)] for pair in apart
    }
    if placement.unplaced:
        found["unplaced"] = [unknown_boundary(placement)]
    return found


def boundary_of(placement: Placement, pair: StagePair) -> Boundary:
    """The boundary between two nodes, by the lowest of its ranks."""
    rank, nodes = pair.ranks[0], placement.nodes
    return Boundary(nodes[pair.a], nodes[pair.b], (rank, rank + placement.layout.strides["pipeline"]))
