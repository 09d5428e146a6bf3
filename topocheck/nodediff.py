"""What moved inside one node between two looks: its GPUs, their links, NICs, versions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from topocheck.difference import Kind
from topocheck.ranges import first
from topocheck.report import NicReport
from topocheck.whereabouts import Card, NodeView

__all__ = ["NodeDifference", "Pair", "Tables", "Told", "cards", "compare_node", "exchanged"]

Table = Sequence[Sequence[str | None]]
"""Class of each pair of GPUs by their places."""


class Told(NamedTuple):
    """One thing that is not as it was."""

    kind: Kind
    about: str
    before: str
    after: str
    number: int = 1
    """Of how many things."""


class Pair(NamedTuple):
    """One node in both looks."""

    before: NodeView
    after: NodeView


@dataclass(slots=True)
class NodeDifference:
    """What became of one node."""

    changes: list[Told] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)
    """What the baseline shows and is not shown now."""
    notes: list[str] = field(default_factory=list)
    gpus: int = 0
    """GPUs that were compared."""
    versions: int = 0
    """Versions that were compared."""


def cards(node: NodeView, place: int) -> Card | None:
    """One GPU of a node, if its list has it."""
    return node.cards[place] if place < len(node.cards) else None


def compare_node(pair: Pair, tables: Tables) -> NodeDifference:
    """GPUs, then what joins them; of a machine that was exchanged as a whole nothing else is told."""
    found = NodeDifference()
    before, after = pair
    if exchanged(pair):
        found.gpus = len(before.cards)
        found.changes.append(Told("node", before.name, "one machine", "another: none of its GPUs is known"))
        return found
    if None not in (before.boot, after.boot) and before.boot != after.boot:
        found.notes.append(f"{after.name} was started anew")
    places = compare_cards(pair, found)
    if None not in (before.domain, after.domain) and before.domain != after.domain:
        found.changes.append(Told("link", "NVLink domain", f"{before.domain}", f"{after.domain}"))
    joined = tables.compare(pair, places)
    found.changes += joined.links
    if joined.silent:
        found.lacks.append("links")
    if before.nics == after.nics or not compare_nics(pair, found):
        found.changes += joined.near
    compare_versions(pair, found)
    return found


def exchanged(pair: Pair) -> bool:
    """Both looks have UUIDs, and none in common."""
    old, new = ({card.uuid for card in node.cards} - {None} for node in pair)
    return bool(old and new and not old & new)


def compare_cards(pair: Pair, found: NodeDifference) -> dict[int, int]:
    """Find each GPU again; gives its place now by its place before."""
    before, after = pair
    if before.cards == after.cards:
        found.gpus = len(before.cards)
        return {place: place for place in range(len(before.cards))}
    if not after.cards:
        found.lacks.append("GPUs")
    places: dict[int, int] = {}
    gone: list[int] = []
    for place, card in enumerate(before.cards if after.cards else ()):
        now = find(card, after.cards)
        if now is None:
            gone.append(place)
            continue
        found.gpus += 1
        places[place] = now
        other = after.cards[now]
        if card.uuid and card.uuid == other.uuid and moved(card, other):
            found.changes.append(Told("gpu", card.name, slot(card), slot(other)))
        elif card.uuid and other.uuid and card.uuid != other.uuid:
            found.changes.append(Told("gpu", slot(card), card.name, other.name))
    if gone:
        found.lacks.append(f"{first([before.cards[place].name for place in gone], 2)}")
    return places


def find(card: Card, among: Sequence[Card]) -> int | None:
    """The same GPU in another list: by UUID, else by slot, else by index."""
    for name in ("uuid", "bus", "nvml"):
        wanted = getattr(card, name)
        if wanted is None:
            continue
        found = next((place for place, other in enumerate(among) if getattr(other, name) == wanted), None)
        if found is not None:
            return found
        if name == "bus" and all(other.bus for other in among):
            return None
    return None


def moved(old: Card, new: Card) -> bool:
    """A GPU is in another slot, or where slots are not known has another index."""
    if old.bus is not None and new.bus is not None:
        return old.bus != new.bus
    return None not in (old.nvml, new.nvml) and old.nvml != new.nvml


def slot(card: Card) -> str:
    """The place of a GPU in words."""
    index = "" if card.nvml is None else f"GPU {card.nvml}"
    return " at ".join(part for part in (index, card.bus) if part) or card.name


class Joined(NamedTuple):
    """What became of the way devices of a node are joined."""

    links: list[Told]
    """Pairs of GPUs with another class."""
    silent: bool
    """Some links that were shown are not now."""
    near: list[Told]
    """GPUs whose nearest RDMA devices are others."""


class Tables:
    """Shapes that were compared before: a cluster has a few dozen of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, ...], Joined] = {}

    def compare(self, pair: Pair, places: Mapping[int, int]) -> Joined:
        """What changed between two shapes; `places` are those of the GPUs now by those before."""
        before, after = pair
        if before.shape is None or before.shape is after.shape:
            return Joined([], silent=False, near=[])
        numbers = tuple([card.nvml for card in before.cards])
        key = id(before.shape), id(after.shape), tuple(places.items()), numbers
        if key not in self._known:
            new = () if after.shape is None else after.shape.links
            links, silent = compare_tables(before, before.shape.links, new, places)
            self._known[key] = Joined(links, silent, list(nearness(pair, places)))
        return self._known[key]


