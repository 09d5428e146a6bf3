"""Reports with hardware, pipeline, record and audit, made by the real command or by hand, for their tests."""

from __future__ import annotations

from pathlib import Path

import msgspec
import sample_report
from shell import Ran, topocheck

from topocheck.demo.job import TAKEN_AT
from topocheck.pipelinereport import (
    BalancePart,
    BubblePart,
    CrossingPart,
    LackingPart,
    PipelineReport,
    StageShare,
    TransferPart,
)
from topocheck.record import (
    Capacity,
    Change,
    Figure,
    HardwarePart,
    Interval,
    Missing,
    Record,
    StagePart,
    Unit,
)
from topocheck.report import AuditReport, DeviceReport, InputReport, OptionReport, Report, ShapeReport

__all__ = ["CONFIG", "WORKLOAD", "many_shapes", "measured", "pipelined", "read_report", "spoiled", "worked"]

CONFIG = """\
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
 "intermediate_size": 14336,
 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
 "vocab_size": 128256, "head_dim": 128, "tie_word_embeddings": false,
 "torch_dtype": "bfloat16", "hidden_act": "silu"}
"""
WORKLOAD = """\
model: model/config.json
workload:
  {microbatches: 8, max_sequences: 64, input_tokens: 2048, output_tokens: 256, max_batched_tokens: 2048}
policy: {bubble: 0.1, imbalance: 0.3, prefill_boundary_ms: 2, decode_boundary_ms: 0.00001}
"""


def worked(folder: Path, more: str = WORKLOAD) -> tuple[Path, Path]:
    """Plan with model and workload, and evidence, of the demo's running job."""
    topocheck("demo", "running", "-o", folder)
    plan = folder / "plan.yaml"
    kept = [line for line in plan.read_text().splitlines() if not line.startswith("model:")]
    plan.write_text("\n".join([*kept, more]))
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(CONFIG)
    return plan, folder / "evidence"


def read_report(plan: Path, evidence: Path, *options: str, env: dict[str, str] | None = None) -> Report:
    """The report of a run of the command."""
    ran: Ran = topocheck(
        "verify", "--at", TAKEN_AT, "--plan", plan, evidence, "--json", "-", *options, env=env
    )
    return msgspec.json.decode(ran.out, type=Report)


def pipelined(stages: int = 4, microbatches: int = 8, text: str = "node-a - node-b") -> PipelineReport:
    """The arithmetic of some stages; what it says of others is `text`."""
    transfer = TransferPart(
        phase="prefill", rows=(1, 64), rank_bytes=(1024, 65536), time_ms=(0.5, 2.5), limit_ms=1.0
    )
    return PipelineReport(
        stages=stages,
        bubble=BubblePart(
            schedule="forward", microbatches=microbatches, virtual_stages=1, idle=0.25, limit=0.1
        ),
        balance=BalancePart(
            stages=[
                StageShare(stage=n, layers=8, ends=[text], reads_bytes=1 << 30, holds_bytes=2 << 30)
                for n in range(stages)
            ],
            imbalance=0.5,
            holds_imbalance=0.5,
            limit=0.2,
            override=text,
        ),
        boundaries=[CrossingPart(about=text, count=3, link=text, transfers=[transfer], assumptions=[text])],
        boundaries_left=0,
        lacking=[LackingPart(part="bubble", need=text, supply=text)],
    )


def measured(text: str = "what the trace shows") -> Record:
    """A record of which some of everything is known, its texts all `text`."""
    empty = Record(schema="topocheck.record/1", tool="topocheck", at="2031-03-04T05:06:07Z")
    figure = Figure(share=0.25, source=text, means=text)
    return msgspec.structs.replace(
        empty,
        engine=msgspec.structs.replace(empty.engine, name=text, version=text),
        hardware=HardwarePart(cards={text: 8}, nodes=(text,) * 20, driver=text),
        utilization=msgspec.structs.replace(empty.utilization, occupancy=(figure,), bubble_estimate=figure),
        stages=(
            StagePart(
                stage=0,
                layers=text,
                modules=(text,),
                ranks=text,
                capacity=Capacity(source=text, fits="yes", weights_bytes=3 << 30),
            ),
        ),
        unit=Unit(id=text, intervals=(Interval(stage=0, kind=text, start_ms=0, end_ms=1.5),)),
        change=Change(before=text, changed=(text,), measured_gain=1.25, verdict=text),
        sources={"engine.name": text},
        missing=(
            Missing(field="perf.ttft_ms.mean", supply=text),
            Missing(field="stages[].layers", supply=text),
        ),
        notes=(text,),
    )


def spoiled(text: str) -> Report:
    """A report with one text in every place that others can fill, of the sections too."""
    made = sample_report.hostile(text)
    assert made.placement is not None
    shape = made.placement.shapes[0]
    devices = [DeviceReport(name=text, layer=text, rate_gbps=400.0, state=text, numa=0) for _ in range(4)]
    odd = msgspec.structs.replace(
        shape,
        devices=devices,
        links=[["X", "NV18", "SYS", text] for _ in range(4)],
        nic_links=[[text, "PIX", "SYS", None] for _ in range(4)],
        near=[[text]] * 4,
        numa=[0, 0, None, 1],
        differs=[text],
    )
    placement = msgspec.structs.replace(made.placement, shapes=[odd, odd])
    file = InputReport(name=text, kind=text, digest=text, hosts=[text], notes=[text])
    return msgspec.structs.replace(
        made,
        placement=placement,
        pipeline=pipelined(text=text),
        record=measured(text),
        audit=AuditReport(
            plan="file",
            plan_digest=text,
            files=[file],
            options=[OptionReport(name=text, value=text, source="command line")],
            build=text,
        ),
    )


def many_shapes(nodes: int = 12_500, shapes: int = 50) -> Report:
    """A big job whose nodes have many shapes, one of them that of most."""
    made = sample_report.swept(nodes - nodes % 4, rows=512)
    assert made.placement is not None
    usual = made.placement.shapes[0]
    odd = [
        msgspec.structs.replace(usual, title=f"odd shape {n}", nodes=1, differs=[f"GPU {n} otherwise"])
        for n in range(1, shapes)
    ]
    count = len(made.placement.nodes)
    known: list[ShapeReport] = [msgspec.structs.replace(usual, nodes=count - shapes + 1, usual=True), *odd]
    placed = [
        msgspec.structs.replace(
            node, shape=node.position // 3 if node.position in range(3, 3 * shapes, 3) else 0
        )
        for node in made.placement.nodes
    ]
    return msgspec.structs.replace(
        made, placement=msgspec.structs.replace(made.placement, nodes=placed, shapes=known)
    )
