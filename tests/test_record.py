"""Records: filled from evidence, written as YAML, read back strictly."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from build import FOUR, TWO, inventory, pair, placed, running, snap
from hypothesis import given, settings
from hypothesis import strategies as st
from recording import run
from test_pipeline_bench import vllm

from topocheck.errors import InputError, UsageError
from topocheck.pipeline.bench import parse_bench
from topocheck.pipeline.clientlog import parse_client_log
from topocheck.pipeline.memorylog import StartUp, parse_start_up
from topocheck.pipeline.microbatches import InForce, parse_in_force
from topocheck.pipeline.utilization import parse_utilization
from topocheck.pipeline.waits_report import SCHEMA as WAITS
from topocheck.pipeline.waits_report import BubbleCheck, StageWaits, WaitsReport
from topocheck.placement import Placement
from topocheck.record import NOT_MEASURED, SCHEMA, Figure, Limits, Record, fields
from topocheck.recorded import Given, record_of
from topocheck.recordfile import parse_record, to_yaml
from topocheck.schema import schema_for
from topocheck.snapshot import At, FullSnapshot, Hardware, JobFact, Software

FEW = settings(max_examples=50, deadline=None)
AT = "2026-01-02T03:04:05Z"
MODEL = "model: {layers: 61, hidden: 7168}\n"


def filled(placement: Placement | None = None, **given_values: Any) -> Record:
    place = inventory() if placement is None else placement.inventory
    return record_of(Given(inventory=place, placement=placement, plan="plan.yaml", **given_values), AT)


def supply(record: Record, path: str) -> str:
    return next(one.supply for one in record.missing if one.field == path)


def of_bench(**changes: Any) -> tuple[str, Any]:
    return "bench.json", parse_bench(json.dumps(vllm(**changes)), "bench.json")


def bare_bench() -> tuple[str, Any]:
    lists = ("input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors")
    values = {key: value for key, value in vllm().items() if key not in lists}
    return "bench.json", parse_bench(json.dumps(values), "bench.json")


def with_software(driver: str, cuda: str) -> list[FullSnapshot]:
    return [
        snap(name, ranks, software=Software(driver=driver, cuda=cuda))
        for name, ranks in (("node-a", range(4)), ("node-b", range(4, 8)))
    ]


def test_an_empty_record_is_not_measured_all_through_and_says_what_would_fill_it() -> None:
    found = filled()
    open_fields = [path for path, value in fields(found).items() if value == NOT_MEASURED]
    assert [one.field for one in found.missing] == open_fields
    assert len(open_fields) > 50
    assert all(one.supply for one in found.missing)
    assert supply(found, "workload.seed").startswith("--bench-log LOG")
    assert found.status == NOT_MEASURED


def test_plan_and_evidence_give_cards_links_sizes_and_places() -> None:
    found = filled(placed(TWO + MODEL, *with_software(driver="570.86.10", cuda="12.8")))
    assert found.hardware.cards == {"NVIDIA H100 80GB HBM3": 8}
    assert found.hardware.nodes == ("node-a", "node-b")
    assert (found.hardware.driver, found.hardware.cuda) == ("570.86.10", "12.8")
    assert found.hardware.interconnect.tensor == "NV18"
    assert found.hardware.interconnect.boundary == "InfiniBand 400 Gbit/s"
    assert found.parallelism.sizes == {"tensor": 4, "pipeline": 2}
    assert list(found.parallelism.sizes) == ["tensor", "pipeline"]
    assert (found.parallelism.ranks, found.parallelism.pipeline, found.parallelism.placement) == (
        8,
        2,
        "claimed",
    )
    assert [
        (stage.layers, stage.modules, stage.ranks) for stage in found.stages if not isinstance(stage, str)
    ] == [
        ("0..30", ("embedding",), "0..3"),
        ("31..60", ("final norm", "head"), "4..7"),
    ]
    fifth = found.mapping[5]
    assert not isinstance(fifth, str)
    assert (fifth.rank, fifth.stage, fifth.node) == (5, 1, "node-b")
    assert fifth.gpu.startswith("GPU-")
    assert found.sources["hardware.interconnect.boundary"] == "ports that are up"


def test_transports_that_were_seen_go_before_ports() -> None:
    found = filled(placed(TWO, *pair(), *running()))
    assert found.hardware.interconnect.boundary == "NET/IB with GPUDirect RDMA"
    assert found.hardware.nccl == "2.27.5"
    assert found.parallelism.placement == "observed"


def test_cards_of_one_node_of_two_are_no_cards_of_the_job() -> None:
    found = filled(placed(TWO, snap("node-a", range(4), software=Software(driver="570.86.10"))))
    assert (found.hardware.cards, found.hardware.driver) == (NOT_MEASURED, NOT_MEASURED)


def test_versions_that_differ_are_all_told() -> None:
    views = [
        snap("node-a", range(4), software=Software(driver="570.86.10")),
        snap("node-b", range(4, 8), software=Software(driver="560.35.05")),
    ]
    found = filled(placed(TWO, *views))
    assert found.hardware.driver == "560.35.05 and 570.86.10"
    assert "driver differs: 570.86.10 on node-a, 560.35.05 on node-b" in found.notes


def test_a_predicted_mapping_says_so() -> None:
    found = filled(placed(TWO))
    assert found.parallelism.placement == "predicted"
    assert [seat.node for seat in found.mapping if not isinstance(seat, str)] == ["node-a"] * 4 + [
        "node-b"
    ] * 4
    assert any(
        note.startswith("assumed: ranks are where the engine's formula puts them") for note in found.notes
    )


def test_one_stage_has_no_bubble_and_no_boundary() -> None:
    found = filled(placed(FOUR, snap("node-a", range(4), size=4)))
    assert found.hardware.interconnect.boundary == "none: one stage"
    estimate = found.utilization.bubble_estimate
    assert not isinstance(estimate, str)
    assert estimate.share == 0.0
    assert found.parallelism.microbatches == NOT_MEASURED


def test_evidence_goes_before_the_plan_and_the_other_is_noted() -> None:
    told = JobFact(kind="engine-version", value="0.25.1", engine="vllm", at=At(source="serve.log", line=9))
    found = filled(placed('engine_version: "0.24.0"\n' + TWO, *pair(job=(told,))))
    assert (found.engine.version, found.sources["engine.version"]) == ("0.25.1", "serve.log:9")
    assert "engine.version: 0.25.1 by serve.log:9 is taken, 0.24.0 by plan.yaml is not" in found.notes


def test_facts_that_contradict_each_other_are_left_out() -> None:
    told = tuple(
        JobFact(kind="option", name="--max-num-seqs", value=value, at=At(source="serve.log", line=4))
        for value in ("64", "128")
    )
    found = filled(placed(TWO, *pair(job=told)))
    assert found.workload.max_sequences == NOT_MEASURED
    assert "workload.max_sequences is left out: the evidence has 64 and 128" in found.notes


def test_a_benchmark_gives_times_requests_and_goodput() -> None:
    found = filled(bench=of_bench(), limits=Limits(ttft_ms=500.0, tpot_ms=30.0))
    assert (found.model.name, found.workload.requests, found.workload.request_rate) == (
        "acme/Blue-7B",
        4,
        "inf",
    )
    assert found.workload.max_concurrency == "unlimited"
    done = found.perf.requests
    assert (done.completed, done.failed, done.timed_out, done.unfinished, done.single_token) == (
        3,
        1,
        1,
        0,
        1,
    )
    assert (found.perf.ttft_ms.median, found.perf.tpot_ms.p99) == (150.0, 40.0)
    assert not isinstance(found.perf.goodput, str)
    assert (found.perf.goodput.within, found.perf.goodput.of, found.perf.goodput.single_token_within) == (
        1,
        3,
        1,
    )
    assert found.perf.goodput.requests_per_s == 0.5
    assert not isinstance(found.requests, str)
    assert [one.end for one in found.requests] == ["completed", "completed", "completed", "timed out"]
    assert [one.tpot_ms for one in found.requests] == [20.0, NOT_MEASURED, 40.0, NOT_MEASURED]


def test_without_lists_the_option_that_writes_them_is_named() -> None:
    found = filled(bench=bare_bench(), limits=Limits(ttft_ms=500.0, tpot_ms=30.0))
    assert (found.perf.goodput, found.requests, found.perf.requests.single_token) == (NOT_MEASURED,) * 3
    assert supply(found, "perf.goodput") == "vllm bench serve with --save-detailed and --bench-limits"
    assert supply(found, "requests") == "vllm bench serve with --save-detailed"


def test_without_limits_goodput_asks_for_them() -> None:
    assert supply(filled(bench=of_bench()), "perf.goodput").startswith("--bench-limits ttft=500ms,tpot=50ms")


def test_goodput_of_the_tool_itself_is_no_goodput_under_known_limits() -> None:
    found = filled(bench=of_bench(request_goodput=1.25))
    assert found.perf.goodput == NOT_MEASURED
    assert any(
        "1.25 requests/s, is left out: its limits are not in bench.json" in note for note in found.notes
    )


def test_the_client_log_gives_seed_and_warmups() -> None:
    told = parse_client_log("Namespace(seed=0, num_warmups=16, dataset_name='random')\n", "client.log")
    found = filled(client=("client.log", told))
    assert (found.workload.seed, found.workload.warmups, found.workload.dataset) == (0, 16, "random")
    assert found.sources["workload.seed"] == "client.log:1"


def test_microbatches_in_force_come_from_the_log_before_the_plan() -> None:
    log = parse_in_force("--pipeline-parallel-size 2 --ubatch-size 4\n", "serve.log")
    text = TWO + "workload: {microbatches: 8, max_sequences: 64}\n"
    found = filled(placed(text), logs=[("serve.log", log, StartUp())])
    assert (found.parallelism.microbatches, found.workload.max_sequences) == (4, 64)
    assert found.sources["parallelism.microbatches"].startswith("serve.log:1: vLLM: ubatch_size")
    estimate = found.utilization.bubble_estimate
    assert not isinstance(estimate, str)
    assert estimate.share == 0.2
    assert estimate.source == "own arithmetic: 2 equal stages, 4 microbatches"


VLLM = (
    "(EngineCore pid=7) INFO 01-02 03:04:05 [core.py:93] Initializing a V1 LLM engine (v0.24.0) with config: "
    "model='acme/Blue-7B', dtype=torch.bfloat16, tensor_parallel_size=4, pipeline_parallel_size=2, "
    "quantization=fp8, seed=0\n"
    "(Worker_PP0_TP0 pid=11) INFO [gpu_model_runner.py:4879] Model loading took 31.5 GiB memory and 60 s\n"
    "(Worker_PP0_TP1 pid=12) INFO [gpu_model_runner.py:4879] Model loading took 32.0 GiB memory and 60 s\n"
    "(Worker_PP1_TP0 pid=13) INFO [gpu_model_runner.py:4879] Model loading took 30 GiB memory and 60 s\n"
    "(Worker_PP0_TP0 pid=11) INFO [gpu_worker.py:440] Available KV cache memory: 20.25 GiB\n"
    "(Worker_PP0_TP1 pid=12) INFO [gpu_worker.py:440] Available KV cache memory: 20.50 GiB\n"
    "(Worker_PP1_TP0 pid=13) INFO [gpu_worker.py:440] Available KV cache memory: -2.81 GiB\n"
)
SGLANG = (
    "[2026-01-02 03:04:05 PP0 TP1] Load weight end. type=BlueForCausalLM, dtype=torch.bfloat16, "
    "avail mem=63.48 GB, mem usage=15.11 GB.\n"
    "[2026-01-02 03:04:06 PP1 TP1] KV Cache is allocated. #tokens: 442, K size: 27.02 GB, V size: 27.02 GB\n"
    "[2026-01-02 03:04:06] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 52428, KV size: 17.00 GB\n"
)
GIB = 1 << 30


def test_engines_report_the_memory_of_each_stage() -> None:
    found = parse_start_up(VLLM)
    assert found.weights_bytes == {0: 32 * GIB, 1: 30 * GIB}
    assert found.cache_bytes == {0: int(20.25 * GIB), 1: 0}
    assert found.precision == "fp8"
    found = parse_start_up(SGLANG)
    assert found.weights_bytes == {0: round(15.11 * GIB)}
    assert found.cache_bytes == {1: round(54.04 * GIB), None: 17 * GIB}
    assert found.precision == "bfloat16"
    assert parse_start_up("INFO Model loading took 15.2 GiB and 8.34 seconds\n").weights_bytes == {
        None: round(15.2 * GIB)
    }


def test_the_engine_s_own_report_is_the_evidence_that_a_stage_fits() -> None:
    sized = [
        snap(name, ranks, hardware=large(name))
        for name, ranks in (("node-a", range(4)), ("node-b", range(4, 8)))
    ]
    found = filled(placed(TWO, *sized), logs=[("serve.log", InForce(), parse_start_up(VLLM))])
    first, second = (stage.capacity for stage in found.stages if not isinstance(stage, str))
    assert (first.weights_bytes, first.kv_bytes, first.gpu_bytes) == (32 * GIB, int(20.25 * GIB), 80 * GIB)
    assert (first.fits, second.fits) == ("yes", "no")
    assert first.source == "serve.log: the engine's own report of its workers"
    assert found.model.precision == "fp8"


def large(name: str) -> Hardware:
    """Hardware of a healthy node whose GPUs show 80 GiB."""
    shown = snap(name).hardware
    return msgspec.structs.replace(
        shown, gpus=tuple(msgspec.structs.replace(gpu, memory_bytes=80 * GIB) for gpu in shown.gpus)
    )


@FEW
@given(st.sampled_from([VLLM, SGLANG]), st.integers(0, 900), st.text(max_size=9))
def test_no_log_breaks_the_reader_of_memory(text: str, place: int, noise: str) -> None:
    found = parse_start_up(text[:place] + noise + text[place:])
    assert all(size >= 0 for size in [*found.weights_bytes.values(), *found.cache_bytes.values()])


def test_every_figure_of_utilisation_names_its_source() -> None:
    smi = parse_utilization("utilization.gpu [%]\n97 %\n93 %\n", "smi.csv")
    dcgm = parse_utilization('DCGM_FI_PROF_SM_ACTIVE{gpu="0"} 0.25\n', "dcgm.txt")
    found = filled(utilization=[("smi.csv", smi[0]), ("dcgm.txt", dcgm[0])]).utilization
    assert not isinstance(found.occupancy, str)
    assert not isinstance(found.effective, str)
    [taken], [computing] = found.occupancy, found.effective
    assert not isinstance(taken, str)
    assert not isinstance(computing, str)
    assert (taken.share, taken.source) == (0.95, "nvidia-smi utilization.gpu, mean of 2 samples, smi.csv")
    assert (computing.share, computing.source) == (
        0.25,
        "DCGM_FI_PROF_SM_ACTIVE, mean of 1 samples, dcgm.txt",
    )
    assert "one busy SM is enough" in taken.means


def waits(**changes: Any) -> WaitsReport:
    """Two stages of which the second computes longer."""
    stage = StageWaits(
        stage=0,
        rank=0,
        host="node-a",
        units=8,
        window_ns=80_000_000,
        unit_ns=4e6,
        computing=0.4,
        work=0.1,
        neighbour=0.45,
        boundary=0.0,
        unknown=0.05,
        ends=0.1,
        by_stage={"1": 0.45},
        by_boundary={},
        by_evidence={},
        by_reason={},
    )
    check = BubbleCheck(
        stages=2,
        units=8,
        rounds=1,
        estimated_idle=0.11,
        measured_idle=0.3,
        imbalance=0.25,
        verdict="worse",
    )
    values: dict[str, Any] = {
        "schema": WAITS,
        "source": "units",
        "status": "imbalance",
        "sentence": "stage 1 computes longer than stage 0",
        "findings": [],
        "stages": [stage, msgspec.structs.replace(stage, stage=1, computing=0.9)],
        "boundaries": [],
        "bubble": check,
        "depth": None,
        "clocks": [],
        "inputs": ["units.jsonl"],
        "gaps": [],
        "notes": [],
    }
    return WaitsReport(**{**values, **changes})


def test_waits_give_status_occupancy_and_imbalance() -> None:
    found = filled(waits=("waits.json", waits()))
    assert (found.status, found.sources["status"]) == ("imbalance", "waits.json")
    use = found.utilization
    assert not isinstance(use.occupancy, str)
    assert not isinstance(use.stage_imbalance, str)
    assert use.occupancy[0] == Figure(
        share=0.65,
        source="topocheck waits, waits.json: stage 0 0.4, stage 1 0.9",
        means="part of the time in which a stage computed, mean of all stages; how full is not measured",
    )
    assert use.stage_imbalance.share == 0.25
    assert "waits.json: stage 1 computes longer than stage 0" in found.notes


def test_a_status_that_is_not_known_is_not_measured() -> None:
    found = filled(waits=("waits.json", waits(status="unknown", stages=[], bubble=None)))
    assert (found.status, found.utilization.occupancy) == (NOT_MEASURED, NOT_MEASURED)
    assert filled(waits=("waits.json", waits(status="nothing named"))).status == "nothing named"


def test_what_the_user_states_fills_and_never_overrules() -> None:
    found = filled(bench=of_bench(), stated={"workload.seed": 3, "model.precision": "fp8"})
    assert (found.workload.seed, found.model.precision, found.sources["workload.seed"]) == (3, "fp8", "--set")
    with pytest.raises(UsageError, match=r"--set workload.seed=3: it is 7 by bench.json"):
        filled(bench=of_bench(seed="7"), stated={"workload.seed": 3})


def whole() -> Record:
    told = parse_client_log("Namespace(seed=0, num_warmups=16)\n", "client.log")
    return filled(
        placed(TWO + MODEL, *pair(), *running()),
        bench=of_bench(),
        client=("client.log", told),
        limits=Limits(ttft_ms=500.0, tpot_ms=30.0),
        stated={"parallelism.microbatches": 4},
    )


def test_a_record_comes_back_as_it_was_written() -> None:
    for found in (whole(), filled(), run()):
        text = to_yaml(found)
        assert parse_record(text, "r.yaml") == found
        assert to_yaml(parse_record(text, "r.yaml")) == text
        assert parse_record(msgspec.json.encode(found).decode(), "r.json") == found
        assert yaml.safe_load(text)["schema"] == SCHEMA


def test_a_record_fits_its_schema() -> None:
    for found in (whole(), filled()):
        jsonschema.validate(json.loads(msgspec.json.encode(found)), schema_for("record"))


@FEW
@given(st.text(max_size=40), st.text(min_size=1, max_size=40))
def test_foreign_text_comes_back_as_it_was_written(name: str, node: str) -> None:
    found = run(model={"name": name}, hardware={"nodes": (node,)}, notes=(name, node))
    assert parse_record(to_yaml(found), "r.yaml") == found


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  seed: 0\n", "  sead: 0\n", "unknown key 'sead' in workload: did you mean 'seed'?"),
        ("  seed: 0\n", "  seed: many\n", 'the text "many" is no value of workload.seed'),
        ("  seed: 0\n", "  seed: -1\n", "the number -1 is no value of workload.seed"),
        ("  seed: 0\n", "  seed: 010\n", "expected text or a number, got 010, which YAML reads as octal"),
        ("  seed: 0\n", "  seed:\n", "expected text or a number, got nothing: write `not measured`"),
        ("  seed: 0\n", "  seed: yes\n", "expected text or a number, got the yes/no value yes"),
        ("  seed: 0\n", "  seed: .inf\n", "expected text or a number, got the fraction .inf"),
        ("  seed: 0\n", "  seed: 0\n  seed: 1\n", "key 'seed' stands twice"),
        ("  seed: 0\n", "  seed: !!int 0\n", "the tag 'tag:yaml.org,2002:int' is not allowed in a record"),
        ("status: not measured\n", "status: bubbles\n", 'the text "bubbles" is no value of status'),
        ("- {rank: 2, stage: 0,", "- {rank: 2, stage: x,", 'the text "x" is no value of mapping[2].stage'),
        (
            "- {rank: 2, stage: 0,",
            "- {rank: 2, stge: 0,",
            "unknown key 'stge' in mapping[2]: did you mean 'stage'?",
        ),
        (
            "topocheck.record/1",
            "topocheck.record/9",
            "its schema is 'topocheck.record/9': expected `schema: topo",
        ),
        ("schema: topocheck.record/1\n", "", "no 'schema'"),
        ("notes: []\n", "notes: &a [x]\nwords: *a\n", "an alias (*) is not allowed in a record"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(old: str, new: str, words: str) -> None:
    text = to_yaml(msgspec.structs.replace(whole(), notes=()))
    assert text.count(old) == 1
    line = text[: text.index(old)].count("\n") + 1
    with pytest.raises(InputError) as refused:
        parse_record(text.replace(old, new), "run.yaml")
    assert words in str(refused.value)
    assert refused.value.path == "run.yaml"
    assert refused.value.line is not None
    assert line <= refused.value.line <= line + 1


@FEW
@given(st.text(max_size=200), st.integers(0, 6000), st.text(max_size=5))
def test_no_text_breaks_the_reader(text: str, place: int, noise: str) -> None:
    whole_text = to_yaml(run())
    for torn in (text, whole_text[:place] + noise + whole_text[place:], whole_text[:place]):
        assert outcome(torn) == "run.yaml"


def outcome(text: str) -> str:
    """File that the reader names, whether it takes the text or not."""
    try:
        parse_record(text, "run.yaml")
    except InputError as error:
        return error.path
    return "run.yaml"
