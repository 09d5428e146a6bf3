"""What launch commands, hostfiles and start-up lines prove wrong about ranks, devices and slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topocheck.allotment import allotment
from topocheck.column import Column
from topocheck.jobfacts import facts_of, number
from topocheck.launchers.resolve import READS
from topocheck.nested import AGENTS, chains
from topocheck.placement import Placement
from topocheck.ranges import first, fold
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, read_at, the
from topocheck.snapshot import JobFact

__all__ = [
    "Announcements",
    "announced_twice",
    "announcements",
    "invalid_devices",
    "is_refused_for_space",
    "narrow_tasks",
    "narrowed_devices",
    "short_allocation",
    "stated_worlds",
    "world_shown",
]

DEVICE_IS_LOCAL_RANK = ("megatron", "torchtitan", "deepspeed", "accelerate")
"""Engines that drive the GPU of their local rank's number, whatever a task can see."""

CONFINED = ("local gpu count", "available GPUs (")
"""Words by which vLLM refuses a world that is larger than one node, because its executor cannot leave it."""
TOO_FEW = (
    "visible devices (",
    "specificied on host",
    "not found in hostfile",
    "not enough slots available",
    "Required number of devices",
)
"""Words by which engines and launchers refuse for want of GPUs, slots or bundles; the spelling is theirs."""


def is_refused_for_space(words: str) -> bool:
    """An engine or a launcher refused to start because the allocation does not hold the world."""
    return any(part in words for part in (*CONFINED, *TOO_FEW))


def stated_worlds(placement: Placement) -> list[tuple[int, Evidence]]:
    """World sizes that logs and commands state and that the plan's product is not.

    vLLM and SGLang start their ranks themselves and may run each replica as a world of its own, so that
    of theirs only a larger one counts. A plan without a data size leaves it to the world.
    """
    own = READS.get(placement.plan.engine, "rank") == "nothing"
    found = [
        (size, read_at(fact.at, f"{fact.kind} {fact.value}"))
        for fact in facts_of(placement, "world")
        if (size := number(fact.value)) is not None and fact.engine in (None, placement.plan.engine)
    ]
    found += [] if own else processes(placement)
    return [pair for pair in found if differs(placement, pair[0], larger=own)]


def world_shown(placement: Placement) -> Situations[Column] | NotApplicable:
    """The ranks of the job; not where the data size follows from the only world size that is shown."""
    own, claims = placement.facts.origin.world, placement.inventory.claims.get("")
    sizes = {own, *(claims.sizes if claims else ()), *(size for size, _ in stated_worlds(placement))}
    largest = max((comm.size or 0 for comm in placement.seen.communicators.values()), default=0)
    if own is None or len(sizes) > 1 or largest > placement.world:
        return the(placement.placed)
    return NotApplicable("the data size follows from the world size that this very evidence shows")


def differs(placement: Placement, size: int, *, larger: bool) -> bool:
    """A stated size contradicts the plan."""
    world = placement.world
    if size == world or (larger and size < world):
        return False
    return not (placement.plan.parallel.data is None and size % world == 0)


def processes(placement: Placement) -> Iterator[tuple[int, Evidence]]:
    """Processes that the command of the job starts in all, where it spells them out."""
    commands = chains(placement)
    engines = {f.at for f in facts_of(placement, "engine") if f.value == placement.plan.engine}
    ours = commands if len(commands) == 1 else [c for c in commands if c[1].at in engines]
    for chain, command in ours:
        level = "agent" if AGENTS.intersection(chain) else "launcher"
        own = {
            fact.kind: fact
            for fact in facts_of(placement, "processes", "processes-per-node", "nodes")
            if fact.at == command.at and fact.name == level
        }
        total = [own["processes"]] if "processes" in own else []
        if not total and {"processes-per-node", "nodes"} <= own.keys():
            total = [own["nodes"], own["processes-per-node"]]
        counts = [value for fact in total if (value := number(fact.value))]
        if total and len(counts) == len(total):
            words = " x ".join(f"{fact.kind} {fact.value}" for fact in total)
            yield (
                counts[0] * (counts[1] if len(counts) > 1 else 1),
                read_at(command.at, f"{' '.join(chain)}: {words}"),
            )


