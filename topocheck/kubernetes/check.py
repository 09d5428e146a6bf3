"""What a manifest shows to be wrong: sizes against GPUs, indexes, placement, shared and locked memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from topocheck.commands.documents import Node
from topocheck.errors import InputError
from topocheck.kubernetes.job import (
    REPLICATED,
    Job,
    Started,
    World,
    left_open,
    read_job,
    resources,
    worlds_of,
)
from topocheck.manifestreport import SCHEMA, ManifestFinding, ManifestReport, ReadJob
from topocheck.probes.capture.manifest import documents
from topocheck.probes.capture.manifest_kinds import KINDS, copies

__all__ = ["check", "report"]

INDEX = {
    "LeaderWorkerSet": "LWS_WORKER_INDEX",
    "JobSet": "JOB_COMPLETION_INDEX",
    "Job": "JOB_COMPLETION_INDEX",
}
"""Variable by which a controller tells each pod its index."""
INDEXES = frozenset({*INDEX.values(), "JOB_INDEX", "POD_INDEX"})
NAMED = re.compile(r"\$\(?\{?([A-Za-z_]\w*)\)?\}?")
TOPOLOGY = {
    "LeaderWorkerSet": "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "JobSet": "alpha.jobset.sigs.k8s.io/exclusive-topology",
}
SAME_PLACE = ("exclusive-topology", "podset-required-topology", "podset-preferred-topology")
"""Annotations by which a job is kept together: of LWS and JobSet (subgroups too), of Kueue."""
RDMA = re.compile(r"rdma|infiniband|roce|hca|sriov|/ib|efa", re.IGNORECASE)
SHARED_MEMORY = frozenset({"vllm", "sglang", "tensorrt_llm"})
"""Engines that hand every step to their workers through /dev/shm, in more than a runtime's own 64 MiB."""
SHM = "/dev/shm"  # noqa: S108 - a mount point, not a file of ours


class Found:
    """Findings of one job, each with its file."""

    def __init__(self, source: str) -> None:
        self.source = source

    def error(self, rule: str, line: int, message: str, fix: str) -> ManifestFinding:
        """What cannot work."""
        return ManifestFinding(
            rule=rule, severity="error", file=self.source, line=line, message=message, fix=fix
        )

    def warning(self, rule: str, line: int, message: str, fix: str) -> ManifestFinding:
        """What may not."""
        return ManifestFinding(
            rule=rule, severity="warning", file=self.source, line=line, message=message, fix=fix
        )


def report(files: list[tuple[str, str]]) -> ManifestReport:
    """The answer over (name, text) of all files. Raises InputError where one is no YAML or shows no job."""
    jobs: list[ReadJob] = []
    findings: list[ManifestFinding] = []
    notes: list[str] = []
    for source, text in files:
        read = [job for node in documents(text.splitlines(), source, 1) if (job := read_job(node))]
        if not read:
            fix = f"give manifests of {', '.join(KINDS)}"
            raise InputError("holds no job that topocheck knows", path=source, fix=fix)
        for job in read:
            jobs.append(shown(job, source))
            findings += check(job, source)
            notes += unchecked(job, source)
    findings.sort(key=lambda one: (one.file, one.line, one.rule, one.message))
    code = int(any(one.severity == "error" for one in findings))
    return ManifestReport(schema=SCHEMA, exit_code=code, jobs=jobs, findings=findings, notes=notes)


def shown(job: Job, source: str) -> ReadJob:
    """One job in short."""
    return ReadJob(
        file=source,
        line=job.document.line,
        kind=job.kind,
        name=job.document.at("metadata", "name") or "",
        pods=job.pods,
        gpus=job.gpus_in_all,
        ranks=job.ranks,
    )


def check(job: Job, source: str) -> list[ManifestFinding]:
    """Everything that one job shows to be wrong."""
    found = Found(source)
    checks = [sizes, group_sizes, indexes]
    if not job.shape.missing:  # of a manifest that is cut, what is absent may stand in the rest
        checks += [placement, shared_memory, rdma]
    return list(dict.fromkeys(finding for one in checks for finding in one(job, found)))


def unchecked(job: Job, source: str) -> Iterator[str]:
    """What the manifest leaves open."""
    where = f"{source}:{job.document.line}"
    if job.engine is None:
        yield f"{where}: starts no engine that topocheck knows: its sizes were not checked"
    elif left := left_open(job):
        yield f"{where}: over which pods {', '.join(left)} runs is open: sizes were not checked there"
    elif job.gpus_in_all is None and job.kind in REPLICATED and job.gpus_a_pod is not None:
        yield f"{where}: over how many pods the command runs is open: ranks were not held against GPUs"
    elif job.gpus_in_all is None:
        yield f"{where}: not every pod shows its GPUs: ranks were not held against them"
    yield from (f"{source}:{line}: {words}" for line, words in job.shape.missing)


