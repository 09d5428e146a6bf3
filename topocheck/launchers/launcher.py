"""What topocheck knows of one launcher. Each family is a module of this folder with its `LAUNCHER`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from topocheck.ranges import local_ranks

__all__ = ["Claim", "Environment", "Launcher", "Level", "Note", "NoteKind"]

Environment = Mapping[str, str]
"""Variables of one process, as it sees them."""

Level = Literal["process", "node", "pod"]
"""What the launcher numbers: processes (ranks), nodes (agents that start processes), or pods."""

NoteKind = Literal["malformed", "incomplete", "contradictory", "leaked", "elastic", "devices"]


class Note(msgspec.Struct, frozen=True, gc=False):
    """Something about a claim that a reader of it must know."""

    kind: NoteKind
    """malformed: a variable holds no number. incomplete: one is missing. contradictory: two exclude each
    other. leaked: the values are another process's. elastic: the number may change while the job runs.
    devices: what the launcher does to the visible devices."""
    text: str
    """In words, with the variable and what it holds."""
    variable: str | None = None
    """The variable at fault, where it is one."""


class Claim(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one launcher family's variables say of one process. None is not known, never zero."""

    family: str
    """Name of the launcher, as in LAUNCHERS."""
    level: Level = "process"
    """What is numbered. Unless it is `process`, `rank`, `local_rank` and `size` are None: a pod's index
    is no rank."""
    rank: int | None = None
    """Global rank in its world."""
    local_rank: int | None = None
    """Rank among the processes of the same node."""
    node_rank: int | None = None
    """Index of the node, or of the pod at level `pod`."""
    size: int | None = None
    """Number of processes of the world."""
    local_size: int | None = None
    """Number of processes of this launch on this node, or that each node or pod is to start."""
    nodes: int | None = None
    """Number of nodes or pods."""
    node_name: str | None = None
    """Name of the node as the launcher gives it: a label, untrusted."""
    world: str = ""
    """Which numbering the ranks belong to, where the launcher has several: an LWS group, a child job."""
    notes: tuple[Note, ...] = ()
    """Faults and peculiarities."""


class Launcher(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The rules of one launcher family."""

    name: str
    """As `RankClaim.family` names it."""
    title: str
    """As people write it."""
    level: Level = "process"
    """What it numbers."""
    variables: tuple[str, ...]
    """Variables that `claim` reads, or that tell how it was started."""
    claim: Callable[[Environment], Claim | None]
    """The family's claim; None if its variables are not there. Never raises: faults are notes."""
    rank_nodes: Callable[[Sequence[int], int | None, str | None], list[int]] | None = None
    """(slots by node, processes, policy) -> node by rank; None if the launcher starts no ranks.

    Nodes are given in the launcher's order. `processes` None fills all slots. The policy is in the
    launcher's own words; None is its default. Raises LayoutError for what the launcher refuses.
    """
    local_ranks: Callable[[Sequence[int]], list[int]] = local_ranks
    """Node by rank -> local rank by rank."""
