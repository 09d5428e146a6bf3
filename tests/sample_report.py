"""Finished reports made by hand, for the tests of what renders them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from topocheck.report import (
    SCHEMA,
    BaselineReport,
    Counts,
    Evidence,
    ExitReason,
    GapReport,
    GoneReport,
    GpuReport,
    GroupReport,
    InputReport,
    NodeReport,
    Outcome,
    PlacementReport,
    Placing,
    PolicyKey,
    RankReport,
    Report,
    ReportedFinding,
    RuleReport,
    ShapeReport,
    WaiverReport,
    WaiverState,
)

__all__ = [
    "CATALOGUE",
    "broken",
    "healthy",
    "hostile",
    "placed",
    "report",
    "split_group",
    "swept",
    "unknown_only",
]

CATALOGUE = (
    ("EV001", "every expected node reported", "Evidence", "error", True),
    ("EV002", "no probe fault hides a fact that a rule needed", "Evidence", "warning", False),
    ("EV003", "the evidence belongs to this run", "Evidence", "error", True),
    ("ID001", "ranks are exactly 0 to world - 1, each once", "Identity", "error", True),
    ("ID003", "each rank resolves to exactly one GPU", "Identity", "error", True),
    ("ID004", "no GPU serves two ranks", "Identity", "error", True),
    ("ID010", "ranks lie on nodes as the engine's layout needs", "Identity", "error", True),
    ("TP001", "each tensor group stays in one node", "Tensor groups", "error", True),
    ("TP002", "every pair of a tensor group has NVLink", "Tensor groups", "error", True),
    ("TP003", "same model and NVLink width in a tensor group", "Tensor groups", "error", False),
    ("PP001", "each replica has all its stages", "Pipeline stages", "error", True),
    ("PP003", "a boundary between nodes has working RDMA at both ends", "Pipeline stages", "error", True),
    ("PP004", "the NIC of a boundary is near its GPU", "Pipeline stages", "warning", False),
    ("GR005", "no GPU idles inside the job", "Other groups", "warning", False),
    ("NET001", "every port that the job needs is active", "Network", "error", False),
    ("NET008", "ACS or IOMMU do not redirect peer traffic", "Network", "error", False),
    ("ENV004", "locked memory suffices", "Environment", "error", False),
    ("VER007", "no node is the odd one out", "Sameness", "warning", False),
    ("CAP001", "GPUs are free", "Capacity", "error", False),
    ("OBS003", "edges between nodes ran over RDMA", "After launch", "error", False),
)
"""Rules of the samples: id, name, family, severity, required."""


def passed(rule: tuple[str, str, str, str, bool], subjects: int = 2) -> RuleReport:
    """A rule all of whose subjects pass."""
    code, name, family, severity, required = rule
    return RuleReport(
        id=code,
        name=name,
        family=family,
        severity=severity,  # type: ignore[arg-type]
        required=required,
        verdict="pass",
        basis="predicted",
        subjects=subjects,
        passed=subjects,
        failed=0,
        unknown=0,
        reason="",
        findings=[],
        gaps=[],
    )


def finding(message: str, **changes: object) -> ReportedFinding:
    """An error about ranks 0, 1, 4 and 5, with any field changed."""
    return msgspec.structs.replace(
        ReportedFinding(
            message=message,
            severity="error",
            subjects=["rank 0", "rank 1", "rank 4", "rank 5"],
            count=4,
            evidence=[Evidence(source="plan.yaml", line=2, fact="parallel: {tensor: 4, pipeline: 2}")],
            fix="Start ranks 0 to 3 on one node.",
            cause="crosses",
        ),
        **changes,
    )


def unknown(rule: RuleReport, gap: int, subjects: int = 2) -> RuleReport:
    """The rule undecided for want of one piece of evidence."""
    changes: dict[str, object] = {"verdict": "unknown", "basis": None, "gaps": [gap]}
    return msgspec.structs.replace(rule, **changes, subjects=subjects, passed=0, unknown=subjects)


def failed(rule: RuleReport, findings: Sequence[ReportedFinding]) -> RuleReport:
    """The rule with one of its subjects failed for these findings."""
    passes = max(rule.subjects - 1, 0)
    return msgspec.structs.replace(rule, verdict="fail", passed=passes, failed=1, findings=list(findings))


def not_applicable(rule: RuleReport, reason: str) -> RuleReport:
    """The rule proven not to apply."""
    changes: dict[str, object] = {"verdict": "not-applicable", "basis": None, "reason": reason}
    return msgspec.structs.replace(rule, **changes, subjects=0, passed=0)


def gpu_uuid(node: int, ordinal: int) -> str:
    """UUID of a made GPU."""
    return f"GPU-{node:08x}-5eed-4a11-8000-{ordinal:012x}"


def gpus(node: int, ranks: Sequence[Sequence[int]]) -> list[GpuReport]:
    """GPUs of a node that drive these ranks."""
    return [
        GpuReport(
            ordinal=ordinal,
            uuid=gpu_uuid(node, ordinal),
            bus=f"0000:{0x17 + 0x10 * ordinal:02x}:00.0",
            index=ordinal,
            model="NVIDIA H100 80GB HBM3",
            ranks=list(driven),
        )
        for ordinal, driven in enumerate(ranks)
    ]


def shape(size: int, nodes: int) -> ShapeReport:
    """A node of `size` GPUs joined by NVLink, one NIC near each GPU."""
    nics = [f"mlx5_{number}" for number in range(size)]
    return ShapeReport(
        title=f"{size} x NVIDIA H100 80GB HBM3, {size} NICs",
        gpus=["NVIDIA H100 80GB HBM3"] * size,
        links=[[None if a == b else "NV18" for b in range(size)] for a in range(size)],
        nics=nics,
        near=[[nic] for nic in nics],
        nodes=nodes,
    )


def placed(
    *,
    tensor: int = 4,
    pipeline: int = 2,
    data: int = 1,
    size: int = 4,
    order: Sequence[int] | None = None,
    rows: int | None = None,
    names: str = "gpu-{:04d}",
) -> PlacementReport:
    """Ranks in blocks of `size` GPUs a node.

    `order` says which rank lies in each slot, `rows` how many ranks are listed one by one.
    """
    world = tensor * pipeline * data
    slots = list(order) if order is not None else list(range(world))
    nodes = len(slots) // size
    where = {rank: divmod(slot, size) for slot, rank in enumerate(slots)}
    shown = [_rank(rank, tensor, pipeline, where[rank], names) for rank in range(world)[:rows]]
    return PlacementReport(
        phase="predicted",
        world=world,
        axes={"dp": data, "pp": pipeline, "tp": tensor},
        ranks=shown,
        nodes=[
            NodeReport(
                name=names.format(node),
                position=node,
                bound_by="name",
                seen=True,
                shape=0,
                domain=None,
                gpus=gpus(node, [[rank] for rank in slots[node * size : (node + 1) * size]]),
            )
            for node in range(nodes)
        ],
        unused=[],
        shapes=[shape(size, nodes)],
        marks=[],
    )


def _rank(rank: int, tensor: int, pipeline: int, slot: tuple[int, int], names: str) -> RankReport:
    """One rank of a dp-pp-tp layout with 32 layers."""
    stage = rank // tensor % pipeline
    node, gpu = names.format(slot[0]), gpu_uuid(*slot)
    layers = 32 // pipeline
    return RankReport(
        rank=rank,
        coordinates={"dp": rank // (tensor * pipeline), "pp": stage, "tp": rank % tensor},
        stage=stage,
        replica=rank // (tensor * pipeline),
        tensor_group=rank // tensor,
        node=node,
        gpu=gpu,
        layers=[stage * layers, (stage + 1) * layers],
        sources={"predicted": Placing(node=node, gpu=gpu, source="plan.yaml + vLLM layout")},
    )


def counts(rules: Sequence[RuleReport]) -> Counts:
    """Counts that agree with the rules."""
    verdicts = [rule.verdict for rule in rules]
    found = [finding for rule in rules for finding in rule.findings]
    counting = [finding.severity for finding in found if finding.waiver is None]
    return Counts(
        passed=verdicts.count("pass"),
        failed=verdicts.count("fail"),
        unknown=verdicts.count("unknown"),
        not_applicable=verdicts.count("not-applicable"),
        error=verdicts.count("error"),
        errors=counting.count("error"),
        warnings=counting.count("warning"),
        infos=counting.count("info"),
        waived=len(found) - len(counting),
        required_unknown=sum(rule.required and rule.unknown > 0 for rule in rules),
    )


def report(
    sentence: str,
    rules: Sequence[RuleReport],
    *,
    verdict: Outcome = "pass",
    reason: ExitReason = "passed",
    gaps: Sequence[GapReport] = (),
    placement: PlacementReport | None = None,
) -> Report:
    """A report around these rules."""
    return Report(
        schema=SCHEMA,
        tool="topocheck 0.1.0",
        at="2031-03-04T05:06:07Z",
        verdict=verdict,
        exit_code={"pass": 0, "fail": 1, "unknown": 3}[verdict],
        exit_reason=reason,
        sentence=sentence,
        job="vLLM 0.11.0, TP 4 x PP 2, 8 ranks on 2 nodes of 4 GPUs",
        phase="predicted" if placement is None else placement.phase,
        counts=counts(rules),
        assumptions=["CUDA_VISIBLE_DEVICES is unset in the job: nothing shows it"],
        rules=list(rules),
        gaps=list(gaps),
        inputs=[
            InputReport(name="plan.yaml", kind="plan", digest="sha256:" + "1f" * 32, hosts=[], notes=[]),
            InputReport(
                name="evidence/gpu-0000.txt",
                kind="nvidia-smi topo -m",
                digest="sha256:" + "2e" * 32,
                hosts=["gpu-0000"],
                notes=["2 lines after the table were not recognised"],
            ),
        ],
        notes=["gpu-0007 was seen and carries no rank of the job"],
        placement=placement,
    )


def catalogue(changes: Mapping[str, RuleReport]) -> list[RuleReport]:
    """All rules as passed, but for those given."""
    return [changes.get(rule[0], passed(rule)) for rule in CATALOGUE]


def by_id(code: str) -> RuleReport:
    """One rule of the catalogue, passed."""
    return next(passed(rule) for rule in CATALOGUE if rule[0] == code)


def healthy() -> Report:
    """TP4 x PP2 on two nodes of four GPUs, as it should be."""
    rules = {
        "EV003": not_applicable(by_id("EV003"), "no run id and no --max-age was asked for"),
        "OBS003": not_applicable(by_id("OBS003"), "nothing was observed: the job has not started"),
    }
    return report(
        "Both tensor groups stay on one node each and the pipeline crosses over working RDMA.",
        catalogue(rules),
        placement=placed(),
    )


def split_group() -> Report:
    """The same job with its tensor groups spread over both nodes, and more that is wrong."""
    placement = placed(order=[0, 1, 4, 5, 2, 3, 6, 7])
    moved = placement.ranks[2]
    claim = Placing(node="gpu-0000", gpu=gpu_uuid(0, 2), source="environment of rank 2")
    placement.ranks[2] = msgspec.structs.replace(moved, sources={**moved.sources, "claimed": claim})
    placement.marks.extend(
        [
            GroupReport(rule="TP001", severity="error", ranks=[0, 1, 2, 3], kind="group"),
            GroupReport(rule="TP001", severity="error", ranks=[4, 5, 6, 7], kind="group"),
            GroupReport(rule="PP004", severity="warning", ranks=[3, 7], kind="edge"),
            GroupReport(rule="CAP001", severity="error", ranks=[5], kind="gpu"),
        ]
    )
    placement.unused.append("gpu-0007")
    waiver = WaiverReport(reason="known, board on order", owner="infra", expires="2031-04-01")
    rules = {
        "TP001": failed(by_id("TP001"), [_crossing()]),
        "PP004": failed(by_id("PP004"), [_far_nic()]),
        "CAP001": failed(by_id("CAP001"), [_taken()]),
        "VER007": failed(by_id("VER007"), [finding("gpu-0001 has other firmware.", waiver=waiver)]),
        "NET001": unknown(by_id("NET001"), 0),
        "OBS003": not_applicable(by_id("OBS003"), "nothing was observed: the job has not started"),
    }
    gap = GapReport(
        need="state of the InfiniBand ports",
        about=["gpu-0001"],
        count=1,
        supply="ibstat > gpu-0001-ibstat.txt",
        rules=["NET001", "PP003"],
    )
    sentence = "Tensor group 0 (ranks 0..3) is split over gpu-0000 and gpu-0001: its traffic leaves NVLink."
    return report(
        sentence, catalogue(rules), verdict="fail", reason="findings", gaps=[gap], placement=placement
    )


def _crossing() -> ReportedFinding:
    """Tensor groups over two nodes."""
    return finding(
        "Tensor groups 0 and 1 have two ranks on gpu-0000 and two on gpu-0001; every all-reduce of every "
        "layer crosses the network.",
        subjects=[f"rank {rank}" for rank in range(8)],
        count=8,
        evidence=[
            Evidence(source="plan.yaml", line=2, fact="parallel: {tensor: 4, pipeline: 2}"),
            Evidence(source="evidence/hostfile", line=1, fact="gpu-0000 slots=2"),
            Evidence(source="evidence/hostfile", line=2, fact="gpu-0001 slots=2"),
            Evidence(source="evidence/gpu-0000.txt", line=3, fact="4 GPUs joined by NV18"),
        ],
        fix="Give both nodes slots=4, so that ranks 0..3 start on gpu-0000 and ranks 4..7 on gpu-0001.",
    )


def _far_nic() -> ReportedFinding:
    """A warning with other evidence."""
    fact = "GPU3 mlx5_0 SYS"
    return finding(
        "Stage 0 sends from GPU 3 through mlx5_0, which lies behind the other socket.",
        severity="warning",
        subjects=["rank 3", "rank 7"],
        count=2,
        evidence=[Evidence(source="evidence/gpu-0000.txt", line=7, fact=fact)],
        fix="Set NCCL_IB_HCA=mlx5_3 for rank 3.",
    )


def _taken() -> ReportedFinding:
    """A GPU in use by someone else."""
    return finding(
        "Another process (pid 4242, user visitor) holds 61 GiB of GPU 3 on gpu-0000.",
        subjects=["rank 5"],
        count=1,
        evidence=[Evidence(source="evidence/gpu-0000-apps.csv", line=2, fact="4242, python, 62464 MiB")],
        fix="End pid 4242 or leave that GPU out.",
    )


def unknown_only() -> Report:
    """Nothing is wrong, much is not known."""
    placement = placed()
    nodes = [
        msgspec.structs.replace(node, seen=node.position == 0, shape=None, gpus=node.gpus[: 4 - 4 * number])
        for number, node in enumerate(placement.nodes)
    ]
    ranks = [
        rank if rank.rank < 4 else msgspec.structs.replace(rank, gpu=None, sources={})
        for rank in placement.ranks
    ]
    rules = {
        "EV001": unknown(by_id("EV001"), 0),
        "TP002": unknown(by_id("TP002"), 1),
        "PP003": unknown(by_id("PP003"), 1),
        "CAP001": msgspec.structs.replace(unknown(by_id("CAP001"), 0, 0), gaps=[], reason="no GPU was seen"),
    }
    gaps = [
        GapReport(
            need="any evidence of the node",
            about=["gpu-0001"],
            count=1,
            supply="topocheck probe > gpu-0001.json",
            rules=["EV001", "TP002"],
        ),
        GapReport(
            need="link classes between its GPUs",
            about=["gpu-0000", "gpu-0001"],
            count=2,
            supply="nvidia-smi topo -m > NODE-topo.txt",
            rules=["TP002", "PP003"],
        ),
    ]
    return report(
        "Not decided: gpu-0001 has not reported and no link evidence is there.",
        catalogue(rules),
        verdict="unknown",
        reason="nodes_missing",
        gaps=gaps,
        placement=msgspec.structs.replace(placement, nodes=nodes, ranks=ranks),
    )


def broken() -> Report:
    """A rule of topocheck itself broke."""
    change = {"verdict": "error", "passed": 0, "reason": "KeyError in tensor_group_in_one_domain"}
    rule = msgspec.structs.replace(by_id("TP001"), **change)
    return report(
        "Not decided: rule TP001 broke.",
        catalogue({"TP001": rule}),
        verdict="unknown",
        reason="internal_error",
    )


def swept(nodes: int, *, rows: int | None = None, marked: Sequence[int] = (), size: int = 8) -> Report:
    """A big job of `nodes` nodes, TP of one node and PP 4, with the groups of some nodes marked."""
    placement = placed(tensor=size, pipeline=4, data=nodes // 4, size=size, rows=rows)
    placement.marks.extend(
        GroupReport(
            rule="TP002",
            severity="error",
            ranks=list(range(node * size, (node + 1) * size)),
            kind="group",
        )
        for node in marked
    )
    rules: dict[str, RuleReport] = {}
    if marked:
        subjects = [f"group {node}" for node in marked[:20]]
        wrong = finding("A GPU without NVLink.", subjects=subjects, count=len(marked))
        rules["TP002"] = failed(by_id("TP002"), [wrong])
    sentence = f"{len(marked)} of {nodes} nodes have a GPU without NVLink." if marked else "All is well."
    verdict: Outcome = "fail" if marked else "pass"
    made = report(
        sentence,
        catalogue(rules),
        verdict=verdict,
        reason="findings" if marked else "passed",
        placement=placement,
    )
    return msgspec.structs.replace(made, job=f"vLLM 0.11.0, TP {size} x PP 4, {nodes} nodes")


def hostile(text: str) -> Report:
    """The failing job with one hostile text in every place that others can fill."""
    made = split_group()
    assert made.placement is not None
    evidence = Evidence(source=text, line=3, fact=text)
    wrong = finding(
        text, subjects=[text, f"{text} GPU 1"], count=9, evidence=[evidence], fix=text, cause=text
    )
    node = msgspec.structs.replace(made.placement.nodes[0], name=text, bound_by=text, domain=text)
    rank = msgspec.structs.replace(
        made.placement.ranks[0],
        node=text,
        gpu=text,
        coordinates={text: 0},
        sources={"claimed": Placing(node=text, gpu=text, source=text)},
    )
    placement = msgspec.structs.replace(
        made.placement,
        nodes=[node, *made.placement.nodes[1:]],
        ranks=[rank, *made.placement.ranks[1:]],
        unused=[text],
        shapes=[
            msgspec.structs.replace(made.placement.shapes[0], title=text, gpus=[text] * 4, nics=[text] * 4)
        ],
    )
    gap = GapReport(need=text, about=[text], count=3, supply=text, rules=[text])
    borne = msgspec.structs.replace(wrong, waiver=WaiverReport(reason=text, owner=text, expires=text))
    known = msgspec.structs.replace(wrong, known=True)
    waivers = [waiver_state(text, state) for state in ("used", "unused", "expired", "undecided")]
    gone = [GoneReport(rule=text, cause=text, subjects=[text], decided=decided) for decided in (True, False)]
    rule = msgspec.structs.replace(by_id("TP001"), id=text, name=text, family=text, reason=text)
    return msgspec.structs.replace(
        made,
        sentence=text,
        job=text,
        tool=text,
        at=text,
        assumptions=[text],
        notes=[text],
        gaps=[gap],
        inputs=[InputReport(name=text, kind=text, digest=text, hosts=[text], notes=[text])],
        rules=[failed(rule, [wrong, borne, known]), *made.rules[1:]],
        placement=placement,
        policy=[PolicyKey(key=text, value=text, source=text)],
        waivers=waivers,
        baseline=BaselineReport(name=text, at=text, digest=text, unlisted=1, gone=gone),
    )


def waiver_state(text: str, state: str) -> WaiverState:
    """A waiver of which everything that people write is this text."""
    return WaiverState(
        rule=text,
        scope=text,
        reason=text,
        owner=text,
        expires=text,
        source=text,
        state=state,  # type: ignore[arg-type]
        subjects=2,
        note=text,
        fix=text,
    )
