"""What moved between two looks at a job: nodes, ranks, GPUs, links, NICs, versions.

Nodes are matched by name, else by the UUIDs of their GPUs, so that a host that came back under another name
did not move. What only one of the two looks shows is compared with nothing: where the later one is silent,
that is said. One thing is told once: a GPU that was exchanged does not move the rank that drives it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from topocheck import __version__
from topocheck.difference import SCHEMA, Change, Compared, Difference, Kind, Lack
from topocheck.nodediff import Pair, Tables, Told, cards, compare_node, exchanged
from topocheck.plan import BASES, Basis
from topocheck.ranges import first, fold
from topocheck.whereabouts import Card, Key, Seat, Whereabouts

__all__ = ["compare"]

MOST_NODES = 16
"""Nodes listed of one change; its count is whole."""
KINDS: tuple[Kind, ...] = ("node", "rank", "gpu", "link", "nic", "version")
PLURAL = {"node": "node", "rank": "rank", "gpu": "GPU", "link": "link", "nic": "NIC", "version": "version"}


class Moved(NamedTuple):
    """Ranks with one answer."""

    before: str
    after: str


@dataclass(slots=True)
class _Result:
    """What is found while two looks are compared."""

    changes: dict[tuple[Kind, str, str, str], list[str]] = field(default_factory=dict)
    """(kind, about, before, after) -> nodes."""
    counts: dict[tuple[Kind, str, str, str], int] = field(default_factory=dict)
    lacks: dict[str, list[str]] = field(default_factory=dict)
    compared: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("ranks", "gpus", "versions"), 0))
    notes: list[str] = field(default_factory=list)

    def change(self, told: Told, node: str) -> None:
        """One thing that moved; the same on several nodes is one."""
        key = told.kind, told.about, told.before, told.after
        self.changes.setdefault(key, []).append(node)
        self.counts[key] = self.counts.get(key, 0) + told.number

    def lack(self, what: str, about: Iterable[str]) -> None:
        """Something that is not shown now."""
        self.lacks.setdefault(what, []).extend(about)


def compare(baseline: Whereabouts, current: Whereabouts) -> Difference:
    """What moved from the baseline to now."""
    found = _Result()
    pairs = match_nodes(baseline, current, found)
    tables = Tables()
    for pair in pairs.values():
        compare_nodes(pair, tables, found)
    basis = compare_ranks(baseline, current, pairs, found)
    lacks = [
        Lack(what=what, about=list(dict.fromkeys(about))[:MOST_NODES], count=len(dict.fromkeys(about)))
        for what, about in found.lacks.items()
    ]
    changes = [
        Change(
            kind=key[0],
            about=key[1],
            before=key[2],
            after=key[3],
            nodes=list(dict.fromkeys(nodes))[:MOST_NODES],
            count=found.counts[key],
        )
        for key, nodes in sorted(found.changes.items(), key=lambda item: KINDS.index(item[0][0]))
    ]
    compared = Compared(nodes=len(pairs), **found.compared)
    some = compared.ranks or compared.gpus or compared.versions
    complete = bool(some) and not lacks
    return Difference(
        schema=SCHEMA,
        tool=f"topocheck {__version__}",
        baseline=baseline.name,
        current=current.name,
        moved=bool(changes),
        complete=complete,
        exit_code=1 if changes else 0 if complete else 3,
        sentence=sentence(changes, lacks, compared),
        basis=basis,
        changes=changes,
        lacks=lacks,
        compared=compared,
        notes=[*baseline.notes, *current.notes, *found.notes],
    )


def match_nodes(baseline: Whereabouts, current: Whereabouts, found: _Result) -> dict[str, Pair]:
    """Nodes of both looks, by the baseline's key: by name, first label or UUIDs of GPUs."""
    names = by_name(current)
    pairs: dict[str, Pair] = {}
    taken: set[str] = set()
    for key, node in baseline.nodes.items():
        other = next((names[name] for name in spellings(node.names) if names.get(name)), None)
        if other is not None and other not in taken:
            pairs[key] = Pair(node, current.nodes[other])
            taken.add(other)
    owners = {card.uuid: key for key, node in current.nodes.items() for card in node.cards if card.uuid}
    for key, node in baseline.nodes.items():
        homes = [owners[card.uuid] for card in node.cards if card.uuid in owners]
        if key not in pairs and homes and homes[0] not in taken:
            pairs[key] = Pair(node, current.nodes[homes[0]])
            taken.add(homes[0])
            found.notes.append(f"{key} is called {homes[0]} now: its GPUs are the same")
    lost = [key for key in baseline.nodes if key not in pairs]
    if lost:
        found.lack("anything", lost)
    new = [key for key in current.nodes if key not in taken]
    if new:
        found.notes.append(f"not in the baseline: {first(new)}")
    return pairs


def by_name(side: Whereabouts) -> dict[str, str | None]:
    """Node of each name and first label; None where several have it."""
    found: dict[str, str | None] = {}
    for key, node in side.nodes.items():
        for name in spellings((key, *node.names)):
            if found.setdefault(name, key) != key:
                found[name] = None
    return found


def spellings(names: Sequence[str]) -> list[str]:
    """Names, then their first labels."""
    return list(dict.fromkeys([*names, *(name.partition(".")[0] for name in names)]))


