"""A job of several worlds, judged: every world by all rules, then what worlds do to each other.

The answers of the worlds are joined rule by rule. A finding names the world that it is about; one that
several worlds share, because it is about a host that carries them, is told once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from topocheck.claims import claimed_size
from topocheck.formula import derive
from topocheck.inventory import Inventory, Machine
from topocheck.origin import NOTHING_TAKEN, Origin
from topocheck.placement import Placement, join
from topocheck.plan import BASES, Plan
from topocheck.policy import NO_TERMS, Terms
from topocheck.ranges import first
from topocheck.remedy import joined as together
from topocheck.replicas import Part, count_of, parts_of
from topocheck.rule import Evidence, Finding, Rule, Verdict, read_at
from topocheck.rules.hosts import shared_gpus, shared_name
from topocheck.scope import Places, names_ranks
from topocheck.shares import NODES, Share, Shares, share_out
from topocheck.verify import MOST_EVIDENCE, MOST_SUBJECTS, RuleResult, kind_of, run_rules
from topocheck.worlds import role_of

__all__ = ["Judged", "Judgement", "judge", "worlds_in"]

ORDER: tuple[Verdict, ...] = ("fail", "error", "unknown", "pass", "not-applicable")
"""Verdicts, the one that decides first."""
MOST_TOLD = 4
"""Findings of one cause in several worlds that are told one by one."""


@dataclass(slots=True)
class Judged:
    """One world and the answers about it."""

    name: str
    placement: Placement
    machines: Sequence[int]
    """Number of each of its machines in the inventory of the whole job."""
    results: list[RuleResult]
    untied: set[str]
    """Names of what may be its own and is tied to no world."""


@dataclass(slots=True)
class Judgement:
    """The whole job."""

    plan: Plan
    worlds: list[Judged]
    results: list[RuleResult]
    """Answers of all rules about all worlds."""
    shares: Shares


def worlds_in(plan: Plan, inventory: Inventory) -> tuple[list[Part], list[str]]:
    """The worlds of a job, one without a name if it is the only one, and what was assumed of their number.

    Asks the evidence only where the plan has replicas that may be worlds of their own.
    """
    if plan.worlds == 1 and (plan.parallel.data or 1) == 1:
        return [Part("", plan)], []
    return parts_of(plan, inventory)


def judge(
    plan: Plan,
    parts: Sequence[Part],
    inventory: Inventory,
    rules: Sequence[Rule[Any]],
    origin: Origin = NOTHING_TAKEN,
    *,
    terms: Terms = NO_TERMS,
) -> Judgement:
    """Share the evidence out, run the rules for each world, join the answers.

    `terms` say which findings do not count.
    Raises LayoutError for sizes that an engine refuses, TwoJobsError for evidence of two jobs.
    """
    settle(plan, parts, inventory)
    shares = share_out(parts, inventory)
    running = {machine for share in shares.worlds if share.running for machine in share.machines}
    placements = [placed(share, origin, running) for share in shares.worlds]
    introduce(plan, parts, placements)
    worlds = [judged(share, one, rules, terms) for share, one in zip(shares.worlds, placements, strict=True)]
    if any(
        part.first_gpus and one.placement.phase == "predicted" and None not in one.placement.predicted.gpu
        for part, one in zip(parts, worlds, strict=True)
    ):
        shares.assumed.append("worlds that share a node use its GPUs one after the other")
    for finding, concerned in shared_devices(worlds, inventory):
        for world in concerned:
            accuse(world.results, "ID004", finding, terms)
    results = [joined([world.results[place] for world in worlds], worlds) for place in range(len(rules))]
    for finding in other_replicas(plan, inventory, rules):
        accuse(results, "OBS001", finding, terms)
    for finding in strangers(shares):
        accuse(results, "EV001", finding, terms)
    for finding in one_host_for_two(shares):
        accuse(results, "ID005", finding, terms)
    return Judgement(plan, worlds, results, shares)


def settle(plan: Plan, parts: Sequence[Part], inventory: Inventory) -> None:
    """Put the hosts in order; text without a host is of the only node, where the whole job has one."""
    nodes = [part.plan.nodes for part in parts]
    names = {name for part in nodes if isinstance(part, tuple) for name in part}
    if all(isinstance(part, tuple) for part in nodes) and len(names) == 1:
        inventory.settle_unlabelled(names.pop())
    elif plan.nodes == 1:
        inventory.settle_unlabelled()
    inventory.arrange()


def placed(share: Share, origin: Origin, running: set[int]) -> Placement:
    """One world and its evidence joined. On the machines `running` processes of any world were seen."""
    part = share.part
    size = claimed_size(share.inventory.claims) if part.replica is None else None
    return join(derive(part.plan, size), share.inventory, origin, first_gpus(share, running))


def introduce(plan: Plan, parts: Sequence[Part], placements: Sequence[Placement]) -> None:
    """Tell each world its name, what it does, and which worlds there are."""
    for part, placement in zip(parts, placements, strict=True):
        placement.facts.name, placement.facts.role = part.name, role_of(plan, part.name)
        placement.facts.worlds = placements


def judged(share: Share, placement: Placement, rules: Sequence[Rule[Any]], terms: Terms) -> Judged:
    """All answers about one world."""
    name = share.part.name
    own = terms.within(name, lambda subject: of_world(placement, name, subject))
    results = run_rules(rules, placement, own)
    answers = {result.rule.id: result for result in results}
    for rule, gap in share.gaps:
        if rule == NODES and rule in answers:
            answers[rule].gaps = []  # its nodes may have reported: nobody knows which they are
        if rule in answers:
            answers[rule].gaps.append(gap)
    for rule in {rule for rule, _ in share.gaps} & answers.keys():
        result = answers[rule]
        result.unknown += 1
        result.undecided += 1
        result.verdict = "unknown" if result.verdict in ("pass", "not-applicable") else result.verdict
    untied = {one for _, gap in share.gaps for one in gap.about}
    return Judged(name, placement, share.machines, results, untied)


def first_gpus(share: Share, running: set[int]) -> Sequence[int | None]:
    """GPUs before a world on each of its nodes: not known where others run already and it does not."""
    if not share.running and not running.isdisjoint(share.machines):
        return [None] * max(count_of(share.part.plan.nodes), len(share.machines))
    return share.part.first_gpus


def accuse(results: Sequence[RuleResult], rule: str, finding: Finding, terms: Terms) -> None:
    """Add a finding that no single world shows to the answer of its rule, if that was asked."""
    for result in results:
        if result.rule.id == rule:
            result.findings += terms.parts(result.rule, finding, None)
            result.failed += 1
            result.verdict, result.reason = "fail", result.reason if result.broke else ""


def shared_devices(worlds: Sequence[Judged], whole: Inventory) -> Iterator[tuple[Finding, list[Judged]]]:
    """GPUs that serve ranks of two worlds, by what processes claim or the running job shows, by host."""
    carried: dict[int, list[tuple[Judged, int]]] = {}
    for world in worlds:
        for place, machine in enumerate(world.machines if world.placement.phase != "predicted" else ()):
            carried.setdefault(machine, []).append((world, place))
    for machine, here in sorted(carried.items()):
        users: dict[int, list[tuple[Judged, int]]] = {}
        for world, place in here if len(here) > 1 else ():
            node = world.placement.node_of.get(place, -1)
            for rank in world.placement.ranks_on.get(node, ()):
                gpu = world.placement.placed.gpu[rank]
                if gpu is not None:
                    users.setdefault(gpu, []).append((world, rank))
        shared = {gpu: seen for gpu, seen in users.items() if len({id(world) for world, _ in seen}) > 1}
        if shared:
            concerned = {id(world): world for seen in shared.values() for world, _ in seen}
            yield shared_by_worlds(whole.machines[machine], shared), list(concerned.values())


def shared_by_worlds(host: Machine, shared: Mapping[int, Sequence[tuple[Judged, int]]]) -> Finding:
    """The finding of one host's GPUs with ranks of several worlds."""
    who = {
        gpu: " and ".join(f"rank {rank} of world {world.name}" for world, rank in seen)
        for gpu, seen in sorted(shared.items())
    }
    told = [f"{host.gpu_name(gpu)}: {ranks}" for gpu, ranks in who.items()]
    device = "one GPU" if len(shared) == 1 else f"{len(shared)} GPUs"
    return Finding(
        message=f"{device} of {host.name} must serve several worlds ({first(told, 1)}): "
        "each gets a part, or the last one runs out of memory",
        fix="give each world's server GPUs of its own: CUDA_VISIBLE_DEVICES, or SGLang's --base-gpu-id",
        cause="GPU shared by worlds",
        subjects=tuple(f"{ranks} on {host.gpu_name(gpu)} of {host.name}" for gpu, ranks in who.items()),
        evidence=tuple(
            drives(world, rank, f"{host.gpu_name(gpu)} of {host.name}")
            for gpu, seen in sorted(shared.items())
            for world, rank in seen
        )[:MOST_EVIDENCE],
        count=len(shared),
    )


