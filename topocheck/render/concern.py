"""What a finding is about, as the page's filter asks it: ranks and nodes, and a name that stays.

Findings carry their subjects as text (`rank 5`, `GPU 3 of gpu-0007`, `TP group 2 (ranks 8..11)`), the first
ones if there are very many; ranks and nodes are read from there, each completed by the other.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from topocheck.render.text import printable, ranges, shorten
from topocheck.report import PlacementReport, ReportedFinding

__all__ = ["Concern", "Homes", "anchor", "concern", "homes_of"]

_RANKS = re.compile(r"\branks? ([0-9]{1,9}(?:(?:\.\.|, )[0-9]{1,9})*)")
_NAMES = re.compile(r"[^\s(),;]+")
_MOST_NODES = 64
_MOST_RANKS = 4096


class Concern(msgspec.Struct, frozen=True):
    """Ranks and nodes that something is about."""

    ranks: str
    """Folded: `0..3, 8`."""
    nodes: str
    """Names, one a line."""
    cut: bool
    """There are more subjects than are listed: it may be about others too."""


class Homes(msgspec.Struct, frozen=True):
    """Where ranks lie, for completing one by the other."""

    node_of: Mapping[int, str]
    ranks_on: Mapping[str, Sequence[int]]


def homes_of(placements: Iterable[PlacementReport]) -> Homes:
    """Homes of all ranks; where several worlds number them alike, those of the first."""
    node_of: dict[int, str] = {}
    ranks_on: defaultdict[str, list[int]] = defaultdict(list)
    for placement in placements:
        for node in placement.nodes:
            ranks_on.setdefault(node.name, [])
        placed = [(rank.rank, rank.node) for rank in placement.ranks if rank.node is not None]
        for number, name in placed:
            ranks_on[name].append(number)
        node_of = dict(placed) | node_of
    return Homes(node_of, ranks_on)


def concern(subjects: Sequence[str], count: int, homes: Homes) -> Concern:
    """What these subjects, `count` in all, are about."""
    ranks: set[int] = set()
    nodes: dict[str, None] = {}
    for subject in subjects:
        told = set(_ranks(subject))
        named = [name for name in _names(subject) if name in homes.ranks_on]
        # A rank of a node is not all of the node; a GPU of it may be any of its ranks.
        ranks.update(told or (rank for name in named for rank in homes.ranks_on[name]))
        nodes.update(dict.fromkeys(named))
    nodes.update(dict.fromkeys(homes.node_of[rank] for rank in sorted(ranks) if rank in homes.node_of))
    cut = count > len(subjects) or len(nodes) > _MOST_NODES or len(ranks) > _MOST_RANKS
    shown = [shorten(printable(name), 100) for name in list(nodes)[:_MOST_NODES]]
    return Concern(ranges(sorted(ranks)[:_MOST_RANKS]), "\n".join(shown), cut)


def _ranks(subject: str) -> Iterator[int]:
    """Ranks that a subject names."""
    for found in _RANKS.finditer(subject):
        for part in found[1].split(", "):
            first, _, last = part.partition("..")
            yield from range(int(first), min(int(last or first), int(first) + _MOST_RANKS) + 1)


def _names(subject: str) -> Iterator[str]:
    """What may be the name of a node in a subject: all of it, or one word."""
    yield subject
    yield from _NAMES.findall(subject)


def anchor(rule: str, finding: ReportedFinding) -> str:
    """Name of a finding that a link may keep: the same rule, cause and subjects have the same one.

    What it measured may change from run to run, and does not count.
    """
    told = "\0".join([rule, finding.cause, *sorted(finding.subjects)])
    digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    plain = re.sub(r"[^A-Za-z0-9]", "", rule)[:20]
    return f"finding-{plain}-{digest}"
