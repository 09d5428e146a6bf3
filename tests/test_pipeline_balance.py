"""The balance of stages, and overrides that the engines' own functions read as claimed."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest

from topocheck.engines import ENGINES
from topocheck.engines.layout import LayerSplit
from topocheck.errors import LayoutError, UsageError
from topocheck.pipeline.architecture import parse_architecture
from topocheck.pipeline.balance import Balance, Cut, Job, Measure, Memory, balance, imbalance
from topocheck.pipeline.balance_report import describe, kinds_of
from topocheck.pipeline.checkpoint import weigh
from topocheck.pipeline.override import override_of
from topocheck.pipeline.weights import Block, Division, ModelWeights, Weights, rank_weights

TESTS = Path(__file__).parent
CONFIGS: dict[str, dict[str, Any]] = {
    model["name"]: model["config"] for model in json.loads((TESTS / "architectures.json").read_text())
}
VECTORS: list[dict[str, Any]] = json.loads((TESTS / "engines" / "layer_partitions.json").read_text())
"""What the engines' own partition functions answered."""
READS_OVERRIDES = ("vllm", "sglang", "tensorrt_llm", "megatron")
GIB = 1 << 30


def model(
    layers: int = 8, *, layer: int = 10, embedding: int = 0, head: int = 0, tied: bool = False
) -> ModelWeights:
    """Plain weights: so many bytes, whole on every rank."""

    def held(part: Any, size: int) -> Weights:
        return Weights((Block(part, "vocabulary" if part != "mlp" else "whole", 1, size, size),) * bool(size))

    return ModelWeights(
        layers=(held("mlp", layer),) * layers,
        embedding=held("embedding", embedding),
        norm=Weights(),
        head=held("head", head),
        tied=tied,
    )


def job(
    weights: ModelWeights, stages: int, engine: str = "vllm", override: str | None = None, **given: Any
) -> Job:
    split: LayerSplit | None = None
    refusal = ""
    try:
        split = ENGINES[engine].split(len(weights.layers), stages, override, None, {})
    except LayoutError as error:
        refusal = str(error)
    return Job(
        model=weights,
        engine=ENGINES[engine],
        version=None,
        stages=stages,
        division=given.pop("division", Division()),
        split=split,
        refusal=refusal,
        **given,
    )


def counts(cut: Cut | None) -> tuple[int, ...] | None:
    return None if cut is None else cut.counts


def published(name: str) -> ModelWeights:
    return weigh(parse_architecture(json.dumps(CONFIGS[name]), name))


@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("engine", [*READS_OVERRIDES, "torchtitan", "deepspeed"])
def test_the_override_gives_the_ranges_claimed(name: str, engine: str) -> None:
    weights = published(name)
    for stages in (2, 3, 4):
        found = balance(job(weights, stages, engine), "bytes")
        best = found.best
        assert best is not None
        assert found.current is None or best.most <= found.current.most
        if found.override is None:
            assert best is found.current
            continue
        read = override_read(engine, found.override.value, len(weights.layers), stages)
        assert read == list(pairwise(accumulate(best.counts, initial=0)))
        assert [stage.ranges for stage in best.stages] == [(pair,) for pair in read]
        assert found.current is None or best.most < found.current.most


def override_read(engine: str, value: str, layers: int, stages: int) -> list[tuple[int, int]]:
    """Ranges by the engine's own rule; of torchtitan by the names of the layers."""
    if engine == "torchtitan":
        parts = [re.findall(r'"([a-z_0-9.]+)"', part) for part in re.findall(r"\[([^\[\]]+)\]", value)]
        held = [[int(name.removeprefix("layers.")) for name in part if "layers" in name] for part in parts]
        assert parts[0][0] == "tok_embeddings"
        assert parts[-1][-2:] == ["norm", "lm_head"]
        assert all(numbers == list(range(numbers[0], numbers[-1] + 1)) for numbers in held)
        return [(numbers[0], numbers[-1] + 1) for numbers in held]
    text = value.strip("[]") if engine == "deepspeed" else value
    return list(ENGINES[engine].split(layers, stages, text, None, {}).ranges)


@pytest.mark.parametrize(
    "vector",
    [v for v in VECTORS if v["engine"] in READS_OVERRIDES and "ranges" in v and not v.get("options")],
    ids=lambda v: f"{v['engine']}-{v['layers']}-{v['stages']}-{v.get('override')}",
)
def test_an_override_of_what_the_engine_answered_gives_the_same(vector: dict[str, Any]) -> None:
    """The spelling is the engines' own: an override written by us reads as the ranges that they gave."""
    held = [end - start for start, end in vector["ranges"]]
    written = override_of(vector["engine"], held).value
    read = ENGINES[vector["engine"]].split(
        vector["layers"], vector["stages"], written, vector.get("version"), {}
    )
    assert [list(pair) for pair in read.ranges] == vector["ranges"]
    if "override" in vector and vector["stages"] > 1:  # what the engine itself was given is what we write
        assert written.strip("[]") == vector["override"].replace(" ", "").strip("[]")


