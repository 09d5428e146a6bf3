"""For every rule a small job that breaks it, and one that does not: made evidence, made values.

`FAILURES` holds what the pages of the rules quote. Hosts are alpha, bravo ...; every value is made up.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from made import FAMILIES

from topocheck.checklist import Gate, build_report
from topocheck.freshness import Admission
from topocheck.gather.stream import undecoded
from topocheck.inventory import Inventory
from topocheck.origin import NOTHING_TAKEN
from topocheck.placement import place
from topocheck.planfile import parse_plan
from topocheck.report import Report
from topocheck.rules import RULES
from topocheck.snapshot import (
    SCHEMA,
    At,
    CommRank,
    Coverage,
    Edge,
    Fabric,
    FullSnapshot,
    GpuId,
    GpuShape,
    Hardware,
    Host,
    Identity,
    JobFact,
    LinkMatrix,
    LogFact,
    NicId,
    NicShape,
    Observed,
    PeerAccess,
    Port,
    ProbeFault,
    RankClaim,
    Source,
)
from topocheck.verify import run_rules
from topocheck.whereabouts import whereabouts_of
from topocheck.worldreport import of_worlds, worlds_report

__all__ = ["FAILURES", "HEALTHY", "Job", "quoted", "reported"]

H100 = "NVIDIA H100 80GB HBM3"
A40 = "NVIDIA A40"
PAIRS = (frozenset({0, 2}), frozenset({1, 3}))
"""NVLink bridges that join GPUs 0-2 and 1-3."""

BOARDS = {
    "alpha": "5f1c2a90-3c1e-4a5f-9b2d",
    "bravo": "77b0e4d3-8f02-4c61-a7e9",
    "charlie": "c94d18ee-1b77-4f30-8d55",
    "other": "0e3a6b5c-92d4-4b1a-b6f8",
}
"""First parts of the made UUIDs of each host."""

TWO = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: [alpha, bravo]\n"
WIDE = "engine: vllm\nparallel: {tensor: 8}\nnodes: [alpha, bravo]\n"
ONE = "engine: vllm\nparallel: {tensor: 4}\nnodes: [alpha]\n"


@dataclass(frozen=True)
class Job:
    """A plan and its evidence."""

    plan: str
    snapshots: Sequence[FullSnapshot] = field(default_factory=tuple)
    since: Sequence[FullSnapshot] = ()
    """Evidence of an earlier look."""


def reported(job: Job) -> Report:
    """What verify says of a job."""
    plan, now, inventory = parse_plan(job.plan, "plan.yaml"), "2026-03-01T00:00:00Z", Inventory()
    inventory.admission = Admission(plan.expect, now)
    for snapshot in job.snapshots:
        inventory.add(undecoded(snapshot))
    if plan.worlds != 1:
        judgement, _ = of_worlds(plan, inventory, RULES, NOTHING_TAKEN)
        if judgement is not None:
            return worlds_report(judgement, [], at=now, gate=Gate(), whole=False)
    if job.since:
        then = Inventory()
        for snapshot in job.since:
            then.add(undecoded(snapshot))
        placement = place(plan, then)
        inventory.earlier = whereabouts_of("earlier.json", then.machines, [placement])
    placement = place(plan, inventory)
    return build_report(placement, run_rules(RULES, placement), [], at=now, gate=Gate("error", "predicted"))


def matrix(gpus: int, cell: Callable[[int, int], str], nics: Sequence[str] = ()) -> LinkMatrix:
    """A table of link classes; every GPU has the NIC classes `nics`."""
    rows = tuple(tuple("X" if a == b else cell(a, b) for b in range(gpus)) for a in range(gpus))
    return LinkMatrix(gpus=rows, nics=tuple(tuple(nics) for _ in range(gpus)))


def nvswitch(_a: int, _b: int) -> str:
    """Every pair over NVSwitch."""
    return "NV18"


def bridged(a: int, b: int) -> str:
    """NVLink bridges between 0-2 and 1-3, PCIe else."""
    return "NV4" if frozenset({a, b}) in PAIRS else "PHB"


def split_sockets(a: int, b: int) -> str:
    """No NVLink; GPUs 0, 1 and 2, 3 on a socket each."""
    return "NODE" if a // 2 == b // 2 else "SYS"


def node(
    name: str,
    ranks: Sequence[int] = (),
    *,
    gpus: int = 4,
    model: str = H100,
    models: Sequence[str] = (),
    links: Callable[[int, int], str] | None = nvswitch,
    nvlinks: Sequence[int | None] = (),
    near: Sequence[str] = ("PIX",),
    port: str = "ACTIVE",
    drives: Sequence[int] | None = None,
    size: int | None = None,
    boot: str | None = None,
    uuids: str | None = None,
    denied: str = "OK",
    **parts: Any,
) -> FullSnapshot:
    """One node: its GPUs, one NIC, and the claims of the processes on it."""
    shapes = tuple(
        GpuShape(
            model=(models or [model] * gpus)[n],
            numa=n // max(1, gpus // 2),
            nvlinks=nvlinks[n] if nvlinks else (18 if links is nvswitch else None),
            nvswitch=links is nvswitch or None,
            mig=False,
        )
        for n in range(gpus)
    )
    up = "LinkUp" if port == "ACTIVE" else "Disabled"
    nics = (
        NicShape(name="mlx5_0", ports=(Port(state=port, physical=up, layer="InfiniBand", rate_gbps=400),)),
    )
    claims = tuple(
        RankClaim(rank=rank, size=size, local_rank=n, gpu=n if drives is None else drives[n], pid=9000 + rank)
        for n, rank in enumerate(ranks)
    )
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "sources": (Source(name=f"{name}.json", kind="made"),),
        "coverage": Coverage(gpus="all", links="all", nics="all", ranks="all" if ranks else None),
        "identity": Identity(
            host=Host(name=name, boot_id=boot or f"boot-{name}"),
            gpus=tuple(
                GpuId(
                    uuid=f"GPU-{BOARDS[uuids or name]}-{n:012}",
                    bus=f"0000:{0x1A + n:02x}:00.0",
                    nvml=n,
                    scope="host",
                )
                for n in range(gpus)
            ),
            nics=(NicId(name="mlx5_0"),),
        ),
        "hardware": Hardware(
            gpus=shapes,
            nics=nics,
            matrix=None if links is None else matrix(gpus, links, near),
            peers=tuple(
                PeerAccess(a=a, b=b, status=denied if {a, b} == {0, 1} else "OK")
                for a, b in itertools.permutations(range(gpus), 2)
            ),
        ),
        "environment": {"NCCL_DEBUG": "INFO"},
        "ranks": claims,
    }
    return FullSnapshot(**(fields | parts))


def at(name: str, line: int) -> At:
    """A line of a node's log."""
    return At(source=f"{name}.log", line=line)


