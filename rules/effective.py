"""OBS: the sizes in force are the plan's."""

from __future__ import annotations

from collections.abc import Iterator

from topocheck.ask import Ask
from topocheck.jobfacts import facts_of, number, the_job
from topocheck.placement import Placement
from topocheck.ranges import first
from topocheck.rule import Finding, read_at, rule
from topocheck.snapshot import JobFact

__all__ = ["RULES"]


@rule("OBS001", "effective sizes equal the plan", over=the_job, severity="error")
def sizes_equal_plan(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Sizes in force against the plan; what was only asked for counts where nothing shows the effect."""
    in_force = by_axis(facts_of(placement, "size"))
    asked = by_axis(facts_of(placement, "requested-size"))
    borne = [fact for fact in facts_of(placement, "rank-coordinate") if beyond(placement, fact)]
    wrong: list[tuple[str, JobFact]] = []
    for axis in {**in_force, **asked}:
        for fact in in_force.get(axis) or asked[axis]:
            declared = placement.layout.size(axis)
            if axis in placement.layout.sizes and number(fact.value) not in (None, declared):
                how = "in force" if fact.kind == "size" else "asked for"
                wrong.append((f"{axis} {fact.value} {how}, the plan says {declared}", fact))
    for fact in borne:
        size = placement.layout.size(fact.name)
        wrong.append((f"a rank bears {fact.name} coordinate {fact.value}, beyond {fact.name} {size}", fact))
    if not in_force and not asked and not borne:
        ask.gap(
            "sizes in force", ["job"], "the engine's start-up log, or its launch command, given as a file"
        )
        return
    ask.know()
    if wrong:
        texts = list(dict.fromkeys(text for text, _ in wrong))
        yield Finding(
            message=f"the job's sizes are not the plan's: {first(texts, 4)}",
            fix="correct the launch command, or the plan: everything else is judged by the plan's sizes",
            cause="sizes differ",
            subjects=tuple(texts),
            evidence=tuple(read_at(fact.at, f"{fact.kind} {fact.name} {fact.value}") for _, fact in wrong),
        )
    elif not in_force:
        ask.gap(
            "sizes in force (the command shows only what was asked for)",
            ["job"],
            "the engine's start-up log, given as a file",
        )


def by_axis(facts: list[JobFact]) -> dict[str, list[JobFact]]:
    """Statements by axis."""
    found: dict[str, list[JobFact]] = {}
    for fact in facts:
        found.setdefault(fact.name, []).append(fact)
    return found


def beyond(placement: Placement, fact: JobFact) -> bool:
    """A coordinate that the plan's size of this axis does not have."""
    value = number(fact.value)
    return (
        value is not None
        and fact.name in placement.layout.sizes
        and value >= placement.layout.size(fact.name)
    )


RULES = (sizes_equal_plan,)
