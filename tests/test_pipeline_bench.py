"""Results of serving benchmarks, what their clients printed, and figures of utilisation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import CaptureError
from topocheck.pipeline.bench import EachOutput, goodput, parse_bench
from topocheck.pipeline.clientlog import Told, parse_client_log
from topocheck.pipeline.utilization import parse_utilization

FEW = settings(max_examples=50, deadline=None)


def vllm(**changes: Any) -> dict[str, Any]:
    """Result of vllm bench serve with --save-detailed: four requests, one failed, one of a single token."""
    return {
        "date": "20260102-030405",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "acme/Blue-7B",
        "tokenizer_id": "acme/Blue-7B",
        "num_prompts": 4,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": 2.0,
        "completed": 3,
        "failed": 1,
        "total_input_tokens": 60,
        "total_output_tokens": 10,
        "request_throughput": 1.5,
        "request_goodput": None,
        "output_throughput": 5.0,
        "total_token_throughput": 35.0,
        "mean_ttft_ms": 200.0,
        "median_ttft_ms": 150.0,
        "p99_ttft_ms": 400.0,
        "mean_tpot_ms": 30.0,
        "median_tpot_ms": 30.0,
        "p99_tpot_ms": 40.0,
        "mean_itl_ms": 28.0,
        "median_itl_ms": 27.0,
        "p99_itl_ms": 45.0,
        "input_lens": [10, 20, 30, 40],
        "output_lens": [5, 1, 4, 0],
        "ttfts": [0.1, 0.15, 0.4, 0.0],
        "itls": [[0.02, 0.02, 0.02, 0.02], [], [0.04, 0.04, 0.04], []],
        "generated_texts": ["a", "b", "c", ""],
        "errors": ["", "", "", "Traceback: asyncio.exceptions.TimeoutError"],
        **changes,
    }


def sglang(**changes: Any) -> dict[str, Any]:
    """Result of SGLang's bench_serving without --output-details."""
    return {
        "tag": None,
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": math.inf,
        "max_concurrency": 8,
        "random_input_len": 64,
        "random_output_len": 16,
        "random_range_ratio": 0.0,
        "server_info": {"version": "0.5.10", "model_path": "acme/Blue-7B", "tp_size": 2},
        "duration": 4.0,
        "completed": 16,
        "total_input_tokens": 1024,
        "total_output_tokens": 256,
        "total_output_tokens_retokenized": 250,
        "request_throughput": 4.0,
        "output_throughput": 64.0,
        "total_throughput": 320.0,
        "mean_ttft_ms": 90.5,
        "median_ttft_ms": 88.0,
        "p99_ttft_ms": 140.0,
        "mean_tpot_ms": 11.0,
        "median_tpot_ms": 10.5,
        "p99_tpot_ms": 19.0,
        "mean_itl_ms": 10.9,
        "median_itl_ms": 10.0,
        "p99_itl_ms": 33.0,
        **changes,
    }


