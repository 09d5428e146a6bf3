"""CAP: the GPUs that the job was given are free."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from topocheck.ask import Ask
from topocheck.claims import UNKNOWN
from topocheck.kinds import by_kind
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, read_at, rule
from topocheck.snapshot import GpuCondition, JobFact, Process

__all__ = ["RULES"]

USED_SHARE = 0.05
"""Part of a GPU's memory that may be in use before the job starts, where policy does not say."""
USED_BYTES = 2 << 30
"""The same where nothing shows how much memory the GPU has."""
TOO_TIGHT = ("is less than desired GPU memory utilization", "No available memory for the cache blocks")
"""Words of engines that met less free memory than they were told to take."""
SUPPLY = "nvidia-smi (its table with the processes), given as NODE=FILE, or topocheck probe on every node"
GIB = 1 << 30


def used_nodes(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes that carry ranks, by hardware, GPUs used and what is on them."""
    if placement.phase == "observed" and not tight_lines(placement):
        return NotApplicable("the job runs already: the memory in use is its own")
    return placement.keep("nodes by occupancy", by_occupancy)


def by_occupancy(placement: Placement) -> dict[Hashable, list[Node]]:
    """A node on whose GPUs something else is, is a situation of its own."""

    def key(node: Node) -> Hashable:
        machine = node.machine
        states = machine.states if machine else ()
        if any(state.busy for state, _ in states):
            return node.index
        gpus = tuple(placement.placed.gpu[rank] for rank in placement.ranks_on.get(node.index, ()))
        views = tuple((id(state.idle), ties and tuple(ties)) for state, ties in states)
        return views, gpus, id(node.shape), machine.numbering if machine else ()

    return by_kind(placement, key)


def tight_lines(placement: Placement) -> list[JobFact]:
    """Lines by which an engine says that too little memory was free."""
    return [
        fact
        for fact in placement.inventory.job
        if fact.kind == "refused" and any(words in fact.value for words in TOO_TIGHT)
    ]


@rule("CAP001", "the GPUs are free", over=used_nodes, severity="error")
def gpus_are_free(ask: Ask, node: Node) -> Iterator[Finding]:
    """Nothing but the job itself uses memory of the GPUs that it takes."""
    placement = ask.placement
    lines = tight_lines(placement)
    if lines and node.index == 0:
        ask.know()
        yield too_little_free(lines)
    if placement.phase == "observed":
        ask.know()
        return
    ranks = placement.ranks_on.get(node.index, [])
    devices = ask.devices([*ranks, *placement.unplaced]) if ranks else {}
    if not ranks:
        ask.gap("which GPUs of the node the job takes", [node.name], SUPPLY, part="ranks")
    idle, busy = occupancy(node)
    unseen: list[int] = []
    blurred = placement.phase == "claimed" and node.index in placement.keep(
        "nodes without pids", without_pids
    )
    for rank, device in devices.items():
        seen = busy.get(device.ordinal)
        if seen is not None and (blurred or seen.memory_used_bytes is None):
            unseen.append(device.ordinal)
        elif seen is not None:
            share = placement.plan.policy.used_memory or USED_SHARE
            yield from occupied(node, device.ordinal, seen, rank, share)
        elif device.ordinal not in idle:
            unseen.append(device.ordinal)
    if unseen:
        need = "which processes on the GPUs are the job's own" if blurred else "who uses the GPUs"
        ask.gap(need, [node.name], SUPPLY, part="gpus")


def without_pids(placement: Placement) -> set[int]:
    """Nodes not all of whose claimed ranks show a pid: what is on the GPUs there may be theirs."""
    machines: set[int] = set()
    without: set[int] = set()
    for claims in placement.inventory.claims.values():
        machines.update(claims.machine)
        if UNKNOWN in claims.pid:
            rows = list(zip(claims.rank, claims.machine, claims.pid, strict=True))
            known = {(rank, machine) for rank, machine, pid in rows if pid != UNKNOWN}
            without |= {machine for rank, machine, _ in rows if (rank, machine) not in known}
    shown = set(map(placement.node_of.get, machines - without))
    return set(range(len(placement.nodes))) - shown


def occupancy(node: Node) -> tuple[set[int], dict[int, GpuCondition]]:
    """Ordinals of GPUs that are free, and what is on the others."""
    idle: set[int] = set()
    busy: dict[int, GpuCondition] = {}
    for state, ties in node.machine.states if node.machine else ():
        idle |= {ties[gpu] if ties else gpu for gpu in state.idle}
        busy |= {ties[gpu.gpu] if ties else gpu.gpu: gpu for gpu in state.busy}
    return idle - busy.keys(), busy


def occupied(node: Node, ordinal: int, seen: GpuCondition, rank: int, most: float) -> Iterator[Finding]:
    """Somebody else's memory on a GPU of the job, if it is more than `most` of it all."""
    used = seen.memory_used_bytes
    shape = node.shape
    total = shape.hardware.gpus[ordinal].memory_bytes if shape and ordinal < shape.gpus else None
    limit = most * total if total else USED_BYTES
    if used is None or used <= limit:
        return
    share = f" of {total / GIB:.0f} GiB" if total else ""
    gpu, processes = node.gpu_name(ordinal), seen.processes
    who = f": {first(map(spell, processes), 4)}" if processes else ", by no process that is visible here"
    yield Finding(
        message=f"{used / GIB:.1f} GiB{share} of {gpu} on {node} are in use{who}, and rank {rank} is to take "
        "that GPU",
        fix="end what is left of an earlier job there (kill the processes; if none is visible, restart the "
        "container that holds the memory, or nvidia-smi --gpu-reset), or give the job other GPUs",
        cause="GPU occupied",
        subjects=(f"{gpu} of {node}",),
        evidence=(
            Evidence(source=node.read_in(), fact=f"{used / GIB:.1f} GiB in use"),
            *(Evidence(source=node.read_in(), fact=spell(process)) for process in (processes or ())[:4]),
        ),
        ranks=(rank,),
        mark="gpu",
    )


def spell(process: Process) -> str:
    """A process as an operator finds it again."""
    held = f" with {process.memory_bytes / GIB:.1f} GiB" if process.memory_bytes else ""
    name = process.name or "a process"
    if not process.pid:
        return f"{name} of another container{held}"
    owner = f", {process.owner}" if process.owner else ""
    age = f", {days(process.age_seconds)} old" if process.age_seconds is not None else ""
    return f"{name} (pid {process.pid}{owner}{age}){held}"


def days(seconds: int) -> str:
    """An age in the unit that fits: 40 min, 5 h, 12 days."""
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


def too_little_free(lines: list[JobFact]) -> Finding:
    """The engine's own line."""
    return Finding(
        message=f"the engine met less free memory than it was told to take: {lines[0].value}",
        fix="see who uses the GPUs (nvidia-smi) and end what is left of an earlier job; if nothing is there, "
        "the engine's memory utilisation is too tight by itself: lower it",
        cause="too little memory free",
        subjects=("GPU memory",),
        evidence=tuple(read_at(fact.at, fact.value) for fact in lines),
    )


RULES = (gpus_are_free,)
