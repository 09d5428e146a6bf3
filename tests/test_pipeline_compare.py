"""Two records before and after one change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recording import good, run, stages

from topocheck.errors import UsageError
from topocheck.pipeline.compare import Comparison, compare
from topocheck.pipeline.gain import judged, layer_counts
from topocheck.record import NOT_MEASURED, Record, Requests

NAMES = ("a.yaml", "b.yaml")
FEW = settings(max_examples=50, deadline=None)


def compared(before: Record, after: Record, *, allow_unknown: bool = False) -> Comparison:
    return compare(before, after, NAMES, allow_unknown=allow_unknown)


def sizes(pipeline: int, microbatches: int | str, tensor: int = 4) -> dict[str, Any]:
    named = {"tensor": tensor, "pipeline": pipeline}
    shown = {name: size for name, size in named.items() if size > 1}
    return {"sizes": shown, "pipeline": pipeline, "microbatches": microbatches}


def tokens(rate: float) -> dict[str, Any]:
    return {"output_tokens_per_s": rate, "requests_per_s": rate / 20}


def test_raised_microbatches_are_held_against_the_bubble() -> None:
    found = compared(
        run(parallelism=sizes(4, 4)), run(parallelism=sizes(4, 16), perf=tokens(290.0)), allow_unknown=False
    )
    assert found.changed == ["microbatches: 4 -> 16"]
    assert found.measured_gain == 1.45
    assert found.predicted_gain == pytest.approx((7 / 4) / (19 / 16), abs=1e-4)
    assert found.verdict == (
        "b.yaml has 1.45 times the output tokens/s of a.yaml (200 -> 290), and 1.47 times is predicted: "
        "fill and drain explain it"
    )
    assert found.prediction == (
        "idle by the arithmetic of bubbles: 42.9 % with 4 stages and 4 microbatches before, 15.8 % with 4 "
        "stages and 16 microbatches after"
    )


@FEW
@given(st.integers(1, 64), st.integers(1, 512), st.integers(1, 512))
def test_the_prediction_is_the_ratio_of_fill_and_drain(stage: int, first: int, second: int) -> None:
    found = compared(run(parallelism=sizes(stage, first)), run(parallelism=sizes(stage, second)))
    wanted = ((first + stage - 1) / first) / ((second + stage - 1) / second) if stage > 1 else 1.0
    assert found.predicted_gain == pytest.approx(wanted, abs=1e-4)


def test_less_than_predicted_leads_to_balance_and_boundary() -> None:
    found = compared(run(parallelism=sizes(4, 4)), run(parallelism=sizes(4, 16), perf=tokens(210.0)))
    assert "less came: fill and drain are not the whole of it" in found.verdict
    assert "look at the balance of the stages, then at the boundary" in found.verdict


def test_tp_only_against_tp_and_pp_says_what_is_not_predicted() -> None:
    before = run(parallelism=sizes(1, NOT_MEASURED, tensor=8))
    after = run(parallelism=sizes(2, 8), perf=tokens(260.0))
    found = compared(before, after)
    assert found.changed == ["sizes: tensor 8 -> tensor 4 x pipeline 2"]
    assert found.predicted_gain == pytest.approx(8 / 9, abs=1e-4)
    assert "better than fill and drain alone would have it" in found.verdict
    assert "TP's all-reduces" in found.verdict
    assert "none with 1 stage before, 11.1 % with 2 stages and 8 microbatches after" in found.prediction


def test_a_moved_boundary_is_predicted_by_the_layers() -> None:
    cuts = {"parallelism": sizes(2, 8)}
    found = compared(
        run(**cuts, stages=stages("0..39", "40..59")), run(**cuts, stages=stages("0..29", "30..59"))
    )
    assert found.changed == ["layers of the stages: 40, 20 -> 30, 30"]
    assert found.predicted_gain == pytest.approx((60 + 7 * 40) / (60 + 7 * 30), abs=1e-4)


def test_goodput_stands_beside_throughput() -> None:
    found = compared(
        run(perf={**tokens(200.0), "goodput": good(8.0)}), run(perf={**tokens(240.0), "goodput": good(6.0)})
    )
    assert found.gains[0].figure == "goodput, requests/s"
    assert found.verdict.endswith("; goodput is 0.75 times that before (8 -> 6 requests/s)")


def test_goodput_under_other_limits_is_left_out() -> None:
    found = compared(
        run(perf={**tokens(200.0), "goodput": good(8.0)}),
        run(perf={**tokens(240.0), "goodput": good(6.0, ttft_ms=900.0)}),
    )
    assert "goodput, requests/s" not in [gain.figure for gain in found.gains]
    assert "goodput is left out: its limits differ" in found.notes


@pytest.mark.parametrize(
    ("part", "field", "value", "words"),
    [
        ("workload", "seed", 8, "the seed (workload.seed) is 7 in a.yaml and 8 in b.yaml"),
        ("workload", "warmups", 0, "number of warm-up requests (workload.warmups) is 4 in a.yaml and 0"),
        ("workload", "request_rate", 4.5, "request rate (workload.request_rate) is inf in a.yaml and 4.5"),
        ("workload", "requests", 50, "number of requests (workload.requests) is 100"),
        ("workload", "max_concurrency", "unlimited", "is 32 in a.yaml and unlimited in b.yaml"),
        ("workload", "input_lengths", "sha256:bb", "is sha256:aa in a.yaml and sha256:bb in b.yaml"),
        (
            "hardware",
            "cards",
            {"NVIDIA H100": 8},
            "cards (hardware.cards) is 8 NVIDIA H200 in a.yaml and 8 NVIDIA H100",
        ),
        (
            "hardware",
            "driver",
            "580.1",
            "driver (hardware.driver) is 570.86.10 in a.yaml and 580.1 in b.yaml",
        ),
        ("model", "name", "acme/Red", "model (model.name) is acme/Blue-7B in a.yaml and acme/Red in b.yaml"),
        ("model", "layers", 62, "number of layers (model.layers) is 61 in a.yaml and 62 in b.yaml"),
    ],
)
def test_unlike_conditions_are_refused_with_the_field_and_both_values(
    part: str, field: str, value: Any, words: str
) -> None:
    with pytest.raises(UsageError) as refused:
        compared(run(), run(**{part: {field: value}}), allow_unknown=True)
    assert words in str(refused.value)
    assert str(refused.value).startswith("the records do not compare: ")


def test_all_that_differs_is_named() -> None:
    with pytest.raises(UsageError, match="; the seed, number of warm-up requests also"):
        compared(run(), run(workload={"seed": 9, "warmups": 1}, hardware={"driver": "1"}))


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ("workload", "seed"),
        ("workload", "warmups"),
        ("workload", "input_lengths"),
        ("hardware", "driver"),
        ("hardware", "cards"),
        ("model", "name"),
    ],
)
@pytest.mark.parametrize("both", [False, True])
def test_what_is_not_known_is_no_equality(part: str, field: str, *, both: bool) -> None:
    lacking = run(**{part: {field: NOT_MEASURED}})
    found = compared(lacking if both else run(), lacking)
    who = "a.yaml and b.yaml" if both else "b.yaml"
    assert not found.comparable
    assert found.verdict.startswith(f"not comparable: {part}.{field} not measured in {who}. Supply it")
    assert (found.gains, found.measured_gain) == ([], None)
    allowed = compared(run(), lacking, allow_unknown=True)
    assert allowed.comparable
    assert allowed.notes[0] == f"taken for equal, as asked: {part}.{field} not measured in b.yaml"


def test_without_lengths_one_by_one_the_sum_speaks_if_all_completed() -> None:
    bare = {"workload": {"input_lengths": NOT_MEASURED}, "perf": {**tokens(200.0)}}

    def completed(count: int, **workload: Any) -> Record:
        changed = {**bare["workload"], **workload}
        return run(workload=changed, perf={**bare["perf"], "requests": Requests(completed=count)})

    assert compared(completed(100), completed(100)).comparable
    assert not compared(completed(100), completed(99)).comparable
    with pytest.raises(UsageError, match="number of input tokens"):
        compared(completed(100), completed(100, input_tokens=5001))


def test_a_run_that_kept_up_with_its_offer_shows_no_gain() -> None:
    offered = {"request_rate": 10.0}
    found = compared(
        run(workload=offered, parallelism=sizes(4, 4)), run(workload=offered, parallelism=sizes(4, 16))
    )
    assert "both kept up with the 10 requests/s that they were offered" in found.verdict


def test_two_changes_and_none_are_said() -> None:
    found = compared(run(), run(parallelism=sizes(2, 4), engine={"version": "0.25.0"}))
    assert "2 things changed" not in " ".join(found.notes)  # a version that one record lacks is no change
    found = compared(
        run(engine={"version": "0.24.0"}), run(parallelism=sizes(2, 4), engine={"version": "0.25.0"})
    )
    assert found.changed == ["microbatches: 2 -> 4", "engine.version: 0.24.0 -> 0.25.0"]
    assert "2 things changed: the gain is theirs together" in found.notes
    assert compared(run(), run()).notes[0].startswith("no change is recorded")


def test_without_sizes_there_is_no_prediction() -> None:
    found = compared(run(), run(parallelism=sizes(2, NOT_MEASURED)))
    assert found.predicted_gain is None
    assert "no prediction: the number of microbatches is not measured in b.yaml" in found.verdict


def test_without_throughput_there_is_no_gain() -> None:
    bare = run(perf={"output_tokens_per_s": NOT_MEASURED, "requests_per_s": NOT_MEASURED})
    assert (
        compared(run(), bare).verdict
        == "the gain is not measured: output tokens/s do not stand in both records"
    )


def test_lost_requests_are_no_gain() -> None:
    found = compared(
        run(perf={**tokens(200.0), "requests": Requests(failed=0, unfinished=0)}),
        run(perf={**tokens(300.0), "requests": Requests(failed=12, unfinished=0)}),
    )
    assert "0 requests failed before and 12 after: what is lost is no gain" in found.notes


@FEW
@given(measured=st.floats(0.01, 50), predicted=st.floats(0.01, 50), recut=st.booleans())
def test_every_pair_of_gains_is_judged(measured: float, predicted: float, *, recut: bool) -> None:
    said = judged(measured, predicted, recut=recut)
    assert "fill and drain" in said or said == "nothing to gain, and nothing gained"


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        (("0..15", "16..31"), (16, 16)),
        (("0..3, 8..11", "4"), (8, 1)),
        (("none", "0..1"), (0, 2)),
        (("x", "0..1"), None),
    ],
)
def test_layers_are_counted_as_they_are_written(
    words: tuple[str, ...], counts: tuple[int, ...] | None
) -> None:
    assert layer_counts(run(stages=stages(*words))) == counts
