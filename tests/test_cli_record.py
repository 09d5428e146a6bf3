"""`topocheck record` as a user runs it."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml
from evidence import PLAN, snapshot
from shell import Ran, topocheck
from test_pipeline_bench import sglang, vllm

from topocheck.cli.main import run
from topocheck.record import SCHEMA

AT = "2026-01-02T03:04:05Z"


class Cli(Protocol):
    """Runs topocheck in this process: a start of its own takes longer than all that it does here."""

    def __call__(self, *arguments: str | Path, stdin: str = "", cwd: Path | None = None) -> Ran: ...


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    def call(*arguments: str | Path, stdin: str = "", cwd: Path | None = None) -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        if cwd is not None:
            monkeypatch.chdir(cwd)
        capsys.readouterr()
        code = run(list(map(str, arguments)))
        told = capsys.readouterr()
        return Ran(code, told.out, told.err)

    return call


CLIENT = "Namespace(seed=0, num_prompts=4, dataset_name='random', num_warmups=16)\n"


def job(folder: Path, **changes: Any) -> list[str]:
    """Arguments that record a whole run; `changes` are those of the benchmark's result."""
    (folder / "plan.yaml").write_text(PLAN, encoding="utf-8")
    (folder / "nodes.jsonl").write_text(
        "".join(json.dumps(snapshot(node, software={"driver": "570.86.10"})) + "\n" for node in range(2)),
        encoding="utf-8",
    )
    (folder / "bench.json").write_text(json.dumps(vllm(**changes)), encoding="utf-8")
    (folder / "client.log").write_text(CLIENT, encoding="utf-8")
    plan, bench, client, nodes = (
        str(folder / name) for name in ("plan.yaml", "bench.json", "client.log", "nodes.jsonl")
    )
    return ["record", "--plan", plan, nodes, "--bench", bench, "--bench-log", client, "--at", AT]


def recorded(
    folder: Path, capsys: pytest.CaptureFixture[str], *options: str, **changes: Any
) -> dict[str, Any]:
    assert run([*job(folder, **changes), *options]) == 0
    found: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    return found


def test_a_run_is_recorded_as_yaml_with_what_is_missing_named(tmp_path: Path) -> None:
    ran = topocheck(
        *job(tmp_path), "--bench-limits", "ttft=500ms,tpot=30", "--set", "parallelism.microbatches=2"
    )
    assert ran.code == 0
    found = yaml.safe_load(ran.out)
    assert (found["schema"], found["at"], found["status"]) == (SCHEMA, AT, "not measured")
    assert found["hardware"]["cards"] == {"NVIDIA H200": 8}
    assert found["hardware"]["driver"] == "570.86.10"
    assert found["perf"]["goodput"]["limits"] == {"ttft_ms": 500.0, "tpot_ms": 30.0}
    assert found["perf"]["requests"]["single_token"] == 1
    assert (found["workload"]["seed"], found["workload"]["warmups"]) == (0, 16)
    assert found["utilization"]["bubble_estimate"]["share"] == 0.3333
    assert [one["kind"] for one in found["inputs"]] == ["topocheck snapshots", "benchmark", "client log"]
    assert all(len(one["digest"]) == len("sha256:") + 64 for one in found["inputs"])
    assert "  ttft_ms: {mean: 200.0, median: 150.0, p99: 400.0}" in ran.out.splitlines()
    assert ran.last.startswith("recorded: ")
    assert "fields not measured (status, " in ran.last


def test_the_same_input_gives_the_same_bytes_and_json_is_the_same_document(tmp_path: Path, cli: Cli) -> None:
    first, again = cli(*job(tmp_path)), cli(*job(tmp_path))
    assert first.out == again.out
    assert json.loads(cli(*job(tmp_path), "--json").out) == yaml.safe_load(first.out)


def test_a_record_is_written_whole_or_not_at_all(tmp_path: Path, cli: Cli) -> None:
    place = tmp_path / "run.yaml"
    ran = cli(*job(tmp_path), "-o", place)
    assert (ran.code, ran.out) == (0, "")
    assert ran.last.startswith(f"recorded in {place}: ")
    before = place.read_text(encoding="utf-8")
    (tmp_path / "bench.json").write_text("{", encoding="utf-8")
    ran = cli("record", "--bench", tmp_path / "bench.json", "-o", place)
    assert ran.code == 2
    assert place.read_text(encoding="utf-8") == before
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "bench.json",
        "client.log",
        "nodes.jsonl",
        "plan.yaml",
        "run.yaml",
    ]