@dataclass(frozen=True, slots=True)
class Announcements:
    """Ranks that announced themselves more than once while others never did."""

    doubled: list[int]
    """Ranks with several announcements; empty if there are none, or if every rank announced itself."""
    silent: list[int]
    """Ranks without any; [] where no rank has several."""
    restart: bool
    """It may be one node in an excerpt of the log whose processes were started again."""
    facts: list[JobFact]
    """The announcements."""


def announcements(placement: Placement) -> Announcements:
    """All ranks announced equally often is a restart in one log, not a fault."""
    facts = [fact for fact in facts_of(placement, "rank") if number(fact.value) is not None]
    hosts: dict[int, list[str]] = {}
    for fact in facts:
        hosts.setdefault(number(fact.value) or 0, []).append(fact.host or fact.name)
    several = sorted(rank for rank, named in hosts.items() if len(named) > 1)
    silent = [rank for rank in range(placement.world) if rank not in hosts] if several else []
    doubled = several if silent else []
    apart = any(len({host for host in hosts[rank] if host}) > 1 for rank in doubled)
    return Announcements(doubled, silent, not apart and in_turn(facts), facts)


def announced_twice(placement: Placement) -> Iterator[Finding]:
    """Ranks that announced themselves more than once, not as the ranks of a node that restarted do."""
    found = announcements(placement)
    if found.doubled and not found.restart:
        yield Finding(
            message=f"ranks {fold(found.doubled)} announced themselves more than once, and ranks "
            f"{fold(found.silent)} were not seen: several launches number their processes alike and wait for "
            "the others",
            fix="give each node its own node rank (Slurm: --ntasks-per-node), or start one launcher only",
            cause="rank announced twice",
            subjects=tuple(f"rank {rank}" for rank in found.doubled),
            evidence=tuple(
                read_at(fact.at, f"rank {fact.value}")
                for fact in found.facts
                if number(fact.value) in found.doubled
            ),
            ranks=tuple(rank for rank in found.doubled if rank < placement.world),
        )


def in_turn(facts: Sequence[JobFact]) -> bool:
    """In each text all ranks announce themselves before any of them does so again."""
    by_source: dict[str, list[str]] = {}
    for fact in facts:
        by_source.setdefault(fact.at.source if fact.at else "", []).append(fact.value)
    for values in by_source.values():
        ranks = len(set(values))
        rounds = [values[start : start + ranks] for start in range(0, len(values), ranks)]
        if any(len(set(part)) < len(part) for part in rounds):
            return False
    return True


def invalid_devices(placement: Placement) -> Iterator[Finding]:
    """Ranks that asked for a device number that their host does not have."""
    facts = facts_of(placement, "device-error")
    by_host: dict[str, list[int]] = {}
    for fact in facts:
        rank = number(fact.value)
        if rank is not None:
            by_host.setdefault(fact.host or fact.name or "a host", []).append(rank)
    slots = {fact.name: fact.value for fact in facts_of(placement, "host-slots")}
    for host, ranks in by_host.items():
        promised = f"; the launcher was told {slots[host]} slots there" if host in slots else ""
        others = [name for name in slots if name not in by_host]
        elsewhere = f" and {first(others)} was to take the rest" if promised and others else ""
        yield Finding(
            message=f"ranks {fold(ranks)} on {host} drive no GPU: their device number is not valid "
            f"there{promised}{elsewhere}",
            fix="start no more processes a host than it has GPUs, and see on which hosts the launcher really "
            "starts them (mpirun hostname)",
            cause="device number not valid",
            subjects=tuple(f"rank {rank} on {host}" for rank in sorted(ranks)),
            evidence=tuple(read_at(f.at, f"rank {f.value}: invalid device") for f in facts),
            ranks=tuple(rank for rank in sorted(ranks) if rank < placement.world),
        )