def test_overrides_are_in_the_engines_own_words() -> None:
    lines = {engine: override_of(engine, (15, 16, 16, 14)).line for engine in ENGINES}
    assert lines["vllm"] == "VLLM_PP_LAYER_PARTITION=15,16,16,14"
    assert lines["sglang"] == "SGLANG_PP_LAYER_PARTITION=15,16,16,14"
    assert lines["tensorrt_llm"] == "pp_partition: [15,16,16,14]"
    assert lines["megatron"] == "--pipeline-model-parallel-layout 'Et*15|t*16|t*16|t*14L'"
    assert override_of("megatron", (1, 1), mtp=2).value == "Et*1|t*1mmL"
    split = ENGINES["megatron"].split(2, 2, "Et*1|t*1mmL", None, {"mtp_num_layers": 2})
    assert split.ranges == ((0, 1), (1, 2))
    assert (
        override_of("torchtitan", (1, 1)).value
        == '[["tok_embeddings", "layers.0"], ["layers.1", "norm", "lm_head"]]'
    )


def test_embedding_and_head_are_counted_where_they_lie() -> None:
    found = balance(job(model(8, embedding=20, head=20), 4), "bytes")
    assert found.current is not None
    assert found.best is not None
    assert found.override is not None
    assert [stage.load for stage in found.current.stages] == [40, 20, 20, 40]
    assert found.current.imbalance == 1 - Fraction(30, 40)
    assert counts(found.best) == (1, 3, 3, 1)
    assert [stage.ends for stage in found.best.stages] == [("embedding",), (), (), ("norm", "head")]
    assert found.override.line == "VLLM_PP_LAYER_PARTITION=1,3,3,1"


def test_a_tied_head_is_a_copy_on_another_stage_and_none_on_the_same() -> None:
    tied = model(4, embedding=20, tied=True)
    two, one = balance(job(tied, 2), "bytes"), balance(job(tied, 1), "bytes")
    assert two.current is not None
    assert one.current is not None
    assert [stage.rank_bytes for stage in two.current.stages] == [40, 40]
    assert [stage.rank_bytes for stage in one.current.stages] == [60]
    assert one.current.stages[0].weights.bytes == 60


def test_what_is_read_leaves_the_embedding_out() -> None:
    found = balance(job(model(8, embedding=20, head=20), 4), "read")
    assert counts(found.best) == (2, 2, 3, 1)


def test_an_engine_that_refuses_the_layers_still_gets_the_best_partition() -> None:
    found = balance(job(model(9), 4, "megatron"), "parameters")
    assert found.current is None
    assert "is not divisible" in found.job.refusal
    assert found.override is not None
    assert found.override.value == "Et*2|t*2|t*2|t*3L"


def test_a_partition_that_is_as_good_is_kept() -> None:
    found = balance(job(model(8), 4, override="2,2,2,2"), "bytes")
    assert found.best is found.current
    assert found.override is None
    assert found.fits is None


def test_times_are_divided_among_the_layers_of_their_stage() -> None:
    times = [Fraction(4_000_000), Fraction(11_000_000), Fraction(5_000_000)]
    found = balance(job(model(12), 3), "time", times)
    assert found.current is not None
    assert found.best is not None
    assert [stage.load for stage in found.current.stages] == times
    assert found.current.most == 11_000_000
    assert counts(found.best) == (5, 2, 5)
    loads = [stage.load for stage in found.best.stages]
    assert sum(loads) == 20_000_000
    assert max(loads) == found.best.most < 8_000_000


def test_times_that_do_not_belong_to_the_partition_are_refused() -> None:
    with pytest.raises(UsageError, match="2 stage times for 3 stages"):
        balance(job(model(12), 3), "time", [Fraction(1), Fraction(2)])
    with pytest.raises(LayoutError, match="times belong to a partition that the engine takes"):
        balance(job(model(13), 3, "megatron"), "time", [Fraction(1)] * 3)
    with pytest.raises(UsageError, match="stage 1 has no layers to divide its time among"):
        balance(job(model(4), 3, override="2,0,2"), "time", [Fraction(1)] * 3)


