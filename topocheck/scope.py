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
RANKS = re.compile(
    r"(?P<of>\b[\w-]+ )?\branks? (?=[0-9])(?P<listed>[0-9., >-]*)"
    r"|\bedge (?P<ends>[0-9> -]+)|\{(?P<set>[0-9, ]+)\}"
)
OTHER_RANKS = re.compile(
    r"(?:node|local|group|(?:tensor|pipeline|data|context|sequence|expert|stage)(?:[- ]parallel)?"
    r"|[DPCE]P) ranks?|TP rank\b",
    re.IGNORECASE,
)
"""Ranks that count in something else than the world."""
GOES_ON = re.compile(r"(?:and|or|to|through|&|\+|/|:|\u2013)\s*(?:rank )?[0-9]", re.IGNORECASE)
"""A list of ranks that goes on in a form of its own."""
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
        known = [(machine.name, machine.names) for machine in placement.inventory.machines]
        known += [(node.name, node.machine.names if node.machine else ()) for node in placement.nodes]
        for name, others in known:
            self.names.setdefault(name, (name, *others))
            if set(others) - {*self.names[name]}:
                self.names[name] = (name,)  # of two hosts of one name, the others are of one of them alone
        self._positions: dict[str, list[int]] = {}
        for node in placement.nodes:
            self._positions.setdefault(node.name, []).append(node.index)
        self._odd = [name for name in self.names if not WORD.fullmatch(name)]

    def locate(self, subject: str, ranks: Sequence[int] = ()) -> Where:
        """Where a subject is; `ranks` are those of a finding that has no other subject."""
        if CUT.search(subject):
            return NOWHERE
        told = told_ranks(subject)
        if told is None or any(each.stop > self.placement.world for each in told):
            return NOWHERE
        named = self._named_in(subject)
        nodes = tuple(dict.fromkeys((*named, *self._nodes_of(told))))
        if BETWEEN.search(subject):
            told = self._ranks_on(nodes)
        elif not told:
            told = [range(rank, rank + 1) for rank in ranks] or self._ranks_on(nodes)
        if not named:
            nodes = self._nodes_of(told) if self._are_placed(told) else ()
        return Where(nodes or None, tuple(told) or None)

    def _named_in(self, subject: str) -> list[str]:
        """Nodes whose names stand in it; a full stop may end a sentence."""
        rest = RANKS.sub(lambda match: f"{match['of'] or ''} ", subject)  # a host may be called 5
        words = dict.fromkeys(chain(*((word, word.rstrip(".-")) for word in WORD.findall(rest))))
        named = [word for word in words if word in self.names]
        return named + [name for name in self._odd if name in subject]

    def _ranks_on(self, nodes: Iterable[str]) -> list[range]:
        """Ranks of nodes; () unless each of them has some."""
        places = [place for name in nodes for place in self._positions.get(name, [-1])]
        found = [self.placement.ranks_on.get(place, []) for place in places]
        return [range(rank, rank + 1) for rank in chain(*found)] if all(found) else []

    def _places_of(self, ranks: Iterable[range]) -> dict[int | None, None]:
        """Positions of the nodes of ranks, None among them where one is not known."""
        column = self.placement.placed.node
        return dict.fromkeys(chain(*(column[each.start : each.stop] for each in ranks)))

    def _are_placed(self, ranks: Iterable[range]) -> bool:
        """The nodes of all of them are known."""
        return None not in self._places_of(ranks)

    def _nodes_of(self, ranks: Iterable[range]) -> tuple[str, ...]:
        """Nodes of ranks, as far as they are known."""
        places = self._places_of(ranks)
        return tuple(self.placement.nodes[place].name for place in places if place is not None)


def names_ranks(subject: str) -> bool:
    """A subject speaks of ranks, and so of one world."""
    return any(not of_another(match) for match in RANKS.finditer(subject))


def of_another(match: re.Match[str]) -> bool:
    """Ranks of a node, a group or an axis, and no global ones."""
    return OTHER_RANKS.match(match[0]) is not None


def told_ranks(subject: str) -> list[range] | None:
    """Ranks that a subject names; None where the list cannot be read to its end."""
    found: list[range] = []
    for match in RANKS.finditer(subject):
        if of_another(match):
            continue
        text = match["listed"] or match["ends"] or match["set"]
        items = list(read_items(text))
        if GOES_ON.match(subject, match.end()):
            return None
        if None in items or not items or set(ITEM.sub("", text)) - set(" ,->"):
            return None
        found += [item for item in items if item is not None]
    return found


def read_items(text: str) -> Iterator[range | None]:
    """Numbers and ranges of a list of ranks; None for a range that ends before it starts."""
    for item in ITEM.finditer(text):
        first, last = int(item[1]), int(item[2] or item[1])
        yield range(first, last + 1) if first <= last else None
