"""OBS: the sizes in force are the plan's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from topocheck.ask import Ask
from topocheck.jobfacts import facts_of, number, the_job
from topocheck.placement import Placement
from topocheck.ranges import first
from topocheck.rule import Finding, NotApplicable, Situations, read_at, rule
from topocheck.snapshot import JobFact
from topocheck.splitting import declared_counts

__all__ = ["RULES"]

KINDRED = {"torch": None, "deepspeed": ("megatron",)}
"""Engines under whose name the sizes of other programs' logs are a job's own: None is any."""
REPLICATED = ("vllm", "sglang")
"""Engines whose replicas may be servers of their own, or dense worlds that show data parallel size 1."""
LOG = "the engine's start-up log, given as a file"


def stated(placement: Placement) -> list[JobFact]:
    """Sizes and coordinates that the evidence states, those left out that the plan itself was made of."""
    taken = placement.facts.origin.taken
    facts = facts_of(placement, "size", "requested-size", "rank-coordinate")
    return [fact for fact in facts if fact not in taken and speaks(placement, fact)]


def job_with_plan(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job; not where its plan repeats the only sizes that the evidence states."""
    compared = any(declared(placement, f.name) is not None for f in stated(placement))
    compared = compared or bool(other_layers(placement) or elsewhere(placement))
    if placement.facts.origin.taken and not compared:
        return NotApplicable("the sizes come from this very evidence: nothing else states any")
    return the_job(placement)


