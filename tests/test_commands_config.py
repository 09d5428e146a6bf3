"""Configuration files that a command names are read where it will run, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.commands import Launch, parse_command
from topocheck.commands.documents import Node, parse_documents
from topocheck.errors import InputError


def launch(folder: Path, command: str, **files: str) -> Launch:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return parse_command(command, folder)


def stated(found: Launch) -> dict[str, tuple[str, str]]:
    return {axis: (value.text, value.origin) for axis, value in found.sizes.items()}


def test_vllm_takes_flags_from_yaml_and_the_command_wins(tmp_path: Path) -> None:
    text = (
        "# sizes\nmodel: m\ntensor-parallel-size: 4\npipeline_parallel_size: 2\nenable-expert-parallel: no\n"
    )
    found = launch(tmp_path, "vllm serve --config serve.yaml -pp 4", serve_yaml=text)
    assert stated(found) == {"tensor": ("4", "serve.yaml:3"), "pipeline": ("4", "-pp")}
    assert found.model is not None
    assert found.model.origin == "serve.yaml:2"


def test_sglang_takes_flags_from_yaml_and_the_command_wins(tmp_path: Path) -> None:
    text = "tp-size: 16\nnnodes: 2\nenable_dp_attention: true\ndp-size: 4\n"
    found = launch(tmp_path, "python -m sglang.launch_server --config s.yaml --tp 8", s_yaml=text)
    assert {axis: value for axis, (value, _) in stated(found).items()} == {
        "tensor": "8",
        "attention_data": "4",
    }
    assert found.nodes is not None
    assert found.nodes.origin == "s.yaml:2"


def test_trtllm_lets_its_yaml_win(tmp_path: Path) -> None:
    text = "tensor_parallel_size: 8\nenable_attention_dp: true\npp_partition: [16, 16]\n"
    found = launch(tmp_path, "trtllm-serve m --tp_size 4 --extra_llm_api_options x.yaml", x_yaml=text)
    assert stated(found)["tensor"] == ("8", "x.yaml:1")
    assert stated(found)["attention_data"] == ("8", "x.yaml:2")
    assert found.layers is not None
    assert found.layers.text == "16,16"


def test_deepspeed_json_says_the_tensor_size(tmp_path: Path) -> None:
    text = '{\n\t"train_batch_size": 8,\n\t"tensor_parallel": {\n\t\t"autotp_size": 4\n\t}\n}\n'
    found = launch(tmp_path, "deepspeed --num_gpus 8 t.py --deepspeed ds.json", ds_json=text)
    assert stated(found) == {"tensor": ("4", "ds.json:4")}


def test_accelerate_yaml_says_processes_and_sizes(tmp_path: Path) -> None:
    text = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\n"
        "machine_rank: 1\nmain_process_ip: 10.0.0.9\nmain_process_port: 29500\n"
        "parallelism_config:\n  parallelism_config_tp_size: 4\n"
    )
    found = launch(tmp_path, "accelerate launch --config_file a.yaml --machine_rank 0 t.py", a_yaml=text)
    assert stated(found) == {"tensor": ("4", "a.yaml:9")}
    assert found.processes == 16
    assert found.nodes is not None
    assert found.nodes.text == "2"
    assert found.node_rank is not None
    assert found.node_rank.text == "0"
    assert found.rendezvous["master"].text == "10.0.0.9:29500"


def test_host_files_are_read_where_the_command_runs(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# ours\nw1 slots=4\nw2 slots=4\n")
    found = parse_command("deepspeed --hostfile hosts t.py", tmp_path)
    assert (found.processes, found.nodes and found.nodes.text) == (8, "2")
    found = parse_command("mpirun -np 8 --hostfile hosts trtllm-serve m --tp_size 8", tmp_path)
    assert [(host.host, host.slots) for host in found.hosts] == [("w1", 4), ("w2", 4)]
    (tmp_path / "hydra").write_text("w1:4\nw2:4\n")
    found = parse_command("mpiexec -n 8 -f hydra x", tmp_path)
    assert [(host.host, host.slots) for host in found.hosts] == [("w1", 4), ("w2", 4)]


def test_without_a_folder_nothing_is_read_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "serve.yaml").write_text("tensor-parallel-size: 4\n")
    found = parse_command(f"vllm serve --config {tmp_path}/serve.yaml")
    assert found.sizes == {}
    assert found.unread == (f"{tmp_path}/serve.yaml",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1\nb: 2\n", "x.yaml:2: is not valid YAML"),
        ("- a\n- b\n", "x.yaml:1: expected keys and values"),
        ("a: 1\n---\nb: 2\n", "x.yaml:3: holds several documents"),
        ("a: " + "[" * 90 + "]" * 90, "x.yaml:1: is nested too deeply"),
        ("a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 8)}]\n" for n in range(8)
        ), "its aliases make it too large"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_sentence_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        launch(tmp_path, "vllm serve --config x.yaml", x_yaml=text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.yaml: there is no such file"):
        launch(tmp_path, "sglang serve m --config gone.yaml")
    with pytest.raises(InputError, match="there is no such file"):
        launch(tmp_path, "deepspeed --hostfile gone t.py")


def test_nothing_is_constructed_from_a_document() -> None:
    (node,) = parse_documents("a: !!python/object:os.system {x: 1}\nb: 010\nc: on\nd: ~\n", "x")
    assert node.at("b") == "010"
    assert node.at("c") == "on"
    assert node.get("d") == Node(4)
    assert node.at("a", "x") == "1"


@given(st.text(st.sampled_from("ab:-[]{}\"'&*!|>\n\t #%0,?"), max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_text_is_documents_or_an_error(text: str) -> None:
    try:
        found = parse_documents(text, "x")
    except InputError as error:
        found, refused = [], str(error)
        assert refused.startswith("x")
    assert all(isinstance(name, str) for node in found for name, _ in node.leaves())
