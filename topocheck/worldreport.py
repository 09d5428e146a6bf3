"""The report of a job of several worlds: one checklist, and each world with its own placement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace as replaced
from typing import Any

from msgspec.structs import replace

from topocheck.checklist import Gate, Job, absent_nodes, build_report, folded, job_line
from topocheck.inventory import Inventory
from topocheck.origin import Origin
from topocheck.pipelined import pipeline_report
from topocheck.placed import placement_report
from topocheck.plan import BASES, Plan
from topocheck.policy import NO_TERMS, Terms
from topocheck.profilereport import profile_reports
from topocheck.ranges import first
from topocheck.report import InputReport, Report, WorldReport
from topocheck.rule import Rule
from topocheck.sentence import plural
from topocheck.worldwise import Judged, Judgement, judge, worlds_in

__all__ = ["of_worlds", "worlds_report"]

MOST_LINES = 4
"""Distinct kinds of worlds in the line of the job."""


def of_worlds(
    plan: Plan,
    inventory: Inventory,
    rules: Sequence[Rule[Any]],
    origin: Origin,
    terms: Terms = NO_TERMS,
) -> tuple[Judgement | None, Origin]:
    """Answers about a job of several worlds, None for one world; what was assumed is added to `origin`."""
    parts, assumed = worlds_in(plan, inventory)
    said = replaced(origin, said=(*origin.said, *assumed))
    if len(parts) == 1 and not parts[0].name:
        return None, said
    return judge(plan, parts, inventory, rules, said, terms=terms), said


def worlds_report(
    judgement: Judgement,
    inputs: list[InputReport],
    *,
    at: str,
    gate: Gate,
    whole: bool,
    terms: Terms = NO_TERMS,
) -> Report:
    """Fold the answers about all worlds into one report; `whole` adds the placement tables."""
    worlds = judgement.worlds
    job = Job(
        policy=judgement.plan.policy,
        phase=min((world.placement.phase for world in worlds), key=BASES.index),
        line=line(worlds),
        assumptions=list(assumptions(judgement)),
        absent=list(dict.fromkeys(name for world in worlds for name in absent(world))),
        notes=list(notes(judgement)),
    )
    report = folded(job, judgement.results, inputs, at=at, gate=gate, terms=terms)
    # Waivers and a baseline are the job's: what they cover is marked in the answers about each world already.
    own = Terms(policy=terms.policy, left_out=terms.left_out)
    return replace(
        report,
        profiles=profile_reports(world.placement for world in worlds),
        worlds=[world_report(world, at, gate, own, whole=whole) for world in worlds],
    )


def world_report(world: Judged, at: str, gate: Gate, terms: Terms, *, whole: bool) -> WorldReport:
    """One world."""
    alone = build_report(world.placement, world.results, [], at=at, gate=gate, terms=terms)
    return WorldReport(
        name=world.name,
        job=alone.job,
        phase=world.placement.phase,
        verdict=alone.verdict,
        placement=placement_report(world.placement, world.results) if whole else None,
        pipeline=pipeline_report(world.placement) if whole else None,
    )


def line(worlds: Sequence[Judged]) -> str:
    """The job in one line: equal worlds together."""
    kinds: dict[str, list[str]] = {}
    for world in worlds:
        kinds.setdefault(job_line(world.placement), []).append(world.name)
    told = [f"{first(names, 3)} ({text})" for text, names in list(kinds.items())[:MOST_LINES]]
    more = f", and {len(kinds) - MOST_LINES} kinds more" if len(kinds) > MOST_LINES else ""
    return f"{plural(len(worlds), 'world')}: {'; '.join(told)}{more}"


def assumptions(judgement: Judgement) -> Iterator[str]:
    """What was assumed; of some worlds only with their names."""
    yield from judgement.shares.assumed
    said: dict[str, list[str]] = {}
    for world in judgement.worlds:
        for text in world.placement.assumptions:
            said.setdefault(text, []).append(world.name)
    for text, names in said.items():
        yield text if len(names) == len(judgement.worlds) else f"{first(names, 4)}: {text}"


def absent(world: Judged) -> Iterator[str]:
    """Expected nodes of a world of which nothing was seen, unless it is not known which they are."""
    if world.untied:
        return
    named = isinstance(world.placement.plan.nodes, tuple)
    for name in absent_nodes(world.placement):
        yield name if named else f"{name} of world {world.name}"


def notes(judgement: Judgement) -> Iterator[str]:
    """Facts about the evidence that accuse nobody."""
    machines = judgement.shares.whole.machines
    idle = [machines[index].name for index in judgement.shares.unused]
    for world in judgement.worlds:
        idle += world.placement.unused
    if idle:
        yield f"seen and not used by the job: {first(list(dict.fromkeys(idle)))}"
    unlabelled = len(judgement.shares.whole.unlabelled)
    if unlabelled:
        yield (
            f"{plural(unlabelled, 'capture')} of a host that is not named: evidence about some node, which "
            "accuses none"
        )
    yield from judgement.shares.notes