def without(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def read(values: dict[str, Any], run: int | None = None) -> Any:
    return parse_bench(json.dumps(values), "bench.json", run)


def test_vllm_with_details_tells_every_request_apart() -> None:
    found = read(vllm())
    assert (found.tool, found.model, found.asked, found.completed, found.failed) == (
        "vllm bench serve",
        "acme/Blue-7B",
        4,
        3,
        1,
    )
    assert (found.timed_out, found.unfinished, found.single_token) == (1, 0, 1)
    assert (found.request_rate, found.max_concurrency, found.seed, found.warmups) == ("inf", 0, None, None)
    assert (found.ttft_ms.median, found.tpot_ms.p99, found.itl_ms.mean) == (150.0, 40.0, 28.0)
    first, single, third, lost = found.each
    assert (first.ttft_ms, first.tpot_ms) == pytest.approx((100.0, 20.0))
    assert (single.single, single.tpot_ms, single.ttft_ms) == (True, None, pytest.approx(150.0))
    assert third.tpot_ms == pytest.approx(40.0)
    assert (lost.failed, lost.timed_out, lost.ttft_ms, lost.single) == (True, True, None, False)


def test_vllm_without_details_knows_no_single_requests() -> None:
    found = read(without(vllm(), "input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"))
    assert (found.each, found.single_token, found.timed_out, found.input_lengths) == (None, None, None, None)
    assert (found.failed, found.unfinished) == (1, 0)


def test_older_vllm_has_no_count_of_failures_and_a_colon_in_its_goodput() -> None:
    old = without(vllm(**{"request_goodput:": 1.25}), "failed", "request_goodput", "output_lens")
    found = read(old)
    assert (found.failed, found.unfinished, found.own_goodput_per_s) == (None, None, 1.25)
    assert read(without(vllm(), "failed")).failed == 1


def test_time_per_token_rests_on_the_latency_where_the_file_has_it() -> None:
    found = read(vllm(latencies=[0.26, 0.15, 0.52, 1.0]))
    assert found.each[0].tpot_ms == pytest.approx(40.0)


def test_metadata_of_the_user_gives_seed_and_warmups() -> None:
    found = read(vllm(seed="7", num_warmups="16"))
    assert (found.seed, found.warmups) == (7, 16)
    assert read(vllm(seed="seven")).seed is None


def test_sglang_names_engine_version_and_data_set() -> None:
    found = read(sglang())
    assert (found.tool, found.engine, found.engine_version, found.dataset, found.model) == (
        "sglang bench_serving",
        "sglang",
        "0.5.10",
        "random",
        "acme/Blue-7B",
    )
    assert (found.request_rate, found.max_concurrency, found.total_tokens_per_s) == ("inf", 8, 320.0)
    assert (found.asked, found.failed, found.unfinished) == (None, None, None)


def test_infinity_and_nan_as_python_writes_them_are_read() -> None:
    text = json.dumps(sglang(mean_tpot_ms=math.nan))
    assert '"request_rate": Infinity' in text
    found = parse_bench(text, "out.jsonl")
    assert (found.request_rate, found.tpot_ms.mean) == ("inf", None)


def test_a_time_of_zero_is_absence() -> None:
    found = read(vllm(mean_tpot_ms=0.0, median_tpot_ms=0.0, p99_tpot_ms=0.0))
    assert (found.tpot_ms.mean, found.tpot_ms.median, found.tpot_ms.p99) == (None, None, None)


def test_a_file_of_several_runs_needs_a_choice() -> None:
    text = "\n".join(json.dumps(sglang(duration=float(seconds))) for seconds in (4, 5, 6))
    with pytest.raises(CaptureError, match=r"^out.jsonl: holds 3 runs: choose one with --bench-run 1 to 3"):
        parse_bench(text, "out.jsonl")
    assert parse_bench(text, "out.jsonl", 2).duration_s == 5.0
    with pytest.raises(CaptureError, match="has no run 4: it holds 3"):
        parse_bench(text, "out.jsonl", 4)


def test_a_torn_line_is_named() -> None:
    text = json.dumps(sglang()) + "\n" + json.dumps(sglang())[:80]
    with pytest.raises(CaptureError, match=r"^out.jsonl:2: is no JSON"):
        parse_bench(text, "out.jsonl")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"output_lens": [5, 1, 4]}, "lists are of different lengths"),
        ({"completed": 2}, "3 requests of its lists completed, and `completed` is 2"),
        ({"failed": 2}, "1 requests of its lists failed, and `failed` is 2"),
        ({"ttfts": [0.1, 0.1, "x", 0.0]}, r"ttfts\[2\] is 'x'"),
        ({"itls": [[0.1], [], [True], []]}, r"itls\[2\] is \[True\]"),
        ({"duration": -1}, "expected a number from 0 for duration, got -1"),
        ({"duration": None}, "has no duration: give the result of one finished run"),
        ({"completed": "3"}, "expected a number from 0 for completed, got '3'"),
        ({"num_prompts": 3.5}, "expected a whole number for num_prompts, got 3.5"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        read(vllm(**changes))


@pytest.mark.parametrize(
    "text", ["", "[]", "7", "{}", '{"completed": 1}', "no json", '{"a": 1, "a": 2}', "[" * 9999]
)
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(CaptureError, match=r"^bench.json"):
        parse_bench(text, "bench.json")


def test_a_failure_without_words_is_found_by_the_count() -> None:
    found = read(vllm(errors=["", "", "", ""]))
    assert [one.failed for one in found.each] == [False, False, False, True]


def test_goodput_wants_both_limits_and_keeps_single_tokens_apart() -> None:
    each = read(vllm()).each
    assert goodput(each, 500.0, 50.0) == (2, 3, 1)
    assert goodput(each, 200.0, 50.0) == (1, 3, 1)
    assert goodput(each, 500.0, 30.0) == (1, 3, 1)
    assert goodput(each, 120.0, 50.0) == (1, 3, 0)


def test_goodput_of_outputs_that_were_not_streamed_is_not_known() -> None:
    found = read(vllm(itls=[[], [], [0.04, 0.04, 0.04], []]))
    assert (found.each[0].ttft_ms, found.each[0].tpot_ms) == (None, None)
    assert goodput(found.each, 500.0, 50.0) is None


@FEW
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.floats(0, 900), st.floats(0, 90), st.booleans()),
        min_size=1,
        max_size=20,
    ),
    st.floats(0, 900),
    st.floats(0, 90),
)
def test_goodput_is_at_most_what_completed_and_grows_with_its_limits(
    rows: list[tuple[int, float, float, bool]], first: float, later: float
) -> None:
    each = [
        EachOutput(9, out, None if bad else ttft, tpot if out > 1 and not bad else None, bad, timed_out=False)
        for out, ttft, tpot, bad in rows
    ]
    found, wider = goodput(each, first, later), goodput(each, first * 2, later * 2)
    assert found is not None
    assert wider is not None
    assert 0 <= found[0] <= wider[0] <= wider[1] == sum(not one.single for one in each)
    assert found[2] <= sum(one.single for one in each)


