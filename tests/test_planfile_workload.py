"""The workload of a plan, and the limits of its policy: read as written, or refused in one sentence."""

from __future__ import annotations

import jsonschema
import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import PlanError
from topocheck.plan import Plan, Policy, Workload
from topocheck.planfile import parse_plan
from topocheck.schema import schema_for

SMALL = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\n"
WHOLE = """\
workload:
  microbatches: 8
  virtual_stages: 2
  input_tokens: 3072
  output_tokens: 1024
  max_sequences: 256
  max_batched_tokens: 8192
  dtype: float16
  kv_dtype: fp8
  gpu_memory_utilization: 0.9
  boundary_tensors: 1
  boundary_split: none
policy: {bubble: 0.3, imbalance: 0.25, prefill_boundary_ms: 5, decode_boundary_ms: 0.5, head_room: 0.05}
"""


def read(text: str) -> Plan | PlanError:
    try:
        return parse_plan(text, "plan.yaml")
    except PlanError as error:
        return error


def refusal(text: str) -> str:
    with pytest.raises(PlanError) as caught:
        parse_plan(SMALL + text, "plan.yaml")
    return str(caught.value)


def test_every_key_is_read() -> None:
    plan = parse_plan(SMALL + WHOLE, "plan.yaml")
    assert plan.workload == Workload(
        microbatches=8,
        virtual_stages=2,
        input_tokens=3072,
        output_tokens=1024,
        max_sequences=256,
        max_batched_tokens=8192,
        dtype="float16",
        kv_dtype="fp8",
        gpu_memory_utilization=0.9,
        boundary_tensors=1,
        boundary_split="none",
    )
    assert plan.policy == Policy(
        bubble=0.3, imbalance=0.25, prefill_boundary_ms=5.0, decode_boundary_ms=0.5, head_room=0.05
    )


def test_a_workload_is_optional_and_says_nothing_by_itself() -> None:
    assert parse_plan(SMALL, "p").workload is None
    assert parse_plan(SMALL + "workload: {}\n", "p").workload == Workload()


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("max_num_seqs", "max_sequences"),
        ("max-running-requests", "max_sequences"),
        ("max_batch_size", "max_sequences"),
        ("max_num_batched_tokens", "max_batched_tokens"),
        ("chunked_prefill_size", "max_batched_tokens"),
        ("max_num_tokens", "max_batched_tokens"),
        ("kv_cache_dtype", "kv_dtype"),
        ("mem_fraction_static", "gpu_memory_utilization"),
        ("isl", "input_tokens"),
        ("microbatch", "microbatches"),
    ],
)
def test_the_names_of_flags_lead_to_the_key(key: str, meant: str) -> None:
    expected = f"plan.yaml:4: unknown key '{key}' in workload: did you mean '{meant}'?"
    assert refusal(f"workload: {{{key}: 8}}\n") == expected


def test_a_key_in_the_wrong_place_is_sent_to_the_right_one() -> None:
    assert refusal("microbatches: 8\n").endswith("it belongs under 'workload'")
    assert refusal("workload: {bubble: 0.3}\n").endswith("it belongs under 'policy'")
    assert refusal("policy: {boundary_ms: 5}\n").endswith("did you mean 'prefill_boundary_ms'?")


