"""What moved between two looks at a job, ready to be shown: `topocheck diff`.

`topocheck schema diff` prints its JSON Schema.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["SCHEMA", "Change", "Compared", "Difference", "Kind", "Lack"]

SCHEMA = "topocheck.diff/1"

Kind = Literal["node", "rank", "gpu", "link", "nic", "version"]
"""What moved."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base of everything in the answer."""


class Change(Part, frozen=True, kw_only=True):
    """One thing that is not as it was."""

    kind: Kind
    """What it is: a machine under a node's name, a rank's place, a GPU, a link, a NIC, a version."""
    about: str
    """What it is about: `ranks 0..7`, `GPU 3`, `driver`."""
    before: str
    """How it was in the baseline."""
    after: str
    """How it is now."""
    nodes: list[str]
    """Nodes that it is about, by their names now; the first ones if there are very many."""
    count: int
    """How many in all: ranks, GPUs, links, devices; for versions nodes."""


class Lack(Part, frozen=True, kw_only=True):
    """Something that the baseline shows and that is not shown now: whether it moved is not known."""

    what: str
    """What is not shown: `where ranks lie`, `links`, `versions`, `anything`."""
    about: list[str]
    """Of what: nodes or ranks; the first ones if there are very many."""
    count: int
    """Of how many in all."""


class Compared(Part, frozen=True, kw_only=True):
    """How much both sides show."""

    nodes: int
    """Nodes."""
    ranks: int
    """Ranks of which both sides show the place."""
    gpus: int
    """GPUs that both sides name by the same kind of name."""
    versions: int
    """Versions, each once for each node."""


class Difference(Part, frozen=True, kw_only=True):
    """The whole answer."""

    schema: str
    """`topocheck.diff/` and the major version."""
    tool: str
    """topocheck and its version."""
    baseline: str
    """The earlier look, as the user gave it."""
    current: str
    """The later one."""
    moved: bool
    """Something moved."""
    complete: bool
    """All that the baseline shows is shown now too, and something was compared."""
    exit_code: int
    """0 nothing moved, 1 something moved, 3 that is not known."""
    sentence: str
    """The answer in one sentence."""
    basis: str
    """What shows where ranks lie: `claimed`, or `claimed, then observed` if the sides differ; else empty."""
    changes: list[Change]
    """What moved, nodes first."""
    lacks: list[Lack]
    """What is not shown now."""
    compared: Compared
    """How much was compared."""
    notes: list[str]
    """Facts that are no move: nodes that were started anew, renamed or added."""
