"""A plan is read as it is written, or refused in one sentence with its line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.engines import ENGINES, Engine
from topocheck.errors import LayoutError, PlanError
from topocheck.formula import RANK_AXES, SUBDIVIDED, derive
from topocheck.modelconfig import ConfigModel
from topocheck.plan import Model, NodeRange, Parallel, Plan, Policy, Workload
from topocheck.planfile import SPECIAL, parse_plan, read_plan

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases" / "expected.yaml"

SMALL = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\n"

WHOLE = """\
engine: vllm
engine_version: "0.33.0"
parallel:
  tensor: 4
  pipeline: 2
nodes: [blue-1, blue-2]
model: {layers: 61, hidden: 7168, heads: 128, kv_heads: 128, vocabulary: 129280, experts: 256}
layers: [30, 31]
policy:
  optional: [EV002, NET]
  severity: {TP003: error, PP: info}
  tensor_domain: nvlink
  boundary: any
  min_basis: claimed
"""


def read(text: str) -> Plan | PlanError:
    try:
        return parse_plan(text, "plan.yaml")
    except PlanError as error:
        return error


def refusal(text: str) -> str:
    with pytest.raises(PlanError) as caught:
        parse_plan(text, "plan.yaml")
    return str(caught.value)


def test_three_lines_are_a_plan() -> None:
    assert parse_plan(SMALL, "plan.yaml") == Plan(
        engine="vllm", parallel=Parallel(tensor=4, pipeline=2), nodes=2
    )


def test_every_key_is_read() -> None:
    assert parse_plan(WHOLE, "plan.yaml") == Plan(
        engine="vllm",
        engine_version="0.33.0",
        parallel=Parallel(tensor=4, pipeline=2),
        nodes=("blue-1", "blue-2"),
        model=Model(layers=61, hidden=7168, heads=128, kv_heads=128, vocabulary=129280, experts=256),
        layers=(30, 31),
        policy=Policy(
            optional=("EV002", "NET"),
            severity={"TP003": "error", "PP": "info"},
            tensor_domain="nvlink",
            boundary="any",
            min_basis="claimed",
        ),
    )


def test_every_type_in_a_plan_has_a_reader() -> None:
    for kind in (Plan, Parallel, Model, NodeRange, Policy, Workload):
        for name, hint in get_type_hints(kind).items():
            plain = next((form for form in get_args(hint) if form is not type(None)), hint)
            simple = (
                plain in (bool, int, str, float)
                or get_origin(hint) is Literal
                or get_origin(plain) is Literal
            )
            record = isinstance(plain, type) and issubclass(plain, msgspec.Struct)
            assert (kind, name) in SPECIAL or simple or record, (kind, name)


def test_every_plan_of_the_cases_is_read() -> None:
    if not CASES.exists():
        pytest.skip("the case data is not here")
    cases = yaml.load(CASES.read_bytes(), yaml.CSafeLoader)["cases"]
    plans = [run["plan"] for case in cases.values() for run in case["runs"] if run.get("plan")]
    for plan in plans:
        assert parse_plan(yaml.safe_dump(plan, sort_keys=False), "plan.yaml").engine == plan["engine"]
    assert len(plans) > 100


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("four", 'got the text "four": write digits, for instance 4'),
        ('"4"', 'got the text "4": write 4 without quotes'),
        ("010", "got 010, which YAML reads as octal: write 10"),
        ("08", 'got the text "08": write 8'),
        ("0x10", "got 0x10, which YAML reads as hexadecimal: write digits, for instance 4"),
        ("1:20", "got 1:20, which YAML reads as a number to the base 60: write digits, for instance 4"),
        ("1_0", "got 1_0, which YAML reads as a number: write 10"),
        ("2.0", "got the fraction 2.0: write 2"),
        ("2.5", "got the fraction 2.5: write digits, for instance 4"),
        ("on", "got the yes/no value on: write digits, for instance 4"),
        ("2026-01-02", "got the date 2026-01-02: write digits, for instance 4"),
        ("", "got nothing: write digits, for instance 4"),
        ("null", "got the empty value null: write digits, for instance 4"),
        ("[4]", "got a list: write digits, for instance 4"),
        ("{size: 4}", "got keys and values: write digits, for instance 4"),
        ('"\\e[31m4"', 'got the text "\\x1b[31m4": write digits, for instance 4'),
    ],
)
def test_a_size_is_decimal_digits_and_nothing_else(written: str, sentence: str) -> None:
    text = f"engine: vllm\nparallel:\n  tensor: {written}\nnodes: 2\n"
    assert refusal(text) == f"plan.yaml:3: expected a whole number for parallel.tensor, {sentence}"


@pytest.mark.parametrize("written", ["0", "-1", "1000000001", "9" * 5000])
def test_a_size_below_one_or_beyond_reason_is_refused(written: str) -> None:
    message = refusal(f"engine: vllm\nnodes: 2\nparallel: {{tensor: {written}}}\n")
    assert message.startswith("plan.yaml:3: expected a whole number from 1 to 1000000000 for parallel.tensor")
    assert len(message) < 200


def test_a_world_beyond_reason_is_refused() -> None:
    message = refusal("engine: vllm\nnodes: 2\nparallel: {tensor: 100000, data: 1000}\n")
    assert message == "plan.yaml:3: the sizes make a world of 100,000,000 ranks: 10,000,000 are the most"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("parallel: {tensr: 4}", "unknown key 'tensr' in parallel: did you mean 'tensor'?"),
        ("parallel: {tp: 4}", "unknown key 'tp' in parallel: did you mean 'tensor'?"),
        ("parallel: {tensor-size: 4}", "unknown key 'tensor-size' in parallel: did you mean 'tensor'?"),
        ("parallel: {nodes: 4}", "unknown key 'nodes' in parallel: it belongs at the top level"),
        ("tensor: 4", "unknown key 'tensor': it belongs under 'parallel'"),
        ("pp: 4", "unknown key 'pp': did you mean 'pipeline' under 'parallel'?"),
        ("modle: {}", "unknown key 'modle': did you mean 'model'?"),
        ("model: {layer: 4}", "unknown key 'layer' in model: did you mean 'layers'?"),
        ("model: {vocab_size: 4}", "unknown key 'vocab_size' in model: did you mean 'vocabulary'?"),
        ("policy: {optinal: []}", "unknown key 'optinal' in policy: did you mean 'optional'?"),
        (
            "model: {zzz: 1}",
            "unknown key 'zzz' in model: known keys are " + ", ".join(Model.__struct_fields__),
        ),
        ('"\\a": 1', "the text for a key of the plan holds a control character: remove it from '\\x07'"),
        ("on: 1", 'expected text for a key of the plan, got the yes/no value on: write "on" in quotes'),
        ("? [a]\n: 1", "expected text for a key of the plan, got a list"),
        ("<<: {order: x}", "the merge key '<<' is not allowed in a plan: write the keys out"),
    ],
)
def test_an_unknown_key_is_refused_with_what_was_meant(text: str, sentence: str) -> None:
    assert refusal(f"engine: vllm\nnodes: 2\n{text}\n") == f"plan.yaml:3: {sentence}"


def test_a_key_that_stands_twice_is_refused_with_both_lines() -> None:
    assert refusal("engine: vllm\nnodes: 2\nparallel:\n  tensor: 4\n  tensor: 2\n") == (
        "plan.yaml:5: key 'tensor' stands twice, in lines 4 and 5: remove one of them"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nodes: 2", "plan.yaml:1: no 'engine' in the plan: write for instance 'engine: vllm'"),
        ("engine: vllm", "plan.yaml:1: no 'nodes' in the plan: write for instance 'nodes: 2'"),
        ("engine: vllm\nnodes: {min: 1}", "plan.yaml:2: no 'max' in nodes: write for instance 'max: 2'"),
    ],
)
def test_what_a_plan_needs_is_named(text: str, sentence: str) -> None:
    assert refusal(text) == sentence


def test_an_unknown_engine_is_refused_with_what_was_meant() -> None:
    assert refusal("engine: vLLM\nnodes: 1") == "plan.yaml:1: unknown engine 'vLLM': did you mean 'vllm'?"
    known = f"known engines are {', '.join(ENGINES)}"
    assert refusal("engine: zzz\nnodes: 1") == f"plan.yaml:1: unknown engine 'zzz': {known}"
    assert refusal("nodes: 1\nengine: no") == (
        f"plan.yaml:2: expected the name of an engine for engine, got the yes/no value no: {known}"
    )


def test_what_the_engine_does_not_take_is_refused() -> None:
    message = refusal("engine: vllm\nnodes: 2\nparallel:\n  tensor: 4\n  moe_data: 2\n")
    assert message == f"plan.yaml:5: vLLM has no size 'moe_data': it takes {', '.join(ENGINES['vllm'].sizes)}"
    assert refusal(SMALL + "order: tp-pp\n") == "plan.yaml:4: vLLM takes no order of the axes: remove 'order'"
    assert parse_plan("engine: vllm\nnodes: 2\nparallel: {moe_data: 1}\n", "p").parallel.moe_data == 1


@pytest.mark.parametrize(
    ("written", "nodes"),
    [
        ("3", 3),
        ("[10.0.0.1, fe80::1, gpu_7.example.org]", ("10.0.0.1", "fe80::1", "gpu_7.example.org")),
        ("{min: 2, max: 4}", NodeRange(min=2, max=4)),
        ("n[01-04]", ("n01", "n02", "n03", "n04")),
        ("n[3,1],m2", ("n3", "n1", "m2")),
        ("one", ("one",)),
        ('["010", "no", "1e3"]', ("010", "no", "1e3")),
    ],
)
def test_nodes_are_a_number_or_names_in_order_or_a_range(written: str, nodes: object) -> None:
    assert parse_plan(f"engine: vllm\nnodes: {written}\n", "plan.yaml").nodes == nodes


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (
            "[010]",
            'expected a node name for nodes, got 010, which YAML reads as octal: write "010" in quotes',
        ),
        ("[no]", 'expected a node name for nodes, got the yes/no value no: write "no" in quotes'),
        ("[1e3]", 'the node name 1e3 is a number to other readers of YAML: write "1e3" in quotes'),
        ("[08]", 'the node name 08 is a number to other readers of YAML: write "08" in quotes'),
        ("[~]", 'expected a node name for nodes, got the empty value ~: write "~" in quotes'),
        ("[[a]]", "expected a node name for nodes, got a list"),
        ("[a, b, a]", "node 'a' stands twice, in lines 2 and 2: remove one of them"),
        ("[n2, 'n[1-3]']", "node 'n2' stands twice, in lines 2 and 2: remove one of them"),
        ('[""]', "the text for nodes is empty: fill it in or leave it out"),
        ('["a\\tb"]', "the text for nodes holds a control character: remove it from 'a\\tb'"),
        ("[a b]", "'a b' is no node name: remove ' '"),
        ('"@all"', "'@all' is no node name: remove '@'"),
        ("[]", "the list for nodes is empty: fill it in or leave it out"),
        ('"2"', 'expected a whole number for nodes, got the text "2": write 2 without quotes'),
        ("0", "expected a whole number from 1 to 1000000 for nodes, got the number 0"),
        ("{min: 4, max: 2}", "nodes has min 4 and max 2: min is at most max, max at most 1000000"),
        ("n[1-999999999]", "the host list names more than 1,000,000 nodes: write for instance n[01-04]"),
    ],
)
def test_nodes_that_cannot_be_meant_are_refused(written: str, sentence: str) -> None:
    assert refusal(f"engine: vllm\nnodes: {written}\n") == f"plan.yaml:2: {sentence}"


def test_layers_are_numbers_or_the_words_of_the_engine() -> None:
    assert parse_plan(SMALL + "layers: [30, 0]\n", "p").layers == (30, 0)
    assert parse_plan(SMALL + "layers: 30,31\n", "p").layers == "30,31"
    assert parse_plan(SMALL + "layers: Et*3|t*4|L\n", "p").layers == "Et*3|t*4|L"
    assert refusal(SMALL + "layers: 30\n") == (
        "plan.yaml:4: expected a list of numbers or the engine's own text for layers, got the number 30: "
        "write the layers of each stage: [16, 16]"
    )


def test_a_version_that_yaml_would_shorten_is_refused() -> None:
    assert refusal(SMALL + "engine_version: 0.10\n") == (
        'plan.yaml:4: expected text for engine_version, got the fraction 0.10: write "0.10" in quotes'
    )


@pytest.mark.parametrize(
    ("policy", "problem", "fix"),
    [
        ("{optional: [tp001]}", "'tp001' in {} is neither a rule nor a family", "did you mean 'TP001'?"),
        (
            "{optional: [TP0012]}",
            "'TP0012' in {} is neither a rule nor a family",
            "rules are written TP001, families TP",
        ),
        ("{optional: TP}", 'expected a list for {}, got the text "TP"', "write it as [EV002]"),
        ("{severity: {TP003: eror}}", "unknown value 'eror' for {}.TP003", "did you mean 'error'?"),
        (
            "{severity: {TP003: off}}",
            "expected text for {}.TP003, got the yes/no value off",
            "choose error, warning or info",
        ),
        (
            "{severity: {TP: info, TP: error}}",
            "key 'TP' stands twice, in lines 4 and 4",
            "remove one of them",
        ),
        ("{tensor_domain: rack}", "unknown value 'rack' for {}", "choose node, nvlink or any"),
    ],
)
def test_a_policy_is_held_against_what_there_is(policy: str, problem: str, fix: str) -> None:
    key = "policy." + policy[1:].partition(":")[0]
    assert refusal(f"{SMALL}policy: {policy}\n") == f"plan.yaml:4: {problem.format(key)}: {fix}"


def test_a_model_may_be_the_path_of_a_config(tmp_path: Path) -> None:
    config = tmp_path / "big" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"num_hidden_layers": 61, "hidden_size": 7168, "n_routed_experts": 256}))
    plan = tmp_path / "plan.yaml"
    for written in ("big/config.json", "big", str(config)):
        plan.write_text(f"{SMALL}model: {written}\n")
        model = read_plan(plan).model
        assert isinstance(model, ConfigModel)
        assert (model.layers, model.hidden, model.experts) == (61, 7168, 256)
        assert (model.source, model.text) == (str(config), config.read_bytes())
    plan.write_text(f"{SMALL}model: small/config.json\n")
    with pytest.raises(PlanError, match=r"small/config\.json: there is no such file"):
        read_plan(plan)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty: write at least engine, parallel and nodes"),
        (b"# only words\n", "is empty: write at least engine, parallel and nodes"),
        (b"\x7fELF\x02\x01", "holds the character U+007F and is no plain text"),
        (b"engine: vllm\nnodes: \xff\n", "is not UTF-8 text: save it as UTF-8"),
        (b"- engine\n", "expected keys and values, got a list: start with 'engine: vllm' or another engine"),
        (b"#" * 1_000_001, "is larger than 1 MB: a plan is a few lines of YAML"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, data: bytes, sentence: str) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_bytes(data)
    with pytest.raises(PlanError) as caught:
        read_plan(plan)
    assert str(caught.value).removeprefix(str(plan)).lstrip(":0123456789 ") == sentence


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read \\(No such file or directory\\)"):
        read_plan(tmp_path / "none.yaml")
    with pytest.raises(PlanError, match="cannot be read \\(Is a directory\\)"):
        read_plan(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_bytes(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())
    assert read_plan(plan) == parse_plan(SMALL, "p")


def test_a_dash_is_standard_input() -> None:
    script = "from topocheck.planfile import read_plan; print(read_plan('-').nodes)"
    done = subprocess.run(
        [sys.executable, "-c", script], input=SMALL, text=True, capture_output=True, check=True
    )
    assert done.stdout == "2\n"
    done = subprocess.run(
        [sys.executable, "-c", script], input="a", text=True, capture_output=True, check=False
    )
    assert "PlanError: <stdin>:1: expected keys and values" in done.stderr


@pytest.mark.parametrize(
    ("sizes", "world", "data"),
    [
        ({"tensor": 4, "pipeline": 2}, 16, 2),
        ({"tensor": 4, "pipeline": 2}, 8, 1),
        ({"tensor": 4, "pipeline": 2}, 12, None),
        ({"tensor": 4, "pipeline": 2}, 4, None),
        ({"tensor": 4, "pipeline": 2}, None, None),
        ({"tensor": 2, "context": 2}, 16, 4),
        ({"tensor": 4, "decode_context": 2}, 16, 4),
        ({"tensor": 2, "data": 2}, 16, 2),
        ({}, 16, 16),
    ],
)
def test_data_fills_the_world_where_it_fits(
    sizes: dict[str, int], world: int | None, data: int | None
) -> None:
    plan = Plan(engine="vllm", parallel=Parallel(**sizes), nodes=2)
    derived = derive(plan, world)
    assert derived.parallel == msgspec.structs.replace(plan.parallel, data=data)
    assert msgspec.structs.replace(derived, parallel=plan.parallel) == plan


def world(engine: Engine, sizes: dict[str, int]) -> int | None:
    """Ranks of a layout; None where the engine refuses the sizes."""
    try:
        return engine.layout(sizes, None, None).world
    except LayoutError:
        return None


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_the_axes_that_add_ranks_are_those_of_the_layouts(engine: Engine) -> None:
    compared = 0
    for name in engine.sizes:
        adds = name in RANK_AXES and name not in SUBDIVIDED.get(engine.name, ())
        for others in ({}, {"tensor": 4}, {"data": 4}):
            before, after = world(engine, others), world(engine, {**others, name: others.get(name, 1) * 2})
            if others.keys() <= set(engine.sizes) and before and after:
                assert after == before * (2 if adds else 1), (name, others)
                compared += 1
    assert compared >= len(set(engine.sizes) & set(RANK_AXES))


def test_data_is_derived_only_where_the_engine_takes_it() -> None:
    sizes = Parallel(tensor=4, pipeline=2)
    derived = {name: derive(Plan(engine=name, parallel=sizes, nodes=2), 16).parallel.data for name in ENGINES}
    assert derived["megatron"] == derived["deepspeed"] == derived["torch"] == 2
    assert derived["tensorrt_llm"] is derived["torchtitan"] is derived["accelerate"] is None
    sglang = Plan(engine="sglang", parallel=Parallel(tensor=4, context=2), nodes=2)
    assert derive(sglang, 8).parallel.data == 2


LINES = WHOLE.splitlines(keepends=True)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A valid plan with one span of its text replaced."""
    start = draw(st.integers(0, len(WHOLE)))
    end = draw(st.integers(start, min(len(WHOLE), start + 12)))
    trap = st.sampled_from(
        ["", "010", "on", "~", "2.0", "&a ", "*a", "!!int ", "[", "{", "\t", "? ", "<<: ", "\n---\n", '"']
    )
    return WHOLE[:start] + draw(st.one_of(trap, st.text(max_size=6))) + WHOLE[end:]


@given(st.one_of(st.text(), mutated(), st.permutations(LINES).map("".join)))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_plan_or_one_sentence(text: str) -> None:
    outcome = read(text)
    if isinstance(outcome, PlanError):
        assert str(outcome).isprintable()
        assert outcome.problem
    else:
        assert outcome.engine in ENGINES
        assert msgspec.convert(msgspec.to_builtins(outcome), Plan) == outcome


@given(st.binary(max_size=60))
@settings(max_examples=50, deadline=None)
def test_any_bytes_are_a_plan_or_one_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(data)
    with pytest.raises(PlanError):
        read_plan(path)
