"""CAP002 and CAP003: what each rank holds against the real memory of its GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from build import placed, report, results, snap
from made_capacity import CROWDED, DENSE, FITTING, GIB, plan_of, sized, two

from topocheck.ask import Ask
from topocheck.report import Report, RuleReport
from topocheck.sizing import StageNeed, division, needs
from topocheck.snapshot import Coverage, MigDevice

DEEPSEEK = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 8,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "q_lora_rank": 512,
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "intermediate_size": 4096,
    "moe_intermediate_size": 512,
    "n_routed_experts": 32,
    "num_experts_per_tok": 4,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "vocab_size": 64_000,
    "torch_dtype": "bfloat16",
}


def of(found: Report, rule: str) -> RuleReport:
    return next(one for one in found.rules if one.id == rule)


def needed(plan: str) -> tuple[StageNeed, ...]:
    found = needs(Ask(placed(plan)))
    assert found is not None
    return found


def capacity(workload: str = FITTING, memory: int | None = 80 * GIB, **keys: str) -> RuleReport:
    plan = plan_of(model=keys.pop("model", str(DENSE)), workload=workload, **keys)
    return of(report(plan, *two(memory=memory)), "CAP002")


def config(folder: Path, base: dict[str, Any] | None = None, **changes: Any) -> str:
    """Path of a config.json with these changes."""
    path = folder / "config.json"
    path.write_text(json.dumps((json.loads(DENSE.read_text()) if base is None else base) | changes))
    return str(path)


def test_a_rank_holds_its_part_of_the_stage() -> None:
    """24 layers of 275,261,440 parameters, norms whole, and the embedding, in bfloat16 over four ranks."""
    first, last = needed(plan_of(model=str(DENSE), workload=FITTING))
    layers = 24 * (275_251_200 / 4 + 2 * 5120) * 2
    ends = 128_000 * 5120 / 4 * 2
    assert first.need.weights.low == layers + ends
    assert last.need.weights.low == layers + ends + 5120 * 2  # the head, and the final norm
    assert first.need.cache.low == 64 * 4096 * 24 * 2 * 256 * 2  # two of eight KV heads
    assert first.sequence_bytes.low * 64 == first.need.cache.low


def test_it_fits_does_not_or_the_bounds_leave_it_open() -> None:
    assert capacity(memory=16 * GIB).verdict == "unknown"
    assert capacity(memory=24 * GIB).verdict == "pass"
    assert capacity(memory=8 * GIB).verdict == "fail"


def test_weights_alone_or_the_cache_are_told_apart() -> None:
    small, crowded = capacity(memory=3 * GIB).findings[0], capacity(CROWDED).findings[0]
    assert "weights and buffers alone do not fit" in small.message
    assert "more stages" in small.fix
    assert "4096 sequences of 4,096 tokens do not fit" in crowded.message
    assert "at most 724 sequences" in crowded.fix
    assert "no room for one sequence" in capacity(memory=int(4.55 * GIB)).findings[0].message


def test_the_number_of_sequences_in_the_fix_fits_at_the_lower_bound() -> None:
    assert capacity(FITTING.replace("64", "724")).verdict == "unknown"
    assert capacity(FITTING.replace("64", "725")).verdict == "fail"


def test_a_cache_in_fp8_takes_half() -> None:
    plain = needed(plan_of(model=str(DENSE), workload=FITTING))[0]
    short = needed(plan_of(model=str(DENSE), workload=FITTING.replace("{", "{kv_dtype: fp8, ")))[0]
    assert short.need.cache.low * 2 == plain.need.cache.low


def test_without_the_part_that_the_engine_takes_the_verdict_holds_for_its_default_and_for_all() -> None:
    workload = FITTING.replace(", gpu_memory_utilization: 0.9", "")
    assert capacity(workload, memory=17 * GIB).verdict == "unknown"
    assert capacity(workload, memory=20 * GIB).verdict == "pass"
    assert capacity(workload, memory=9 * GIB).verdict == "fail"


@pytest.mark.parametrize(
    ("workload", "key"),
    [
        ("{max_sequences: 64}", "input_tokens"),
        ("{input_tokens: 64}", "max_sequences"),
        ("{microbatches: 2}", "and"),
    ],
)
def test_a_workload_without_its_length_or_number_leaves_it_open_unless_weights_alone_decide(
    workload: str, key: str
) -> None:
    whole = report(plan_of(model=str(DENSE), workload=workload), *two())
    assert of(whole, "CAP002").verdict == "unknown"
    assert key in next(gap.need for gap in whole.gaps if "CAP002" in gap.rules)
    assert capacity(workload, memory=3 * GIB).verdict == "fail"


def test_a_rank_on_a_slice_that_only_a_list_shows_has_not_the_whole_memory() -> None:
    first, second = two()
    parts = tuple(
        msgspec.structs.replace(gpu, mig=(MigDevice(uuid="MIG-1"),)) for gpu in second.identity.gpus
    )
    cut = msgspec.structs.replace(second, identity=msgspec.structs.replace(second.identity, gpus=parts))
    plan = plan_of(model=str(DENSE), workload=FITTING)
    assert of(report(plan, first, second), "CAP002").verdict == "pass"
    assert of(report(plan, first, cut), "CAP002").verdict == "unknown"


def test_sizes_alone_are_no_weights() -> None:
    whole = report(plan_of(model="{layers: 48, hidden: 5120}", workload=FITTING), *two())
    assert of(whole, "CAP002").verdict == "unknown"
    assert "config.json" in next(gap.supply for gap in whole.gaps if "CAP002" in gap.rules)


@pytest.mark.parametrize("keys", [{"workload": FITTING}, {"model": str(DENSE)}])
def test_without_model_or_workload_there_is_nothing_to_ask(keys: dict[str, str]) -> None:
    assert of(report(plan_of(**keys), *two()), "CAP002").verdict == "not-applicable"


def test_training_holds_more_than_this_arithmetic_knows() -> None:
    plan = plan_of(model=str(DENSE), workload=FITTING).replace("vllm", "megatron")
    found = of(report(plan, *two()), "CAP002")
    assert (found.verdict, "trains" in found.reason) == ("not-applicable", True)


def test_heads_that_do_not_divide_are_told_by_tp005(tmp_path: Path) -> None:
    plan = plan_of(model=config(tmp_path, num_attention_heads=42, hidden_size=5376), workload=FITTING)
    found = results(placed(plan, *two()))
    assert (found["TP005"].verdict, found["CAP002"].verdict) == ("fail", "unknown")
    assert found["CAP002"].gaps[0].because == "TP005"


def test_the_smallest_gpu_of_a_stage_counts() -> None:
    mixed = sized(snap("node-b", range(4, 8)))
    gpus = list(mixed.hardware.gpus)
    gpus[2] = msgspec.structs.replace(gpus[2], memory_bytes=8 * GIB)
    mixed = msgspec.structs.replace(mixed, hardware=msgspec.structs.replace(mixed.hardware, gpus=tuple(gpus)))
    found = of(report(plan_of(model=str(DENSE), workload=FITTING), two()[0], mixed), "CAP002")
    assert found.findings[0].subjects == ["stage 1 on node-b"]
    assert "8 GiB" in found.findings[0].message


def test_a_slice_is_no_whole_gpu() -> None:
    nodes = [sized(one, mig=True) for one in two()]
    whole = report(plan_of(model=str(DENSE), workload=FITTING), *nodes)
    assert of(whole, "CAP002").verdict == "unknown"


def test_equal_nodes_are_asked_once() -> None:
    plan = (
        f"engine: vllm\nparallel: {{tensor: 4, data: 60}}\nnodes: 60\nmodel: {DENSE}\nworkload: {CROWDED}\n"
    )
    nodes = [sized(snap(f"n{n:02}", range(4 * n, 4 * n + 4), size=240)) for n in range(60)]
    found = of(report(plan, *nodes), "CAP002")
    assert (found.subjects, [finding.count for finding in found.findings]) == (60, [60])


def test_ranks_without_a_node_are_a_gap() -> None:
    found = of(report(plan_of(model=str(DENSE), workload=FITTING), two()[0]), "CAP002")
    assert (found.verdict, found.passed) == ("unknown", 1)


def test_a_partial_list_of_gpus_gives_no_verdict() -> None:
    nodes = [msgspec.structs.replace(one, ranks=(), coverage=Coverage(gpus="part")) for one in two()]
    bare = [msgspec.structs.replace(one, hardware=type(one.hardware)()) for one in nodes]
    assert of(report(plan_of(model=str(DENSE), workload=FITTING), *bare), "CAP002").verdict == "unknown"


@pytest.mark.parametrize(("wanted", "verdict"), [("0.2", "pass"), ("0.76", "unknown"), ("0.9", "fail")])
def test_head_room_is_of_all_that_cap002_counts(wanted: str, verdict: str) -> None:
    plan = plan_of(model=str(DENSE), workload=FITTING, policy=f"{{head_room: {wanted}}}")
    assert of(report(plan, *two()), "CAP003").verdict == verdict


def test_what_does_not_fit_has_no_head_room_of_its_own() -> None:
    plan = plan_of(model=str(DENSE), workload=CROWDED, policy="{head_room: 0.1}")
    found = results(placed(plan, *two()))
    assert (found["CAP002"].verdict, found["CAP003"].verdict) == ("fail", "unknown")
    assert found["CAP003"].gaps[0].because == "CAP002"


def test_experts_divide_by_the_engines_rule(tmp_path: Path) -> None:
    path = config(tmp_path, DEEPSEEK)

    def shares(engine: str, parallel: str) -> tuple[int, int]:
        text = f"engine: {engine}\nparallel: {{{parallel}}}\nnodes: 1\nmodel: {path}\n"
        found = division(placed(text))
        return found.expert, found.columns_of_experts

    assert shares("vllm", "tensor: 4") == (1, 4)
    assert shares("vllm", "tensor: 2, data: 4") == (1, 8)
    assert shares("vllm", "tensor: 2, data: 4, expert: 8") == (8, 1)
    assert shares("sglang", "tensor: 8, expert: 4") == (4, 2)
    assert shares("tensorrt_llm", "tensor: 8, expert: 2") == (2, 4)


def test_attention_data_parallelism_keeps_whole_heads_and_part_of_the_sequences(tmp_path: Path) -> None:
    path = config(tmp_path, num_attention_heads=40)
    keys = {"model": path, "workload": "{max_sequences: 64, input_tokens: 1000}"}
    plan = plan_of(**keys).replace("vllm", "sglang")
    whole = needed(plan)[0]
    apart = needed(plan.replace("pipeline: 2", "pipeline: 2, attention_data: 4"))[0]
    assert apart.need.cache.low == whole.need.cache.low  # four times the heads, a quarter of the sequences
    assert apart.need.cache.high == whole.need.cache.high * 4  # all may fall to one rank


def test_the_plans_type_stands_in_for_one_that_the_file_does_not_name(tmp_path: Path) -> None:
    base = {key: value for key, value in json.loads(DENSE.read_text()).items() if key != "torch_dtype"}
    half = needed(plan_of(model=config(tmp_path, base), workload=FITTING))[0]
    path = config(tmp_path, base, torch_dtype="float32")
    assert needed(plan_of(model=path, workload=FITTING))[0].need.weights == half.need.weights
    whole = needed(plan_of(model=path, workload=FITTING.replace("{", "{dtype: float32, ")))[0]
    assert whole.need.weights.low == half.need.weights.low * 2
