"""`topocheck balance` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors_files import write_file, write_model
from shell import topocheck

from topocheck.errors import UsageError
from topocheck.pipeline.bytesize import parse_bytes, spell_bytes
from topocheck.schema import schema_for

CONFIGS: dict[str, dict[str, Any]] = {
    model["name"]: model["config"]
    for model in json.loads((Path(__file__).parent / "architectures.json").read_text())
}


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """Config of a model of 70 billion parameters."""
    return config(tmp_path, "llama-3.1-70b")


def config(folder: Path, name: str, **changed: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(CONFIGS[name] | changed))
    return path


def test_stages_are_weighed_and_the_override_is_given(llama: Path) -> None:
    ran = topocheck("balance", "config.json", "--engine", "vllm", "-t", "4", "-p", "4", cwd=llama.parent)
    assert ran.code == 0
    assert ran.err == ""
    words = " ".join(ran.out.split())
    for fact in (
        "80 layers, 70,553,706,496 parameters, 131.4 GiB (bfloat16)",
        "layers 0-79 1.594 GiB each: attention 288 MiB, mlp 1.312 GiB, norm 32 KiB",
        "vLLM, tensor 4 x pipeline 4",
        "0 0-19 (20) 33.83 GiB 8.459 GiB + embedding",
        "3 60-79 (20) 33.83 GiB 8.459 GiB + norm, head",
        "balances best: 19,21,21,19",
        "set VLLM_PP_LAYER_PARTITION=19,21,21,19",
        "vLLM 0.33.0 is taken for the engine's version",
    ):
        assert fact in words
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ("sglang", "SGLANG_PP_LAYER_PARTITION=17,15,15,14"),
        ("trtllm", "pp_partition: [17,15,15,14]"),
        ("megatron-lm", "--pipeline-model-parallel-layout 'Et*17|t*15|t*15|t*14L'"),
    ],
)
def test_each_engine_has_its_own_words(engine: str, line: str, tmp_path: Path) -> None:
    path = config(tmp_path, "deepseek-v3")
    ran = topocheck("balance", path, "--engine", engine, "-p", "4")
    assert ran.code == 0
    assert f"  set           {line}" in ran.out.splitlines()
    assert "layers 0-2 " in ran.out
    assert "layers 3-60 " in ran.out


def test_the_document_fits_its_schema(llama: Path) -> None:
    for more in (["--by", "parameters"], ["--stage-times", "4,11"], ["--gpu-memory", "8GiB"]):
        ran = topocheck("balance", llama, "--engine", "vllm", "-p", "2", "--json", *more)
        document = json.loads(ran.out)
        jsonschema.Draft202012Validator(schema_for("balance")).validate(document)
        assert document["schema"] == "topocheck.balance/1"
        assert document["model"]["parameters"] == 70_553_706_496


def test_measured_times_move_layers(tmp_path: Path) -> None:
    path = config(tmp_path, "llama-3.2-3b")
    ran = topocheck("balance", path, "--engine", "vllm", "-p", "3", "--stage-times", "4,11,5")
    words = " ".join(ran.out.split())
    assert "1 9-18 (10) 1.875 GiB 1.875 GiB 11 ms" in words
    assert "balances best: 11,6,11" in words
    assert "results every 7.2 ms at best in place of every 11 ms" in words
    assert "Measure again after the change" in words


def test_a_measured_run_gives_the_times(tmp_path: Path) -> None:
    path = config(tmp_path, "llama-3.2-3b")
    units = tmp_path / "units.jsonl"
    lines = []
    for unit in range(3):
        start = unit * 100
        for stage, took in enumerate((4, 11, 5)):
            lines.append(
                {"unit": unit, "stage": stage, "compute_start_ms": start, "compute_end_ms": start + took}
            )
            start += took
    units.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ran = topocheck("balance", path, "--engine", "vllm", "--from-trace", units, "--json")
    document = json.loads(ran.out)
    assert [stage["load"] for stage in document["current"]["stages"]] == [4_000_000, 11_000_000, 5_000_000]
    assert document["override"]["value"] == "11,6,11"
    assert document["sources"]["times"] == str(units)


def test_training_says_what_else_memory_must_hold(llama: Path) -> None:
    ran = topocheck("balance", llama, "--engine", "megatron", "-t", "8", "-p", "2", "--gpu-memory", "80GiB")
    assert "Gradients and optimiser states are not counted" in " ".join(ran.out.split())


def test_a_trace_that_is_none_is_one_sentence(llama: Path) -> None:
    ran = topocheck("balance", llama, "--engine", "vllm", "--from-trace", llama)
    assert ran.code == 2
    assert "is neither units of work nor a trace of the PyTorch profiler" in ran.err


def test_a_partition_that_does_not_fit_is_refused(llama: Path) -> None:
    times = ["--engine", "vllm", "-p", "2", "--stage-times", "4,11"]
    free = topocheck("balance", llama, *times)
    assert "VLLM_PP_LAYER_PARTITION=" in free.out
    ran = topocheck("balance", llama, *times, "--gpu-memory", "70GiB", "--reserve", "2GiB")
    words = " ".join(ran.out.split())
    assert ran.code == 0
    assert "would balance better, but a rank of stage 0 would hold" in words
    assert "of weights and has 68 GiB for them (CAP002)" in words
    none = topocheck("balance", llama, *times, "--gpu-memory", "40GiB")
    assert none.code == 1
    assert "no partition into 2 stages fits GPUs of 40 GiB with a reserve of 4 GiB (CAP002)" in " ".join(
        none.out.split()
    )
    assert none.err == ""


def test_a_plan_gives_engine_sizes_model_and_layers(llama: Path) -> None:
    plan = llama.with_name("plan.yaml")
    plan.write_text(
        "engine: vllm\nparallel: {tensor: 4, pipeline: 4}\nnodes: 2\nmodel: config.json\n"
        "layers: [10, 30, 20, 20]\n"
    )
    document = json.loads(topocheck("balance", "--from-plan", plan, "--json").out)
    assert document["current"]["layers_per_stage"] == [10, 30, 20, 20]
    assert document["current"]["rule"] == "VLLM_PP_LAYER_PARTITION=10,30,20,20"
    assert document["override"]["value"] == "19,21,21,19"
    changed = json.loads(
        topocheck("balance", "--from-plan", plan, "-p", "2", "--layers", "40,40", "--json").out
    )
    assert changed["current"]["layers_per_stage"] == [40, 40]
    other = json.loads(topocheck("balance", "--from-plan", plan, "--engine", "sglang", "--json").out)
    assert other["engine"] == "sglang"
    assert other["current"]["layers_per_stage"] == [20, 20, 20, 20]


def test_the_headers_of_a_folder_count(tmp_path: Path) -> None:
    small = {
        "model_type": "quite_new",
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 30,
        "vocab_size": 50,
    }
    layers = {f"model.layers.{n}.mlp.up_proj.weight": ("BF16", (30, 10)) for n in (0, 1)}
    write_model(tmp_path, small, [layers, {"lm_head.weight": ("BF16", (50, 10))}])
    for given_path in (tmp_path, tmp_path / "config.json"):
        ran = topocheck("balance", given_path, "--engine", "vllm", "-p", "2", "--json")
        document = json.loads(ran.out)
        assert document["model"]["source"] == "headers of 2 safetensors files"
        assert [stage["bytes"] for stage in document["current"]["stages"]] == [600, 1600]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["MODEL", "-p", "2"],
            "the engine is not known: give it, for instance --engine vllm, or --from-plan",
        ),
        (["--engine", "vllm", "-p", "2"], "the model is not known: give its folder or its config.json"),
        (["MODEL", "--engine", "vlm"], "unknown engine 'vlm': did you mean 'vllm'?"),
        (["MODEL", "--engine", "vllm", "-t", "3"], "64 attention heads are not divisible by 3 ranks"),
        (
            ["MODEL", "--engine", "vllm", "-t", "4", "-e", "4", "-p", "81"],
            "80 layers on 81 stages leave a stage",
        ),
        (
            ["MODEL", "--engine", "vllm", "-p", "2", "--layers", "40"],
            "has 1 entries, the pipeline has 2 stages",
        ),
        (["MODEL", "--engine", "vllm", "-p", "2", "--stage-times", "4"], "1 stage times for 2 stages"),
        (["MODEL", "--engine", "vllm", "-p", "2", "--stage-times", "4,x"], "expected a time above zero"),
        (["MODEL", "--engine", "vllm", "--by", "read", "--stage-times", "4"], "are three measures: give one"),
        (["MODEL", "--engine", "vllm", "--gpu-memory", "80"], "expected a size with its unit such as 80GiB"),
        (
            ["MODEL", "--engine", "vllm", "--reserve", "8GiB"],
            "--reserve is a part of --gpu-memory: give both",
        ),
        (
            ["MODEL", "--engine", "vllm", "--gpu-memory", "8GiB", "--reserve", "9GiB"],
            "a reserve of 9 GiB leaves nothing of 8 GiB for weights",
        ),
        (
            ["MODEL", "--engine", "megatron", "-p", "4", "--stage-times", "1,1,1,1", "--layers", "1"],
            "layers has 1",
        ),
        (
            ["nothing", "--engine", "vllm"],
            "nothing: there is no such file: give a model's folder or its config",
        ),
        (["/dev/zero", "--engine", "vllm"], "/dev/zero: there is no such file"),
    ],
)
def test_what_cannot_be_computed_is_one_sentence(arguments: list[str], sentence: str, llama: Path) -> None:
    ran = topocheck("balance", *(llama if word == "MODEL" else word for word in arguments))
    assert ran.code == 2
    assert ran.out == ""
    assert sentence in ran.err
    assert len(ran.err.splitlines()) == 1


def test_an_unknown_architecture_asks_for_the_files(tmp_path: Path) -> None:
    path = config(tmp_path, "llama-3.1-8b", model_type="quite_new")
    ran = topocheck("balance", path, "--engine", "vllm", "-p", "2")
    assert ran.code == 2
    assert ran.err == (
        f"topocheck: {path}: is of the architecture 'quite_new', whose weights topocheck does not know: "
        "give the folder with its safetensors files: their headers say it\n"
    )


def test_hostile_files_are_one_sentence(tmp_path: Path) -> None:
    config(tmp_path, "llama-3.1-8b")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../x.safetensors"}}')
    ran = topocheck("balance", tmp_path, "--engine", "vllm")
    assert ran.code == 2
    assert "names the file '../../x.safetensors'" in ran.err
    (tmp_path / "model.safetensors.index.json").unlink()
    write_file(tmp_path / "model.safetensors", {"\x1b[31mred": ("BF16", (2,))})
    ran = topocheck("balance", tmp_path, "--engine", "vllm")
    assert ran.code == 2
    assert "hold nothing of layer 0" in ran.err
    assert "\x1b" not in ran.err


@pytest.mark.parametrize(
    ("words", "size"),
    [("80GiB", 80 << 30), ("141 GB", 141 * 10**9), ("1.5mib", 3 << 19), ("512KiB", 512 << 10), ("7B", 7)],
)
def test_sizes_are_read_as_people_write_them(words: str, size: int) -> None:
    assert parse_bytes(words) == size


@given(st.text(max_size=12) | st.integers(0, 10**18).map(lambda size: f"{size}GiB"))
@settings(max_examples=50, deadline=None)
def test_any_text_is_a_size_or_one_sentence(words: str) -> None:
    size = size_of(words)
    assert size >= 0 if isinstance(size, int) else size.startswith("expected a size with its unit")


def size_of(words: str) -> int | str:
    try:
        return parse_bytes(words)
    except UsageError as error:
        return str(error)


def test_sizes_are_said_in_the_unit_that_they_fill() -> None:
    assert [spell_bytes(size) for size in (0, 1023, 1024, 5 << 29, 3 << 41)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "2.5 GiB",
        "6 TiB",
    ]
