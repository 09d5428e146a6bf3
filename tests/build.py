"""Plans, snapshots and reports in a line each: made evidence with made values.

The healthy job is vLLM with TP 4 x PP 2 on node-a and node-b, four H100 each on NVSwitch. Everything that
a keyword changes is changed in that one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from topocheck.checklist import Gate, build_report
from topocheck.freshness import Admission
from topocheck.gather.stream import undecoded
from topocheck.inventory import Inventory
from topocheck.origin import NOTHING_TAKEN
from topocheck.placed import placement_report
from topocheck.placement import Placement, place
from topocheck.plan import Plan
from topocheck.planfile import parse_plan
from topocheck.report import Report, RuleReport
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
    LinkMatrix,
    LogFact,
    NicShape,
    Observed,
    PeerAccess,
    Port,
    RankClaim,
    Source,
)
from topocheck.verify import RuleResult, run_rules
from topocheck.whereabouts import whereabouts_of
from topocheck.worldreport import of_worlds, worlds_report

__all__ = [
    "A40",
    "AT",
    "FOUR",
    "GB200",
    "H100",
    "L40S",
    "RING",
    "TWO",
    "Cells",
    "answer",
    "at",
    "claims",
    "comm",
    "completed",
    "edge",
    "fact",
    "full",
    "gpus",
    "inventory",
    "log",
    "members",
    "meshed",
    "nics",
    "pair",
    "paired",
    "placed",
    "plan",
    "report",
    "results",
    "running",
    "snap",
    "sockets",
    "text_of",
]

AT = "2026-03-01T00:00:00Z"
H100, A40, L40S, GB200 = "NVIDIA H100 80GB HBM3", "NVIDIA A40", "NVIDIA L40S", "NVIDIA GB200"

TWO = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: [node-a, node-b]\n"
"""TP 4 x PP 2 on two named nodes."""
FOUR = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n"
"""TP 4 on one named node."""
RING = "0xc0ffee"
"""commId of the world."""

Cells = Callable[[int, int], str]
"""Link class of two GPUs."""


def plan(text: str = TWO, **changes: Any) -> Plan:
    """A plan; keywords replace its fields."""
    return msgspec.structs.replace(parse_plan(text, "plan.yaml"), **changes)


def meshed(_a: int, _b: int) -> str:
    """Every pair over NVSwitch."""
    return "NV18"


def paired(a: int, b: int) -> str:
    """NVLink bridges 0-2 and 1-3 (and 4-6, 5-7), PCIe else."""
    return "NV4" if abs(a - b) == 2 and a // 4 == b // 4 else "PHB"


def sockets(a: int, b: int) -> str:
    """No NVLink, two GPUs a socket."""
    return "NODE" if a // 2 == b // 2 else "SYS"


def gpus(
    name: str = "node-a",
    count: int = 4,
    *,
    uuid: bool = True,
    bus: bool = True,
    nvml: bool = True,
    first: int = 0,
    scope: str = "host",
) -> tuple[GpuId, ...]:
    """Identities of the GPUs of a node; each kind may be left out."""
    board = sum(name.encode()) % 10_000
    return tuple(
        GpuId(
            uuid=f"GPU-00000000-0000-0000-{board:04}-{n:012}" if uuid else None,
            bus=f"0000:{0x1B + 0x10 * n:02x}:00.0" if bus else None,
            nvml=n if nvml else None,
            scope=scope,  # type: ignore[arg-type]
        )
        for n in range(first, first + count)
    )


def nics(count: int = 1, state: str | None = "ACTIVE", layer: str = "InfiniBand") -> tuple[NicShape, ...]:
    """RDMA devices with one port each."""
    physical = {"ACTIVE": "LinkUp", None: None}.get(state, "Disabled")
    port = Port(state=state, physical=physical, layer=layer, rate_gbps=400)
    return tuple(NicShape(name=f"mlx5_{n}", ports=(port,)) for n in range(count))


def at(name: str, line: int) -> At:
    """A line of a node's log."""
    return At(source=f"{name}.log", line=line)


def full(**parts: str) -> Coverage:
    """Coverage that may conclude from absence; keywords change a part."""
    return Coverage(**({"gpus": "all", "links": "all", "nics": "all"} | parts))  # type: ignore[arg-type]


def claims(
    ranks: Iterable[int], *, size: int | None = 8, node_rank: int | None = None, **fields: Any
) -> tuple[RankClaim, ...]:
    """Claims of one node, one a GPU in order."""
    return tuple(
        RankClaim(
            rank=rank,
            size=size,
            local_rank=n,
            node_rank=node_rank,
            **({"gpu": n, "pid": 9000 + rank} | fields),
        )
        for n, rank in enumerate(ranks)
    )


