"""`topocheck verify --record`: what a kept record knows stands beside what plan and evidence show."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from evidence import PLAN
from test_cli_record import UNITS, job
from test_render_sections import Sections

from topocheck.cli.main import run
from topocheck.errors import UsageError
from topocheck.keptrecord import KeptRecord, completed
from topocheck.record import (
    NOT_MEASURED,
    Capacity,
    EnginePart,
    Interval,
    ParallelismPart,
    PerfPart,
    Record,
    Spread,
    StagePart,
    Unit,
)
from topocheck.report import Report

AT = "2026-01-02T03:04:05Z"
EMPTY = Record(schema="topocheck.record/1", tool="topocheck", at=AT)
SIZED = msgspec.structs.replace(EMPTY, parallelism=ParallelismPart(sizes={"tensor": 4, "pipeline": 2}))
MEASURED = msgspec.structs.replace(
    SIZED,
    engine=EnginePart(name="vllm", version="0.11.0"),
    perf=PerfPart(ttft_ms=Spread(mean=200.0)),
    unit=Unit(id="7", intervals=(Interval(stage=0, kind="compute", start_ms=0, end_ms=2.5),)),
    sources={"perf.ttft_ms.mean": "bench.json"},
)


def kept(record: Record) -> KeptRecord:
    return KeptRecord("run.yaml", "sha256:" + "0" * 64, record)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with a plan, evidence, and the record of a run after a change."""
    words = [Path(word).name if word.startswith(str(tmp_path)) else word for word in job(tmp_path)]
    monkeypatch.chdir(tmp_path)
    Path("units.jsonl").write_text("".join(json.dumps(unit) + "\n" for unit in UNITS), encoding="utf-8")
    words += ["--set", "parallelism.microbatches=2"]
    assert run([*words, "-o", "before.yaml"]) == 0
    assert run([*words, "--trace", "units.jsonl", "--before", "before.yaml", "-o", "run.yaml"]) == 0
    return tmp_path


def verified(*options: str) -> int:
    return run(["verify", "--at", AT, "--plan", "plan.yaml", "nodes.jsonl", *options])


def test_the_record_fills_token_waits_the_unit_and_the_change(folder: Path) -> None:
    assert verified("--html", "bare.html") == verified(
        "--record", "run.yaml", "--html", "r.html", "--json", "r.json"
    )
    bare, text = (Sections(Path(name).read_text()).text("record") for name in ("bare.html", "r.html"))
    assert "first token (mean) 200 ms run.yaml: bench.json" in text
    assert "200 ms" not in bare
    assert "Unit 1: Stage What Start End" in text
    assert "verdict run.yaml has 1.00 times the" in text
    record = msgspec.json.decode(Path("r.json").read_bytes(), type=Report).record
    assert record is not None
    assert not isinstance(record.change, str)
    open_fields = {one.field for one in record.missing}
    assert not open_fields & {"perf.ttft_ms.mean", "unit.id", "unit.intervals", "change"}
    assert "utilization.effective" in open_fields
    assert [one.name for one in record.inputs] == ["nodes.jsonl", "bench.json", "client.log"]


def test_a_kept_report_with_a_record_is_checked_with_it(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    verified("--record", "run.yaml", "--html", "r.html")
    assert run(["report", "check", "r.html", "nodes.jsonl"]) == 0, capfd.readouterr().out
    Path("moved").mkdir()
    for name in ("plan.yaml", "nodes.jsonl", "run.yaml"):
        shutil.move(name, Path("moved", name))
    assert run(["report", "check", "r.html", "moved"]) == 0, capfd.readouterr().out
    record = Path("moved/run.yaml")
    record.write_text(record.read_text().replace("mean: 200.0", "mean: 100.0"))
    assert run(["report", "check", "r.html", "moved"]) == 1
    assert "DIFFERS: r.html: input run.yaml is changed" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arrange", "words"),
    [
        (lambda: verified("--record", "run.yaml"), "give --html PATH or --json PATH too"),
        (lambda: verified("--record", "none.yaml", "--json", "x"), "none.yaml: cannot be read"),
        (lambda: verified("--record", "plan.yaml", "--json", "x"), "plan.yaml:1: no 'schema'"),
        (lambda: other(PLAN.replace("tensor: 4", "tensor: 2")), "run.yaml: is the record of another run"),
        (lambda: other(PLAN + "worlds: 2\n"), "a record is of one world, and the job has several"),
    ],
)
def test_a_record_that_cannot_be_used_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], arrange: Callable[[], int], words: str
) -> None:
    capfd.readouterr()
    assert arrange() == 2
    told = capfd.readouterr().err.splitlines()
    assert words in told[-1]
    assert len(told) == 1


def other(plan: str) -> int:
    """A run with another plan."""
    Path("plan.yaml").write_text(plan, encoding="utf-8")
    return verified("--record", "run.yaml", "--json", "x")


def test_what_the_evidence_shows_stays_and_the_note_names_both() -> None:
    mine = msgspec.structs.replace(SIZED, engine=EnginePart(name="vllm", version="0.12.0"))
    found = completed(mine, kept(MEASURED))
    assert found.engine.version == "0.12.0"
    assert "engine.version: 0.12.0 is taken, 0.11.0 by run.yaml is not" in found.notes
    assert found.perf.ttft_ms.mean == 200.0
    assert found.perf.ttft_ms.p99 == NOT_MEASURED
    assert found.sources == {
        "perf.ttft_ms.mean": "run.yaml: bench.json",
        "unit.id": "run.yaml",
        "unit.intervals": "run.yaml",
    }


def test_a_record_that_shows_nothing_of_the_job_is_said_to_prove_nothing() -> None:
    alone = msgspec.structs.replace(EMPTY, perf=MEASURED.perf)
    words = "run.yaml shows neither engine, sizes nor cards: that it is of this run is not proven"
    assert words in completed(SIZED, kept(alone)).notes
    assert words not in completed(SIZED, kept(MEASURED)).notes


@pytest.mark.parametrize("engine", ["sglang", "megatron"])
def test_a_record_of_another_engine_is_refused(engine: str) -> None:
    mine = msgspec.structs.replace(SIZED, engine=EnginePart(name=engine))
    with pytest.raises(UsageError, match=f"engine.name is vllm there, and {engine} here"):
        completed(mine, kept(MEASURED))


def test_bytes_of_two_sources_are_not_mixed_in_one_stage() -> None:
    reported = Capacity(source="vllm.log", weights_bytes=7, kv_bytes=9)
    its = (StagePart(stage=0, ranks="0..3", layers="0..15", capacity=reported),)
    for capacity, kv_bytes in (
        (Capacity(gpu_bytes=80), 9),
        (Capacity(source="arithmetic", weights_bytes=8), NOT_MEASURED),
    ):
        mine = msgspec.structs.replace(SIZED, stages=(StagePart(stage=0, ranks="0..3", capacity=capacity),))
        stages = completed(mine, kept(msgspec.structs.replace(MEASURED, stages=its))).stages
        assert isinstance(stages, tuple)
        [stage] = stages
        assert (stage.layers, stage.capacity.kv_bytes) == ("0..15", kv_bytes)