@pytest.mark.parametrize(
    ("written", "rest"),
    [
        ("30%", 'below 1 for policy.bubble, got the text "30%": write 0.3'),
        ("1", "below 1 for policy.bubble, got the number 1: write digits, for instance 0.2"),
        ("0", "below 1 for policy.bubble, got the number 0: write digits, for instance 0.2"),
        ("0.0", "below 1 for policy.bubble, got the fraction 0.0: write digits, for instance 0.2"),
        ("-0.5", "below 1 for policy.bubble, got the fraction -0.5: write digits, for instance 0.2"),
        (".5", "below 1 for policy.bubble, got the fraction .5: write digits, for instance 0.2"),
        ("1e-1", 'below 1 for policy.bubble, got the text "1e-1": write digits, for instance 0.2'),
        (".nan", "below 1 for policy.bubble, got the fraction .nan: write digits, for instance 0.2"),
        (".inf", "below 1 for policy.bubble, got the fraction .inf: write digits, for instance 0.2"),
        ("on", "below 1 for policy.bubble, got the yes/no value on: write digits, for instance 0.2"),
        ("[0.3]", "below 1 for policy.bubble, got a list: write digits, for instance 0.2"),
        ('"0.3"', 'below 1 for policy.bubble, got the text "0.3": write digits, for instance 0.2'),
        ("", "below 1 for policy.bubble, got nothing: write digits, for instance 0.2"),
    ],
)
def test_a_part_is_a_decimal_between_nothing_and_all(written: str, rest: str) -> None:
    message = refusal(f"policy: {{bubble: {written}}}\n")
    assert message == f"plan.yaml:4: expected a number above 0 and {rest}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("workload: 8\n", "expected keys and values for workload"),
        ("workload: {microbatches: 0}\n", "expected a whole number from 1 to 1000000000"),
        ("workload: {microbatches: 2.5}\n", "expected a whole number for workload.microbatches"),
        ("workload: {dtype: fp8}\n", "unknown value 'fp8' for workload.dtype"),
        ("workload: {kv_dtype: auto}\n", "unknown value 'auto' for workload.kv_dtype"),
        ("workload: {gpu_memory_utilization: 1.1}\n", "expected a number above 0 and at most 1"),
        ("workload: {boundary_split: half}\n", "unknown value 'half' for workload.boundary_split"),
        ("policy: {prefill_boundary_ms: 5ms}\n", "expected a number above 0 and at most 1000000"),
        ("policy: {decode_boundary_ms: 9999999}\n", "expected a number above 0 and at most 1000000"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, problem: str) -> None:
    message = refusal(text)
    assert message.startswith(f"plan.yaml:4: {problem}")
    assert not jsonschema.Draft202012Validator(schema_for("plan")).is_valid(yaml.safe_load(SMALL + text))


def test_the_schema_takes_what_is_read() -> None:
    jsonschema.Draft202012Validator(schema_for("plan")).validate(yaml.safe_load(SMALL + WHOLE))
    parts = schema_for("plan")["$defs"]["Policy"]["properties"]["bubble"]
    assert parts["description"]


@given(
    st.dictionaries(
        st.sampled_from([*Workload.__struct_fields__, "max_num_seqs", "zzz"]),
        st.one_of(
            st.integers(-2, 10**12),
            st.floats(allow_nan=False, allow_infinity=False),
            st.booleans(),
            st.none(),
            st.text(max_size=8),
            st.sampled_from(["bfloat16", "fp8", "none", "tensor", "0.9", "10%"]),
        ),
        max_size=4,
    )
)
@settings(max_examples=100, deadline=None)
def test_any_workload_is_read_or_refused_in_one_sentence(workload: dict[str, object]) -> None:
    text = SMALL + yaml.safe_dump({"workload": workload}, allow_unicode=True)
    outcome = read(text)
    if isinstance(outcome, PlanError):
        assert str(outcome).isprintable()
        assert str(outcome).startswith("plan.yaml:")
    else:
        assert msgspec.convert(msgspec.to_builtins(outcome), Plan) == outcome
        assert all(getattr(outcome.workload, key) == value for key, value in workload.items())


@given(st.decimals(min_value=0, max_value=1, places=4, allow_nan=False))
@settings(max_examples=50, deadline=None)
def test_a_part_is_read_as_it_stands(part: object) -> None:
    text = f"{SMALL}policy: {{head_room: {part}}}\n"
    if 0 < float(str(part)) < 1:
        assert parse_plan(text, "p").policy.head_room == float(str(part))
    else:
        with pytest.raises(PlanError, match="above 0 and below 1"):
            parse_plan(text, "p")