def outcome(reader: Callable[[str, str], object], text: str) -> str:
    """What a reader says to a text: it names the file, or takes it."""
    try:
        reader(text, "f")
    except CaptureError as error:
        return str(error)
    return "f"


@FEW
@given(
    st.text(max_size=300) | st.sampled_from([json.dumps(vllm()), json.dumps(sglang())]), st.integers(0, 1500)
)
def test_no_text_breaks_the_reader(text: str, end: int) -> None:
    assert {outcome(parse_bench, part)[0] for part in (text, text[:end], text[end:])} == {"f"}


@FEW
@given(
    st.dictionaries(
        st.sampled_from(sorted(vllm())),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.lists(st.integers()),
        max_size=4,
    )
)
def test_no_value_breaks_the_reader(changes: dict[str, Any]) -> None:
    try:
        found = read(vllm(**changes))
    except CaptureError:
        return
    assert found.completed >= 0


CLIENT = (
    "INFO 01-02 03:04:05 [__init__.py:43] plugins\n"
    "Namespace(subparser='bench', bench_type='serve', seed=0, num_prompts=160, dataset_name='random', "
    "random_input_len=1024, num_warmups=16, request_rate=inf, random_seed=5)\n"
)


def test_the_client_log_gives_seed_and_warmups_with_their_line() -> None:
    found = parse_client_log(CLIENT, "client.log")
    assert (found.seed, found.warmups) == (Told(0, 2), Told(16, 2))
    assert (found.requests, found.dataset) == (Told(160, 2), Told("random", 2))


def test_sglang_prints_its_arguments_twice_alike() -> None:
    line = "benchmark_args=Namespace(backend='sglang', seed=1, warmup_requests=4)\n"
    found = parse_client_log(line + line.removeprefix("benchmark_args="), "client.log")
    assert (found.seed, found.warmups) == (Told(1, 1), Told(4, 1))


def test_two_runs_in_one_client_log_are_refused() -> None:
    with pytest.raises(
        CaptureError, match=r"^c.log:4: seed is 3 here and 0 in line 2: give the log of one run"
    ):
        parse_client_log(CLIENT + CLIENT.replace("seed=0", "seed=3"), "c.log")


def test_a_log_without_arguments_is_refused() -> None:
    with pytest.raises(CaptureError, match="holds no arguments of a benchmark client"):
        parse_client_log("seed=4\n", "c.log")


SMI = (
    "index, utilization.gpu [%], memory.used [MiB]\n0, 98 %, 70000 MiB\n1, 52 %, 70000 MiB\n2, [N/A], 3 MiB\n"
)
DMON = (
    "#Entity   GPUTL      SMACT      \nID                              \n"
    "GPU 0     100        0.421      \nGPU 1     100        N/A        \n"
)
EXPORTER = (
    "# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned.\n"
    'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",modelName="NVIDIA H200"} 90\n'
    'DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-a",modelName="NVIDIA H200"} 0.25\n'
    'DCGM_FI_PROF_SM_ACTIVE{gpu="1",UUID="GPU-b",modelName="NVIDIA H200"} 0.35\n'
)


def figures(text: str) -> dict[str, tuple[str, float, int]]:
    return {
        one.tool: (one.kind, round(one.share, 4), one.samples) for one in parse_utilization(text, "util.txt")
    }


def test_every_figure_of_utilisation_says_which_one_it_is() -> None:
    assert figures(SMI) == {"nvidia-smi utilization.gpu": ("kernel", 0.75, 2)}
    assert figures(DMON) == {"dcgmi dmon GPUTL": ("kernel", 1.0, 2), "dcgmi dmon SMACT": ("sm", 0.421, 1)}
    assert figures(EXPORTER) == {
        "DCGM_FI_DEV_GPU_UTIL": ("kernel", 0.9, 1),
        "DCGM_FI_PROF_SM_ACTIVE": ("sm", 0.3, 2),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing here\n", "holds no utilisation of a GPU"),
        (SMI.replace("1, 52 %, 70000", "1, 52 %"), r"^u.txt:3: "),
        (SMI.replace("98 %", "198 %"), r"^u.txt:2: '198' is no share of 100"),
        (DMON.replace("N/A        ", ""), r"^u.txt:4: has 1 values under 2 columns"),
        (EXPORTER.replace("0.35", "3.5"), r"^u.txt:4: '3.5' is no share of 1"),
    ],
)
def test_utilisation_that_cannot_be_aligned_is_refused(text: str, words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        parse_utilization(text, "u.txt")


@FEW
@given(
    st.text(max_size=200) | st.sampled_from([SMI, DMON, EXPORTER, CLIENT]),
    st.integers(0, 300),
    st.text(max_size=9),
)
def test_no_text_breaks_the_readers_of_logs(text: str, place: int, noise: str) -> None:
    torn = text[:place] + noise + text[place:]
    assert {outcome(reader, torn)[0] for reader in (parse_utilization, parse_client_log)} == {"f"}