def drives(world: Judged, rank: int, device: str) -> Evidence:
    """Where a rank's GPU was read."""
    column = world.placement.placed
    source = "rank probe" if column.basis == "claimed" else "log"
    return read_at(column.at.get(rank), f"rank {rank} of world {world.name} drives {device}", source)


def other_replicas(plan: Plan, whole: Inventory, rules: Sequence[Rule[Any]]) -> Sequence[Finding]:
    """Another number of data replicas than the plan's, which no single one of them shows."""
    sizes = [rule for rule in rules if rule.id == "OBS001"]
    stated = Inventory()
    kinds = ("size", "requested-size")
    stated.job = [fact for fact in whole.job if fact.name == "data" and fact.kind in kinds]
    if plan.worlds != 1 or not stated.job or not sizes:
        return ()
    return run_rules(sizes, join(plan, stated))[0].findings


def strangers(shares: Shares) -> Iterator[Finding]:
    """Hosts that carry ranks while the plan gives all its worlds to others (EV001)."""
    for number in shares.strangers:
        machine = shares.whole.machines[number]
        source = first(machine.sources, 2) or "evidence"
        yield Finding(
            message=f"{machine.name} carries ranks of the job and no world of the plan has it",
            fix=f"correct the nodes under `worlds:`, or start the job without {machine.name}",
            cause="host not in the plan",
            subjects=(machine.name,),
            evidence=(Evidence(source=source, fact=f"{machine.name} carries ranks"),),
            count=1,
        )


