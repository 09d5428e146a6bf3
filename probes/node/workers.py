"""Processes of a job that runs, through /proc (proc(5)): what they claim, what their titles say.

Their environment is that of their start: what a process sets for itself later is not in it. Titles are
taken only where an engine wrote them, and nothing else of a command line: it may hold secrets.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from topocheck.launchers.allowed import PREFIXES
from topocheck.launchers.resolve import resolve
from topocheck.probes.capture import process_titles
from topocheck.probes.capture.reading import Text
from topocheck.probes.node.container import parse_cgroups, parse_container, read_container
from topocheck.probes.node.gpus import NodeGpus
from topocheck.probes.node.limits import IPC_LOCK, parse_capability, parse_limit
from topocheck.probes.node.ranks import Claimed, claim, job_variables
from topocheck.probes.node.reader import MISSING, Reader
from topocheck.probes.node.roots import Roots
from topocheck.probes.node.visibility import Visible, container_gpus, visible_gpus
from topocheck.snapshot import (
    At,
    FamilyDisagreement,
    GpuId,
    Host,
    JobFact,
    Limits,
    NestedLaunch,
    NodeClaim,
    ProbeFault,
    RankClaim,
)

__all__ = ["Workers", "parse_environ", "parse_parent", "parse_title", "read_workers"]

TITLE = re.compile(r"(?:VLLM|sglang)::\w{1,100}")
"""What engines call their processes; any other command line is left where it is."""
MOST_VARIABLES = 10_000
CHOOSING = (*PREFIXES, "CUDA_", "HIP_", "ROCR_")
"""How names of variables begin by which paths and devices are chosen."""
MOST_PARENTS = 64
GONE = frozenset({*MISSING, errno.ESRCH})
"""What the system answers for a process that has just ended."""


@dataclass(frozen=True, slots=True, eq=False)
class Worker:
    """One process that may be a worker."""

    pid: int
    env: Mapping[str, str]
    parent: int | None
    title: str | None
    container: str | None

    @property
    def numbers(self) -> tuple[object, ...] | None:
        """What it claims to be; None for a process without a rank. Its children inherit it."""
        chosen = resolve(self.env).chosen
        if chosen is None or chosen.rank is None:
            return None
        return chosen.family, chosen.world, chosen.rank, chosen.local_rank, chosen.node_rank


@dataclass(frozen=True, slots=True)
class Workers:
    """What the workers of a node show."""

    ranks: tuple[RankClaim, ...] = ()
    """Claims of those that a launcher gave ranks."""
    node: NodeClaim | None = None
    """The node's rank, if no claim of a rank holds it."""
    disagreements: tuple[FamilyDisagreement, ...] = ()
    """Launchers that number one of them differently."""
    nested: tuple[NestedLaunch, ...] = ()
    """Launchers that were started by launchers, each once."""
    job: tuple[JobFact, ...] = ()
    """What engines' titles say."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that all of them have with one value."""
    own: tuple[dict[str, str], ...] = ()
    """What they have besides, of the variables by which paths and devices are chosen."""
    limits: Limits = field(default_factory=Limits)
    """Limits, as far as they are the same for all."""


def parse_environ(text: str) -> dict[str, str]:
    """Variables from /proc/PID/environ; what is left of it once a title was written over it."""
    pairs = (entry.partition("=") for entry in text.split("\0")[:MOST_VARIABLES])
    return {name: value for name, equals, value in pairs if name and equals}


def parse_title(text: str) -> str | None:
    """An engine's title from /proc/PID/cmdline; None for any other command line."""
    title = text.partition("\0")[0].strip()
    return title if TITLE.fullmatch(title) else None


def parse_parent(status: str) -> int | None:
    """Parent of a process, by /proc/PID/status."""
    found = re.search(r"^PPid:\s*([0-9]{1,10})$", status, re.MULTILINE)
    return int(found[1]) if found else None


