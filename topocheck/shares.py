"""The evidence of a job of several worlds, shared out: each world gets what is its own.

Hosts, claims and communicators go where they are tied to. Statements about the job go to the world of
the host that made them; what no host made goes to all worlds that it may speak of, if those are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from topocheck.ask import Gap
from topocheck.claims import UNKNOWN, ClaimColumns
from topocheck.inventory import Inventory
from topocheck.machine import Machine, changed
from topocheck.ranges import first
from topocheck.replicas import Part
from topocheck.snapshot import (
    SCHEMA,
    CommRank,
    Host,
    Identity,
    JobFact,
    Observed,
    RankClaim,
    Snapshot,
)
from topocheck.tying import Ties, tie

__all__ = ["NODES", "Share", "Shares", "share_out"]

RANKS, NODES = "ID001", "EV001"
"""Rules that do not know the ranks or the nodes of a world while evidence of some is tied to none."""

OF_ANY_SIZE = frozenset(
    {"engine", "abort", "refused", "unresolved", "store-clients", "unsupported-gpu", "gpu-models"}
)
"""Statements that may be told of any world; the others say something of sizes, options, ranks or places."""

SUPPLY = "name the nodes of each world under `worlds:`, or give claims that name their world"
"""What ties evidence to a world."""

SOME_CLAIM = Snapshot(schema=SCHEMA, identity=Identity(host=Host()), ranks=(RankClaim(rank=0),))
SOME_MEMBER = Snapshot(
    schema=SCHEMA,
    identity=Identity(host=Host()),
    observed=Observed(comms=(CommRank(comm="of some world", rank=0),)),
)
"""They stand for evidence of processes that may be a world's: nothing is concluded from their absence."""


@dataclass(slots=True)
class Share:
    """One world with the evidence that is its own."""

    part: Part
    inventory: Inventory
    machines: list[int]
    """Number of each of its machines in the inventory of the whole job."""
    running: bool
    """Its processes claim ranks, or its communicators were seen."""
    gaps: list[tuple[str, Gap]] = field(default_factory=list)
    """What may be its own and is tied to no world, with the rule that cannot decide without it."""


@dataclass(slots=True)
class Shares:
    """A whole job shared out."""

    worlds: list[Share]
    whole: Inventory
    """All evidence."""
    strangers: list[int]
    """Machines that carry ranks, and no world of the plan has them."""
    unused: list[int]
    """Machines that carry no rank and belong to no world."""
    assumed: list[str]
    """What was assumed."""
    notes: list[str]
    """Facts that accuse nobody."""


def share_out(parts: Sequence[Part], inventory: Inventory) -> Shares:
    """Give each world its evidence. The inventory is settled and arranged."""
    ties = tie(parts, inventory)
    hosts: list[list[int]] = [[] for _ in parts]
    for machine in sorted(ties.on):
        for world in ties.on[machine]:
            hosts[world].append(machine)
    twice = bool(inventory.twice)
    worlds = [share_of(ties, inventory, world, machines, twice=twice) for world, machines in enumerate(hosts)]
    share_facts(ties, inventory, worlds)
    loose_comms = (ties.loose_comms | ties.between).values()
    busy = ties.loose_claims.keys() | {machine for machines in loose_comms for machine in machines}
    outside = [machine for machine in range(len(inventory.machines)) if machine not in ties.on]
    note_loose(ties, inventory, worlds)
    notes = []
    if ties.between:
        notes.append(
            f"communicators between worlds, which are judged for none: {first(sorted(ties.between))}"
        )
    return Shares(
        worlds=worlds,
        whole=inventory,
        strangers=[machine for machine in outside if machine in busy and not ties.homeless()],
        unused=[machine for machine in outside if machine not in busy],
        assumed=ties.assumed,
        notes=notes,
    )


