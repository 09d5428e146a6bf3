"""The launcher's agents, one for each node rank, and whether their numbers fit each other.

An agent starts the processes of one node, or of one pod of it: two pods on one host are two agents with
two node ranks, and both count their local ranks from 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import msgspec

from topocheck.claims import UNKNOWN, ClaimColumns
from topocheck.launchers.slurm import distribution
from topocheck.placement import Node, Placement
from topocheck.ranges import fold
from topocheck.runs import runs_of
from topocheck.snapshot import At

__all__ = [
    "Agent",
    "Misnumbered",
    "agents",
    "in_plain_blocks",
    "misnumbered",
]


@dataclass(frozen=True, slots=True)
class Agent:
    """Processes of one node that share a node rank."""

    node: Node
    node_rank: int | None
    """None where the launcher gives none, as MPI."""
    numbers: tuple[tuple[int, int | None], ...]
    """(rank, local rank) of each process; a local rank that is not claimed is None."""
    start: int | None
    """The rank that has local rank 0 in a block launch; None if the ranks were dealt otherwise."""
    at: At | None
    """Where the first of them was read, if it has a line of its own."""

    @property
    def ranks(self) -> list[int]:
        """Ranks of its processes in order."""
        return sorted({rank for rank, _ in self.numbers})

    def __str__(self) -> str:
        return f"{self.node} (ranks {fold(self.ranks)})"


@dataclass(frozen=True, slots=True)
class Misnumbered:
    """What does not fit about one agent's numbers."""

    agent: Agent
    fact: str
    """In words."""


def agents(placement: Placement) -> Sequence[Agent]:
    """Agents of the plan's world, in the order of nodes and node ranks."""
    return placement.keep("agents", find_agents)


def find_agents(placement: Placement) -> list[Agent]:
    """Sort the claims by node and node rank; a process that is seen twice is one."""
    claims = placement.inventory.claims.get("")
    if claims is None:
        return []
    found: dict[tuple[int, int], list[int]] = {}
    for machine, start, end in runs(claims.machine):
        node_ranks = claims.node_rank[start:end]
        if node_ranks.count(node_ranks[0]) == end - start:
            found.setdefault((machine, node_ranks[0]), []).extend(range(start, end))
        else:
            for index in range(start, end):
                found.setdefault((machine, claims.node_rank[index]), []).append(index)
    known = [
        (placement.node_of[machine], node_rank, indexes)
        for (machine, node_rank), indexes in found.items()
        if machine in placement.node_of
    ]
    return [
        agent_of(placement.nodes[place], node_rank, indexes, claims)
        for place, node_rank, indexes in sorted(known, key=lambda agent: agent[:2])
    ]


