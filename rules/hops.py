"""PP, GR: stages and replicas lie close to each other in the network."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise

from topocheck.ask import Ask
from topocheck.domain import domains_of
from topocheck.engines.layout import Group, Lines
from topocheck.fabric_graph import SUPPLY, FabricGraph, fabric_of
from topocheck.placement import Placement
from topocheck.ranges import first, fold
from topocheck.rendezvous import REPLICATED
from topocheck.rule import Alike, Evidence, Finding, NotApplicable, Situations, read_at, rule, the
from topocheck.stagepairs import stage_pairs, stages_together
from topocheck.subjects import INNER, along, crossing_pairs

__all__ = ["RULES"]

Chain = tuple[int, ...]
"""Nodes of one pipeline by index, in the order of its stages."""
Pair = tuple[int, int]
MOST_NAMES = 64
"""Names of nodes that an order is printed with."""


def ordered(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, where another order of its nodes could matter."""
    together = stages_together(placement)
    if together is not None:
        return together
    if placement.unplaced:
        return the(placement)
    nodes = {node for pipeline in chains(placement) for node in pipeline}
    if len(nodes) == 2:
        return NotApplicable("two nodes have one boundary in any order")
    proven = domains_of(placement)
    domains = {proven[node] for node in nodes}
    if len(domains) == 1 and isinstance(domains.pop(), str):
        return NotApplicable("every boundary between nodes lies in one NVLink domain")
    return the(placement)


def chains(placement: Placement) -> list[Chain]:
    """Distinct ways of pipelines from node to node."""
    return placement.keep("pipelines over nodes", find_chains)


def find_chains(placement: Placement) -> list[Chain]:
    """The ranks of one TP group mostly have neighbours on the same nodes: distinct ways are looked at."""
    if placement.layout.size("pipeline") == 2 and not placement.unplaced:
        return [(pair.a, pair.b) for pair in stage_pairs(placement) if pair.a != pair.b]
    rows = along(placement.layout, "pipeline", placement.placed.node)
    distinct = dict.fromkeys([row for row, _ in groupby(rows)])
    ways = dict.fromkeys(tuple([place for place, _ in groupby(row) if place is not None]) for row in distinct)
    return [places for places in ways if len(places) > 1]


@dataclass(frozen=True, slots=True)
class Cost:
    """Switches on the way over all boundaries, and over the worst one."""

    total: int
    worst: int

    def better(self, other: Cost) -> bool:
        """Less in one of them and not more in the other."""
        return self != other and self.total <= other.total and self.worst <= other.worst