def share_of(ties: Ties, whole: Inventory, world: int, machines: Sequence[int], *, twice: bool) -> Share:
    """One world's machines as it sees them, and its claims. `twice`: some GPU is on two hosts."""
    claims = claims_of(ties, whole, world)
    node_ranks: dict[int, dict[int, None]] = {}
    for machine, number in zip(claims.machine, claims.node_rank, strict=True):
        known = node_ranks.setdefault(machine, {})
        if number != UNKNOWN:
            known[number] = None
    place = {machine: number for number, machine in enumerate(machines)}
    found = Inventory()
    found.machines = [view(ties, whole, world, machine, node_ranks.get(machine)) for machine in machines]
    found.names = whole.names.part([machine.host for machine in found.machines])
    if len(claims):
        found.claims[""] = replace(claims, machine=[place[machine] for machine in claims.machine])
    if twice:
        found.note_uuids([uuid for machine in found.machines for uuid in machine.gpus.uuids])
    found.unlabelled = list(whole.unlabelled)
    called = {name for machine in found.machines for name in (machine.name, *machine.names)}
    found.launches = [(host, seen) for host, seen in whole.launches if host in called]
    found.admission, found.stale, found.earlier = whole.admission, whole.stale, whole.earlier
    found.others = sum(ranks or 0 for ranks in ties.ranks) - (ties.ranks[world] or 0)
    return Share(ties.parts[world], found, list(machines), world in ties.shown)


def claims_of(ties: Ties, whole: Inventory, world: int) -> ClaimColumns:
    """Claims of one world. Of several sizes claimed, those of other worlds' plans are not its own."""
    found = ClaimColumns()
    for name, indexes in ties.claims[world].items():
        columns = whole.claims[name]
        picked = columns if len(indexes) == len(columns) else columns.picked(indexes)
        found.add(picked)
    if len(found.sizes) > 1:
        own = ties.ranks[world]
        others = set(ties.ranks) - {own}
        sizes = {own} if own in found.sizes else found.sizes.keys() - others or found.sizes.keys()
        found.sizes = {size: rank for size, rank in found.sizes.items() if size in sizes}
    return found


def view(
    ties: Ties, whole: Inventory, world: int, number: int, node_ranks: Mapping[int, None] | None
) -> Machine:
    """A machine as one of its worlds sees it."""
    machine = whole.machines[number]
    coverage = machine.coverage
    if ties.loose_claims.get(number):
        coverage = msgspec.structs.replace(coverage, ranks="part")
    return changed(
        machine,
        observed=tuple((seen_by(ties, world, number, seen), tied) for seen, tied in machine.observed),
        has_claims=node_ranks is not None,
        node_ranks=tuple(node_ranks or ()),
        node_claims=tuple(one for one in machine.node_claims if ties.groups.get(one.world, world) == world),
        coverage=coverage,
    )


def seen_by(ties: Ties, world: int, machine: int, seen: Observed) -> Observed:
    """What the running job showed on a machine, without what is another world's or nobody's."""
    alone = ties.on[machine] == [world]

    def own(pid: int | None) -> bool:
        return alone or pid is None or ties.processes.get((machine, pid)) in (None, world)

    foreign = ties.loose_comms.keys() | ties.between.keys()
    comms = tuple(entry for entry in seen.comms if ties.comms.get(entry.comm) == world)
    edges = tuple(
        edge
        for edge in seen.edges
        if (ties.comms[edge.comm] == world if edge.comm in ties.comms else own(edge.pid))
        and edge.comm not in foreign
    )
    facts = tuple(fact for fact in seen.facts if own(fact.pid))
    return msgspec.structs.replace(seen, comms=comms, edges=edges, facts=facts)