def test_sglang_is_recorded_run_by_run(tmp_path: Path, cli: Cli) -> None:
    lines = [json.dumps(sglang(duration=float(seconds))) for seconds in (4, 5)]
    assert "Infinity" in lines[0]
    (tmp_path / "out.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ran = cli("record", "--bench", tmp_path / "out.jsonl", "--bench-run", "2")
    found = yaml.safe_load(ran.out)
    assert (found["engine"]["name"], found["engine"]["version"]) == ("sglang", "0.5.10")
    assert (found["perf"]["duration_s"], found["workload"]["request_rate"]) == (5.0, "inf")
    supplies = {one["field"]: one["supply"] for one in found["missing"]}
    assert supplies["requests"] == "sglang bench_serving with --output-details"
    assert cli("record", "--bench", tmp_path / "out.jsonl").last.endswith(
        "choose one with --bench-run 1 to 2"
    )


def test_standard_input_is_the_result(tmp_path: Path) -> None:
    ran = topocheck("record", "--bench", "-", stdin=json.dumps(vllm(mean_tpot_ms=math.nan)))
    assert yaml.safe_load(ran.out)["perf"]["tpot_ms"]["mean"] == "not measured"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "there is nothing to record"),
        (["--bench", "-", "-"], "- is given twice"),
        (["--bench", "missing.json"], "missing.json: cannot be read (No such file or directory)"),
        (
            ["--bench", "-", "--bench-limits", "ttft=5ms"],
            "expected both limits, for instance ttft=500ms,tpot=50ms",
        ),
        (["--bench", "-", "--bench-limits", "ttft=5ms,ttft=6ms"], "expected both limits"),
        (["--bench", "-", "--bench-limits", "ttft=5ms,tpot=soon"], "expected a time above zero"),
        (["--bench-limits", "ttft=5ms,tpot=6ms", "-"], "give --bench FILE"),
        (["--bench", "-", "--set", "workload.sed=3"], "did you mean workload.seed?"),
        (["--bench", "-", "--set", "workload.seed=x"], "expected a whole number"),
        (["--bench", "-", "--set", "perf.duration_s=3"], "what can be stated is"),
        (["--bench", "-", "--set", "model.precision="], "expected a short text"),
    ],
)
def test_bad_usage_is_one_sentence(arguments: list[str], words: str, tmp_path: Path, cli: Cli) -> None:
    ran = cli("record", *arguments, stdin=json.dumps(vllm()), cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.last
    assert ran.err.count("\n") == 1


def test_a_plan_of_several_worlds_is_refused(tmp_path: Path, cli: Cli) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("engine: vllm\nparallel: {tensor: 4}\nnodes: 2\nworlds: 2\n", encoding="utf-8")
    ran = cli("record", "--plan", plan)
    assert ran.code == 2
    assert "a record is of one world" in ran.last


def test_without_a_plan_the_evidence_shows_the_sizes(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "serve.sh").write_text(
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"
        "srun vllm serve acme/Blue-7B --tensor-parallel-size 4 --pipeline-parallel-size 2 --nnodes 2\n",
        encoding="utf-8",
    )
    found = yaml.safe_load(cli("record", tmp_path / "serve.sh").out)
    assert found["parallelism"]["sizes"] == {"tensor": 4, "pipeline": 2}
    assert found["engine"]["name"] == "vllm"
    assert found["sources"]["parallelism.sizes"] == "evidence"
    assert any("no plan was given" in note for note in found["notes"])


def test_evidence_that_shows_no_plan_gives_no_placement_and_says_why(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "nodes.jsonl").write_text(json.dumps(snapshot(0)) + "\n", encoding="utf-8")
    found = yaml.safe_load(cli("record", tmp_path / "nodes.jsonl").out)
    assert (found["mapping"], found["parallelism"]["sizes"]) == ("not measured", "not measured")
    assert [note[:14] for note in found["notes"]] == ["no placement: "]


def test_capacity_is_arithmetic_unless_the_engine_reported_it(tmp_path: Path, cli: Cli) -> None:
    arguments = job(tmp_path)
    sizes = {"num_hidden_layers": 8, "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16"}
    further = {"vocab_size": 1024, "intermediate_size": 1024, "tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps({**model, **sizes, **further}), encoding="utf-8")
    load = "workload: {max_sequences: 8, input_tokens: 64, output_tokens: 16, microbatches: 4}\n"
    (tmp_path / "plan.yaml").write_text(PLAN + "model: config.json\n" + load, encoding="utf-8")
    first, second = yaml.safe_load(cli(*arguments).out)["stages"]
    assert (first["layers"], second["layers"]) == ("0..3", "4..7")
    assert first["capacity"]["source"].startswith("arithmetic over the plan's model and workload")
    assert first["capacity"]["fits"] == second["capacity"]["fits"] == "yes"
    assert 0 < first["capacity"]["weights_bytes"] < first["capacity"]["gpu_bytes"]
    (tmp_path / "plan.yaml").write_text((PLAN + "model: config.json\n" + load).replace("vllm", "megatron"))
    trained = yaml.safe_load(cli(*arguments[:4]).out)["stages"]
    assert {stage["capacity"]["fits"] for stage in trained} == {"not measured"}  # states of the optimiser
    (tmp_path / "plan.yaml").write_text(PLAN + "model: config.json\n" + load, encoding="utf-8")
    log = tmp_path / "serve.log"
    log.write_text("(Worker_PP0_TP0 pid=7) INFO Model loading took 3.5 GiB memory\n", encoding="utf-8")
    first, second = yaml.safe_load(cli(*arguments, "--from-log", log).out)["stages"]
    assert first["capacity"]["weights_bytes"] == int(3.5 * 2**30)
    assert first["capacity"]["source"] == f"{log}: the engine's own report of its workers"
    assert second["capacity"]["source"].startswith("arithmetic")


UNITS = [
    {"unit": unit, "stage": stage, "host": "node-a", **times}
    for unit in range(3)
    for stage, times in (
        (
            0,
            {
                "compute_start_ms": 10 * unit,
                "compute_end_ms": 10 * unit + 4,
                "send_start_ms": 10 * unit + 4,
                "send_end_ms": 10 * unit + 5,
            },
        ),
        (
            1,
            {
                "receive_start_ms": 10 * unit + 2,
                "receive_end_ms": 10 * unit + 5,
                "compute_start_ms": 10 * unit + 5,
                "compute_end_ms": 10 * unit + 9,
            },
        ),
    )
]


def test_one_unit_of_work_is_followed_through_the_stages(tmp_path: Path, cli: Cli) -> None:
    trace = tmp_path / "units.jsonl"
    trace.write_text("".join(json.dumps(unit) + "\n" for unit in UNITS), encoding="utf-8")
    unit = yaml.safe_load(cli("record", "--trace", trace).out)["unit"]
    assert unit["id"] == "1"
    assert [tuple(one.values()) for one in unit["intervals"]] == [
        (0, "compute", 0.0, 4.0),
        (0, "send", 4.0, 5.0),
        (1, "receive", 2.0, 5.0),
        (1, "input ready", 5.0, 5.0),
        (1, "compute", 5.0, 9.0),
    ]
    assert yaml.safe_load(cli("record", "--trace", trace, "--unit", "2").out)["unit"]["id"] == "2"
    ran = cli("record", "--trace", trace, "--unit", "9")
    assert (ran.code, ran.last) == (2, "topocheck: --unit 9: no stage of the trace computed it")


def test_waits_of_another_form_are_refused(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "waits.json").write_text('{"schema": "topocheck.waits/1"}', encoding="utf-8")
    ran = cli("record", "--waits", "waits.json", cwd=tmp_path)
    assert ran.code == 2
    assert ran.last.startswith("topocheck: waits.json: is no answer of topocheck waits (")


def both(folder: Path, cli: Cli, **changes: Any) -> tuple[Path, Path]:
    """Records before and after microbatches were raised; `changes` are those of the second result."""
    first, second = folder / "a.yaml", folder / "b.yaml"
    for place, count, result in ((first, 2, {}), (second, 8, {"output_throughput": 6.5, **changes})):
        arguments = [*job(folder, **result), "--set", f"parallelism.microbatches={count}", "-o", str(place)]
        assert cli(*arguments).code == 0
    return first, second


def test_two_records_are_compared_in_words_and_as_json(tmp_path: Path, cli: Cli) -> None:
    first, second = both(tmp_path, cli)
    ran = cli("record", "compare", first, second)
    assert ran.code == 0
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["output", "tokens/s", "5", "6.5", "1.30"] in rows
    assert ["changed", "microbatches:", "2", "->", "8"] in rows
    assert max(map(len, ran.out.splitlines()), default=0) <= max(80, len(str(second)) + 11)
    assert ran.last.endswith("(5 -> 6.5), and 1.33 times is predicted: fill and drain explain it")
    found = json.loads(cli("record", "compare", first, second, "--json").out)
    assert (found["schema"], found["comparable"]) == ("topocheck.comparison/1", True)
    assert (found["measured_gain"], found["predicted_gain"]) == (1.3, 1.3333)


def test_unlike_records_are_refused_with_exit_2(tmp_path: Path, cli: Cli) -> None:
    first, second = both(tmp_path, cli)
    text = second.read_text(encoding="utf-8")
    second.write_text(text.replace("  seed: 0\n", "  seed: 5\n"), encoding="utf-8")
    ran = cli("record", "compare", first, second)
    assert (ran.code, ran.out) == (2, "")
    assert f"the seed (workload.seed) is 0 in {first} and 5 in {second}" in ran.last


def test_a_condition_that_is_not_known_is_exit_3_unless_allowed(tmp_path: Path, cli: Cli) -> None:
    first, second = both(tmp_path, cli)
    text = second.read_text(encoding="utf-8")
    second.write_text(text.replace("  seed: 0\n", "  seed: not measured\n"), encoding="utf-8")
    ran = cli("record", "compare", first, second)
    assert (ran.code, ran.out) == (3, "")
    assert ran.last.startswith(f"not comparable: workload.seed not measured in {second}")
    allowed = cli("record", "compare", first, second, "--allow-unknown")
    assert allowed.code == 0
    assert "taken for equal, as asked" in allowed.out


def test_a_bad_record_is_refused_with_its_line(tmp_path: Path, cli: Cli) -> None:
    first, second = both(tmp_path, cli)
    text = second.read_text(encoding="utf-8")
    second.write_text(text.replace("  seed: 0\n", "  sead: 0\n"), encoding="utf-8")
    line = text[: text.index("  seed: 0\n")].count("\n") + 1
    ran = cli("record", "compare", first, second)
    assert ran.code == 2
    assert f"{second}:{line}: unknown key 'sead' in workload: did you mean 'seed'?" in ran.last


def test_the_gain_of_the_change_is_kept_in_the_second_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cli: Cli
) -> None:
    first, _ = both(tmp_path, cli)
    options = ["--set", "parallelism.microbatches=8", "--before", str(first)]
    found = recorded(tmp_path, capsys, *options, output_throughput=6.5)
    assert found["change"]["changed"] == ["microbatches: 2 -> 8"]
    assert (found["change"]["measured_gain"], found["change"]["predicted_gain"]) == (1.3, 1.3333)
    assert found["change"]["before"].startswith(f"{first}, sha256:")
    assert "change" not in [one["field"] for one in found["missing"]]
    unlike = [
        *job(tmp_path),
        "--before",
        str(first),
        "--set",
        "model.version=x",
        "--set",
        "workload.dataset=random",
    ]
    assert run(unlike) == 0  # what one record alone knows beyond the needed conditions is no difference
    (tmp_path / "client.log").write_text(CLIENT.replace("seed=0", "seed=1"), encoding="utf-8")
    capsys.readouterr()
    assert run([*unlike[: unlike.index("--before")], "--before", str(first)]) == 2
    assert "the seed (workload.seed) is 0" in capsys.readouterr().err


def test_compare_has_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record", "compare", "--help"]) == 0
    out = capsys.readouterr().out
    assert (
        out.startswith("Usage: topocheck record compare [OPTIONS] BEFORE AFTER") or " record compare [" in out
    )
    assert max(map(len, out.splitlines())) <= 80