def narrow_tasks(placement: Placement) -> tuple[list[JobFact], int]:
    """Statements that Slurm shows each of several tasks of a node one GPU alone, and the number of tasks.

    Not where the binding is switched off, nor where each task is an agent, whose first local rank is 0.
    """
    narrow = [fact for fact in facts_of(placement, "gpus-per-task") if fact.value == "1"]
    tasks = [
        count
        for fact in facts_of(placement, "processes-per-node")
        if fact.name == "launcher" and (count := number(fact.value))
    ]
    free = any(
        f.name in ("gpu-bind", "SLURM_GPU_BIND") and f.value == "none" for f in facts_of(placement, "option")
    )
    agents = any(AGENTS.intersection(chain) for chain, _ in chains(placement))
    most = max(tasks, default=0)
    return ([] if most < 2 or free or agents else narrow), most


def narrowed_devices(placement: Placement) -> Iterator[Finding]:
    """One GPU visible to each task, and an engine that drives the GPU of its local rank's number."""
    narrow, tasks = narrow_tasks(placement)
    if not narrow or placement.plan.engine not in DEVICE_IS_LOCAL_RANK:
        return
    last = tasks - 1
    yield Finding(
        message=f"each task sees one GPU (gpus-per-task 1), and {placement.facts.engine.title} drives the "
        f"GPU of its local rank: local ranks 1..{last} point past the only one",
        fix="use --gpus-per-node in place of --gpus-per-task (or --gpu-bind=none), so that every task sees "
        "all GPUs of its node",
        cause="one GPU visible",
        subjects=(f"local ranks 1..{last}",),
        evidence=tuple(read_at(fact.at, f"gpus-per-task {fact.value}") for fact in narrow),
    )


def short_allocation(placement: Placement) -> Iterator[Finding]:
    """Slots, GPUs, bundles or an executor that cannot hold the world."""
    beyond = list(beyond_slots(placement))
    yield from beyond
    yield from few_slots(placement)
    yield from small_allotment(placement)
    yield from small_cluster(placement)
    yield from unknown_bundles(placement)
    yield from refused(placement, told=bool(beyond))


def slots_by_host(placement: Placement) -> dict[str, tuple[int, JobFact]]:
    """Most slots that any list gives to each host: of two lists one may be old."""
    found: dict[str, tuple[int, JobFact]] = {}
    for fact in facts_of(placement, "host-slots"):
        count = number(fact.value)
        if count is not None and (fact.name not in found or found[fact.name][0] < count):
            found[fact.name] = count, fact
    return found


def beyond_slots(placement: Placement) -> Iterator[Finding]:
    """GPU indexes that --include selects and the hostfile does not give."""
    slots = slots_by_host(placement)
    for fact in facts_of(placement, "include"):
        if fact.name not in slots:
            continue
        have, listed = slots[fact.name]
        wanted = [value for part in fact.value.split(",") if (value := number(part.strip())) is not None]
        past = [index for index in wanted if index >= have]
        if past:
            room = f"{have} (0..{have - 1})" if have else "none"
            yield Finding(
                message=f"slots {fold(past)} are asked for on {fact.name}, and the hostfile gives it {room}",
                fix="write the number of GPUs that the host has into the hostfile; --include then selects",
                cause="include beyond the slots",
                subjects=(fact.name,),
                evidence=(
                    read_at(fact.at, f"include {fact.name}:{fact.value}"),
                    read_at(listed.at, f"{fact.name} slots={have}"),
                    *(read_at(f.at, f.value) for f in facts_of(placement, "refused") if fact.name in f.value),
                ),
            )


