"""CAP: what each stage holds fits its GPUs, with the head room that policy wants."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from topocheck.ask import Ask, Device
from topocheck.engines import ENGINES
from topocheck.pipeline.bounds import exactly
from topocheck.pipeline.capacity import GIB, Budget, assumptions, budget_of, gib
from topocheck.placement import Node, Placement
from topocheck.plan import Workload
from topocheck.ranges import fold
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, rule
from topocheck.sizing import TRAINING, StageNeed, needs

__all__ = ["RULES"]

MEMORY = "nvidia-smi --query-gpu=index,uuid,pci.bus_id,name,memory.total --format=csv, given as NODE=FILE"


@dataclass(frozen=True, slots=True)
class Seats:
    """The ranks of one node, with the stage of each."""

    node: Node | None
    """None for the ranks whose node nothing shows."""
    ranks: tuple[int, ...]
    stages: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.node} (ranks {fold(self.ranks)})"


@dataclass(frozen=True, slots=True)
class Fit:
    """What one stage's ranks on one node need, and what the smallest GPU under them has."""

    stage: int
    ranks: tuple[int, ...]
    device: Device
    budget: Budget
    need: StageNeed


def seats(placement: Placement) -> Situations[Seats] | NotApplicable:
    """Nodes with ranks by situation: hardware, GPUs used, stages held."""
    plan = placement.plan
    if plan.model is None or plan.workload is None:
        return NotApplicable(f"the plan gives no {'model' if plan.model is None else 'workload'}")
    if plan.engine in TRAINING:
        title = ENGINES[plan.engine].title
        return NotApplicable(f"{title} trains: gradients and optimiser states are outside this arithmetic")
    return placement.keep("seats of stages", find_seats)