def sizes(job: Job, found: Found) -> Iterator[ManifestFinding]:
    """TP against the GPUs of one pod, ranks against those of all."""
    for world in worlds_of(job):
        ranks = world.ranks
        if ranks is not None:
            yield from tensor(world, ranks, found)
            yield from all_ranks(world, ranks, found)


def all_ranks(world: World, ranks: int, found: Found) -> Iterator[ManifestFinding]:
    """Ranks against the GPUs of all pods."""
    one, gpus = world.started, world.gpus
    if gpus is not None and ranks > gpus:
        fix = f"ask for {ranks} GPUs over all pods, or use smaller sizes"
        yield found.error(
            "ID015", one.line, f"{ranks} ranks are declared, and the pods have {gpus} GPUs", fix
        )
    elif gpus is not None and ranks < gpus:
        message = f"{ranks} ranks are declared, and the pods have {gpus} GPUs: {gpus - ranks} stay idle"
        yield found.warning("GR005", one.line, message, f"use sizes whose product is {gpus}, or fewer GPUs")


def tensor(world: World, ranks: int, found: Found) -> Iterator[ManifestFinding]:
    """A TP group that no pod can hold."""
    one = world.started
    size = one.launch.sizes.get("tensor")
    pods = world.pods or 1
    each = world.gpus_a_pod
    if each is None and pods > 1 and not ranks % pods:
        each = ranks // pods
    if size is None or size.number is None or not each or size.number <= each:
        return
    have = f"the {each} GPUs of a pod" if world.gpus_a_pod else f"the {each} ranks of each of {pods} pods"
    message = f"tensor {size.number} is more than {have}: each TP group crosses pods"
    if each > 1 and not ranks % each:
        fix = f"use tensor {each} x pipeline {ranks // each} on the same GPUs: each TP group fits in one pod"
        yield found.error("TP001", one.line_of(size), message, fix)
    else:
        fix = "give each pod all GPUs of its node; if it is meant, the plan says tensor_domain: nvlink or any"
        yield found.warning("TP001", one.line_of(size), message, fix)


def group_sizes(job: Job, found: Found) -> Iterator[ManifestFinding]:
    """Nodes that the command names against the pods that there are."""
    pods = job.pods
    for one in job.launches:
        nodes = one.launch.nodes
        if nodes is None or not nodes.given or nodes.number is None or pods is None or nodes.number == pods:
            continue
        own = "LWS_GROUP_SIZE" if job.kind == "LeaderWorkerSet" else ""
        fix = f"write $({own}) for it" if own else f"write {pods}, or make it {nodes.number} pods"
        message = f"{nodes.origin} {nodes.text}, and the job has {pods} pods"
        yield found.error("ID015", one.line_of(nodes), message, fix)


def indexes(job: Job, found: Found) -> Iterator[ManifestFinding]:
    """Node ranks that are the same in several pods, or come from a variable that is not set there."""
    own = INDEX.get(job.kind)
    for one in job.launches:
        rank = one.launch.node_rank
        if rank is None or not rank.given:
            continue
        use = f"write $({own}) for it" if own else "let each pod take its own index"
        if rank.number is not None:
            yield from constant(job, one, rank.number, use, found)
        elif (name := NAMED.match(rank.text)) and name[1] in INDEXES and name[1] not in named(one.container):
            yield from borrowed(job, one, name[1], use, found)


def constant(job: Job, one: Started, rank: int, use: str, found: Found) -> Iterator[ManifestFinding]:
    """A number in a template is the node rank of all its pods."""
    pods, total = one.role.pods, job.pods
    spans = one.launch.nodes
    if rank == 0 and spans is not None and spans.number == 1:
        return  # each pod is a whole job; where the pods are meant to be one, `group_sizes` says so
    if pods is not None and pods > 1:
        message = f"all {pods} pods of the {one.role.name} template take node rank {rank}"
        yield found.error("ID007", one.line_of(one.launch.node_rank), message, use)
    elif total is not None and rank >= total:
        yield found.error(
            "ID007", one.line_of(one.launch.node_rank), f"node rank {rank} in a job of {total} pods", use
        )
    elif job.kind == "LeaderWorkerSet" and one.role.name == "worker" and rank == 0 and total and total > 1:
        yield found.error(
            "ID007",
            one.line_of(one.launch.node_rank),
            "the worker takes node rank 0, which is the leader's",
            use,
        )


