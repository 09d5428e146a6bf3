"""`topocheck gate --ray`: one process asks every node of a running Ray cluster, and verifies."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from topocheck.answer import Declared
from topocheck.checklist import Gate
from topocheck.errors import UsageError
from topocheck.gate import Decision, Waiting, entry_name, verified
from topocheck.gather.entries import Entries
from topocheck.gather.ray_cluster import Collected, RayMember, View, unpacked
from topocheck.gather.stream import decode_snapshot, encode_snapshot
from topocheck.hostnames import short_name
from topocheck.plan import NodeRange, Plan
from topocheck.ranges import first
from topocheck.report import Report
from topocheck.snapshot import At, FullSnapshot, JobFact, ProbeFault, Snapshot, Source

__all__ = ["Job", "full_snapshots", "job_of", "new_run", "under_ray", "verdict"]

NAME = "ray"
"""Name of the gate, of which there is one."""
RAY = "ray.nodes()"
"""Source of what Ray says of its nodes."""
BY_RAY = {"vllm": ("--distributed-executor-backend", "ray"), "sglang": ("--use-ray", "true")}
"""Options by which an engine places its ranks by Ray: its driver is where the command is given."""
OF_DRIVER = ("VLLM_RAY_BUNDLE_INDICES", "VLLM_USE_RAY_V2_EXECUTOR_BACKEND")
"""Variables by which vLLM's driver chooses the order of ranks: they are set where the command is given."""


@dataclass(frozen=True, slots=True)
class Job:
    """The cluster as nodes of one job."""

    members: Sequence[RayMember]
    """Nodes that may carry ranks: those that live and offer GPUs, or all that live where none does; and dead
    ones where too few live."""
    expected: int
    """How many have to answer."""
    shown: Mapping[str, Snapshot]
    """Snapshots of members, by node id."""
    others: Mapping[str, str]
    """What became of all other nodes, by their labels."""


def under_ray(plan: Plan) -> Plan:
    """The plan of a job whose ranks Ray places."""
    return plan if plan.launcher else replace(plan, launcher="ray")