def one_host_for_two(shares: Shares) -> Iterator[Finding]:
    """Two hosts of different worlds that are one machine, or one name of two (ID005)."""
    both: dict[tuple[int, int], list[str]] = {}
    for uuid, a, b in shares.whole.twice:
        both.setdefault((a, b), []).append(uuid)
    machines, inside = shares.whole.machines, [set(share.machines) for share in shares.worlds]
    found = [(pair, shared_gpus(uuids, *(machines[one] for one in pair))) for pair, uuids in both.items()]
    for name, a, b in shares.whole.names.ambiguous:
        found.append(((a, b), shared_name(name, machines[a], machines[b])))
    for pair, finding in found:
        if not any(one.issuperset(pair) for one in inside):
            yield replace(finding, count=2)


def joined(answers: Sequence[RuleResult], worlds: Sequence[Judged]) -> RuleResult:
    """One answer of one rule from those about each world."""
    whole = RuleResult(answers[0].rule, min((one.verdict for one in answers), key=ORDER.index))
    for answer in answers:
        whole.passed += answer.passed
        whole.failed += answer.failed
        whole.unknown += answer.unknown
        whole.undecided += answer.undecided
        whole.broke = whole.broke or answer.broke
    bases = [one.basis for one in answers if one.basis is not None]
    whole.basis = min(bases, key=BASES.index, default=None)
    whole.reason = reason("error" if whole.broke else whole.verdict, answers, worlds)
    whole.findings = findings(answers, worlds)
    whole.gaps = [
        replace(gap, about=tuple(about(world, one) for one in gap.about))
        for answer, world in zip(answers, worlds, strict=True)
        for gap in answer.gaps
    ]
    return whole


