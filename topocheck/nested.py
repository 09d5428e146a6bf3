"""Launchers inside launchers: how many processes a node gets if each task of the outer one starts several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topocheck.jobfacts import facts_of, number
from topocheck.placement import Placement
from topocheck.snapshot import JobFact

__all__ = ["AGENTS", "Nesting", "chains", "nestings"]

AGENTS = frozenset({"torchrun", "deepspeed", "accelerate"})
"""Launchers of which one on each node is enough, because it starts the node's processes itself."""
BATCH = frozenset({"sbatch", "salloc"})
"""They give nodes, and start the script once."""


@dataclass(frozen=True, slots=True)
class Nesting:
    """One command in which a launcher starts agents."""

    chain: tuple[str, ...]
    """Launchers, outermost first."""
    tasks: int | None
    """Agents that the outer launcher starts on each node; None if the evidence does not say."""
    processes: int | None
    """Processes that each agent starts; None if the evidence does not say."""
    facts: tuple[JobFact, ...]
    """The statements that say so."""


def chains(placement: Placement) -> list[tuple[tuple[str, ...], JobFact]]:
    """Launchers of each command that the evidence shows, outermost first, with the statement."""
    return [(tuple(fact.value.split()), fact) for fact in facts_of(placement, "launcher")]


def nestings(placement: Placement) -> Iterator[Nesting]:
    """Commands in which srun or mpirun start agents. What srun does not say itself, sbatch said for it."""
    for chain, command in chains(placement):
        inner = next((place for place, name in enumerate(chain) if name in AGENTS), None)
        outer = [] if inner is None else [name for name in chain[:inner] if name not in BATCH]
        if not outer:
            continue
        own = [fact for fact in stated(placement, command) if same_line(fact, command)]
        whole = [fact for fact in stated(placement, command) if not same_line(fact, command)]
        tasks, why = tasks_per_node(own, whole if outer[0] == "srun" else [])
        agents = [f for f in (*own, *whole) if (f.kind, f.name) == ("processes-per-node", "agent")]
        processes = [value for fact in agents[:1] if (value := number(fact.value))]
        yield Nesting(chain, tasks, processes[0] if processes else None, (*why, *agents[:1]))


def stated(placement: Placement, command: JobFact) -> list[JobFact]:
    """Counts stated in the same text as a command."""
    counts = facts_of(placement, "processes", "processes-per-node", "nodes")
    source = None if command.at is None else command.at.source
    return [fact for fact in counts if (None if fact.at is None else fact.at.source) == source]


def same_line(fact: JobFact, command: JobFact) -> bool:
    """A statement is the command's own."""
    return fact.at == command.at


def tasks_per_node(
    own: Sequence[JobFact], batch: Sequence[JobFact]
) -> tuple[int | None, tuple[JobFact, ...]]:
    """Tasks a node: the command's own number, or its tasks over its nodes; else the batch script's."""
    nodes = launcher(own, "nodes") or launcher(batch, "nodes")
    for facts in (own, batch):
        if each := launcher(facts, "processes-per-node"):
            return number(each.value), (each,)
        total = launcher(facts, "processes")
        if total is not None and nodes is not None:
            tasks, places = number(total.value), number(nodes.value)
            if tasks and places:
                return -(-tasks // places), (total, nodes)
        if total is not None:
            return None, ()
    return None, ()


def launcher(facts: Sequence[JobFact], kind: str) -> JobFact | None:
    """What an outer launcher was told of a kind; the last one counts."""
    return next((f for f in reversed(facts) if f.kind == kind and f.name == "launcher"), None)