def read_workers(
    roots: Roots, pids: Sequence[int], gpus: NodeGpus, host: Host
) -> tuple[Workers, tuple[ProbeFault, ...]]:
    """Workers with these pids; all that can be found if there are none."""
    reader = Reader("ranks")
    holders = gpu_holders(gpus)
    if pids:
        found = [worker for pid in pids if (worker := read_worker(reader, roots, pid, asked=True))]
    else:
        found = search(reader, roots, holders)
    own, _ = read_container(roots)  # what went wrong there is told with the limits
    claims = {worker: claim_of(worker, gpus, holders, own.id) for worker in found}
    ranked = tuple(claimed.rank for claimed in claims.values() if claimed.rank is not None)
    result = Workers(
        ranks=tuple(sorted(ranked, key=lambda one: (one.rank, one.pid or 0))),
        node=agreed(claimed.node for claimed in claims.values()),
        disagreements=tuple(odd for claimed in claims.values() for odd in claimed.disagreements),
        nested=tuple(dict.fromkeys(one for claimed in claims.values() for one in claimed.nested)),
        job=titles(found, gpus, holders, host),
        environment=shared_variables(found),
        own=own_variables(found),
        limits=shared_limits(reader, roots, found),
    )
    if not found and not pids:
        reader.note("absent", roots.proc, "no process of a job was found")
    faults = (fault for claimed in claims.values() for fault in claimed.faults)
    return result, (*reader.faults(), *faults)


def gpu_holders(gpus: NodeGpus) -> dict[int, list[int]]:
    """Ordinals of the GPUs that each process holds memory on, by NVML's list; 0 is no process."""
    holders: dict[int, list[int]] = {}
    for state in gpus.states:
        for process in state.processes or ():
            if process.pid:
                holders.setdefault(process.pid, []).append(state.gpu)
    return holders


def read_worker(reader: Reader, roots: Roots, pid: int, *, asked: bool = False) -> Worker | None:
    """One process; None if it is gone, or nobody may look at it. `asked` says that it was named."""
    folder = roots.proc / str(pid)
    expected = () if asked else GONE
    content = reader.data(folder / "environ", expected)
    env = parse_environ((content or b"").decode("utf-8", "replace"))
    if asked and content and not env:
        reason = "no variable is left in it: the process wrote its title over it"
        reader.note("broken", folder / "environ", reason)
    title = parse_title((reader.data(folder / "cmdline", expected) or b"").decode("utf-8", "replace"))
    if content is None and title is None:
        return None
    cgroups = parse_cgroups(reader.text(folder / "cgroup", GONE) or "")
    container = next((known for path in cgroups.values() if (known := parse_container(path))), None)
    parent = parse_parent(reader.text(folder / "status", GONE) or "")
    return Worker(pid, env, parent, title, container)


def search(reader: Reader, roots: Roots, holders: Mapping[int, Sequence[int]]) -> list[Worker]:
    """Processes that have a rank or an engine's title, each job's process once.

    Wrappers and helpers inherit the variables of a rank. Of those that claim the same, the one that holds
    a GPU is the worker, else the one that the others come from. Who looks is none of them.
    """
    numbers = sorted(int(name) for name in reader.names(roots.proc) if re.fullmatch("[0-9]{1,10}", name))
    everyone = {pid: worker for pid in numbers if (worker := read_worker(reader, roots, pid))}
    looking = set(lineage(own_pid(roots), everyone))
    others = [worker for worker in everyone.values() if worker.pid not in looking]
    groups: dict[tuple[object, ...], list[Worker]] = {}
    for worker in others:
        if worker.numbers is not None:
            groups.setdefault(worker.numbers, []).append(worker)
    found = [worker for worker in others if worker.title is not None and worker.numbers is None]
    for group in groups.values():
        holding = [worker for worker in group if worker.pid in holders] or group
        pids = {worker.pid for worker in holding}
        found += [w for w in holding if pids.isdisjoint(lineage(w.parent, everyone))]
    return sorted(found, key=lambda worker: worker.pid)


def own_pid(roots: Roots) -> int | None:
    """Pid of this process as this procfs counts; None where it does not show it."""
    try:
        return int(os.readlink(roots.proc / "self"))  # noqa: PTH115 - a name, no path
    except (OSError, ValueError):
        return None


def lineage(pid: int | None, everyone: Mapping[int, Worker]) -> Iterator[int]:
    """A process and those that it comes from."""
    for _ in range(MOST_PARENTS):
        if pid is None:
            return
        yield pid
        pid = everyone[pid].parent if pid in everyone else None


def claim_of(
    worker: Worker, gpus: NodeGpus, holders: Mapping[int, Sequence[int]], container: str | None
) -> Claimed:
    """What a worker claims. Its GPU is the one of its local rank, else the one that it holds."""
    held = holders.get(worker.pid, ())
    visible = devices(worker, gpus, container)
    if visible.gpus is None and len(held) == 1:
        visible = Visible(tuple(held))
    return claim(worker.env, visible, name=f"process {worker.pid}", pid=worker.pid)