def find_seats(placement: Placement) -> dict[Hashable, list[Seats]]:
    """Sort all nodes that carry ranks into situations."""
    layout, column = placement.layout, placement.placed
    stride, count = layout.strides.get("pipeline", 1), layout.size("pipeline")
    found: dict[Hashable, list[Seats]] = {}
    for place, ranks in placement.ranks_on.items():
        node = placement.nodes[place]
        stages = tuple([rank // stride % count for rank in ranks])
        gpus = tuple([column.gpu[rank] for rank in ranks])
        memory = node.shape.memory if node.shape else ()
        key: Hashable = place if node.kind is None else (node.kind, memory, gpus, stages)
        found.setdefault(key, []).append(Seats(node, tuple(ranks), stages))
    if placement.unplaced:
        found["unplaced"] = [Seats(None, tuple(placement.unplaced), ())]
    return found


def fits(ask: Ask, subject: Seats) -> Iterator[Fit]:
    """Each stage on a node with the smallest of its GPUs; the gaps of what is not known."""
    if subject.node is None:
        ask.rank_gap(subject.ranks)
        return
    wanted = needs(ask)
    devices = ask.devices(subject.ranks)
    sized = {rank: memory for rank, device in devices.items() if (memory := memory_of(ask, device))}
    if wanted is None:
        return
    workload = ask.placement.plan.workload or Workload()
    for stage in sorted(set(subject.stages)):
        ranks = tuple(
            r for r, s in zip(subject.ranks, subject.stages, strict=True) if s == stage and r in sized
        )
        if not ranks:
            continue
        least = min(ranks, key=sized.__getitem__)
        budget = budget_of(ask.placement.plan.engine, sized[least], workload.gpu_memory_utilization)
        yield Fit(stage, ranks, devices[least], budget, wanted[stage])


def memory_of(ask: Ask, device: Device) -> int | None:
    """Memory of a GPU; None with a gap, also for a GPU that is cut into slices."""
    shape = device.node.shape
    gpu = shape.hardware.gpus[device.ordinal] if shape and device.ordinal < shape.gpus else None
    if gpu is None or gpu.memory_bytes is None:
        ask.gap("memory of each GPU", [device.node.name], MEMORY, part="gpus")
        return None
    machine = device.node.machine
    listed = machine.sliced[device.ordinal : device.ordinal + 1] if machine else ()
    if gpu.mig or any(listed):
        ask.gap(
            "memory of the slice that each rank has", [device.node.name], "nvidia-smi -L", because="ID013"
        )
        return None
    return gpu.memory_bytes


@rule("CAP002", "weights, KV cache and buffers fit", over=seats, severity="error")
def stage_fits(ask: Ask, subject: Seats) -> Iterator[Finding]:
    """Fails where even the lower bound does not fit, passes where the upper bound does."""
    for fit in fits(ask, subject):
        wanted = fit.need
        if fit.budget.most_free(wanted.need) < 0:
            yield does_not_fit(ask, fit)
        elif wanted.missing:
            keys = " and ".join(wanted.missing)
            ask.gap(
                f"the KV cache that is wanted ({keys})",
                ["plan"],
                f"workload: {{{wanted.missing[0]}: N}} in the plan",
            )
        elif fit.budget.least_free(wanted.need) < 0:
            ask.gap(
                f"whether stage {fit.stage} fits: a rank needs {gib(wanted.need.total)} by arithmetic, of "
                f"{usable(fit.budget)}",
                [fit.device.node.name],
                "workload.gpu_memory_utilization and max_batched_tokens in the plan, or the engine's own "
                "line of the KV cache that it could allocate",
            )


def usable(budget: Budget) -> str:
    """What the engine may take, `71.6 GiB (0.9 of 79.6 GiB)`."""
    share = budget.share
    part = f"{share.low:g}" if share.exact else f"{share.low:g} to {share.high:g}"
    what = " for weights and KV cache" if budget.static else ""
    whole = gib(exactly(budget.memory_bytes))
    return f"{gib(share.scaled(budget.memory_bytes))}{what} ({part} of {whole})"


def does_not_fit(ask: Ask, fit: Fit) -> Finding:
    """The finding of one stage on one node."""
    need, workload = fit.need.need, ask.placement.plan.workload or Workload()
    free = fit.budget.most_free(need) + need.cache.low
    if free < fit.need.sequence_bytes.low or need.cache.low == 0:
        cause = "weights do not fit"
        says = (
            "the KV cache has no room for one sequence"
            if free >= 0
            else "weights and buffers alone do not fit"
        )
        fix = "use more stages or a larger tensor size, GPUs with more memory, or quantised weights"
    else:
        cause, most = "KV cache does not fit", int(free // fit.need.sequence_bytes.low)
        tokens = (workload.input_tokens or 0) + (workload.output_tokens or 0)
        says = f"{workload.max_sequences} sequences of {tokens:,} tokens do not fit"
        fix = (
            f"allow at most {most} sequences of that length, keep the KV cache in fp8, or use more stages or "
            "a larger tensor size"
        )
    return Finding(
        message=f"stage {fit.stage} on {fit.device.node} (ranks {fold(fit.ranks)}): a rank needs at least "
        f"{need.total.low / GIB:.3g} GiB ({need.words()}) and may take {usable(fit.budget)}: {says}",
        fix=fix,
        cause=cause,
        subjects=(f"stage {fit.stage} on {fit.device.node}",),
        evidence=(
            Evidence(
                source=", ".join(fit.device.node.machine.sources[:2])
                if fit.device.node.machine
                else "hardware",
                fact=f"{fit.device}: {fit.budget.memory_bytes:,} bytes",
            ),
            *(Evidence(source="assumption", fact=fact) for fact in assumptions()),
        ),
        ranks=fit.ranks,
        mark="gpu",
    )


def roomy(placement: Placement) -> Situations[Seats] | NotApplicable:
    """The same, where policy wants head room."""
    if placement.plan.policy.head_room is None:
        return NotApplicable("policy.head_room sets no limit")
    return seats(placement)


@rule("CAP003", "head room is left", over=roomy, severity="warning")
def head_room_left(ask: Ask, subject: Seats) -> Iterator[Finding]:
    """Free part of each GPU's memory, of what the engine may take, after all that CAP002 counts."""
    wanted = ask.placement.plan.policy.head_room or 0
    for fit in fits(ask, subject):
        memory, need = fit.budget.memory_bytes, fit.need.need
        most, least = fit.budget.most_free(need) / memory, fit.budget.least_free(need) / memory
        if most < 0 or fit.need.missing:
            reason = "the KV cache that is wanted" if fit.need.missing else "what is left where nothing fits"
            ask.gap(reason, [fit.device.node.name], "see CAP002", because="CAP002")
        elif most < wanted:
            yield Finding(
                message=f"stage {fit.stage} on {fit.device.node} (ranks {fold(fit.ranks)}) leaves at most "
                f"{most:.1%} of {gib(exactly(memory))} free ({need.words()}), and the policy wants "
                f"{wanted:.1%}",
                fix="allow fewer or shorter sequences, or use more stages or a larger tensor size",
                cause="little head room",
                subjects=(f"stage {fit.stage} on {fit.device.node}",),
                evidence=(
                    Evidence(source="plan", fact=f"policy.head_room {wanted:g}"),
                    Evidence(source="assumption", fact=f"the engine may take {usable(fit.budget)}"),
                ),
                ranks=fit.ranks,
                mark="gpu",
            )
        elif least < wanted:
            ask.gap(
                f"the memory that stage {fit.stage} leaves free: {max(0, least):.1%} to {most:.1%} by "
                f"arithmetic, and the policy wants {wanted:.1%}",
                [fit.device.node.name],
                "the memory line of the engine's start-up log",
            )


RULES = (stage_fits, head_room_left)
