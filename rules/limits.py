"""ENV: limits of the job's processes, and the clocks of its nodes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from topocheck.ask import Ask
from topocheck.kinds import by_kind, clock_limits
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rule import Evidence, Finding, NotApplicable, Severity, Situations, read_at, rule
from topocheck.snapshot import Limits, LogFact
from topocheck.subjects import within_nodes

__all__ = ["RULES"]

SHM = "/dev/shm"  # noqa: S108 - the mount itself, and no file in it
PROBE = "topocheck probe in the job's own processes"
MIB, GIB = 1 << 20, 1 << 30
MEMLOCK_BYTES = GIB
"""Locked memory that RDMA needs for queues and buffers of a few connections; the advice is `unlimited`."""
SHM_BYTES, FEW_SHM_BYTES = GIB, 256 * MIB
"""What /dev/shm should have, and what is an error: containers get 64 MiB unless told otherwise."""
SEGMENT_BYTES = 10 * MIB
"""What NCCL takes of /dev/shm for a rank with its default buffers."""
LARGER = (
    "give the container a larger /dev/shm (docker --shm-size=16g, --ipc=host; pods: an emptyDir of medium "
    "Memory at /dev/shm)"
)


def own_limits(node: Node) -> list[Limits]:
    """Limits of the job's own processes; those of a login shell say nothing of them."""
    machine = node.machine
    if machine is None:
        return []
    return [
        limits
        for limits in machine.limits
        if limits.scope in ("task", "container") or (limits.scope == "host" and machine.has_claims)
    ]


def other_scope(node: Node) -> str:
    """Words for limits that were seen and are somebody else's."""
    seen = node.machine.limits if node.machine else ()
    return f" (seen were those of scope {first(sorted({limits.scope for limits in seen}))})" if seen else ""


def by_limits(placement: Placement) -> dict[Hashable, list[Node]]:
    """Nodes by limits, hardware, load and what their logs say of shared memory."""

    def key(node: Node) -> Hashable:
        machine, load = node.machine, len(placement.ranks_on.get(node.index, ()))
        if machine is None or shm_facts(placement, node):
            return None if machine is None else node.index
        return (
            tuple(map(id, machine.limits)),
            machine.has_claims,
            id(machine.shape and machine.shape.alike),
            load,
            len(machine.gpus),
        )

    return by_kind(placement, key)


def shm_facts(placement: Placement, node: Node) -> list[LogFact]:
    """Lines of the job about shared memory that it did not get."""
    return [fact for fact in placement.facts_by_node.get(node.index, ()) if fact.kind == "shm-failed"]