def log(
    name: str,
    ranks: Sequence[int],
    *,
    size: int,
    edges: Sequence[Edge] = (),
    facts: Sequence[LogFact] = (),
    comms: Sequence[CommRank] | None = None,
    phase: str = "complete",
) -> Observed:
    """What a node's log shows: the members of one communicator, edges, statements."""
    members = tuple(
        CommRank(comm="0xc0", size=size, rank=r, gpu=n, pid=9000 + r, phase=phase, at=at(name, 10 + n))  # type: ignore[arg-type]
        for n, r in enumerate(ranks)
    )
    opened = LogFact(kind="hca", value="mlx5_0:1/IB", at=at(name, 3))
    return Observed(
        library="NCCL 2.27.5",
        comms=members if comms is None else tuple(comms),
        edges=tuple(edges),
        facts=tuple(facts) if facts else (opened,),
    )


def edge(name: str, src: int, dst: int, how: str, line: int = 40, **more: Any) -> Edge:
    """A channel line."""
    via, _, network = how.partition("/")
    fields: dict[str, Any] = {
        "src": src,
        "dst": dst,
        "via": via,
        "how": how,
        "comm": "0xc0",
        "at": at(name, line),
    }
    if via == "NET":
        fields |= {"network": network.split("/")[0], "side": "send"}
    return Edge(**(fields | more))


def ring(name: str, ranks: Sequence[int]) -> list[Edge]:
    """P2P both ways between the neighbours of one node."""
    return [
        edge(name, a, b, "P2P/CUMEM", 20 + n)
        for n, pair in enumerate(itertools.pairwise(ranks))
        for a, b in (pair, pair[::-1])
    ]


def pair(**of_alpha: Any) -> list[FullSnapshot]:
    """Two healthy nodes that claim ranks 0..3 and 4..7; keywords change the first."""
    return [node("alpha", range(4), size=8, **of_alpha), node("bravo", range(4, 8), size=8)]


