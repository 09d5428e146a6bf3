"""Launchers that number one process differently, by what the engine goes by; launchers that start launchers.

An engine that starts its ranks itself reads neither set, and nothing is wrong with it then.
"""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.jobfacts import facts_of
from topocheck.launchers import LAUNCHERS
from topocheck.launchers.resolve import MPI_FAMILIES, RANK_FAMILIES, READS, Reads
from topocheck.placement import Placement
from topocheck.ranges import first
from topocheck.rule import Evidence, Finding, read_at
from topocheck.snapshot import FamilyDisagreement, NestedLaunch

__all__ = ["Odd", "at_odds", "nested_launches", "numbered_twice", "title_of"]

Odd = tuple[str, FamilyDisagreement]
"""Host of a process, and what its launchers disagree about."""
EXTERNAL = ("distributed-executor-backend", "external_launcher")


def at_odds(placement: Placement) -> list[Odd]:
    """Disagreements that matter to the plan's engine."""
    seen = [(host, one) for host, one in placement.inventory.launches if isinstance(one, FamilyDisagreement)]
    return seen if seen and reads(placement) != "nothing" else []


def nested_launches(placement: Placement) -> dict[NestedLaunch, list[str]]:
    """Launchers inside launchers as processes of the job see them, with the hosts of those processes."""
    found: dict[NestedLaunch, list[str]] = {}
    for host, one in placement.inventory.launches:
        if isinstance(one, NestedLaunch):
            found.setdefault(one, []).append(host)
    return found


def reads(placement: Placement) -> Reads:
    """Where the engine takes ranks from; vLLM's external_launcher takes RANK."""
    engine = placement.plan.engine
    options = {(f.name.lstrip("-").replace("_", "-"), f.value) for f in facts_of(placement, "option")}
    return "rank" if engine == "vllm" and EXTERNAL in options else READS.get(engine, "rank")


def title_of(family: str) -> str:
    """A launcher as people write it."""
    return LAUNCHERS[family].title if family in LAUNCHERS else family


def numbered_twice(placement: Placement, odds: Sequence[Odd]) -> Finding:
    """The finding of processes that two launchers number."""
    host, odd = odds[0]
    engine = placement.facts.engine.title
    used = odd.other_variable if goes_by_other(reads(placement), odd) else odd.variable
    claims = ", and the ranks claimed here are the other ones" if used != odd.variable else ""
    what = "number differs" if len(odds) == 2 else "numbers differ"
    more = f" ({len(odds) - 1} more {what})" if len(odds) > 1 else ""
    return Finding(
        message=f"two launchers number the processes: {odd.variable} is {odd.value} ({title_of(odd.family)}) "
        f"and {odd.other_variable} is {odd.other_value} ({title_of(odd.other_family)}) in a process on {host}"
        f"{more}. {engine} goes by {used}{claims}",
        fix=fix(odds),
        cause="launchers disagree",
        subjects=tuple(dict.fromkeys(process_of(host, one) for host, one in odds)),
        evidence=tuple(fact for host, one in odds for fact in both(host, one)),
    )


def goes_by_other(source: Reads, odd: FamilyDisagreement) -> bool:
    """The engine takes MPI's number, and the claim of the process was taken from RANK."""
    return source == "mpi" and odd.family in RANK_FAMILIES and odd.other_family in (*MPI_FAMILIES, "slurm")


def fix(odds: Sequence[Odd]) -> str:
    """What to unset: RANK that a script exported, since launchers number what they start; else the others."""
    pairs = [(one.variable, one.other_variable) for _, one in odds if one.family == "script"] or [
        (one.other_variable, one.variable) for _, one in odds
    ]
    stale, right = (first(sorted(set(names))) for names in zip(*pairs, strict=True))
    return (
        f"unset {stale} where the job starts, or set it from {right}: one launcher must number the processes"
    )


def process_of(host: str, odd: FamilyDisagreement) -> str:
    """Which process it is about."""
    return f"process {odd.pid} on {host}" if odd.pid is not None else f"a process on {host}"


def both(host: str, odd: FamilyDisagreement) -> tuple[Evidence, Evidence]:
    """Both variables where they were read."""
    source = f"rank probe of {host}"
    return (
        read_at(odd.at, f"{odd.variable}={odd.value}", source),
        read_at(odd.at, f"{odd.other_variable}={odd.other_value}", source),
    )
