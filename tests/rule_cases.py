"""For each rule a job that it passes, one that breaks it, one that leaves it undecided, one without it.

A rule that always applies says so by `absent=None`. Whoever adds a rule adds its cases here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import made_ports
import msgspec
from build import (
    A40,
    FOUR,
    H100,
    L40S,
    RING,
    TWO,
    claims,
    comm,
    edge,
    fact,
    full,
    gpus,
    log,
    members,
    nics,
    pair,
    paired,
    running,
    snap,
    sockets,
)
from made import FAMILIES

from topocheck.snapshot import At, Fabric, FullSnapshot, GpuId, Host, Identity, JobFact, ProbeFault, Source

__all__ = ["CASES", "Cases", "Job"]

WIDE = "engine: vllm\nparallel: {tensor: 8}\nnodes: [node-a, node-b]\n"
STAGES = "engine: vllm\nparallel: {pipeline: 4}\nnodes: [node-a]\n"
REPLICAS = "engine: torch\nparallel: {data: 4}\nnodes: [node-a]\n"
PAIRS = "engine: vllm\nparallel: {tensor: 2, pipeline: 2}\nnodes: [node-a]\n"


def fabric(status: str = "Success") -> tuple[Fabric, ...]:
    """What the switches of one host report."""
    return (Fabric(cluster_uuid="0" * 32, clique=0, state="Completed", status=status),)


@dataclass(frozen=True)
class Job:
    """A plan and its evidence."""

    plan: str
    evidence: Sequence[FullSnapshot] = ()
    since: Sequence[FullSnapshot] = ()
    """Evidence of an earlier look."""


@dataclass(frozen=True)
class Cases:
    """Jobs by the verdict that one rule must give."""

    holds: Job
    broken: Job
    undecided: Job
    absent: Job | None
    """Where the rule does not apply, by proof."""
    severity: str = "error"
    """Severity of the finding in `broken`."""
    names: tuple[str, ...] = ()
    """What the finding must say: ranks, hosts, GPUs, values."""


NOTHING = Job(TWO)
HEALTHY = Job(TWO, pair())
SEEN = Job(TWO, running())
LOGGED = Job(TWO, [*running(), *pair()])
ALONE = Job(FOUR, [snap("node-a", range(4))])
NO_TENSOR = Job(STAGES, [snap("node-a", range(4))])
LOOSE = Job(
    TWO, [log(host, edges=[edge(0, 1, "P2P/IPC", comm=None, host=host)]) for host in ("node-a", "node-b")]
)
"""Seen running, without a communicator."""

BLIND = FullSnapshot(
    schema="topocheck.snapshot/1",
    sources=(Source(name="node-a-gpus.txt", kind="made"),),
    identity=Identity(
        host=Host(name="node-a"),
        gpus=(GpuId(uuid="GPU-99999999-0000-0000-0000-000000000000", bus="0000:1b:00.0"),),
    ),
)
"""A second view of node-a that shows another GPU in the first slot."""

TWIN = Identity(host=Host(name="node-b", boot_id="boot-of-node-b"), gpus=gpus("node-a"))
"""node-b with the GPUs of node-a."""

REFUSED = ProbeFault(
    part="links", kind="not-permitted", path="nvmlDeviceGetNvLinkState", reason="Insufficient Permissions"
)

GROUPS = {
    "node-a": [
        *members("0x7a", [(0, 0), (1, 1), (2, 2), (3, 3)], host="node-a", size=4),
        *[m for n in range(4) for m in members(f"0x9{n}", [(0, n)], host="node-a", size=2)],
    ],
    "node-b": [
        *members("0x7b", [(0, 0), (1, 1), (2, 2), (3, 3)], host="node-b", size=4),
        *[m for n in range(4) for m in members(f"0x9{n}", [(1, n)], host="node-b", size=2)],
    ],
}
"""Communicators of both TP groups and of the four pipelines."""

CROSSED = {
    "node-a": [
        *members("0x7a", [(0, 0), (1, 1)], host="node-a", size=4),
        *members("0x7b", [(0, 2), (1, 3)], host="node-a", size=4),
    ],
    "node-b": [
        *members("0x7a", [(2, 0), (3, 1)], host="node-b", size=4),
        *members("0x7b", [(2, 2), (3, 3)], host="node-b", size=4),
    ],
}
"""TP groups {0, 1, 4, 5} and {2, 3, 6, 7}, which the plan does not have."""


def stating(*facts: tuple[str, str, str]) -> list[FullSnapshot]:
    """The healthy job, and a launch script that states (kind, name, value)."""
    stated = tuple(
        JobFact(kind=kind, name=name, value=value, at=At(source="launch.sh", line=n))
        for n, (kind, name, value) in enumerate(facts, 1)
    )
    return [*pair(), FullSnapshot(schema="topocheck.snapshot/1", identity=Identity(host=Host()), job=stated)]


def srun_torchrun(tasks: int) -> list[FullSnapshot]:
    """The healthy job, started by srun with so many tasks a node, each a torchrun of four processes."""
    return stating(
        ("launcher", "train.py", "srun torchrun"),
        ("processes-per-node", "launcher", f"{tasks}"),
        ("processes-per-node", "agent", "4"),
    )


def granted(numbers: str) -> list[FullSnapshot]:
    """The healthy job, node-a with the GPUs that Slurm gave it and the minor numbers of its GPUs."""
    first, second = pair(environment={"SLURM_JOB_GPUS": numbers})
    known = tuple(msgspec.structs.replace(gpu, minor=n) for n, gpu in enumerate(first.identity.gpus))
    identity = msgspec.structs.replace(first.identity, gpus=known)
    return [msgspec.structs.replace(first, identity=identity), second]


def numbered(first: int, second: int) -> list[FullSnapshot]:
    """The healthy job, its nodes with these node ranks."""
    parts = claims(range(4), node_rank=first), claims(range(4, 8), node_rank=second)
    return [msgspec.structs.replace(view, ranks=part) for view, part in zip(pair(), parts, strict=True)]


UNNUMBERED = [
    msgspec.structs.replace(
        view, ranks=tuple(msgspec.structs.replace(c, local_rank=None) for c in view.ranks)
    )
    for view in pair()
]
"""The healthy job without local ranks."""

CASES: dict[str, Cases] = {
    "EV001": Cases(
        HEALTHY,
        Job(TWO, [*pair(), snap("node-c", [8])]),
        Job(TWO, [snap("node-a", range(4))]),
        None,
        names=("node-c", "node-a", "node-b"),
    ),
    "EV002": Cases(
        Job(TWO, pair(faults=(REFUSED,))),
        Job(TWO, pair(faults=(REFUSED,), hardware=snap(links=None, nvlinks=[None] * 4).hardware)),
        NOTHING,
        HEALTHY,
        "warning",
        ("node-a", "links", "nvmlDeviceGetNvLinkState", "Insufficient Permissions", "TP002"),
    ),
    "EV004": Cases(
        HEALTHY,
        Job(TWO, [*pair(), BLIND]),
        NOTHING,
        None,
        names=("node-a", "GPU-99999999-0000-0000-0000-000000000000", "node-a.json", "node-a-gpus.txt"),
    ),
    "ID001": Cases(
        HEALTHY,
        Job(TWO, [snap("node-a", range(4)), snap("node-b", range(4))]),
        Job(TWO, [snap("node-a", range(4))]),
        None,
        names=("0..3", "node-a", "node-b", "pid 9000"),
    ),
    "ID002": Cases(
        HEALTHY,
        Job(
            TWO,
            [snap("node-a", range(4), size=16), snap("node-b", range(4, 8), size=16)],
        ),
        Job(TWO, [log("node-a", comm("0x7a", range(4), size=4))]),
        None,
        names=("16", "8", "tensor 4 x pipeline 2"),
    ),
    "ID003": Cases(
        HEALTHY,
        Job(TWO, [*pair(), log("node-a", [*comm(RING, [0], pid=1), *comm(RING, [0], pid=1, gpu=1)])]),
        Job(TWO, [snap("node-a"), snap("node-b", coverage=full(gpus="part"), count=3)]),
        None,
        names=("rank 0", "node-a", "GPU-"),
    ),
    "ID004": Cases(
        HEALTHY,
        Job(TWO, [log("node-a", [*comm(RING, [0, 1, 2]), *comm(RING, [3], gpu=2, pid=9009)]), running()[1]]),
        Job(TWO, [running()[0]]),
        None,
        names=("2, 3", "node-a", "0000:3b:00.0", "node-a.log:10"),
    ),
    "ID005": Cases(
        HEALTHY,
        Job(TWO, [snap("node-a", range(4)), snap("node-b", range(4, 8), identity=TWIN)]),
        SEEN,
        ALONE,
        names=("node-a", "GPU-"),
    ),
    "ID010": Cases(
        HEALTHY,
        Job(TWO, [snap("node-a", range(4, 8)), snap("node-b", range(4))]),
        Job(TWO, [snap("node-a", range(4))]),
        Job(REPLICAS, [snap("node-a", range(4))]),
        names=("0..3", "4..7", "node-a", "node-b"),
    ),
    "ID015": Cases(
        HEALTHY,
        Job(TWO, [snap("node-a"), snap("node-b", count=3)]),
        Job(TWO, [snap("node-a"), snap("node-b", count=3, coverage=full(gpus="part"))]),
        None,
        names=("node-b", "3 GPUs", "4..7"),
    ),
    "TP001": Cases(
        HEALTHY,
        Job(WIDE, pair()),
        Job(TWO, [snap("node-a", range(4))]),
        NO_TENSOR,
        names=("0..7", "node-a", "node-b", "0..3", "4..7"),
    ),
    "TP002": Cases(
        HEALTHY,
        Job(PAIRS, [snap(links=paired, model=A40, switch=None)]),
        Job(TWO, pair(hardware=snap(links=None, nvlinks=[None] * 4).hardware)),
        Job(FOUR, [snap(links=sockets, model=L40S, switch=None)]),
        names=("0-1 PHB", "node-a", "0, 1", "0,2,1,3", "node-a.json"),
    ),
    "TP003": Cases(
        HEALTHY,
        Job(FOUR, [snap(models=[H100, H100, H100, A40])]),
        Job(TWO, pair(model=None)),
        NO_TENSOR,
        names=(H100, A40, "ranks 3", "node-a"),
    ),
    "TP004": Cases(
        HEALTHY,
        Job(FOUR, [snap(links=sockets, model=L40S, switch=None)]),
        Job(FOUR, [snap(links=sockets, model=L40S, switch=None, numa=[0, 0, None, 0])]),
        NO_TENSOR,
        "warning",
        ("0..3", "node-a", "GPUs 0, 1 in NUMA node 0", "GPUs 2, 3 in NUMA node 1"),
    ),
    "TP008": Cases(
        HEALTHY,
        Job(FOUR, [snap(refused=[(0, 1)])]),
        SEEN,
        NO_TENSOR,
        names=("0-1", "node-a", "NS", "0..3"),
    ),
    "PP001": Cases(
        HEALTHY,
        Job(TWO, [snap("node-a", range(4)), snap("node-b", range(4, 7))]),
        Job(TWO, [snap("node-a", range(4))]),
        None,
        names=("7", "stage 1", "replica 0"),
    ),
    "PP003": Cases(
        HEALTHY,
        Job(TWO, pair(ports=nics(state="DOWN"))),
        Job(TWO, pair(ports=nics(state=None))),
        Job(STAGES, [snap("node-a", range(4))]),
        names=("node-a - node-b", "rank 0 -> 4", "mlx5_0 DOWN", "node-a.json"),
    ),
    "PP004": Cases(
        HEALTHY,
        Job(TWO, pair(near="SYS")),
        Job(TWO, pair(near="NODE")),
        Job(STAGES, [snap("node-a", range(4))]),
        "warning",
        ("GPU0, GPU1, GPU2, GPU3", "node-a", "0..3", "SYS"),
    ),
    "PP008": Cases(
        HEALTHY,
        Job(TWO, [snap("node-a", [0, 1, 4, 5]), snap("node-b", [2, 3, 6, 7])]),
        Job(TWO, [snap("node-a", range(4))]),
        NO_TENSOR,
        names=("node-a", "node-b", "0..3"),
    ),
    "NV001": Cases(
        HEALTHY,
        Job(TWO, pair(nvlinks=[18, 18, 12, 18])),
        SEEN,
        Job(FOUR, [snap(links=sockets, model=L40S, switch=None)]),
        names=("GPU 2", "node-a", "GPU-", "12 active", "18", "rank 2"),
    ),
    "NV002": Cases(
        Job(TWO, [snap("node-a", range(4), fabric=fabric()), snap("node-b", range(4, 8), fabric=fabric())]),
        Job(TWO, pair(fabric=fabric("Insufficient Resources"))),
        HEALTHY,
        Job(FOUR, [snap(links=sockets, model=L40S, switch=None)]),
        names=("node-a", "Completed", "Insufficient Resources"),
    ),
    "NET003": Cases(
        SEEN,
        Job(TWO, running(facts=[fact("hca", "mlx5_0:1/IB"), fact("hca", "mlx5_2:1/RoCE", line=6)])),
        Job(TWO, made_ports.SILENT),
        ALONE,
        "warning",
        ("mlx5_0:1 IB", "mlx5_2:1 RoCE", "node-a", "node-a.log:5"),
    ),
    "NET009": Cases(
        SEEN,
        Job(TWO, running("NET/Socket/0", facts=[fact("no-verbs", "libibverbs"), fact("network", "Socket")])),
        HEALTHY,
        ALONE,
        names=("node-a", "libibverbs", "node-a.log:5"),
    ),
    "ENV007": Cases(
        HEALTHY,
        Job(TWO, pair(environment={"NCCL_HOSTID": "one"})),
        SEEN,
        None,
        "warning",
        ("NCCL_HOSTID=one", "node-a"),
    ),
    "OBS002": Cases(
        SEEN,
        Job(TWO, running(inside="SHM/direct/direct")),
        LOOSE,
        HEALTHY,
        "warning",
        ("ranks 0-1", "SHM/direct/direct", "node-a.log:40"),
    ),
    "OBS003": Cases(
        SEEN,
        Job(TWO, running("NET/Socket/0")),
        Job(TWO, running("P2P/CUMEM", comm=None)),
        HEALTHY,
        names=("3->4", "7->0", "node-a", "node-b", "node-a.log:60", "node-b.log:60"),
    ),
    "OBS006": Cases(
        SEEN,
        Job(TWO, running(facts=[fact("abort", "Could not receive type from localRank 2", line=31)])),
        LOOSE,
        HEALTHY,
        names=("node-a", "Could not receive", "node-a.log:31"),
    ),
    "OBS008": Cases(
        Job(TWO, running(more=GROUPS)),
        Job(TWO, running(more=CROSSED)),
        SEEN,
        HEALTHY,
        names=("0, 1, 4, 5", "2, 3, 6, 7", "0..3", "node-a.log:50"),
    ),
    "OBS009": Cases(
        SEEN,
        Job(TWO, running("NET/IB/0")),
        Job(TWO, running("NET/IB/0", gdr=None)),
        HEALTHY,
        "warning",
        ("3->4", "7->0", "node-a.log:60"),
    ),
}

CASES |= {
    "ID006": Cases(
        HEALTHY, Job(TWO, numbered(1, 0)), Job(TWO, UNNUMBERED), SEEN, names=("node-a", "0..3", "node rank 1")
    ),
    "ID007": Cases(
        Job(TWO, numbered(0, 1)),
        Job(TWO, numbered(0, 0)),
        HEALTHY,
        ALONE,
        names=("node rank 0", "node-a", "node-b"),
    ),
    "ID012": Cases(
        Job(TWO, srun_torchrun(1)),
        Job(TWO, srun_torchrun(4)),
        HEALTHY,
        None,
        names=("4 tasks", "4 processes", "16", "launch.sh:2"),
    ),
    "ID014": Cases(
        Job(TWO, stating(("rendezvous", "master", "10.0.0.1:29500"))),
        Job(TWO, stating(("rendezvous", "master", "127.0.0.1:29500"))),
        HEALTHY,
        ALONE,
        names=("127.0.0.1", "master", "launch.sh:1"),
    ),
    "OBS001": Cases(
        Job(TWO, stating(("size", "tensor", "4"), ("size", "pipeline", "2"))),
        Job(TWO, stating(("size", "tensor", "8"))),
        HEALTHY,
        None,
        names=("tensor 8", "the plan says 4", "launch.sh:1"),
    ),
    "TP005": Cases(
        Job(f"{TWO}model: {{heads: 64, kv_heads: 8}}\n"),
        Job(f"{TWO}model: {{heads: 66, kv_heads: 8}}\n"),
        HEALTHY,
        NO_TENSOR,
        names=("66", "4"),
    ),
    "PP002": Cases(
        Job(f"{TWO}model: {{layers: 61}}\n"),
        Job(f"{TWO}model: {{layers: 61}}\nlayers: '30,32'\n"),
        HEALTHY,
        ALONE,
        names=("61", "62"),
    ),
    "GR005": Cases(
        Job(TWO, stating(("nodes", "launcher", "2"), ("gpus-per-node", "launcher", "4"))),
        Job(TWO, stating(("nodes", "launcher", "2"), ("gpus-per-node", "launcher", "8"))),
        HEALTHY,
        None,
        "warning",
        ("16 GPUs", "8 ranks", "launch.sh:2"),
    ),
    "ID016": Cases(
        Job(FOUR, granted("0-3")[:1]),
        Job(TWO, granted("4,5,6,7")),
        HEALTHY,
        NOTHING,
        names=("0..3", "node-a", "SLURM_JOB_GPUS=4,5,6,7", "minor number 0"),
    ),
}

CASES |= {
    rule: Cases(
        Job(*made.holds),
        Job(*made.broken),
        Job(*made.undecided),
        made.absent and Job(*made.absent),
        made.severity,
        made.names,
    )
    for family in FAMILIES
    for rule, made in family.CASES.items()
}