def full_snapshots(view: View) -> Iterator[FullSnapshot]:
    """All that was sent, whole, with what no rule asks of. What cannot be read is told by `job_of`."""
    for answer in view.answers.values():
        with suppress(UsageError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield msgspec.json.decode(unpacked(answer), type=FullSnapshot)


def job_of(view: View, plan: Plan, expect: int | None, timeout_s: float) -> Job:
    """Who of the cluster may carry ranks, what each shows, and why others show nothing."""
    alive = [member for member in view.cluster.nodes if member.alive]
    members = [member for member in alive if member.gpus] or alive
    shown, others = dict[str, Snapshot](), dict[str, str]()
    for member in alive:
        answer, label = view.answer(member, timeout_s), label_of(member, view)
        try:
            found = decode_snapshot(unpacked(answer), member.label, None) if answer.packed else None
        except UsageError as error:
            others[label] = str(error)
            continue
        if found is None:
            others[label] = answer.reason
        elif member in members:
            shown[member.id] = found
        else:
            others[label] = "Ray offers no GPU there: it carries no rank"
    machines = len({host_of(snapshot) for snapshot in shown.values()})
    expected = number_of(plan, expect, machines + len(members) - len(shown))
    dead = missed(view, alive) if len(members) < expected else []
    others |= {label_of(member, view): view.answer(member, timeout_s).reason for member in dead}
    return Job([*members, *dead], expected, shown, others)


def label_of(member: RayMember, view: View) -> str:
    """Name of a node, with its id where another has the same."""
    alike = sum(other.label == member.label for other in view.cluster.nodes)
    return member.label if alike == 1 else f"{member.label}, Ray's {member.id[:8]}"


def missed(view: View, alive: Sequence[RayMember]) -> list[RayMember]:
    """Dead nodes that have not come back under another id: Ray lists both."""
    there = {(member.host, member.address) for member in alive}
    dead = {(one.host, one.address): one for one in view.cluster.nodes if not one.alive}
    return [member for place, member in dead.items() if place not in there]


def host_of(snapshot: Snapshot) -> tuple[str, str]:
    """Name and boot id."""
    return snapshot.identity.host.name or "", snapshot.identity.host.boot_id or ""


def number_of(plan: Plan, expect: int | None, there: int) -> int:
    """Nodes that have to answer: as asked, else the plan's; all that there are where Ray may choose."""
    if expect is not None:
        return expect
    if isinstance(plan.nodes, NodeRange):
        return max(there, plan.nodes.min)
    return max(there, plan.nodes) if isinstance(plan.nodes, int) else len(plan.nodes)


def verdict(
    view: View, job: Job, plan: Plan, run: str, address: str, *, terms: Declared, gate: Gate
) -> tuple[Decision, str]:
    """The verdict over what the nodes show, and the name of the gate that gives it.

    `terms` has policy file and baseline.
    """
    store = Collected(job.others)
    for name, snapshot in entries(view, job, plan):
        store.publish(name, encode_snapshot(snapshot))
    asked = Waiting(
        run=run,
        name=NAME,
        expected=job.expected,
        declared=terms._replace(plan=plan),
        gate=gate,
        names=plan.nodes if isinstance(plan.nodes, tuple) else [member.host for member in job.members],
        store_name=f"Ray cluster {address}",
    )
    found = verified(asked, Entries(store, run), store.names())
    return replace(found, report=named(found.report, job, plan)), NAME


def named(report: Report, job: Job, plan: Plan) -> Report:
    """The report that names who did not answer, where it is their evidence that is missing."""
    wanted = plan.nodes if isinstance(plan.nodes, tuple) else None
    silent = [
        member.label
        for member in job.members
        if member.id not in job.shown
        and (wanted is None or {member.host, member.address, short_name(member.host)}.intersection(wanted))
    ]
    if report.exit_reason not in ("nodes_missing", "evidence_missing") or not silent:
        return report
    words = f"{len(silent)} of {job.expected} nodes did not answer: {first(silent, 6)}"
    return replace(report, exit_reason="nodes_missing", sentence=words)


def entries(view: View, job: Job, plan: Plan) -> Iterator[tuple[str, Snapshot]]:
    """Each member's snapshot under its name, with what Ray says of it; of all, in the first."""
    hosts: dict[tuple[str, str], list[RayMember]] = {}
    for member in job.members:
        if member.id in job.shown:
            hosts.setdefault(host_of(job.shown[member.id]), []).append(member)
    told = facts_of(view, job, plan)
    for (name, boot), here in sorted(hosts.items()):
        for place, member in enumerate(here):
            snapshot = replace(of_member(job.shown[member.id], member), job=told)
            yield entry_name(name, boot, place, len(here)), snapshot
            told = ()


def of_member(snapshot: Snapshot, member: RayMember) -> Snapshot:
    """A snapshot that knows its node in Ray. The worker that took it has the limits of the job's own."""
    host, limits, verbs = snapshot.identity.host, snapshot.limits, snapshot.verbs
    names = dict.fromkeys((*host.aliases, member.address, member.id))
    host = replace(host, aliases=tuple(name for name in names if name and not name.startswith("127.")))
    own = limits.scope == "host"
    return replace(
        snapshot,
        identity=replace(snapshot.identity, host=host),
        sources=(*snapshot.sources, Source(name=RAY, kind="Ray's list of nodes")),
        limits=replace(limits, scope="task") if own else limits,
        verbs=replace(verbs, scope="task") if verbs is not None and verbs.scope == "host" else verbs,
        faults=(*snapshot.faults, *too_many(snapshot, member)),
        end=None,  # it was the end of what the probe wrote
    )


def too_many(snapshot: Snapshot, member: RayMember) -> Iterator[ProbeFault]:
    """Ray offers GPUs that the node does not have: it would start ranks without one. Fewer are its right."""
    gpus = snapshot.identity.gpus
    if snapshot.coverage.gpus == "all" and not any(gpu.mig for gpu in gpus) and member.gpus > len(gpus):
        reason = f"Ray offers {member.gpus:g} GPUs there, and the node shows {len(gpus)}"
        yield ProbeFault(part="gpus", kind="contradictory", path="the number of GPUs", reason=reason)


def facts_of(view: View, job: Job, plan: Plan) -> tuple[JobFact, ...]:
    """What Ray's list says of the job, in the words of `ray list nodes`; totals where nobody is missing."""
    at, found = At(source=RAY), list[JobFact]()
    driver = next((member for member in view.cluster.nodes if member.id == view.cluster.driver), None)
    alive = [member for member in job.members if member.alive]
    for member in dict.fromkeys((*alive, *((driver,) if driver else ()))):
        found.append(JobFact(kind="cluster-node", name=member.id, value=member.address, at=at))
        if member.gpus == int(member.gpus):
            gpus = f"{member.gpus:.0f}"
            found.append(JobFact(kind="cluster-node-gpus", name=member.id, value=gpus, at=at))
    if len(alive) >= job.expected:
        total = sum(int(member.gpus) for member in alive)
        found.append(JobFact(kind="cluster-nodes", name=NAME, value=f"{len(alive)}", at=at))
        found.append(JobFact(kind="cluster-gpus", name=NAME, value=f"{total}", at=at))
    if driver is not None and plan.engine in BY_RAY:
        found += facts_of_driver(view, driver, plan.engine)
    return tuple(found)


def facts_of_driver(view: View, driver: RayMember, engine: str) -> Iterator[JobFact]:
    """Where the engine's driver will run, which is here, and by which variables it orders the ranks."""
    at = At(source="the node of this gate")
    alike = sum(member.address == driver.address for member in view.cluster.nodes if member.alive)
    host = driver.address if driver.address and alike == 1 else driver.id
    name, value = BY_RAY[engine]
    yield JobFact(kind="option", name=name, value=value, engine=engine, host=host, at=at)
    for variable in OF_DRIVER if engine == "vllm" else ():
        if os.environ.get(variable):
            yield JobFact(kind="option", name=variable, value=os.environ[variable], engine=engine, at=at)


def new_run() -> str:
    """A run id that no other launch has: nodes answer this gate alone, and leave nothing behind."""
    return f"ray-{os.urandom(8).hex()}"