def compare_tables(
    node: NodeView, old: Table, new: Table, places: Mapping[int, int]
) -> tuple[list[Told], bool]:
    """Class of each pair of GPUs; a GPU whose links all changed alike is told once."""
    silent = False
    changed: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for a, row in enumerate(old):
        for b in range(a + 1, len(row)):
            was, now = row[b], cell(new, places.get(a), places.get(b))
            silent = silent or (was is not None and now is None and a in places and b in places)
            if was is not None and now is not None and was != now:
                changed.setdefault((was, now), []).append((a, b))
    told = [Told("link", between(node, ends), was, now, len(ends)) for (was, now), ends in changed.items()]
    return told, silent


def cell(rows: Table, a: int | None, b: int | None) -> str | None:
    """One cell of a table, whichever half has it."""
    if a is None or b is None or max(a, b) >= len(rows) or max(a, b) >= len(rows[min(a, b)]):
        return None
    return rows[min(a, b)][max(a, b)]


def between(node: NodeView, ends: Sequence[tuple[int, int]]) -> str:
    """Pairs of GPUs in words, by their common end if they have one."""
    common = set(ends[0]).intersection(*ends) if len(ends) > 1 else set()
    if common:
        return f"GPU {index(node, common.pop())} to {len(ends)} others"
    return first([f"GPU {index(node, a)} to {index(node, b)}" for a, b in ends], 3)


def index(node: NodeView, place: int) -> int:
    """NVML index of a GPU, else its place."""
    card = cards(node, place)
    return place if card is None or card.nvml is None else card.nvml


def compare_nics(pair: Pair, found: NodeDifference) -> bool:
    """RDMA devices by name: gone, new, another card under the name. True if that says all there is to say."""
    before, after = pair
    if before.nics is None:
        return False
    if after.nics is None:
        found.lacks.append("NICs")
        return True
    told = []
    for name, nic in before.nics.items():
        other = after.nics.get(name)
        words = ("there", "gone") if other is None else another(nic, other)
        if words is not None:
            told.append(Told("nic", name, *words))
    told += [Told("nic", name, "not there", "there") for name in after.nics if name not in before.nics]
    found.changes += told
    return bool(told)


def another(old: NicReport, new: NicReport) -> tuple[str, str] | None:
    """What tells that one name stands for another device now."""
    for name in ("guid", "bus"):
        was, now = getattr(old, name), getattr(new, name)
        if None not in (was, now) and was != now:
            return f"{was}", f"{now}"
    return None


def nearness(pair: Pair, places: Mapping[int, int]) -> Iterator[Told]:
    """GPUs whose nearest RDMA devices are others now."""
    before, after = pair
    if before.shape is None or after.shape is None:
        return
    for place, near in enumerate(before.shape.near):
        now = places.get(place)
        own = after.shape.near[now] if now is not None and now < len(after.shape.near) else ()
        if near and own and sorted(near) != sorted(own):
            yield Told("nic", f"nearest to GPU {index(before, place)}", first(near, 3), first(own, 3))


def compare_versions(pair: Pair, found: NodeDifference) -> None:
    """Versions that both looks know."""
    before, after = pair
    if before.versions.keys() - after.versions.keys():
        found.lacks.append("versions")
    for name, was in before.versions.items():
        now = after.versions.get(name)
        found.versions += now is not None
        if now is not None and now != was:
            found.changes.append(Told("version", name, was, now))