def devices(worker: Worker, gpus: NodeGpus, container: str | None) -> Visible:
    """Devices of a process that may see other GPUs than the one that looks."""
    listed = gpus.listed
    if listed is None:
        return Visible(None, "the node's GPUs are not known")
    if worker.container != container:
        return devices_inside(worker, listed, gpus)
    if "SLURM_JOB_ID" in worker.env:
        return Visible(None, "Slurm may show the process other GPUs than the one that looks at it")
    return visible_gpus(worker.env, listed, gpus.sliced, amd=gpus.amd)


def devices_inside(worker: Worker, listed: Sequence[GpuId], gpus: NodeGpus) -> Visible:
    """Devices of a process in another container, which counts the GPUs that it was given."""
    if gpus.amd:
        return Visible(None, "the process's container may have other GPUs")
    given = container_gpus(worker.env, listed)
    if given.gpus is None:
        return given
    sliced = [place for place, ordinal in enumerate(given.gpus) if ordinal in gpus.sliced]
    inside = visible_gpus(worker.env, [listed[ordinal] for ordinal in given.gpus], sliced)
    if inside.gpus is None:
        return inside
    return Visible(tuple(given.gpus[place] for place in inside.gpus), inside.reason)


def titles(
    workers: Sequence[Worker], gpus: NodeGpus, holders: Mapping[int, Sequence[int]], host: Host
) -> tuple[JobFact, ...]:
    """What titles say, read as a listing of processes in nvidia-smi's form is."""
    titled = [worker for worker in workers if worker.title is not None]
    lines = []
    for worker in titled:
        held = holders.get(worker.pid, ())
        index = gpus.ids[held[0]].nvml if len(held) == 1 else None
        row = f"{worker.pid} {worker.title}"
        lines.append(row if index is None else f"| {index} N/A N/A {worker.pid} C {worker.title} |")
    readings = process_titles.parse(Text("titles", ("PID CMD", *lines))) if titled else []
    facts = (fact for reading in readings for snapshot in reading.snapshots for fact in snapshot.job)
    return tuple(
        replace(
            fact,
            host=None if fact.kind == "engine" else host.name,
            at=At(source=f"/proc/{titled[(fact.at.line or 2) - 2].pid}/cmdline") if fact.at else None,
        )
        for fact in facts
    )


def shared_variables(workers: Sequence[Worker]) -> dict[str, str]:
    """Variables of a job that all its workers here have with one value."""
    every = [job_variables(worker.env, asked=True)[0] for worker in workers if worker.env]
    first, *others = every or [{}]
    return {name: value for name, value in first.items() if all(env.get(name) == value for env in others)}


def own_variables(workers: Sequence[Worker]) -> tuple[dict[str, str], ...]:
    """What workers have of the variables that they do not share and that choose paths and devices, each once.

    () where they share all of those.
    """
    shared = shared_variables(workers)
    every = (job_variables(worker.env, asked=True)[0] for worker in workers if worker.env)
    found: list[dict[str, str]] = []
    for env in every:
        own = {name: env[name] for name in env if name.startswith(CHOOSING) and name not in shared}
        if own not in found:
            found.append(own)
    return tuple(found) if len(found) > 1 else ()


def shared_limits(reader: Reader, roots: Roots, workers: Sequence[Worker]) -> Limits:
    """Limits of the workers; one that they do not share is not known."""
    found = [read_limits(reader, roots, worker) for worker in workers]
    if not found:
        return Limits()
    differing = [name for name in Limits.__struct_fields__ if len({getattr(one, name) for one in found}) > 1]
    if differing:
        reason = f"the workers differ in {', '.join(differing)}: not told"
        reader.note("not-supported", roots.proc, reason, "limits")
    return replace(found[0], **dict.fromkeys(differing))


def read_limits(reader: Reader, roots: Roots, worker: Worker) -> Limits:
    """Limits of one process. Its /dev/shm and its cgroup's memory are seen from inside alone."""
    folder = roots.proc / str(worker.pid)
    limits = reader.text(folder / "limits", GONE) or ""
    return Limits(
        scope="task",
        memlock_bytes=parse_limit(limits, "Max locked memory"),
        nofile=parse_limit(limits, "Max open files"),
        ipc_lock=parse_capability(reader.text(folder / "status", GONE) or "", IPC_LOCK),
        container=worker.container,
    )


def agreed(claims: Iterable[NodeClaim | None]) -> NodeClaim | None:
    """The node's rank, if all processes that know one say the same."""
    found = {claimed for claimed in claims if claimed is not None}
    return found.pop() if len(found) == 1 else None