def few_slots(placement: Placement) -> Iterator[Finding]:
    """Fewer slots on all listed hosts together than the world has ranks, where each rank takes a slot."""
    own = READS.get(placement.plan.engine, "rank") == "nothing"
    if own or any(
        AGENTS.intersection(chain) for chain, _ in chains(placement) if chain[:1] != ("deepspeed",)
    ):
        return
    slots = slots_by_host(placement)
    listed = {host for fact in facts_of(placement, "node-order") for host in fact.value.split()}
    total = sum(count for count, _ in slots.values())
    if slots and listed <= slots.keys() and total < placement.world:
        yield Finding(
            message=f"the hosts have {total} slots ({first(slots)}) and the job needs {placement.world}",
            fix="list all hosts with the GPUs that they have, or use smaller sizes",
            cause="too few slots",
            subjects=(f"{total} slots",),
            evidence=tuple(read_at(f.at, f"{host} slots={n}") for host, (n, f) in slots.items()),
        )


def small_allotment(placement: Placement) -> Iterator[Finding]:
    """The scheduler gives the job fewer GPUs than the world has ranks."""
    given = allotment(placement)
    if given is not None and given.whole and given.gpus < placement.world:
        yield Finding(
            message=f"the job is given {given.gpus} GPUs and needs {placement.world}",
            fix="ask the scheduler for more nodes or GPUs, or use smaller sizes",
            cause="too few GPUs allotted",
            subjects=(f"{given.gpus} GPUs",),
            evidence=given.evidence,
        )


def small_cluster(placement: Placement) -> Iterator[Finding]:
    """A resource manager that has fewer GPUs than the world has ranks."""
    offered = [fact for fact in facts_of(placement, "cluster-gpus") if number(fact.value) is not None]
    most = max((number(fact.value) or 0 for fact in offered), default=placement.world)
    if most < placement.world:
        yield Finding(
            message=f"the cluster offers {most} GPUs and the job needs {placement.world}",
            fix="add nodes to the cluster, or use smaller sizes",
            cause="cluster too small",
            subjects=(f"{most} GPUs",),
            evidence=tuple(read_at(fact.at, f"{fact.name}: {fact.value} GPUs") for fact in offered),
        )


def unknown_bundles(placement: Placement) -> Iterator[Finding]:
    """A bundle that is pinned to an address which the cluster does not have, where it lists addresses."""
    nodes = facts_of(placement, "cluster-node")
    known = {fact.value or fact.name for fact in nodes}
    if not any("." in name or ":" in name for name in known):
        return
    lost = [fact for fact in facts_of(placement, "bundles") if fact.name and fact.name not in known]
    if lost:
        yield Finding(
            message=f"Ray waits for a bundle on {first(dict.fromkeys(f.name for f in lost))}, and the "
            f"cluster has {first(sorted(known))}",
            fix="set VLLM_HOST_IP to the address under which `ray start` joined the node",
            cause="bundle on an unknown node",
            subjects=tuple(dict.fromkeys(fact.name for fact in lost)),
            evidence=tuple(read_at(f.at, f"{f.value} bundles, one on node:{f.name}") for f in lost),
        )


def refused(placement: Placement, *, told: bool) -> Iterator[Finding]:
    """An engine or a launcher that refused for want of room. `told`: a finding names the slots already."""
    for fact in facts_of(placement, "refused"):
        if any(words in fact.value for words in CONFINED):
            yield Finding(
                message=f"the engine refused to start: {fact.value}. Its executor stays on one node, "
                "whatever the cluster offers",
                fix="choose the executor that spans nodes (vLLM: --distributed-executor-backend ray, or "
                "--nnodes and --node-rank)",
                cause="executor confined to one node",
                subjects=("executor",),
                evidence=(read_at(fact.at, fact.value),),
            )
        elif not told and is_refused_for_space(fact.value):
            yield Finding(
                message=f"the launch was refused: {fact.value}",
                fix="give the launcher hosts, slots and GPUs for the whole world",
                cause="refused for space",
                subjects=("allocation",),
                evidence=(read_at(fact.at, fact.value),),
            )