def running(
    how: str = "NET/IB/0/GDRDMA",
    *,
    inside: str = "P2P/CUMEM",
    facts: Sequence[LogFact] = (),
    phase: str = "complete",
    more: Sequence[CommRank] = (),
    **crossing: Any,
) -> list[FullSnapshot]:
    """Two nodes seen running, with edges inside and between them; keywords change the crossing edge."""
    found = []
    for name, ranks, there in (("alpha", range(4), (3, 7)), ("bravo", range(4, 8), (7, 3))):
        edges = [
            msgspec.structs.replace(e, via=inside.partition("/")[0], how=inside) for e in ring(name, ranks)
        ]
        edges.append(edge(name, *there, how, **({"gdr": how.endswith("GDRDMA")} | crossing)))
        members = [
            *log(name, ranks, size=8, phase=phase).comms,
            *[m for m in more if m.at == at(name, 60 + m.rank)],
        ]
        told = facts if name == "alpha" else ()
        observed = log(name, ranks, size=8, edges=edges, facts=told, comms=members)
        found.append(node(name, observed=observed))
    return found


def groups(*members: tuple[str, str, Sequence[tuple[int, int]]]) -> list[CommRank]:
    """Communicators: (name, host, (rank, GPU) ...)."""
    sizes: dict[str, int] = {}
    for name, _, places in members:
        sizes[name] = sizes.get(name, 0) + len(places)
    return [
        CommRank(comm=name, size=sizes[name], rank=rank, gpu=gpu, at=at(host, 60 + rank), phase="complete")
        for name, host, places in members
        for rank, gpu in places
    ]


def stating(*facts: tuple[str, str, str]) -> list[FullSnapshot]:
    """The healthy pair, and a launch script that states (kind, name, value), a line each."""
    stated = tuple(
        JobFact(kind=kind, name=name, value=value, at=At(source="launch.sh", line=line))
        for line, (kind, name, value) in enumerate(facts, 1)
    )
    return [*pair(), FullSnapshot(schema=SCHEMA, identity=Identity(host=Host()), job=stated)]


def numbered(*node_ranks: int) -> list[FullSnapshot]:
    """The healthy pair with these node ranks."""
    return [
        msgspec.structs.replace(
            view, ranks=tuple(msgspec.structs.replace(claim, node_rank=rank) for claim in view.ranks)
        )
        for view, rank in zip(pair(), node_ranks, strict=True)
    ]


def granted(numbers: str) -> list[FullSnapshot]:
    """The healthy pair, alpha with the GPU numbers that Slurm gave it there."""
    first, second = pair(environment={"SLURM_JOB_GPUS": numbers})
    gpus = tuple(msgspec.structs.replace(gpu, minor=n) for n, gpu in enumerate(first.identity.gpus))
    identity = msgspec.structs.replace(first.identity, gpus=gpus)
    return [msgspec.structs.replace(first, identity=identity), second]


HEALTHY = {
    "claimed": Job(TWO, pair()),
    "observed": Job(TWO, running()),
}