def runs(machines: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(machine, start, end) of neighbouring claims of one machine: a snapshot's claims stand together."""
    start = 0
    for machine, group in groupby(machines):
        end = start + len(list(group))
        yield machine, start, end
        start = end


def agent_of(node: Node, node_rank: int, indexes: Sequence[int], claims: ClaimColumns) -> Agent:
    """One agent from the indexes of its claims; a process that is seen twice is one."""
    first, last = indexes[0], indexes[-1] + 1
    seats: Iterable[tuple[int, int]]
    if last - first == len(indexes):
        seats = zip(claims.rank[first:last], claims.local_rank[first:last], strict=True)
    else:
        seats = ((claims.rank[i], claims.local_rank[i]) for i in indexes)
    numbers = dict.fromkeys((rank, None if local == UNKNOWN else local) for rank, local in seats)
    return Agent(
        node,
        None if node_rank == UNKNOWN else node_rank,
        tuple(numbers),
        start_of(numbers),
        claims.at.get(first) if claims.at else None,
    )


def start_of(numbers: Iterable[tuple[int, int | None]]) -> int | None:
    """The rank that has local rank 0, if all the numbers agree on it."""
    starts = {None if local is None else rank - local for rank, local in numbers}
    return starts.pop() if len(starts) == 1 else None


def misnumbered(placement: Placement) -> Sequence[Misnumbered]:
    """Agents whose rank, local ranks and node rank no launch gives."""
    return placement.keep("misnumbered", find_misnumbered)


def in_plain_blocks(placement: Placement) -> bool:
    """Every node of the plan claims one node rank, and every process rank = node rank x size + local rank.

    The common launch, proven over the columns: 100,000 claims as agents would take ten times as long.
    """
    return placement.keep("plain blocks", find_plain_blocks)


def find_plain_blocks(placement: Placement) -> bool:
    """Each node rank on one node, each local rank below the size, each rank once."""
    claims = placement.inventory.claims.get("")
    nodes = placement.expected
    if claims is None or len(claims) != placement.world or placement.world % nodes or claims.at:
        return False
    size, column = placement.world // nodes, placement.facts.by_machine["claimed"]
    if not (add_up_in_blocks if column.block == size else add_up)(claims, size):
        return False
    if column.complete:  # each rank once: the node ranks are 0 to N-1
        machines = set(runs_of(column.node, size) or ())
        return len(machines) == nodes and machines <= placement.node_of.keys()
    pairs = set(zip(claims.node_rank, claims.machine, strict=True))
    machines = {machine for _, machine in pairs}
    alone = len(pairs) == len(machines) == nodes == len({node_rank for node_rank, _ in pairs})
    return alone and machines <= placement.node_of.keys() and len(set(claims.rank)) == placement.world


def add_up(claims: ClaimColumns, size: int) -> bool:
    """Each process claims rank = node rank x size + local rank, with a local rank below the size."""
    seats = zip(claims.node_rank, claims.local_rank, strict=True)
    # In whole columns: one comprehension takes half the time of a loop that stops early.
    return set(claims.local_rank) <= set(range(size)) and claims.rank == [
        node_rank * size + local for node_rank, local in seats
    ]


def add_up_in_blocks(claims: ClaimColumns, size: int) -> bool:
    """The same where the claims are known to stand in whole blocks of ranks, each in order."""
    local_ranks, node_ranks = list(range(size)), runs_of(claims.node_rank, size)
    return (
        claims.local_rank == local_ranks * (len(claims) // size)
        and node_ranks is not None
        and claims.rank[::size] == [node_rank * size for node_rank in node_ranks]
    )


def find_misnumbered(placement: Placement) -> list[Misnumbered]:
    """Local ranks held twice, then ranks that do not follow the node ranks."""
    if in_plain_blocks(placement):
        return []
    found = agents(placement)
    torn = [Misnumbered(agent, fact) for agent in found if (fact := held_twice(agent))]
    if torn:
        return torn
    blocks = in_blocks(found)
    wrong = out_of_order(placement, blocks)
    if wrong and (arbitrary(placement) or dealt_in_turn(placement, found)):
        return []
    return wrong


def held_twice(agent: Agent) -> str:
    """Local ranks that several ranks of one agent hold; empty if none is.

    Without a node rank two containers of one host cannot be told apart, and each counts from 0.
    """
    if agent.node_rank is None:
        return ""
    if len({local for _, local in agent.numbers}) == len(agent.numbers):
        return ""
    counts = Counter(local for _, local in agent.numbers if local is not None)
    twice = [local for local, count in counts.items() if count > 1]
    return f"several processes on {agent.node} hold local ranks {fold(twice)}" if twice else ""


def in_blocks(found: Sequence[Agent]) -> list[Agent]:
    """Agents that hold a block of ranks, by node rank; those whose node rank another has too left out."""
    counts = Counter(agent.node_rank for agent in found)
    known = [a for a in found if a.node_rank is not None and a.start is not None and counts[a.node_rank] == 1]
    return sorted(known, key=lambda agent: agent.node_rank or 0)


def told(agent: Agent) -> str:
    """What an agent's numbers are, in words."""
    return f"node rank {agent.node_rank} on {agent.node} has ranks {fold(agent.ranks)}"


def out_of_order(placement: Placement, blocks: Sequence[Agent]) -> list[Misnumbered]:
    """Blocks that cannot start where they do: every agent before one has a rank, and each one after it.

    Nodes need not be equal: only the order of the blocks counts, and the room before and after them.
    """
    nodes = max([placement.expected, *[(agent.node_rank or 0) + 1 for agent in blocks]])
    sizes = placement.inventory.claims[""].sizes if blocks else ()
    lasts = [max(rank for rank, _ in agent.numbers) for agent in blocks]
    world = max([placement.world, *sizes, *[last + 1 for last in lasts]])
    found: dict[int, Misnumbered] = {}
    for agent, last in zip(blocks, lasts, strict=True):
        place, start = agent.node_rank or 0, agent.start or 0
        after = nodes - 1 - place
        if start < place or (place == 0 and start > 0):
            first = f"{place} or later" if place else "0"
            fact = f"{told(agent)}, and in a block launch it starts at rank {first}"
            found[place] = Misnumbered(agent, fact)
        elif last >= world - after:
            rest = f"{after} more of the {nodes} nodes hold ranks after these"
            found[place] = Misnumbered(agent, f"{told(agent)} of {world}, and {rest}")
    for lower, upper in pairwise(blocks):
        if (lower.start or 0) >= (upper.start or 0):
            for agent, other in ((lower, upper), (upper, lower)):
                fact = (
                    f"node rank {agent.node_rank} on {agent.node} has ranks {fold(agent.ranks)}, and node "
                    f"rank {other.node_rank} on {other.node} has ranks {fold(other.ranks)}"
                )
                found.setdefault(agent.node_rank or 0, Misnumbered(agent, fact))
    return [found[place] for place in sorted(found)]


def dealt_in_turn(placement: Placement, found: Sequence[Agent]) -> bool:
    """All numbers fit a launch that deals runs of some length to equal nodes in turn (cyclic, plane)."""
    nodes = placement.expected
    share, rest = divmod(placement.world, nodes)
    return not rest and any(
        all(
            local is not None
            and agent.node_rank is not None
            and rank == local // run * run * nodes + agent.node_rank * run + local % run
            for agent in found
            for rank, local in agent.numbers
        )
        for run in range(1, share + 1)
    )


def arbitrary(placement: Placement) -> bool:
    """Slurm was told to place each rank by a file (--distribution=arbitrary): node ranks say nothing."""
    raws = {raw for node in placement.nodes for raw in (node.machine.environments if node.machine else ())}
    return any(distribution(msgspec.json.decode(raw, type=dict[str, str])) == "arbitrary" for raw in raws)