def snap(
    name: str | None = "node-a",
    ranks: Iterable[int] = (),
    *,
    count: int = 4,
    model: str | None = H100,
    models: Sequence[str | None] = (),
    nvlinks: Sequence[int | None] | None = None,
    numa: Sequence[int | None] | None = None,
    links: Cells | None = meshed,
    near: str | None = "PIX",
    switch: bool | None = True,
    ports: tuple[NicShape, ...] | None = None,
    refused: Sequence[tuple[int, int]] = (),
    boot: str | None = "",
    size: int | None = 8,
    source: str = "",
    **parts: Any,
) -> FullSnapshot:
    """One node as a probe shows it: identity, links, NICs, and a claim for each of `ranks`."""
    shapes = tuple(
        GpuShape(
            model=models[n] if models else model,
            numa=n // 2 if numa is None else numa[n],
            nvlinks=(18 if model == H100 else None) if nvlinks is None else nvlinks[n],
            nvswitch=switch,
            mig=False,
        )
        for n in range(count)
    )
    devices = nics() if ports is None else ports
    cells = (
        tuple(tuple("X" if a == b else links(a, b) for b in range(count)) for a in range(count))
        if links
        else ()
    )
    matrix = LinkMatrix(
        gpus=cells, nics=tuple(tuple(near for _ in devices) for _ in range(count)) if near and devices else ()
    )
    known = claims(ranks, size=size)
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "sources": (Source(name=source or f"{name or 'some'}.json", kind="made"),),
        "coverage": full(**({"ranks": "all"} if known else {})),
        "identity": Identity(
            host=Host(name=name, boot_id=f"boot-of-{name}" if boot == "" else boot),
            gpus=gpus(name or "some", count),
        ),
        "hardware": Hardware(
            gpus=shapes,
            nics=devices,
            matrix=matrix if matrix != LinkMatrix() else None,
            peers=tuple(
                PeerAccess(a=a, b=b, status="NS" if (a, b) in refused or (b, a) in refused else "OK")
                for a in range(count)
                for b in range(count)
                if a != b
            ),
        ),
        "environment": {"NCCL_DEBUG": "INFO"},
        "ranks": known,
    }
    return FullSnapshot(**(fields | parts))


def pair(**of_first: Any) -> list[FullSnapshot]:
    """node-a with ranks 0..3 and node-b with 4..7, healthy; keywords change node-a."""
    return [snap("node-a", range(4), **of_first), snap("node-b", range(4, 8))]


def comm(
    name: str,
    ranks: Iterable[int],
    *,
    host: str = "node-a",
    size: int | None = 8,
    line: int = 10,
    **fields: Any,
) -> tuple[CommRank, ...]:
    """Members of one communicator on one node, GPUs and processes in order."""
    return tuple(
        msgspec.structs.replace(
            CommRank(
                comm=name,
                size=size,
                rank=rank,
                gpu=n,
                pid=9000 + n,
                phase="complete",
                at=at(host, line + n),
            ),
            **fields,
        )
        for n, rank in enumerate(ranks)
    )


def members(name: str, places: Sequence[tuple[int, int]], *, host: str, size: int) -> tuple[CommRank, ...]:
    """Members of a smaller communicator: (rank inside it, GPU)."""
    return tuple(
        CommRank(
            comm=name, size=size, rank=rank, gpu=gpu, pid=9000 + gpu, phase="complete", at=at(host, 50 + rank)
        )
        for rank, gpu in places
    )


def edge(src: int, dst: int, how: str, *, host: str = "node-a", line: int = 40, **fields: Any) -> Edge:
    """A connection as its sender logged it; `how` is the log's own spelling."""
    via, _, rest = how.partition("/")
    known: dict[str, Any] = {"comm": RING, "at": at(host, line)}
    if via == "NET":
        known |= {"network": rest.split("/")[0], "side": "send", "gdr": how.endswith("GDRDMA")}
    return Edge(src=src, dst=dst, via=via, how=how, **(known | fields))  # type: ignore[arg-type]


def fact(
    kind: str, value: str = "", *, host: str = "node-a", line: int = 5, pid: int | None = None
) -> LogFact:
    """A statement of a log."""
    return LogFact(kind=kind, value=value, pid=pid, at=at(host, line))