FAILURES: dict[str, Job] = {
    "EV001": Job(TWO.replace("[alpha, bravo]", "2"), [*pair(), node("charlie", [8], size=8)]),
    "EV002": Job(
        TWO,
        [
            node(
                "alpha",
                range(4),
                size=8,
                links=None,
                faults=(
                    ProbeFault(
                        part="links",
                        kind="not-permitted",
                        path="nvmlDeviceGetNvLinkState",
                        reason="Insufficient Permissions",
                    ),
                ),
            ),
            node("bravo", range(4, 8), size=8),
        ],
    ),
    "EV004": Job(
        TWO,
        [
            *pair(),
            FullSnapshot(
                schema=SCHEMA,
                sources=(Source(name="alpha-gpus.txt", kind="made"),),
                identity=Identity(
                    host=Host(name="alpha"),
                    gpus=(GpuId(uuid=f"GPU-{BOARDS['other']}-{0:012}", bus="0000:1a:00.0"),),
                ),
            ),
        ],
    ),
    "ID001": Job(TWO, [node("alpha", range(4), size=8), node("bravo", range(4), size=8)]),
    "ID003": Job(
        TWO, [node("alpha"), node("bravo", gpus=3, coverage=Coverage(gpus="part", links="all", nics="all"))]
    ),
    "ID002": Job(TWO, [node("alpha", range(4), size=4), node("bravo", range(4, 8), size=4)]),
    "ID004": Job(TWO, pair(drives=[0, 1, 2, 2])),
    "ID005": Job(TWO, [node("alpha", range(4), size=8), node("bravo", range(4, 8), size=8, uuids="alpha")]),
    "ID006": Job(TWO, numbered(1, 0)),
    "ID007": Job(TWO, numbered(0, 0)),
    "ID010": Job(TWO, [node("alpha", range(4, 8), size=8), node("bravo", range(4), size=8)]),
    "ID012": Job(
        TWO,
        stating(
            ("launcher", "train.py", "srun torchrun"),
            ("processes-per-node", "launcher", "4"),
            ("processes-per-node", "agent", "4"),
        ),
    ),
    "ID014": Job(TWO, stating(("rendezvous", "master", "127.0.0.1:29500"))),
    "ID015": Job(TWO, [node("alpha", gpus=4), node("bravo", gpus=3)]),
    "ID016": Job(TWO, granted("4,5,6,7")),
    "TP001": Job(WIDE, pair()),
    "TP002": Job(
        "engine: vllm\nparallel: {tensor: 2, pipeline: 2}\nnodes: [alpha]\n",
        [node("alpha", model=A40, links=bridged)],
    ),
    "TP003": Job(ONE, [node("alpha", models=[H100, H100, H100, A40])]),
    "TP004": Job(ONE, [node("alpha", model="NVIDIA L40S", links=split_sockets)]),
    "TP005": Job(f"{TWO}model: {{heads: 66, kv_heads: 6}}\n", pair()),
    "TP008": Job(ONE, [node("alpha", denied="NS")]),
    "PP001": Job(TWO, [node("alpha", range(4), size=8), node("bravo", [4, 5, 6], size=8)]),
    "PP002": Job(f"{TWO}model: {{layers: 61}}\nlayers: '30,32'\n", pair()),
    "PP003": Job(TWO, pair(port="DOWN")),
    "PP004": Job(TWO, pair(near=["SYS"])),
    "PP008": Job(TWO, [node("alpha", [0, 1, 4, 5], size=8), node("bravo", [2, 3, 6, 7], size=8)]),
    "NV001": Job(TWO, pair(nvlinks=[18, 18, 12, 18])),
    "NV002": Job(TWO, pair(fabric=(Fabric(state="Completed", status="Insufficient Resources"),))),
    "NET003": Job(
        TWO,
        running(
            facts=[
                LogFact(kind="hca", value="mlx5_0:1/IB", at=at("alpha", 3)),
                LogFact(kind="hca", value="mlx5_6:1/RoCE", at=at("alpha", 3)),
            ]
        ),
    ),
    "NET009": Job(
        TWO,
        running(
            "NET/Socket/0",
            facts=[
                LogFact(kind="no-verbs", value="libibverbs", at=at("alpha", 3)),
                LogFact(kind="network", value="Socket", at=at("alpha", 5)),
            ],
        ),
    ),
    "ENV007": Job(TWO, pair(environment={"NCCL_HOSTID": "node"})),
    "GR005": Job(TWO, stating(("nodes", "launcher", "2"), ("gpus-per-node", "launcher", "8"))),
    "OBS001": Job(TWO, stating(("size", "tensor", "8"), ("size", "pipeline", "1"))),
    "OBS002": Job(TWO, running(inside="SHM/direct/direct")),
    "OBS003": Job(TWO, running("NET/Socket/0")),
    "OBS006": Job(
        TWO,
        running(
            phase="start",
            facts=[
                LogFact(kind="abort", value="Could not receive type from localRank 2", at=at("alpha", 31))
            ],
        ),
    ),
    "OBS008": Job(
        TWO, running(more=groups(("0xa1", "alpha", [(0, 0), (1, 1)]), ("0xa2", "alpha", [(0, 2), (1, 3)])))
    ),
    "OBS009": Job(TWO, running("NET/IB/0")),
} | {rule: Job(*job) for family in FAMILIES for rule, job in family.FAILURES.items()}


def quoted(rule: str) -> str:
    """What verify says where a rule is broken, as its page quotes it: 78 columns wide."""
    report = reported(FAILURES[rule])
    answer = next(answer for answer in report.rules if answer.id == rule)
    if answer.findings:
        finding = answer.findings[0]
        parts = [f"{rule} {finding.severity}  {finding.message}", f"  fix  {finding.fix}"]
    else:
        gap = report.gaps[answer.gaps[0]]
        parts = [f"{rule} {answer.verdict}  {gap.need} ({', '.join(gap.about)})", f"  give  {gap.supply}"]
    wrapped = [textwrap.wrap(part, 78, subsequent_indent=" " * 7, break_on_hyphens=False) for part in parts]
    return "".join(f"{line}\n" for lines in wrapped for line in lines)
