"""Where a subject of a finding is: the nodes and ranks that its own words name.

A waiver holds for nodes, ranks or a group, so everything that a subject names must be found in its words:
too much is harmless, because all of it must be within the scope, and what may be cut is nowhere, where no
scope holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from topocheck.placement import Placement

__all__ = ["NOWHERE", "Places", "Where", "names_ranks"]

WORD = re.compile(r"[\w.-]+")
RANKS = re.compile(r"(?<!node )(?<!local )\branks? (?=[0-9])([0-9., >-]*)|\bedge ([0-9> -]+)|\{([0-9, ]+)\}")
ITEM = re.compile(r"([0-9]{1,9})(?:\.\.([0-9]{1,9}))?")
BETWEEN = re.compile(r"\(rank [0-9]+ -> [0-9]+\)")
"""One pair of ranks that stands for all between two nodes."""
CUT = re.compile(r"\b[0-9]+ more\b|\.\.\.$| of world ")
"""A list that was cut, or ranks of another world."""


@dataclass(frozen=True, slots=True)
class Where:
    """Nodes and ranks that a subject is about; None where they are not known."""

    nodes: tuple[str, ...] | None
    ranks: tuple[range, ...] | None


NOWHERE = Where(None, None)
"""Nothing is known: only a waiver without a scope holds here."""


class Places:
    """Nodes by all their names, and which ranks lie on them."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.names: dict[str, tuple[str, ...]] = {}
        """All names of each node and host, by the one that findings use."""
        for machine in placement.inventory.machines:
            self.names[machine.name] = (machine.name, *machine.names)
        for node in placement.nodes:
            known = node.machine.names if node.machine is not None else ()
            self.names[node.name] = (node.name, *known)
        self._positions = {node.name: node.index for node in placement.nodes}
        self._odd = [name for name in self.names if not WORD.fullmatch(name)]

    def locate(self, subject: str, ranks: Sequence[int] = ()) -> Where:
        """Where a subject is; `ranks` are those of a finding that has no other subject."""
        if CUT.search(subject):
            return NOWHERE
        told = told_ranks(subject)
        if told is None or any(each.stop > self.placement.world for each in told):
            return NOWHERE
        named = [word for word in WORD.findall(subject) if word in self.names]
        nodes = tuple(dict.fromkeys((*named, *(name for name in self._odd if name in subject))))
        if BETWEEN.search(subject):
            told = self._ranks_on(nodes)
        elif not told:
            told = [range(rank, rank + 1) for rank in ranks] or self._ranks_on(nodes)
        return Where(nodes or self._nodes_of(told), tuple(told) or None)

    def _ranks_on(self, nodes: Iterable[str]) -> list[range]:
        """Ranks of nodes; () unless each of them has some."""
        found = [self.placement.ranks_on.get(self._positions.get(name, -1), []) for name in nodes]
        return [range(rank, rank + 1) for rank in chain(*found)] if all(found) else []

    def _nodes_of(self, ranks: Iterable[range]) -> tuple[str, ...] | None:
        """Nodes of ranks; None unless all of them are known."""
        column = self.placement.placed.node
        places = dict.fromkeys(chain(*(column[each.start : each.stop] for each in ranks)))
        if not places or None in places:
            return None
        return tuple(self.placement.nodes[place].name for place in places if place is not None)


def names_ranks(subject: str) -> bool:
    """A subject speaks of ranks, and so of one world."""
    return RANKS.search(subject) is not None


def told_ranks(subject: str) -> list[range] | None:
    """Ranks that a subject names; None where the list cannot be read to its end."""
    found: list[range] = []
    for match in RANKS.finditer(subject):
        text = match[match.lastindex or 0]
        items = list(read_items(text))
        if None in items or not items or set(ITEM.sub("", text)) - set(" ,->"):
            return None
        found += [item for item in items if item is not None]
    return found


def read_items(text: str) -> Iterator[range | None]:
    """Numbers and ranges of a list of ranks; None for a range that ends before it starts."""
    for item in ITEM.finditer(text):
        first, last = int(item[1]), int(item[2] or item[1])
        yield range(first, last + 1) if first <= last else None
