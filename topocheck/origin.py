"""Where a plan came from: what of the evidence it was made of cannot be held against it."""

from __future__ import annotations

from dataclasses import dataclass

from topocheck.snapshot import JobFact

__all__ = ["NOTHING_TAKEN", "Origin"]


@dataclass(frozen=True, slots=True)
class Origin:
    """What a plan was made of that nobody declared."""

    said: tuple[str, ...] = ()
    """Where each of its values comes from, one sentence each."""
    taken: frozenset[JobFact] = frozenset()
    """Statements of the evidence that it repeats: to compare them with it proves nothing."""
    world: int | None = None
    """World size in the evidence that its data parallel size follows from; None if it does not."""
    nodes_seen: bool = False
    """Its nodes are those on which the evidence shows ranks."""


NOTHING_TAKEN = Origin()
"""A plan that was declared, in a file or by a launch command of the user's."""
