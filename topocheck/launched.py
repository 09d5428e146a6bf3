"""What launch commands, hostfiles and start-up lines prove wrong about ranks, devices and slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from topocheck.jobfacts import facts_of, number
from topocheck.placement import Placement
from topocheck.ranges import first, fold
from topocheck.rule import Finding, read_at

__all__ = ["announced_twice", "invalid_devices", "narrowed_devices", "short_allocation"]

DEVICE_IS_LOCAL_RANK = ("megatron", "torchtitan", "deepspeed", "accelerate")
"""Engines that drive the GPU of their local rank's number, whatever a task can see."""


def announced_twice(placement: Placement) -> Iterator[Finding]:
    """Ranks that announced themselves more than once while others never did.

    All ranks announced equally often is a restart in one log, not a fault.
    """
    facts = facts_of(placement, "rank")
    counts = Counter(value for fact in facts if (value := number(fact.value)) is not None)
    doubled = sorted(rank for rank, count in counts.items() if count > 1)
    silent = [rank for rank in range(placement.world) if rank not in counts]
    if doubled and silent:
        yield Finding(
            message=f"ranks {fold(doubled)} announced themselves more than once, and ranks {fold(silent)} "
            "were not seen: several launches number their processes alike and wait for the others",
            fix="give each node its own node rank (Slurm: --ntasks-per-node), or start one launcher only",
            cause="rank announced twice",
            subjects=tuple(f"rank {rank}" for rank in doubled),
            evidence=tuple(
                read_at(fact.at, f"rank {fact.value}") for fact in facts if number(fact.value) in doubled
            ),
            ranks=tuple(rank for rank in doubled if rank < placement.world),
        )


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


def narrowed_devices(placement: Placement) -> Iterator[Finding]:
    """One GPU visible to each task, and an engine that drives the GPU of its local rank's number."""
    narrow = [fact for fact in facts_of(placement, "gpus-per-task") if fact.value == "1"]
    tasks = [n for fact in facts_of(placement, "processes-per-node") if (n := number(fact.value))]
    if not narrow or not tasks or max(tasks) < 2 or placement.plan.engine not in DEVICE_IS_LOCAL_RANK:
        return
    last = max(tasks) - 1
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
    """Slots, GPUs or an executor that cannot hold the world."""
    slots = {fact.name: fact for fact in facts_of(placement, "host-slots")}
    for fact in facts_of(placement, "include"):
        wanted = [value for part in fact.value.split(",") if (value := number(part.strip())) is not None]
        have = number(slots[fact.name].value) if fact.name in slots else None
        beyond = [index for index in wanted if have is not None and index >= have]
        if beyond:
            yield Finding(
                message=f"slots {fold(beyond)} are asked for on {fact.name}, and the hostfile gives it "
                f"{have} (0..{(have or 1) - 1})",
                fix="write the number of GPUs that the host has into the hostfile; --include then selects",
                cause="include beyond the slots",
                subjects=(fact.name,),
                evidence=(
                    read_at(fact.at, f"include {fact.name}:{fact.value}"),
                    read_at(slots[fact.name].at, f"{fact.name} slots={have}"),
                ),
            )
    offered = [fact for fact in facts_of(placement, "cluster-gpus") if number(fact.value) is not None]
    most = max((number(fact.value) or 0 for fact in offered), default=None)
    if most is not None and most < placement.world:
        yield Finding(
            message=f"the cluster offers {most} GPUs and the job needs {placement.world}",
            fix="add nodes to the cluster, or use smaller sizes",
            cause="cluster too small",
            subjects=(f"{most} GPUs",),
            evidence=tuple(read_at(fact.at, f"{fact.name}: {fact.value} GPUs") for fact in offered),
        )
    yield from confined(placement)


def confined(placement: Placement) -> Iterator[Finding]:
    """An engine that refused because its executor cannot leave one node."""
    for fact in facts_of(placement, "refused"):
        if "local gpu count" not in fact.value:
            continue
        yield Finding(
            message=f"the engine refused to start: {fact.value}. Its executor stays on one node, whatever "
            "the cluster offers",
            fix="choose the executor that spans nodes (vLLM: --distributed-executor-backend ray, or --nnodes "
            "and --node-rank)",
            cause="executor confined to one node",
            subjects=("executor",),
            evidence=(read_at(fact.at, fact.value),),
        )