def compare_nodes(pair: Pair, tables: Tables, found: _Result) -> None:
    """Everything of one node but its ranks."""
    name = pair.after.name
    told = compare_node(pair, tables)
    for change in told.changes:
        found.change(change, name)
    for what in told.lacks:
        found.lack(what, [name])
    found.notes += told.notes
    found.compared["gpus"] += told.gpus
    found.compared["versions"] += told.versions


def compare_ranks(
    baseline: Whereabouts, current: Whereabouts, pairs: Mapping[str, Pair], found: _Result
) -> str:
    """Places of ranks by the strongest kind of evidence that both have; gives it in words."""
    before, after = choose(baseline, current)
    if before is None or after is None:
        told = {key for seats in baseline.ranks.values() for key in seats}
        if told:
            found.lack("where ranks lie", [spell_ranks(told)])
        return ""
    old, new = baseline.ranks[before], current.ranks[after]
    moves: dict[tuple[str, Moved], list[Key]] = {}
    silent = [key for key in old if key not in new]
    swapped = {key for key, pair in pairs.items() if exchanged(pair)}
    for key, seat in old.items():
        now = new.get(key)
        if now is None:
            continue
        found.compared["ranks"] += 1
        move = moved(seat, now, pairs.get(seat.node), current, swapped)
        if move is not None:
            moves.setdefault((now.node, move), []).append(key)
    for (node, move), keys in moves.items():
        found.change(Told("rank", spell_ranks(keys), move.before, move.after, len(keys)), node)
    added = sorted(new.keys() - old.keys())
    if added:
        where = first(dict.fromkeys(new[key].node for key in added), 4)
        found.change(Told("rank", spell_ranks(added), "none", where, len(added)), where)
    if silent:
        found.lack("where ranks lie", [spell_ranks(silent)])
    return before if before == after else f"{before}, then {after}"


def choose(baseline: Whereabouts, current: Whereabouts) -> tuple[Basis | None, Basis | None]:
    """The strongest kind of evidence of both, else the strongest of each; a prediction shows no place."""
    for basis in reversed(BASES):
        if baseline.ranks.get(basis) and current.ranks.get(basis):
            return basis, basis
    best = [
        next((basis for basis in reversed(BASES[1:]) if side.ranks.get(basis)), None)
        for side in (baseline, current)
    ]
    return best[0], best[1]


def moved(
    seat: Seat, now: Seat, pair: Pair | None, current: Whereabouts, swapped: Container[str]
) -> Moved | None:
    """How a rank moved: to another node, or to another GPU of its node, unless all of them are others."""
    home = pair.after.name if pair is not None else seat.node
    if now.node != home:
        return Moved(seat.node, now.node)
    if pair is None or seat.gpu is None or now.gpu is None or seat.node in swapped:
        return None
    old, new = cards(pair.before, seat.gpu), cards(current.nodes[now.node], now.gpu)
    if old is None or new is None or same_place(old, new):
        return None
    return Moved(old.words, new.words)


def same_place(old: Card, new: Card) -> bool:
    """The two are one GPU, or one slot with another GPU in it; GPUs without a common kind of name may be."""
    if old.bus is not None and new.bus is not None:
        return old.bus == new.bus or (old.uuid is not None and old.uuid == new.uuid)
    if old.uuid is not None and new.uuid is not None:
        return old.uuid == new.uuid
    return old.nvml is None or new.nvml is None or old.nvml == new.nvml


def spell_ranks(keys: Iterable[Key]) -> str:
    """`ranks 0..7`, with their worlds where they have names."""
    worlds: dict[str, list[int]] = {}
    for world, rank in keys:
        worlds.setdefault(world, []).append(rank)
    parts = [
        f"rank{'s' * (len(ranks) > 1)} {fold(ranks)}" + (f" of world {world}" if world else "")
        for world, ranks in worlds.items()
    ]
    return first(parts, 4)


def sentence(changes: Sequence[Change], lacks: Sequence[Lack], compared: Compared) -> str:
    """The answer in one sentence."""
    counts: dict[Kind, int] = {}
    for change in changes:
        counts[change.kind] = counts.get(change.kind, 0) + change.count
    parts = [f"{number} {PLURAL[kind]}{'s' * (number > 1)}" for kind, number in counts.items()]
    missing = f"; not shown now: {first(lack_words(lacks), 4)}" if lacks else ""
    if parts:
        return f"moved or changed: {', '.join(parts)}{missing}"
    seen = ", ".join(amounts(compared))
    if not seen:
        return f"nothing could be compared{missing}"
    return (
        f"{'nothing moved as far as both sides show' if lacks else 'nothing moved'}: {seen} compared{missing}"
    )


def amounts(compared: Compared) -> Iterator[str]:
    """How much was compared."""
    for number, noun in ((compared.ranks, "rank"), (compared.gpus, "GPU"), (compared.nodes, "node")):
        if number:
            yield f"{number} {noun}{'s' * (number > 1)}"


def lack_words(lacks: Iterable[Lack]) -> Iterator[str]:
    """What is missing, of whom."""
    for lack in lacks:
        more = lack.count - 3
        yield f"{lack.what} of {', '.join(lack.about[:3])}" + (f" and {more} more" if more > 0 else "")