def log(
    name: str | None = "node-a",
    comms: Iterable[CommRank] = (),
    *,
    edges: Iterable[Edge] = (),
    facts: Iterable[LogFact] = (),
    count: int = 4,
    **parts: Any,
) -> FullSnapshot:
    """What a log of one node shows, and nothing else: GPUs by bus id and NVML index, no boot id."""
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "sources": (Source(name=f"{name or 'some'}.log", kind="nccl log"),),
        "coverage": Coverage(gpus="part", observed="part"),
        "identity": Identity(
            host=Host(name=name), gpus=gpus(name or "some", count, uuid=False, scope="unknown")
        ),
        "observed": Observed(
            library="NCCL 2.27.5", comms=tuple(comms), edges=tuple(edges), facts=tuple(facts)
        ),
    }
    return FullSnapshot(**(fields | parts))


def running(
    how: str = "NET/IB/0/GDRDMA",
    *,
    inside: str = "P2P/CUMEM",
    facts: Sequence[LogFact] | None = None,
    more: Mapping[str, Sequence[CommRank]] | None = None,
    edges: Mapping[str, Sequence[Edge]] | None = None,
    **crossing: Any,
) -> list[FullSnapshot]:
    """Logs of the healthy job: its world, rings inside the nodes, one connection each way between them."""
    found = []
    for name, first, far in (("node-a", 0, 4), ("node-b", 4, 0)):
        ranks = range(first, first + 4)
        ring = [edge(a, b, inside, host=name) for a in ranks for b in ranks if abs(a - b) == 1]
        ring.append(edge(first + 3, far, how, host=name, line=60, **crossing))
        opened = [fact("hca", "mlx5_0:1/IB", host=name), fact("network", "IB", host=name, line=6)]
        told = opened if facts is None else [f for f in facts if f.at and f.at.source == f"{name}.log"]
        joined = (*comm(RING, ranks, host=name), *(more or {}).get(name, ()))
        found.append(log(name, joined, edges=[*ring, *(edges or {}).get(name, ())], facts=told))
    return found


def completed(uuid: str = "a" * 32, clique: int = 7, state: str | None = "Completed") -> tuple[Fabric, ...]:
    """An NVLink fabric that all GPUs of a node report."""
    return (Fabric(cluster_uuid=uuid, clique=clique, state=state, status="Success"),)


def inventory(*snapshots: FullSnapshot, admission: Admission = Admission()) -> Inventory:  # noqa: B008 - frozen
    """All hosts of some evidence."""
    found = Inventory()
    found.admission = admission
    for snapshot in snapshots:
        found.add(undecoded(snapshot))
    return found


def placed(text: str | Plan, *snapshots: FullSnapshot, since: Sequence[FullSnapshot] = ()) -> Placement:
    """Plan and evidence joined; `since` is the evidence of an earlier look."""
    declared = plan(text) if isinstance(text, str) else text
    known = inventory(*snapshots, admission=Admission(declared.expect, AT))
    if since:
        then = place(declared, inventory(*since))
        known.earlier = whereabouts_of("earlier.json", then.inventory.machines, [then])
    return place(declared, known)


def results(placement: Placement) -> dict[str, RuleResult]:
    """Answers of all rules by id."""
    return {result.rule.id: result for result in run_rules(RULES, placement)}


def report(
    text: str | Plan,
    *snapshots: FullSnapshot,
    gate: Gate | None = None,
    whole: bool = False,
    since: Sequence[FullSnapshot] = (),
) -> Report:
    """What verify says; `whole` adds the placement table, `since` is the evidence of an earlier look."""
    declared = plan(text) if isinstance(text, str) else text
    if declared.worlds != 1:
        known = inventory(*snapshots, admission=Admission(declared.expect, AT))
        judgement, _ = of_worlds(declared, known, RULES, NOTHING_TAKEN)
        if judgement is not None:
            return worlds_report(judgement, [], at=AT, gate=gate or Gate(), whole=whole)
    placement = placed(declared, *snapshots, since=since)
    answers = run_rules(RULES, placement)
    found = build_report(placement, answers, [], at=AT, gate=gate or Gate())
    if whole:
        found = msgspec.structs.replace(found, placement=placement_report(placement, answers))
    return found


def answer(found: Report, rule: str) -> RuleReport:
    """What became of one rule."""
    return next(one for one in found.rules if one.id == rule)


def text_of(one: RuleReport) -> str:
    """Everything that the findings of a rule say, as one text."""
    return "\n".join(
        " ".join(
            (
                f.message,
                f.fix,
                *f.subjects,
                *(f"{e.source}:{e.line} {e.fact}" for e in f.evidence),
                f.severity,
            )
        )
        for f in one.findings
    )