def reason(verdict: Verdict, answers: Sequence[RuleResult], worlds: Sequence[Judged]) -> str:
    """Why the answer is what it is, by the worlds that made it so."""
    names: dict[str, list[str]] = {}
    for answer, world in zip(answers, worlds, strict=True):
        if (answer.broke if verdict == "error" else answer.verdict == verdict) and answer.reason:
            names.setdefault(answer.reason, []).append(world.name)
    if len(names) == 1 and len(next(iter(names.values()))) == len(worlds):
        return next(iter(names))
    return "; ".join(f"{spell(of, len(worlds))}: {text}" for text, of in names.items())


def spell(names: Sequence[str], whole: int) -> str:
    """Worlds in words."""
    if len(names) == whole > 3:
        return f"all {whole} worlds"
    return f"world {names[0]}" if len(names) == 1 else f"worlds {first(names, 6)}"


def of_world(placement: Placement, name: str, subject: str) -> str:
    """A subject of a finding with its world: what a host has is its own whatever it carries."""
    places = placement.keep("places", Places)
    if " of world " in subject or (not names_ranks(subject) and places.locate(subject).nodes):
        return subject
    return f"{subject} of world {name}"


def about(world: Judged, subject: str) -> str:
    """What a gap is about: a host is one whatever it carries, all else is of a world."""
    nodes = world.placement.keep(
        "names of hosts", lambda p: {n.name for n in p.nodes if n.machine or isinstance(p.plan.nodes, tuple)}
    )
    return subject if subject in nodes or subject in world.untied else f"{subject} of world {world.name}"


def findings(answers: Sequence[RuleResult], worlds: Sequence[Judged]) -> list[Finding]:
    """Findings of all worlds; the same one once, and of one cause not more than a few."""
    same: dict[tuple[object, ...], tuple[Finding, list[str]]] = {}
    for answer, world in zip(answers, worlds, strict=True):
        for raw in answer.findings:
            subjects = tuple(of_world(world.placement, world.name, one) for one in raw.subjects)
            finding = replace(raw, subjects=subjects)
            key = finding.message, finding.fix, *kind_of(finding)
            known = same.get(key)
            if known is None:
                same[key] = finding, [world.name]
            elif world.name not in known[1]:
                same[key] = merged(known[0], finding), [*known[1], world.name]
    causes: dict[tuple[object, ...], list[tuple[Finding, list[str]]]] = {}
    for finding, names in same.values():
        causes.setdefault(kind_of(finding), []).append((finding, names))
    found = []
    for told in causes.values():
        if len(told) > MOST_TOLD:
            found.append(of_one_cause(told, len(worlds)))
        else:
            found += [replace(f, message=f"{spell(names, len(worlds))}: {f.message}") for f, names in told]
    return found


def merged(known: Finding, same: Finding) -> Finding:
    """One finding that two worlds have: it is one thing if the facts are the same, else one of each."""
    counts = known.count or 0, same.count or 0
    subjects = tuple(dict.fromkeys((*known.subjects, *same.subjects)))[:MOST_SUBJECTS]
    return replace(
        known,
        subjects=subjects,
        evidence=tuple(dict.fromkeys((*known.evidence, *same.evidence)))[:MOST_EVIDENCE],
        remedies=together((*known.remedies, *same.remedies)),
        count=max(len(subjects), max(counts) if set(same.evidence) <= set(known.evidence) else sum(counts)),
    )


def of_one_cause(told: Sequence[tuple[Finding, list[str]]], whole: int) -> Finding:
    """One finding for many worlds that have it each in its own way: the first one, and where else."""
    head, names = told[0]
    others = list(dict.fromkeys(name for _, of in told[1:] for name in of))
    return replace(
        head,
        message=f"{spell(names, whole)}: {head.message}; the like in worlds {first(others, 6)}",
        subjects=tuple(dict.fromkeys(subject for finding, _ in told for subject in finding.subjects))[
            :MOST_SUBJECTS
        ],
        evidence=tuple(dict.fromkeys(e for finding, _ in told for e in finding.evidence))[:MOST_EVIDENCE],
        remedies=together(remedy for finding, _ in told for remedy in finding.remedies),
        count=sum(finding.count or 1 for finding, _ in told),
    )
