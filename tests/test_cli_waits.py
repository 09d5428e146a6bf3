"""`topocheck waits` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import msgspec
import pytest
from pipeline_runs import Line, as_text, blocking
from profiler_traces import write_profiles
from shell import clean_environment, topocheck

from topocheck.schema import schema_for
from topocheck.snapshot import SCHEMA, Clock, FullSnapshot, Hardware, Host, Identity, State

SLOW_STAGE = blocking([20, 60, 20])


def file_of(folder: Path, lines: list[Line], name: str = "units.jsonl") -> Path:
    path = folder / name
    path.write_bytes(as_text(lines))
    return path


def test_a_report_reads_from_the_sentence_to_the_evidence(tmp_path: Path) -> None:
    ran = topocheck("waits", file_of(tmp_path, SLOW_STAGE))
    assert (ran.code, ran.err) == (0, "")
    words = " ".join(ran.out.split())
    for fact in (
        "Stage 1 is uneven: it computes longer on a unit than the stages that wait for it (39.1 % of",
        "1 60 ms 91.8 % 5.1 % 0.0 % 3.1 % 0.0 % 784 ms",
        "bubble of 3 equal stages and 12 units: 14.3 % idle; measured 49.0 %: much more than the bubble",
        "evidence median on a unit: stage 1 60 ms, stage 0 20 ms, stage 2 20 ms",
        "no input makes results come faster than every 60 ms",
        "do move layers from stage 1 to others",
        "cost by hand and bound by divisibility",
        "no cure more concurrency: it turns waiting into queueing",
        "stage 1 ..[0>>].[1>>][2>>>]",
    ):
        assert fact in words
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize(
    "lines",
    [
        blocking(
            [20] * 3, link_ms=[1, 80], arrival_ms=200, hosts=["a-very-long-host-name-of-rack-1"] * 2 + ["b"]
        ),
        blocking([1] * 40, units=3),
        blocking([20], units=1),
    ],
)
def test_every_report_fits_eighty_columns(tmp_path: Path, lines: list[Line]) -> None:
    out = topocheck("waits", file_of(tmp_path, lines)).out
    assert out
    assert [line for line in out.splitlines() if len(line) > 80] == []


def test_json_fits_its_schema_and_is_the_same_each_time(tmp_path: Path) -> None:
    path = file_of(tmp_path, SLOW_STAGE)
    ran = topocheck("waits", path, "--json")
    assert ran.out == topocheck("waits", path, "--json").out
    document = json.loads(ran.out)
    jsonschema.Draft202012Validator(schema_for("waits")).validate(document)
    assert (document["schema"], document["status"]) == ("topocheck.waits/1", "imbalance")


def test_units_may_come_by_standard_input_and_in_several_files(tmp_path: Path) -> None:
    assert "Stage 1 is uneven" in topocheck("waits", "-", stdin=as_text(SLOW_STAGE)).out
    hosted = [line | {"host": "blue-1"} for line in SLOW_STAGE]
    files = [
        file_of(tmp_path, [line for line in hosted if line["stage"] == stage], f"{stage}.jsonl")
        for stage in range(3)
    ]
    assert "Stage 1 is uneven" in topocheck("waits", *files).out
    assert "Stage 1 is uneven" in topocheck("waits", tmp_path).out


def test_too_much_unknown_is_no_verdict(tmp_path: Path) -> None:
    lines = [{k: v for k, v in line.items() if k != "ready_ns"} for line in blocking([20] * 2, arrival_ms=90)]
    ran = topocheck("waits", file_of(tmp_path, lines))
    assert ran.code == 3
    assert "Not decided: " in ran.out
    assert "give ready_ns" in " ".join(ran.out.split())


def test_ranks_come_from_a_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("engine: vllm\nparallel: {tensor: 2, pipeline: 3}\nnodes: 3\n")
    folder = tmp_path / "traces"
    folder.mkdir()
    write_profiles(folder, SLOW_STAGE, "nccl", stage_ranks=[1, 3, 5])
    found = json.loads(topocheck("waits", folder, "--from-plan", plan, "--json").out)
    assert [stage["rank"] for stage in found["stages"]] == [1, 3, 5]
    plan.write_text("engine: vllm\nparallel: {tensor: 1, pipeline: 4}\nnodes: 4\n")
    missing = topocheck("waits", folder, "--from-plan", plan)
    assert (missing.code, missing.out) == (2, "")
    assert "holds no rank 0: stages are the ranks 0, 1, 2, 3" in missing.last
    fewer = topocheck("waits", file_of(tmp_path, SLOW_STAGE), "--from-plan", plan)
    assert f"has 3 stages, and {plan} has 4: give the traces of all stages" in fewer.last


def test_snapshots_bring_clocks_together(tmp_path: Path) -> None:
    hosts = ["blue-1", "blue-2"]
    path = file_of(tmp_path, blocking([20, 60], hosts=hosts))
    snapshots = tmp_path / "nodes.jsonl"
    clock = Clock(synchronised=True, error_seconds=1e-6, most_error_seconds=1e-4)
    snapshots.write_bytes(
        b"\n".join(
            msgspec.json.encode(
                FullSnapshot(
                    schema=SCHEMA,
                    identity=Identity(host=Host(name=f"{host}.example.net")),
                    hardware=Hardware(),
                    state=State(clock=clock),
                )
            )
            for host in hosts
        )
    )
    apart = json.loads(topocheck("waits", path, "--json").out)
    together = json.loads(topocheck("waits", path, "--clocks", snapshots, "--json").out)
    assert [clock["basis"] for clock in apart["clocks"]] == ["reference", "unknown"]
    assert [clock["basis"] for clock in together["clocks"]] == ["reference", "snapshots"]
    assert (apart["status"], together["status"]) == ("unknown", "imbalance")
    shown = " ".join(topocheck("waits", path, "--clocks", snapshots).out.split())
    assert "clock blue-2: " in shown
    assert "by snapshots" in shown


def test_depth_is_read_from_times_or_result_files(tmp_path: Path) -> None:
    result = tmp_path / "pp4.json"
    result.write_text('{"completed": 8, "duration": 3, "median_ttft_ms": 390, "median_tpot_ms": 25}')
    ran = topocheck("waits", "--bench", "1=200,24", "--bench", "2=260 ms,24ms", "--bench", f"4={result}")
    assert ran.code == 0
    words = " ".join(ran.out.split())
    assert "depth: the pipeline is deep: each stage delays the first token, the time per token stays" in words
    assert "time to first token: 200 ms with 1, 260 ms with 2, 390 ms with 4" in words
    path = file_of(tmp_path, SLOW_STAGE)
    both = topocheck("waits", path, "--bench", "1=200,24", "--bench", "2=260,24", "--json")
    assert [one["kind"] for one in json.loads(both.out)["findings"]] == ["neighbour", "depth"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give the traces of the stages, or --bench once for each depth"),
        (["/no/such/file"], "/no/such/file: cannot be read (No such file or directory)"),
        (["/dev/null"], "/dev/null: is empty"),
        ([__file__], "is neither units of work nor a trace of the PyTorch profiler"),
        (["units.jsonl", "--ranks", "1,1"], "--ranks must be different ranks such as 0,4,8"),
        (["units.jsonl", "--ranks", "x"], "--ranks must be different ranks"),
        (["units.jsonl", "--ranks", "0", "--from-plan", "p"], "both say which rank is which stage"),
        (["units.jsonl", "--ranks", "0,1"], "has 3 stages, and --ranks has 2"),
        (["units.jsonl", "--skip", "12"], "--skip 12 leaves no unit of some stage"),
        (["units.jsonl", "--bench", "4=1,2"], "give --bench once for each"),
        (["units.jsonl", "--clocks", "/no/such"], "/no/such: cannot be read"),
        (["units.jsonl", "units.jsonl"], "stands here and in line 1"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(tmp_path: Path, arguments: list[str], message: str) -> None:
    file_of(tmp_path, SLOW_STAGE)
    ran = topocheck("waits", *arguments, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.last
    assert "Traceback" not in ran.err


def test_escapes_of_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    lines = [line | {"host": "\x1b[31mred", "unit": f"\x1b]0;{line['unit']}\x07"} for line in SLOW_STAGE]
    ran = topocheck("waits", file_of(tmp_path, lines, "units\x1b[2J.jsonl"))
    assert ran.code == 0
    assert "\x1b" not in ran.out
    twice = topocheck("waits", file_of(tmp_path, [*lines, *lines]))
    assert twice.code == 2
    assert "\x1b" not in twice.err


def test_a_large_trace_takes_bounded_memory(tmp_path: Path) -> None:
    (path, *others) = write_profiles(tmp_path, SLOW_STAGE)
    filler = '{"ph": "X", "cat": "python_function", "name": "layer.py(12): forward", "ts": 1.0, "dur": 1.0},'
    head, _, tail = path.read_text().partition('"traceEvents": [')
    with path.open("w") as file:
        file.write(f'{head}"traceEvents": [')
        for _ in range(60):
            file.write(filler * 10_000)
        file.write(tail)
    size = path.stat().st_size
    assert size > 50 << 20
    # A process of its own tells how much it took at most (VmHWM: rusage would count this process too, which
    # it was forked from); the decoded file would take several times its size.
    script = (
        "import sys; from topocheck.cli.main import run; code = run(['waits', *sys.argv[1:]]); "
        "most = open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]; "
        "print(int(most) * 1024); sys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(path), *map(str, others)],
        capture_output=True,
        check=True,
        text=True,
        env=clean_environment(),
    )
    assert "Stage 1 is uneven" in ran.stdout
    assert int(ran.stdout.split()[-1]) < 3 * size