@rule("OBS001", "effective sizes equal the plan", over=job_with_plan, severity="error")
def sizes_equal_plan(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Sizes in force against the plan; what was only asked for counts where nothing shows the effect."""
    facts, source = stated(placement), "the evidence" if placement.facts.origin.taken else "the plan"
    in_force = by_axis(fact for fact in facts if fact.kind == "size")
    asked = by_axis(fact for fact in facts if fact.kind == "requested-size")
    wrong = [
        (f"{axis} {fact.value} {how_known(fact)}, {source} says {declared(placement, axis)}", fact)
        for axis in {**in_force, **asked}
        for fact in in_force.get(axis) or asked[axis]
        if contradicts(placement, fact)
    ]
    for fact in facts:
        size = most(placement, fact.name) if fact.kind == "rank-coordinate" else None
        if size is not None and (number(fact.value) or 0) >= size:
            wrong.append(
                (f"a rank bears {fact.name} coordinate {fact.value}, beyond {fact.name} {size}", fact)
            )
    wrong += other_layers(placement)
    moved = [] if wrong else elsewhere(placement)
    if moved:
        yield another_order(moved)
    if wrong:
        ask.know()
        texts = list(dict.fromkeys(text for text, _ in wrong))
        yield Finding(
            message=f"the job's sizes are not the plan's: {first(texts, 4)}",
            fix="correct the launch command, or the plan: everything else is judged by the plan's sizes",
            cause="sizes differ",
            subjects=tuple(texts),
            evidence=tuple(
                read_at(f.at, f"{f.kind} {f.name} {f.value}".replace("  ", " ")) for _, f in wrong
            ),
        )
    elif not (in_force or moved) and not any(fact.kind == "size" for fact in placement.facts.origin.taken):
        only = " (the command shows only what was asked for)" if asked else ""
        ask.gap(f"sizes in force{only}", ["job"], LOG)
    elif unseen := [] if moved else not_shown(placement, in_force):
        ask.gap(f"sizes in force of {first(unseen)}", ["job"], LOG)
    else:
        ask.know()


def not_shown(placement: Placement, in_force: Mapping[str, list[JobFact]]) -> list[str]:
    """Axes of the layout whose sizes in force nothing shows; the data size follows from the world."""
    told = [fact for facts in in_force.values() for fact in facts if number(fact.value) is not None]
    told += [fact for fact in placement.facts.origin.taken if fact.kind == "size"]
    shown = {"data", *(fact.name for fact in told)}
    stages = placement.layout.size("pipeline")
    if any(fact.value.count(",") == stages - 1 for fact in facts_of(placement, "layers")):
        shown.add("pipeline")
    return [axis for axis, size in placement.layout.axes if size > 1 and axis not in shown]


def elsewhere(placement: Placement) -> list[tuple[str, JobFact]]:
    """Ranks that the engine put at other coordinates than the plan's layout does.

    Which replica a rank is of, its number need not tell: replicas may be worlds of their own.
    """
    layout, found = placement.layout, []
    for fact in facts_of(placement, "coordinates"):
        rank = number(fact.name)
        if rank is None or rank >= layout.world or not speaks(placement, fact):
            continue
        for part in fact.value.split(", "):
            axis, _, place = part.rpartition(" ")
            planned = layout.coordinate(rank, axis)
            ours = axis in layout.sizes and not axis.startswith("data")
            if ours and number(place) not in (None, planned):
                text = f"rank {rank} is at {axis} {place}, the plan's layout has it at {planned}"
                found.append((text, fact))
    return found


def another_order(moved: list[tuple[str, JobFact]]) -> Finding:
    """The finding of ranks at other coordinates, with the right sizes."""
    return Finding(
        message=f"the engine numbers the ranks in another order than the plan's layout: "
        f"{first([text for text, _ in moved], 2)}",
        fix="give engine_version, and for engines that take one the order of the axes, as the job has them",
        cause="order of ranks differs",
        subjects=tuple(dict.fromkeys(f"rank {fact.name}" for _, fact in moved)),
        evidence=tuple(read_at(fact.at, f"rank {fact.name}: {fact.value}") for _, fact in moved),
    )


def contradicts(placement: Placement, fact: JobFact) -> bool:
    """The stated size is not the plan's. Servers of data replicas each say 1, whatever their number is."""
    size, stated = declared(placement, fact.name), number(fact.value)
    replica = fact.name == "data" and stated == 1 and placement.plan.engine in REPLICATED
    return None not in (size, stated) and size != stated and not replica


def how_known(fact: JobFact) -> str:
    """In force, or only asked for."""
    return "in force" if fact.kind == "size" else "asked for"


def speaks(placement: Placement, fact: JobFact) -> bool:
    """The statement is of the plan's engine, and of an axis that it has."""
    engine = placement.plan.engine
    kindred = KINDRED.get(engine, ())
    return fact.engine in (None, engine) or kindred is None or fact.engine in kindred


def declared(placement: Placement, axis: str) -> int | None:
    """The plan's size of an axis; None where the plan leaves it to the engine or to the world.

    What divides other axes (expert, decode context, attention data) counts only if the plan names it.
    """
    given = getattr(placement.plan.parallel, axis, None)
    if axis not in placement.layout.sizes or axis == "data":
        return None if given is None else placement.layout.size(axis)
    return placement.layout.size(axis)


def most(placement: Placement, axis: str) -> int | None:
    """Ranks along an axis, which no coordinate reaches; None where the plan does not settle it.

    SGLang's DP is a replica or, with attention data parallelism, a part of TP, by a flag that an excerpt
    need not show.
    """
    size = declared(placement, axis)
    if axis == "data" and placement.plan.engine == "sglang" and size is not None:
        return max(size, placement.plan.parallel.attention_data or 1)
    return size


def by_axis(facts: Iterator[JobFact]) -> dict[str, list[JobFact]]:
    """Statements by axis."""
    found: dict[str, list[JobFact]] = {}
    for fact in facts:
        found.setdefault(fact.name, []).append(fact)
    return found


def other_layers(placement: Placement) -> list[tuple[str, JobFact]]:
    """Layers of each stage in force that differ from the plan's own list; another sum is another model's."""
    planned = declared_counts(placement)
    found = []
    for fact in facts_of(placement, "layers"):
        if fact in placement.facts.origin.taken:
            continue
        counts = [number(part.strip()) for part in fact.value.split(",")]
        known = [count for count in counts if count is not None]
        if len(known) == len(counts) and sum(known) == sum(planned) and known != planned:
            words = ",".join(map(str, planned))
            found.append((f"layers {fact.value.replace(' ', '')}, the plan says {words}", fact))
    return found


RULES = (sizes_equal_plan,)
