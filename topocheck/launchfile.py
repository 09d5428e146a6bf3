"""The reverse of a launcher's order: what its files and options must say to put ranks as a plan has them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from topocheck.declared import Declared
from topocheck.errors import LayoutError, UsageError

__all__ = [
    "by_slurm_order",
    "hostfile",
    "is_host",
    "node_ranks",
    "rank_line",
    "rankfile",
    "slots_line",
    "srun_options",
]

HOST = re.compile(r"[A-Za-z0-9_.:-]+")
"""Names that a hostfile, a rankfile or an option can hold: blanks, commas, = and # mean something there."""
MOST_BYTES = 100_000
"""Longest list of names in one argument; Linux takes 128 KiB."""


def hostfile(one: Declared) -> Iterator[str]:
    """Lines `HOST slots=N` in node order, as Open MPI and DeepSpeed read them.

    Raises UsageError if nodes have no names, or if ranks do not fill one node after the other, which a
    hostfile cannot say.
    """
    nodes, names = in_blocks(one, "a rankfile can say it"), names_of(one)
    return (slots_line(names[node], len(list(ranks))) for node, ranks in groupby(nodes))


def rankfile(one: Declared) -> Iterator[str]:
    """Lines `rank N=HOST slot=M`, as Open MPI reads them: M is the M-th slot of HOST's processors.

    Raises UsageError if nodes have no names.
    """
    nodes, names = seated(one), names_of(one)
    seats = enumerate(zip(nodes, one.local_ranks, strict=True))
    return (rank_line(rank, names[node], slot) for rank, (node, slot) in seats)


def is_host(name: str) -> bool:
    """A hostfile, a rankfile or an option can hold this name."""
    return HOST.fullmatch(name) is not None


def slots_line(host: str, ranks: int) -> str:
    """Line of a hostfile."""
    return f"{host} slots={ranks}"


def rank_line(rank: int, host: str, slot: int) -> str:
    """Line of a rankfile."""
    return f"rank {rank}={host} slot={slot}"


def node_ranks(one: Declared) -> Iterator[str]:
    """Lines `HOST  ARGUMENTS`: what the command on each node takes to have its node rank, the master first.

    Raises UsageError if nodes have no names, if ranks do not fill one node after the other, or if the engine
    has no node ranks.
    """
    counts = Counter(in_blocks(one, "no node rank can say it"))
    names = names_of(one)
    ranks = [counts[node] for node in range(len(names))]
    arguments = one.engine.node_arguments or torchrun
    width = max(map(len, names))
    try:
        found = [arguments(node, names, ranks) for node in range(len(names))]
    except LayoutError as error:
        raise UsageError(str(error)) from error
    return (f"{name.ljust(width)}  {text}" for name, text in zip(names, found, strict=True))


def torchrun(node: int, names: Sequence[str], ranks: Sequence[int]) -> str:
    """What torchrun takes on one node; a static rendezvous alone keeps to --node-rank."""
    from topocheck.launchers.torchrun import node_rank_table  # noqa: PLC0415 - all launchers come with it

    return f"torchrun {node_rank_table(names, ranks[node])[node][1]}"


def srun_options(one: Declared) -> str:
    """Options of srun that put each rank on its node: a distribution, else the list of nodes by rank.

    An engine that starts its own ranks takes one task on each node. Raises UsageError if the order needs
    names and nodes have none, or if the names are too long for an argument.
    """
    nodes = seated(one)
    own = one.engine.gpus is None and (one.plan.parallel.data_external or 1) == 1
    tasks = list(range(len(one.names))) if own else list(nodes)
    counts = Counter(tasks)
    each = counts[0]
    distribution = None if len(set(counts.values())) > 1 else policy_of(tasks, len(counts), each)
    common = f"--nodes={len(counts)} --ntasks={len(tasks)}"
    if distribution is not None and not isinstance(one.plan.nodes, tuple):
        return f"{common} --ntasks-per-node={each} --distribution={distribution}"
    names = names_of(one)
    if distribution is not None and by_slurm_order(names):
        listed = ",".join(names)
        return f"{common} --ntasks-per-node={each} --distribution={distribution} --nodelist={listed}"
    listed = ",".join(names[node] for node in tasks)
    if len(listed) > MOST_BYTES:
        raise UsageError(
            "the nodes of all ranks are too long for --nodelist: sort the nodes of the plan by name"
        )
    return f"{common} --distribution=arbitrary --nodelist={listed}"


def by_slurm_order(names: Sequence[str]) -> bool:
    """The nodes are in the order that Slurm has, as far as it is by name: numbers count as numbers."""
    keys = [
        [
            (part.isdecimal(), int(part) if part.isdecimal() else 0, part)
            for part in re.split(r"([0-9]+)", name)
        ]
        for name in names
    ]
    return keys == sorted(keys)


def policy_of(tasks: Sequence[int], nodes: int, each: int) -> str | None:
    """The distribution that deals tasks so; None if none does."""
    run = next((place for place, node in enumerate(tasks) if node != tasks[0]), len(tasks))
    for name, size in (("block", each), ("cyclic", 1), (f"plane={run}", run)):
        blocks = range(0, each, size)
        dealt = [node for first in blocks for node in range(nodes) for _ in range(min(size, each - first))]
        if dealt == list(tasks):
            return name
    return None


def seated(one: Declared) -> Sequence[int]:
    """Node of each rank by its place. Raises UsageError where nothing says it."""
    if one.refusal:
        raise UsageError(f"nothing says which node a rank is on: {one.refusal}")
    return one.nodes


def in_blocks(one: Declared, otherwise: str) -> Sequence[int]:
    """The same where ranks fill one node after the other. Raises UsageError where they do not."""
    nodes = seated(one)
    if any(there < here for here, there in pairwise(nodes)):
        raise UsageError(f"the ranks do not fill one node after the other: {otherwise}")
    return nodes


def names_of(one: Declared) -> tuple[str, ...]:
    """Names of the nodes. Raises UsageError if the plan has none, or one that no file can hold."""
    names = one.plan.nodes
    if not isinstance(names, tuple):
        raise UsageError(
            "the plan names no nodes: write them in node-rank order, nodes: [host-a, host-b], or beside a "
            "launch command --nodes host-a,host-b"
        )
    if bad := next((name for name in names if not is_host(name)), None):
        raise UsageError(f"the node name {bad!r} cannot stand in a hostfile: write the host's own name")
    return names