def borrowed(job: Job, one: Started, name: str, use: str, found: Found) -> Iterator[ManifestFinding]:
    """An index of another controller, or of a Job that has no indexes."""
    own = INDEX.get(job.kind)
    indexed = job.document.at("spec", "completionMode") == "Indexed"
    if name != own:
        yield found.error(
            "ID007", one.line_of(one.launch.node_rank), f"{name} is not set in the pods of a {job.kind}", use
        )
    elif job.kind == "Job" and not indexed:
        fix = "write completionMode: Indexed"
        yield found.error(
            "ID007", one.line_of(one.launch.node_rank), f"{name} is not set: the Job is not Indexed", fix
        )
    elif job.kind == "JobSet" and (same := several(job)):
        fix = (
            "make it one job of that parallelism, or count with the label jobset.sigs.k8s.io/job-global-index"
        )
        message = f"{name} counts within one child job, and there are {same} of them with the same numbers"
        yield found.error("ID007", one.line_of(one.launch.node_rank), message, fix)


def several(job: Job) -> int:
    """Child jobs of a JobSet whose command spans more pods than one of them has; 0 if none does."""
    entries = job.document.get("spec", "replicatedJobs")
    found = 0
    for entry in entries.items if entries is not None else ():
        times, each = copies(entry, "replicas"), copies(entry, "template", "spec", "parallelism")
        spans = next((one.launch.nodes for one in job.launches if one.launch.nodes is not None), None)
        wide = spans is not None and spans.number is not None and each is not None and spans.number > each
        found += times if times is not None and times > 1 and wide else 0
    return found


def named(container: Node) -> set[str]:
    """Names of all variables that a container sets, from fields too."""
    entries = container.get("env")
    return {name for entry in (entries.items if entries is not None else ()) if (name := entry.at("name"))}


def placement(job: Job, found: Found) -> Iterator[ManifestFinding]:
    """Nothing keeps the pods of a group near each other."""
    key = TOPOLOGY.get(job.kind)
    if key is None or job.engine is None or (job.pods or 1) < 2:
        return
    if kept_together(job.document):
        return
    message = f"nothing keeps the {job.pods} pods of a {job.kind} in one NVLink domain or rack"
    fix = f"annotate it with {key}: and the label of nodes that tells the domain"
    yield found.warning("PP006", job.document.line, message, fix)


def kept_together(node: Node) -> bool:
    """Somewhere in it an annotation or an affinity draws the pods together."""
    names = [name for name, _ in node.fields]
    if any(name == "podAffinity" or name.endswith(SAME_PLACE) for name in names):
        return True
    return any(kept_together(inner) for inner in (*node.items, *(value for _, value in node.fields)))


def shared_memory(job: Job, found: Found) -> Iterator[ManifestFinding]:
    """Ranks of one pod that have the 64 MiB of shared memory which a runtime gives."""
    for one in job.launches:
        spec = None if one.role.template is None else one.role.template.get("spec")
        each = job.gpus.get(one.role.name, 0)
        tensor_size = one.launch.sizes.get("tensor")
        many = each > 1 or (not each and tensor_size is not None and (tensor_size.number or 0) > 1)
        if spec is None or one.launch.engine is None or not many or spec.at("hostIPC") == "true":
            continue
        mounts = one.container.get("volumeMounts")
        if any(
            (entry.at("mountPath") or "").rstrip("/") == SHM
            for entry in (mounts.items if mounts is not None else ())
        ):
            continue
        tell = found.error if one.launch.engine in SHARED_MEMORY else found.warning
        message = (
            f"{SHM} is what the container runtime gives, 64 MiB, and ranks of one pod share memory in it"
        )
        fix = "mount a volume at /dev/shm: emptyDir: {medium: Memory}"
        yield tell("ENV005", one.container.line, message, fix)


def rdma(job: Job, found: Found) -> Iterator[ManifestFinding]:
    """RDMA between pods: a device to open, and memory to lock."""
    if (job.pods or 1) < 2:
        return
    for one in job.launches:
        if one.launch.engine is None:
            continue
        context = one.container.get("securityContext")
        privileged = context is not None and context.at("privileged") == "true"
        added = None if context is None else context.get("capabilities", "add")
        capabilities = {entry.text for entry in (added.items if added is not None else ())}
        spec = None if one.role.template is None else one.role.template.get("spec")
        host = spec is not None and spec.at("hostNetwork") == "true"
        device = any(RDMA.search(name) for name, _ in resources(one.container))
        claims = one.container.get("resources", "claims") is not None
        if not (device or privileged or claims):
            more = " (hostNetwork alone opens no device)" if host else ""
            fix = "ask for the device plugin's RDMA resource, such as rdma/hca: 1"
            message = f"the container asks for no RDMA device{more}: traffic between pods goes over sockets"
            yield found.warning("NET009", one.container.line, message, fix)
        elif not privileged and not capabilities & {"IPC_LOCK", "ALL", "SYS_ADMIN"}:
            message = "the container lacks IPC_LOCK: RDMA cannot lock memory where the runtime limits it"
            fix = "add capabilities: {add: [IPC_LOCK]} to its securityContext"
            yield found.warning("ENV004", one.container.line, message, fix)