def networked(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes of a job whose traffic crosses nodes."""
    if placement.expected == 1:
        return NotApplicable("the job has one node")
    return within_nodes(placement) or placement.keep("nodes by limits", by_limits)


def crowded(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes, unless each has one rank, which shares memory with nobody."""
    if placement.world == 1 or (
        not placement.unplaced and all(len(ranks) == 1 for ranks in placement.ranks_on.values())
    ):
        return NotApplicable("no two ranks share a node")
    return placement.keep("nodes by limits", by_limits)


def without_rdma(node: Node) -> bool:
    """The whole list of RDMA devices is known, and empty: nothing is locked for them."""
    machine = node.machine
    return (
        machine is not None
        and machine.coverage.nics == "all"
        and machine.shape is not None
        and not machine.shape.hardware.nics
    )


def size(number: int) -> str:
    """Bytes as people write them."""
    if number < 0:
        return "unlimited"
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            return f"{number / unit:.4g} {name}"
    return f"{number} bytes"


@rule("ENV004", "locked memory suffices for RDMA", over=networked, severity="error")
def locked_memory_suffices(ask: Ask, node: Node) -> Iterator[Finding]:
    """RLIMIT_MEMLOCK of the job's processes, unless they may lock what they want."""
    ask.know()
    if without_rdma(node):
        return
    known = [limits for limits in own_limits(node) if limits.memlock_bytes is not None]
    if not known:
        ask.gap(f"locked memory of the job's processes{other_scope(node)}", [node.name], PROBE, part="limits")
        return
    for limits in known:
        yield from too_little_locked(ask, node, limits)


def too_little_locked(ask: Ask, node: Node, limits: Limits) -> Iterator[Finding]:
    """One view of the limit."""
    number = limits.memlock_bytes or 0
    if number < 0 or limits.ipc_lock:
        return
    if limits.ipc_lock is None and number < MEMLOCK_BYTES:
        ask.gap(
            f"whether CAP_IPC_LOCK is effective, with {size(number)} of locked memory", [node.name], PROBE
        )
        return
    little = number < MEMLOCK_BYTES
    yield Finding(
        message=f"processes on {node} may lock {size(number)} of memory and CAP_IPC_LOCK is not effective: "
        + ("RDMA queues cannot be made there" if little else "buffers of many connections may exceed it"),
        fix="allow unlimited locked memory where the ranks run (ulimit -l unlimited; Slurm: "
        "PropagateResourceLimitsExcept=MEMLOCK; systemd: LimitMEMLOCK=infinity; pods: capability IPC_LOCK)",
        cause="locked memory" if little else "locked memory is finite",
        subjects=(node.name,),
        evidence=(Evidence(source=f"{node}, scope {limits.scope}", fact=f"RLIMIT_MEMLOCK {size(number)}"),),
        severity=None if little else "warning",
    )


@rule("ENV005", "shared memory is large enough", over=crowded, severity="error")
def shared_memory_suffices(ask: Ask, node: Node) -> Iterator[Finding]:
    """What the ranks of one node share memory through."""
    ask.know()
    failed = shm_facts(ask.placement, node)
    if failed:
        yield segment_refused(node, failed)
        return
    known = [limits for limits in own_limits(node) if limits.shm_bytes is not None]
    if not known:
        ask.gap(
            f"size of /dev/shm of the job's processes{other_scope(node)}", [node.name], PROBE, part="limits"
        )
        return
    for limits in known:
        yield from too_small(ask.placement, node, limits)


def segment_refused(node: Node, failed: list[LogFact]) -> Finding:
    """The job itself could not get a segment."""
    wanted = next((int(n) for f in failed if (n := f.value.split()[0]).isdecimal() and int(n)), None)
    sizes = [limits.shm_bytes for limits in (node.machine.limits if node.machine else ()) if limits.shm_bytes]
    has = f", and /dev/shm has {size(min(sizes))}" if sizes else ""
    return Finding(
        message=f"a process on {node} could not get {size(wanted) if wanted else 'a segment'} of /dev/shm"
        f"{has}: ranks that share memory there cannot start",
        fix=LARGER,
        cause="shared memory refused",
        subjects=(node.name,),
        evidence=tuple(read_at(fact.at, f"{SHM}: {fact.value}") for fact in failed),
    )


def too_small(placement: Placement, node: Node, limits: Limits) -> Iterator[Finding]:
    """One view of /dev/shm: its size, and what of it is free."""
    # Where nothing shows the node's ranks, each of its GPUs may have one.
    ranks = len(placement.ranks_on.get(node.index, ())) or len(node.machine.gpus if node.machine else ()) or 1
    total, free = limits.shm_bytes or 0, limits.shm_free_bytes
    used_up = free is not None and free < SEGMENT_BYTES * ranks
    if total >= SHM_BYTES and not used_up:
        return
    severity: Severity = "error" if used_up or total < FEW_SHM_BYTES else "warning"
    left = f", {size(free)} of it free" if free is not None else ""
    yield Finding(
        message=f"{SHM} of {node} has {size(total)}{left}: {ranks} rank{'s' * (ranks > 1)} there need "
        f"{size(SEGMENT_BYTES * ranks)} for NCCL alone, and engines pass batches through it",
        fix="remove what is left of old jobs there" if used_up and total >= SHM_BYTES else LARGER,
        cause="shared memory used up" if used_up else "shared memory small",
        subjects=(node.name,),
        evidence=(Evidence(source=f"{node}, scope {limits.scope}", fact=f"{SHM} {size(total)}{left}"),),
        severity=severity,
    )


def clocked(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes by what their clocks say, as far as it matters."""
    if placement.expected == 1:
        return NotApplicable("the job has one node")

    borne, _ = clock_limits(placement.plan.policy)

    def key(node: Node) -> Hashable:
        error = clock_error(node)
        if error is None:
            return "not asked"
        kept, seconds = error
        return "well" if kept and seconds is not None and seconds <= borne else node.index

    return by_kind(placement, key)


def clock_error(node: Node) -> tuple[bool, float | None] | None:
    """(kept in step, estimated error in seconds if shown); None where the clock was not asked."""
    for state, _ in node.machine.states if node.machine else ():
        clock = state.clock
        if clock is not None and clock.synchronised is not None:
            return clock.synchronised, clock.error_seconds
    return None


@rule("ENV006", "clocks agree", over=clocked, severity="warning")
def clocks_agree(ask: Ask, node: Node) -> Iterator[Finding]:
    """A time service keeps the clock, and its estimated error is small."""
    ask.know()
    error = clock_error(node)
    if error is None:
        ask.gap(
            "whether the clock is kept in step", [node.name], "topocheck probe on every node", part="clock"
        )
        return
    kept, seconds = error
    if kept and seconds is None:
        ask.gap("how wrong the clock may be", [node.name], "topocheck probe on every node", part="clock")
        return
    borne, most = clock_limits(ask.placement.plan.policy)
    if kept and seconds is not None and seconds <= borne:
        return
    large = kept and seconds is not None and seconds > most
    state = f"may be {seconds:.3g} s wrong" if kept else "is kept in step by no time service"
    estimate = "" if seconds is None else f", estimated error {seconds:g} s"
    yield Finding(
        message=f"the clock of {node} {state}: log lines and traces of the nodes cannot be put in order, and "
        "PyTorch's elastic rendezvous takes late heartbeats for dead nodes",
        fix="start chrony or another time service there and wait until it is in step (chronyc waitsync)",
        cause="clock wrong" if kept else "clock not kept",
        subjects=(node.name,),
        evidence=(Evidence(source=f"{node}: adjtimex", fact=f"synchronised {kept}{estimate}"),),
        severity="error" if large else None,
    )


RULES = (locked_memory_suffices, shared_memory_suffices, clocks_agree)