def share_facts(ties: Ties, whole: Inventory, worlds: Sequence[Share]) -> None:
    """Give statements about the job to the worlds that they speak of."""
    spoken: dict[str, set[int]] = {}
    for number, machine in enumerate(whole.machines):
        for source in machine.sources:
            spoken.setdefault(source, set()).update(ties.on.get(number, ()))
    turns: Counter[tuple[str, str]] = Counter()
    loose: dict[str, set[int]] = {}
    for fact in whole.job:
        here = worlds_named(ties, whole, fact, spoken)
        here = [world for world in here if fact.engine in (None, ties.parts[world].plan.engine)] or here
        if is_of_replicas(ties, fact):
            here = replicas_meant(ties, fact, here)
        elif fact.kind == "rank" and len(here) > 1 and len({ties.kinds[world] for world in here}) == 1:
            key = fact.value, fact.host or fact.name
            here = [here[turns[key] % len(here)]]  # equal worlds: whichever a rank announced itself in
            turns[key] += 1
        if len({ties.kinds[world] for world in here}) > 1 and fact.kind not in OF_ANY_SIZE:
            source = fact.at.source if fact.at else "a statement"
            loose.setdefault(source, set()).update(here)
            continue
        for world in here:
            worlds[world].inventory.job.append(fact)
    for source, those in sorted(loose.items()):
        for world in sorted(those):
            gap = Gap(
                "which world a file speaks of", (source,), "give it as NODE=FILE, with a node of its world"
            )
            worlds[world].gaps.append(("OBS001", gap))


def worlds_named(ties: Ties, whole: Inventory, fact: JobFact, spoken: Mapping[str, set[int]]) -> list[int]:
    """Worlds on the host that made a statement, else on those that its file speaks of, else all."""
    for name in (fact.host, fact.name if fact.kind in ("rank", "node-rank") else None):
        machine = whole.names.named(name) if name else None
        if machine is not None and machine in ties.on:
            return list(ties.on[machine])
    here = spoken.get(fact.at.source) if fact.at is not None else None
    return sorted(here or range(len(ties.parts)))


def is_of_replicas(ties: Ties, fact: JobFact) -> bool:
    """It speaks of the data axis, which the engine made worlds of."""
    return fact.name == "data" and fact.kind in ("size", "requested-size", "rank-coordinate")


def replicas_meant(ties: Ties, fact: JobFact, here: Iterable[int]) -> list[int]:
    """Worlds for which a statement about the data axis is one: none that is a data replica itself."""
    return [world for world in here if ties.parts[world].replica is None]


def note_loose(ties: Ties, whole: Inventory, worlds: Sequence[Share]) -> None:
    """Tell each world what may be its own, so that nothing is concluded from its absence."""
    homeless = ties.homeless()
    for machine in sorted(ties.loose_claims):
        gap = Gap("which world processes are of that claim a rank", (whole.machines[machine].name,), SUPPLY)
        for world in ties.on.get(machine, homeless):
            loosened(worlds[world], gap, SOME_CLAIM)
    for comm, machines in sorted(ties.loose_comms.items()):
        gap = Gap("which world a communicator belongs to", (comm,), SUPPLY)
        for world in sorted({world for machine in machines for world in ties.on.get(machine, homeless)}):
            loosened(worlds[world], gap, SOME_MEMBER)
    for comm, machines in sorted(ties.between.items()):
        # A world that shows ranks of its own besides is joined to others by it, as connectors of caches do.
        gap = Gap("which world a communicator belongs to", (comm,), SUPPLY)
        for world in sorted({world for machine in machines for world in ties.on.get(machine, homeless)}):
            if world not in ties.shown:
                loosened(worlds[world], gap, SOME_MEMBER)
    if homeless and any(machine not in ties.on for machine in range(len(whole.machines))):
        for world in homeless:
            gap = Gap("which hosts are a world's", (f"world {ties.parts[world].name}",), SUPPLY)
            worlds[world].gaps.append((NODES, gap))


def loosened(share: Share, gap: Gap, stub: Snapshot) -> None:
    """One piece of loose evidence that may be of a world."""
    share.gaps.append((RANKS, gap))
    if not any(snapshot is stub for snapshot in share.inventory.unlabelled):
        share.inventory.unlabelled.append(stub)