def test_a_partition_that_does_not_fit_is_refused() -> None:
    memory = Memory(gpu=60, reserve=10)
    times = [Fraction(4), Fraction(11), Fraction(5)]
    found = balance(job(model(12), 3, memory=memory), "time", times)
    assert counts(found.refused) is None
    tight = balance(job(model(12), 3, memory=Memory(gpu=50, reserve=6)), "time", times)
    assert counts(tight.refused) == counts(found.best) == (5, 2, 5)
    assert tight.refused is not None
    assert tight.refused.too_full(tight.job.memory) == (0, 2)
    assert counts(tight.best) == (4, 4, 4)
    assert tight.override is None
    assert tight.fits is True
    none = balance(job(model(12), 3, memory=Memory(gpu=45, reserve=10)), "bytes")
    assert none.best is None
    assert none.fits is False
    assert none.override is None


def test_a_current_partition_that_does_not_fit_gives_way_to_one_that_does() -> None:
    found = balance(
        job(model(8, head=30), 2, override="4,4", memory=Memory(gpu=60, reserve=0)), "time", [Fraction(1)] * 2
    )
    assert found.current is not None
    assert found.current.too_full(found.job.memory) == (1,)
    assert counts(found.best) == (5, 3)
    assert found.override is not None
    assert found.fits is True


def test_layers_for_multi_token_prediction_count_where_they_are_asked_for() -> None:
    weights = published("deepseek-v3")
    without = balance(job(weights, 4, "megatron"), "bytes")
    with_them = balance(job(weights, 4, "megatron", mtp=True), "bytes")
    assert without.best is not None
    assert with_them.best is not None
    assert with_them.override is not None
    assert with_them.best.counts[-1] < without.best.counts[-1]
    assert with_them.override.value.endswith("mL")
    assert with_them.best.stages[-1].ends == ("norm", "head", "mtp")
    assert with_them.best.stages[-1].weights.bytes - weights.mtp[0].bytes > 0


def test_virtual_stages_are_weighed_and_no_partition_is_proposed() -> None:
    found = balance(job(model(8, embedding=7), 2, "megatron", "Ett|tt|tt|ttL"), "bytes")
    assert found.current is not None
    assert [stage.ranges for stage in found.current.stages] == [((0, 2), (4, 6)), ((2, 4), (6, 8))]
    assert [stage.load for stage in found.current.stages] == [47, 40]
    assert found.best is None
    assert found.override is None
    assert any("With virtual stages" in note for note in describe(found, sources={}).notes)


@pytest.mark.parametrize("override", ["9,-1", "9,-1,0"])
def test_a_negative_number_of_layers_is_refused(override: str) -> None:
    with pytest.raises(UsageError, match="has a negative number of layers"):
        balance(job(model(8), override.count(",") + 1, override=override), "bytes")


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(UsageError, match="3 layers on 4 stages leave a stage empty"):
        balance(job(model(3), 4), "bytes")


def test_the_fullest_rank_is_what_is_compared() -> None:
    weights = published("deepseek-v3")
    division = Division(tensor=8, expert=8, vocabulary_multiple=64)
    found = balance(job(weights, 4, division=division), "bytes")
    assert found.current is not None
    stage = found.current.stages[1]
    whole = rank_weights(stage.weights, division)
    assert abs(stage.rank_bytes - whole.bytes) < 15 * len(whole.blocks)  # rounded layer by layer
    assert counts(found.current) == (15, 15, 16, 15)
    assert counts(found.best) == (17, 15, 15, 14)  # three dense layers are lighter than the others


def test_imbalance_is_what_the_lighter_stages_lack() -> None:
    assert imbalance([4, 11, 5]) == 1 - Fraction(20, 33)
    assert imbalance([5, 5]) == 0
    assert imbalance([0, 0]) == 0


@pytest.mark.parametrize("measure", ["bytes", "read", "parameters"])
def test_the_document_says_what_the_balance_found(measure: Measure) -> None:
    found: Balance = balance(
        job(published("deepseek-v2-lite"), 3, memory=Memory(gpu=GIB, reserve=0)), measure
    )
    report = describe(found, sources={"model": "x"})
    assert report.fits is False
    assert report.best is None
    assert report.current is not None
    assert report.current.layers_per_stage == [9, 9, 9]
    assert [stage.fits for stage in report.current.stages] == [False] * 3
    assert [(kind.first, kind.last) for kind in report.model.kinds] == [(0, 0), (1, 26)]
    assert report.model.head is not None
    first = report.model.kinds[0]
    assert sum(amount.bytes for amount in first.parts.values()) == first.bytes


def test_layers_that_alternate_are_kinds_of_their_own() -> None:
    a, b = model(1).layers[0], model(1, layer=3).layers[0]
    mixed = ModelWeights(layers=(a, a, b, a), embedding=Weights(), norm=Weights(), head=Weights(), tied=False)
    assert [(kind.first, kind.last, kind.bytes) for kind in kinds_of(mixed)] == [
        (0, 1, 10),
        (2, 2, 3),
        (3, 3, 10),
    ]
