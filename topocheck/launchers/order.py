"""How ranks are dealt to nodes, whatever the launcher is called."""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.errors import LayoutError

__all__ = ["MAX_RANKS", "block", "deal", "no_policy"]

MAX_RANKS = 10_000_000
"""More ranks than this are a slip of the keyboard."""


def deal(slots: Sequence[int], processes: int | None = None, *, run: int | None = None) -> list[int]:
    """Node by rank: each node in turn takes `run` ranks, until its slots or the processes are used up.

    `run` None fills a node before the next one (block), 1 is round robin (cyclic). Raises LayoutError
    for negative slots and for more processes than slots.
    """
    if any(count < 0 for count in slots):
        raise LayoutError("a node cannot have fewer than 0 slots")
    total = sum(slots)
    wanted = total if processes is None else processes
    if wanted > MAX_RANKS:
        raise LayoutError(f"{wanted:,} processes are more than topocheck takes ({MAX_RANKS:,})")
    if not 0 <= wanted <= total:
        raise LayoutError(f"{wanted} processes do not fit into the {total} slots of {len(slots)} nodes")
    if run is not None and run < 1:
        raise LayoutError(f"a node cannot take {run} ranks in turn")
    nodes: list[int] = []
    left = [(node, count) for node, count in enumerate(slots) if count]
    while len(nodes) < wanted:
        later = []
        for node, count in left:
            take = min(count if run is None else run, count, wanted - len(nodes))
            nodes += [node] * take
            if count > take:
                later.append((node, count - take))
        left = later
    return nodes


def block(slots: Sequence[int], processes: int | None = None, policy: str | None = None) -> list[int]:
    """Each node filled before the next one, by a launcher that takes no policy."""
    no_policy(policy)
    return deal(slots, processes)


def no_policy(policy: str | None) -> None:
    """Raise LayoutError if a policy is given to a launcher that knows only one."""
    if policy is not None:
        raise LayoutError(f"this launcher fills one node after the other and takes no {policy[:80]!r}")