@rule("PP006", "neighbouring stages are the fewest hops apart", over=ordered, severity="warning")
def stages_are_near(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Another order of the same nodes would pass fewer switches, and set no other group farther apart."""
    ask.rest_on(placement.placed.basis)
    if placement.unplaced:
        ask.rank_gap(placement.unplaced)
        return
    found, fabric = chains(placement), fabric_of(placement)
    predicted = placement.phase == "predicted"
    assumed = [node.name for node in placement.nodes if predicted and node.bound_by == "assumed"]
    if assumed:
        ask.gap(
            "which node is started as which", assumed[:MOST_NAMES], "nodes: in the plan, by name and in order"
        )
        return
    boundaries = set(chain.from_iterable(map(pairwise, found)))
    distance = distances(placement, fabric)
    unknown = {node for pair in boundaries if distance(*pair) is None for node in pair}
    if unknown or fabric is None:
        lost = [node for node in unknown if fabric is None or node not in fabric.places] or sorted(unknown)
        names = [placement.nodes[node].name for node in sorted(lost)]
        ask.gap("how many switches lie between the nodes of neighbouring stages", names[:MOST_NAMES], SUPPLY)
        return
    now = cost(boundaries, distance)
    if now is None or now.worst <= 1:
        return
    best = best_order(placement, fabric, found, boundaries)
    if best is not None:
        yield farther_than_needed(placement, fabric, boundaries, now, best)


def distances(placement: Placement, fabric: FabricGraph | None) -> Callable[[int, int], int | None]:
    """Hops between two nodes by index; nodes of one NVLink domain need no network."""
    nodes, domains = placement.nodes, domains_of(placement)

    def between(a: int, b: int) -> int | None:
        if isinstance(domains[a], str) and domains[a] == domains[b]:
            return 0
        return None if fabric is None else fabric.hops(nodes[a], nodes[b])

    return between


def cost(pairs: Iterable[Pair], distance: Callable[[int, int], int | None]) -> Cost | None:
    """Cost of these boundaries; None if one of them is not known."""
    hops = [distance(*pair) for pair in pairs]
    known = [count for count in hops if count is not None]
    return Cost(sum(known), max(known, default=0)) if len(known) == len(hops) else None


def best_order(
    placement: Placement, fabric: FabricGraph, found: Sequence[Chain], boundaries: set[Pair]
) -> tuple[Cost, Mapping[int, int]] | None:
    """The best other order: its cost, and which node takes the place of which; None if none is better."""
    distance = distances(placement, fabric)
    others = other_pairs(placement) - boundaries
    now, around = cost(boundaries, distance), cost(others, distance)
    slots = list(dict.fromkeys(chain.from_iterable(found)))
    best = None
    for order in orders(fabric, slots, found):
        moved = dict(zip(slots, order, strict=True))
        then = cost(((moved[a], moved[b]) for a, b in boundaries), distance)
        aside = cost(((moved.get(a, a), moved.get(b, b)) for a, b in others), distance)
        if then is None or now is None or not then.better(now if best is None else best[0]):
            continue
        if around is None or aside is None or aside.total <= around.total:
            best = then, moved
    return best


def other_pairs(placement: Placement) -> set[Pair]:
    """Nodes that groups of other kinds join. Replicas of a server have nothing to say to each other."""
    apart = {"pipeline", *(("data",) if placement.plan.engine in REPLICATED else ())}
    kinds = tuple(name for name, size in placement.layout.axes if size > 1 and name not in apart)
    extra = tuple(kind for kind in placement.layout.extra if placement.layout.size(kind) > 1)
    joined = (pair[0] for pair in crossing_pairs(placement, (*kinds, *extra)).values())
    return {(pair.a.index, pair.b.index) for pair in joined if pair.a is not None and pair.b is not None}


def orders(fabric: FabricGraph, slots: Sequence[int], found: Sequence[Chain]) -> Iterator[list[int]]:
    """Orders worth a look: nodes of one switch side by side, in each pipeline, in all, or whole pipelines."""
    near = nearness(fabric, slots)
    sizes = {len(pipeline) for pipeline in found}
    apart = len(slots) == sum(map(len, found))
    if apart:
        yield [node for pipeline in found for node in sorted(pipeline, key=near.__getitem__)]
    yield sorted(slots, key=near.__getitem__)
    if apart and len(sizes) == 1:
        yield packed(sorted(slots, key=near.__getitem__), near, sizes.pop())


def nearness(fabric: FabricGraph, slots: Sequence[int]) -> dict[int, int]:
    """Rank of each node's switch in a walk from the first, which ends one part of a tree before the next.

    Nodes on no switch, which reach their neighbours in an NVLink domain, come last.
    """
    import networkx as nx  # noqa: PLC0415 - only where an order may be wrong

    root = next(fabric.places[node][0] for node in slots if node in fabric.places)
    walk = [root, *(switch for _, switch in nx.bfs_edges(fabric.graph, root))]
    rank = {switch: number for number, switch in enumerate(walk)}
    places = {node: fabric.places.get(node, ("",)) for node in slots}
    return {node: rank.get(switches[0], len(rank)) for node, switches in places.items()}


def packed(nodes: Sequence[int], near: Mapping[int, int], size: int) -> list[int]:
    """Pipelines of so many nodes: first those that fit below one switch, then the rest side by side."""
    whole: list[int] = []
    rest: list[int] = []
    for _, group in groupby(nodes, key=near.__getitem__):
        own = list(group)
        fitting = len(own) - len(own) % size
        whole += own[:fitting]
        rest += own[fitting:]
    return whole + rest


def farther_than_needed(
    placement: Placement,
    fabric: FabricGraph,
    boundaries: Iterable[Pair],
    now: Cost,
    best: tuple[Cost, Mapping[int, int]],
) -> Finding:
    """The finding: what it costs, and the order that costs less."""
    nodes, distance, (then, moved) = placement.nodes, distances(placement, fabric), best
    far = sorted(pair for pair in boundaries if distance(*pair) == now.worst)
    names = [nodes[moved.get(place, place)].name for place in range(placement.expected)]
    a, b = far[0]
    return Finding(
        message=f"stage boundaries pass {now.total} switches, {now.worst} of them between {nodes[a]} and "
        f"{nodes[b]}; in another order of the same nodes they pass {then.total}, {then.worst} at the worst "
        "boundary. Every microbatch takes the longer way",
        fix=f"start the nodes in this order (hostfile, node ranks, `nodes:` of the plan): "
        f"{first(names, MOST_NAMES)}",
        cause="order of nodes",
        subjects=tuple(f"{nodes[a]} - {nodes[b]}" for a, b in far[:8]),
        count=len(far),
        evidence=tuple(fabric.evidence(nodes[node]) for node in (a, b) if node in fabric.places),
    )


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of the model and the nodes that it lies on."""

    index: int
    ranks: Group
    nodes: tuple[int, ...]
    fits: int
    """Nodes that it needs."""

    def __str__(self) -> str:
        return f"replica {self.index} (ranks {fold(self.ranks)})"


def copies(placement: Placement) -> Situations[Copy] | NotApplicable:
    """Replicas that fill whole nodes, or of which several fill one; those that lie as they should are one."""
    layout = placement.layout
    inner = tuple(axis for axis in INNER if axis in layout.sizes)
    size = len(Lines(layout.axes, inner).members)
    if size == placement.world:
        return NotApplicable("one replica")
    share, over = divmod(placement.world, placement.expected)
    if over or (size % share and share % size):
        return NotApplicable(f"replicas of {size} ranks do not fill {placement.expected} nodes evenly")
    return placement.keep(
        "copies", lambda p: sort_copies(p, Lines(layout.axes, inner), max(size // share, 1))
    )


def sort_copies(placement: Placement, replicas: Lines, fits: int) -> dict[Hashable, Sequence[Copy]]:
    """Copies by whether they lie on as many nodes as they need."""
    column, members, firsts = placement.placed.node, replicas.members, replicas.firsts

    def copy(index: int) -> Copy:
        ranks = tuple([firsts[index] + member for member in members])
        places = dict.fromkeys([column[rank] for rank in ranks])
        return Copy(index, ranks, tuple([place for place in places if place is not None]), fits)

    together, apart = list[int](), list[int]()
    rows = zip(*[shifted(column, firsts, member) for member in members], strict=True)
    for index, row in enumerate(rows):
        places = set(row)
        (together if len(places) <= fits and None not in places else apart).append(index)
    found: dict[Hashable, Sequence[Copy]] = (
        {"whole": Alike(together, copy, shifted(column, firsts, 0))} if together else {}
    )
    return found | {index: [copy(index)] for index in apart}


def shifted(column: list[int | None], ranks: Sequence[int], by: int) -> list[int | None]:
    """Entries of a column for ranks that are so far behind the given ones."""
    if isinstance(ranks, range):
        return column[ranks.start + by : ranks.stop + by : ranks.step]
    return [column[rank + by] for rank in ranks]


@rule("GR003", "a replica that fits in whole nodes does not straddle them", over=copies, severity="warning")
def replica_stays_together(ask: Ask, copy: Copy) -> Iterator[Finding]:
    """A copy of the model on more nodes than it needs."""
    placement = ask.placement
    ask.rest_on(placement.placed.basis)
    if len(copy.nodes) > copy.fits:
        names = [placement.nodes[place].name for place in copy.nodes]
        yield Finding(
            message=f"{copy} lies on {len(names)} nodes, {first(names)}, and fits in {copy.fits}: traffic of "
            "its stages or groups crosses nodes without need, and one node lost takes more replicas with it",
            fix="let consecutive ranks fill one node after the other (block distribution, data parallel "
            "outermost), or group the nodes by replica",
            cause="straddles",
            subjects=(str(copy),),
            evidence=tuple(seat(placement, copy.ranks, place) for place in copy.nodes[:4]),
            ranks=tuple(copy.ranks[:64]),
        )
    unplaced = [rank for rank in copy.ranks if placement.placed.node[rank] is None]
    if unplaced:
        ask.rank_gap(unplaced)


def seat(placement: Placement, ranks: Group, place: int) -> Evidence:
    """Where the first rank of a replica on a node was read."""
    column = placement.placed
    rank = next(rank for rank in ranks if column.node[rank] == place)
    return read_at(column.at.get(rank), f"rank {rank} is on {placement.nodes[place]}", column.basis)


RULES = (stages_are_near, replica_stays_together)
