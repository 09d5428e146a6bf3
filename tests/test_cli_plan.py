"""`topocheck plan`."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topocheck.cli.main import run
from topocheck.declaration import SCHEMA
from topocheck.engines import ENGINES

FLAT = [HealthCheck.function_scoped_fixture]
VLLM = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: [gpu-a, gpu-b]\nmodel: {layers: 61}\n"
MEGATRON = (
    "engine: megatron\nparallel: {tensor: 2, pipeline: 2}\nnodes: [gpu-a, gpu-b]\nmodel: {layers: 32}\n"
)


def written(folder: Path, text: str) -> str:
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def blocks(out: str) -> list[list[list[str]]]:
    """Cells of each table, its head first: stages if the rows do not hold them, ranks, groups."""
    return [
        [re.split(r"  +", line.strip()) for line in block.splitlines()] for block in out.split("\n\n")[1:]
    ]


def rows(out: str) -> list[list[str]]:
    """Cells of the table of ranks, its head first."""
    return next(block for block in blocks(out) if block[0][0] == "rank")


def test_vllm_has_tp_innermost_and_gives_early_stages_the_odd_layer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", written(tmp_path, VLLM)]) == 0
    out = capsys.readouterr().out
    assert rows(out) == [
        ["rank", "tp", "stage", "layers", "node", "local", "GPU"],
        *[[f"{r}", f"{r}", "0", "0..30 + embedding", "gpu-a", f"{r}", f"{r}"] for r in range(4)],
        *[
            [f"{r}", f"{r - 4}", "1", "31..60 + final norm, head", "gpu-b", f"{r - 4}", f"{r - 4}"]
            for r in range(4, 8)
        ],
    ]
    assert blocks(out)[-1] == [
        ["group", "size", "groups", "nodes", "ranks"],
        ["tp", "4", "2", "1", "0..3 | 4..7"],
        ["pp", "2", "4", "2", "0 4 | 1 5 | 2 6 | 3 7"],
    ]
    assert out.startswith("vLLM: 8 ranks on 2 nodes\n")


def test_megatron_has_data_between_tp_and_pp_and_data_follows_from_the_world(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "--world", "8", written(tmp_path, MEGATRON)]) == 0
    out = capsys.readouterr().out
    assert rows(out)[0] == ["rank", "tp", "dp", "stage", "layers", "node", "local", "GPU"]
    assert [row[1:4] for row in rows(out)[1:]] == [
        ["0", "0", "0"],
        ["1", "0", "0"],
        ["0", "1", "0"],
        ["1", "1", "0"],
        ["0", "0", "1"],
        ["1", "0", "1"],
        ["0", "1", "1"],
        ["1", "1", "1"],
    ]
    assert "data 2: it follows from a world of 8 ranks" in out
    assert next(row[:3] for row in blocks(out)[-1] if row[0] == "embedding") == ["embedding", "2", "4"]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_has_a_table(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"engine: {engine}\nparallel: {{tensor: 2}}\nnodes: [a, b]\nmodel: {{layers: 9}}\n"
    assert run(["plan", written(tmp_path, text)]) == 0
    assert [row[0] for row in rows(capsys.readouterr().out)] == ["rank", "0", "1"]


def test_interleaved_layers_are_shown_chunk_by_chunk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "engine: megatron\nparallel: {pipeline: 2}\nnodes: [a]\nmodel: {layers: 8}\nlayers: Ettt|tt|tt|tL\n"
    )
    assert run(["plan", written(tmp_path, text)]) == 0
    table = rows(capsys.readouterr().out)
    assert [row[2] for row in table[1:]] == [
        "0..2, 5..6 + embedding",
        "3..4, 7..7 + final norm, head, loss",
    ]


def test_a_long_table_is_cut_unless_all_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "engine: vllm\nparallel: {tensor: 8, pipeline: 16}\nnodes: 16\n")
    assert run(["plan", path]) == 0
    out = capsys.readouterr().out
    assert "\n... and 64 more ranks; --all shows them\n\ngroup" in out
    assert len(rows(out)) == 1 + 64 + 1
    assert run(["plan", "--all", path]) == 0
    assert len(rows(capsys.readouterr().out)) == 1 + 128


def test_json_has_all_ranks_and_what_was_assumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--json", written(tmp_path, VLLM)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["world"], found["nodes"]) == (SCHEMA, 8, ["gpu-a", "gpu-b"])
    assert found["sizes"] == {"dp": 1, "pp": 2, "cp": 1, "tp": 4}
    assert found["unplaced"] is None
    assert found["assumptions"]
    assert found["ranks"][5] == {
        "rank": 5,
        "coordinates": {"dp": 0, "pp": 1, "cp": 0, "tp": 1},
        "node": "gpu-b",
        "local_rank": 1,
        "gpu_index": 1,
        "layers": [[31, 61]],
    }
    assert found["groups"] == {
        "tp": [[0, 1, 2, 3], [4, 5, 6, 7]],
        "pp": [[0, 4], [1, 5], [2, 6], [3, 7]],
        "dp": [[rank] for rank in range(8)],
    }
    assert found["stages"] == [
        {"stage": 0, "layers": [[0, 31]], "modules": ["embedding"]},
        {"stage": 1, "layers": [[31, 61]], "modules": ["final_norm", "head"]},
    ]


def test_hostfile_and_rankfile_say_the_same_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, VLLM)
    assert run(["plan", "--hostfile", path]) == 0
    assert capsys.readouterr().out == "gpu-a slots=4\ngpu-b slots=4\n"
    assert run(["plan", "--rankfile", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    hosts = [("gpu-a", slot) for slot in range(4)] + [("gpu-b", slot) for slot in range(4)]
    assert lines == [f"rank {rank}={host} slot={slot}" for rank, (host, slot) in enumerate(hosts)]


@pytest.mark.parametrize("form", ["--hostfile", "--rankfile"])
@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("2", "the plan names no nodes"),
        ("[a, b, c]", "8 ranks do not divide over 3 nodes"),
        ("['a=b', c]", "'a=b' cannot stand in a hostfile"),
    ],
)
def test_an_order_without_hosts_is_refused(
    form: str, nodes: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"engine: vllm\nparallel: {{tensor: 4, pipeline: 2}}\nnodes: {nodes}\n"
    assert run(["plan", form, written(tmp_path, text)]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert said in told.err


def test_ranks_without_a_place_are_a_dash_and_the_reason_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "engine: sglang\nparallel: {tensor: 4, pipeline: 3}\nnodes: 2\n"
    assert run(["plan", written(tmp_path, text)]) == 0
    out = capsys.readouterr().out
    assert "unknown  which node a rank is on: SGLang: neither of pp_size 3" in out
    assert rows(out)[1] == ["0", "0", "0", "embedding", "-", "-", "-"]
    assert blocks(out)[-1][1][:4] == ["tp", "4", "3", "-"]


def test_bounds_of_nodes_show_the_fewest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "engine: vllm\nparallel: {tensor: 4}\nnodes: {min: 2, max: 4}\n"
    assert run(["plan", written(tmp_path, text)]) == 0
    assert "2 nodes, the fewest that the plan allows" in capsys.readouterr().out


def test_layers_of_a_list_need_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "engine: vllm\nparallel: {pipeline: 2}\nnodes: 1\nlayers: [3, 5]\n"
    assert run(["plan", written(tmp_path, text)]) == 0
    assert [row[2].partition(" ")[0] for row in rows(capsys.readouterr().out)] == ["layers", "0..2", "3..7"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "engine: vllm\nparallel: {pipeline: 2}\nnodes: 1\nmodel: {layers: 9}\nlayers: [4, 4]\n",
            "sums to 8",
        ),
        ("engine: vllm\nparallel: {tensr: 2}\nnodes: 1\n", "plan.yaml:2: unknown key 'tensr'"),
        ("engine: megatron\nparallel: {expert: 2}\nnodes: 1\n", "not divisible"),
        ("", "plan.yaml"),
    ],
)
def test_a_plan_that_the_engine_or_the_reader_refuses_is_one_sentence(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", written(tmp_path, text)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert told.err.count("\n") == 1


def test_a_world_that_the_sizes_cannot_make_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "--world", "12", written(tmp_path, VLLM)]) == 2
    assert "world_size (12) is not divisible by 8" in capsys.readouterr().err


def test_a_launch_command_is_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["vllm", "serve", "m", "--tensor-parallel-size", "8", "-pp", "2"]
    assert run(["plan", "--nodes", "n[1-2]", "--", *command]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("vLLM: 16 ranks on 2 nodes")
    assert "assumed  tensor 8: --tensor-parallel-size" in shown
    assert "n2" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--", "vllm", "serve", "m", "-tp", "8"], "give --nodes N"),
        (["--", "torchrun", "--nnodes", "2", "train.py"], "torchrun starts 'train.py'"),
        (["--", "ls"], "nothing that topocheck knows"),
        (["--"], "there is no command after --"),
        (["plan.yaml", "--", "vllm", "serve"], "not both"),
        (["--nodes", "2", "plan.yaml"], "--nodes is for a launch command"),
        (["--nodes", "a,a", "--", "vllm", "serve"], "a node stands twice"),
        (["--nodes", "0", "--", "vllm", "serve"], "expected a number from 1"),
        (
            ["--", "mpirun", "-n", "16", "-H", "a:8,b:8", "trtllm-serve", "m", "--tp_size", "8"],
            "8 ranks and not 16",
        ),
        ([], "give a plan file, or -- and a launch command"),
    ],
)
def test_a_command_that_is_no_plan_is_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *arguments]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1


def test_a_plan_comes_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(VLLM.encode())))
    assert run(["plan", "-"]) == 0
    assert capsys.readouterr().out.startswith("vLLM: 8 ranks")


@given(
    engine=st.sampled_from(sorted(ENGINES)),
    sizes=st.dictionaries(st.sampled_from(["tensor", "pipeline", "data", "context"]), st.integers(1, 6)),
    nodes=st.integers(1, 5),
    layers=st.integers(1, 20),
    form=st.sampled_from(["--json", "--all", "--hostfile", "--rankfile", "--node-ranks", "--srun"]),
)
@settings(max_examples=50, deadline=None, suppress_health_check=FLAT)
def test_any_sizes_are_written_out_or_refused(  # noqa: PLR0917 - one parameter a size
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    engine: str,
    sizes: dict[str, int],
    nodes: int,
    layers: int,
    form: str,
) -> None:
    names = ", ".join(f"host-{n}" for n in range(nodes))
    text = f"engine: {engine}\nparallel: {json.dumps(sizes)}\nnodes: [{names}]\nmodel: {{layers: {layers}}}\n"
    code = run(["plan", form, written(tmp_path, text)])
    told = capsys.readouterr()
    assert code in {0, 2}, told.err
    assert (told.out == "") is (code == 2)
    if form == "--json" and code == 0:
        found = json.loads(told.out)
        assert [rank["rank"] for rank in found["ranks"]] == list(range(found["world"]))


TIED = """\
engine: megatron
parallel: {tensor: 8, pipeline: 2, data: 2}
nodes: [b-1, b-2, b-3, b-4]
model: {layers: 32, tied: true}
"""


def test_rows_too_long_for_a_terminal_leave_modules_to_a_table_of_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", written(tmp_path, TIED)]) == 0
    out = capsys.readouterr().out
    assert blocks(out)[0] == [
        ["stage", "layers", "modules"],
        ["0", "0..15", "embedding"],
        ["1", "16..31", "final norm, head, embedding copy, loss"],
    ]
    assert rows(out)[1] == ["0", "0", "0", "0", "0..15", "b-1", "0", "0"]
    assert max(map(len, out.splitlines())) <= 80


def test_a_mapping_of_the_engines_options_splits_the_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "engine: megatron\nparallel: {pipeline: 4}\nnodes: 1\nmodel: {layers: 48}\n"
        "layers: {first_stage: 10, last_stage: 8}\n"
    )
    assert run(["plan", "--json", written(tmp_path, text)]) == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert [stage["layers"] for stage in stages] == [[[0, 10]], [[10, 25]], [[25, 40]], [[40, 48]]]


MEGATRON_COMMAND = (
    "pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers 30 "
    "--decoder-first-pipeline-num-layers 14"
)


def planned(command: str, *options: str) -> list[str]:
    return ["plan", *options, "--", *command.split()]


def test_a_launch_command_is_placed_by_its_launchers_rule(capsys: pytest.CaptureFixture[str]) -> None:
    srun = f"srun -N 2 --ntasks-per-node=4 --distribution=cyclic -w n[1-2] python {MEGATRON_COMMAND}"
    assert run(planned(srun, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert [rank["node"] for rank in found["ranks"]] == ["n1", "n2"] * 4
    assert [rank["local_rank"] for rank in found["ranks"]] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found["stages"][0]["layers"] == [[0, 14]]
    assert any("srun puts them (--distribution=cyclic)" in line for line in found["assumptions"])
    assert run(planned(srun, "--srun")) == 0
    assert "--ntasks-per-node=4 --distribution=cyclic --nodelist=n1,n2" in capsys.readouterr().out


def test_what_the_engines_own_flags_say_of_gpus_counts(capsys: pytest.CaptureFixture[str]) -> None:
    command = "python -m sglang.launch_server --model m --tp 2 --pp 2 --base-gpu-id 1 --gpu-id-step 2"
    assert run(planned(command, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert [rank["gpu_index"] for rank in found["ranks"]] == [1, 3, 3, 5]  # SGLang's own collision
    assert [rank["local_rank"] for rank in found["ranks"]] == [0, 1, 2, 3]
    assert any("--base-gpu-id 1, --gpu-id-step 2" in line for line in found["assumptions"])


def test_two_ranks_on_one_gpu_are_a_clash(capsys: pytest.CaptureFixture[str]) -> None:
    command = "mpirun -np 8 -H a:4,b:4 --map-by node trtllm-serve m --tp_size 8"
    assert run(planned(command)) == 0
    out = capsys.readouterr().out
    assert "clash    ranks 0, 4 drive one GPU: GPU 0 of a" in out
    assert "and 1 more GPUs with several ranks" in out


def test_an_order_that_the_launcher_does_not_show_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"srun -N 2 --ntasks-per-node=4 -m arbitrary python {MEGATRON_COMMAND}"
    assert run(planned(command)) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "unknown which node a rank is on: srun: --distribution=arbitrary follows SLURM_HOSTFILE" in out


def test_node_ranks_are_a_table_with_the_master_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "--node-ranks", written(tmp_path, VLLM)]) == 0
    assert capsys.readouterr().out == (
        "gpu-a  --nnodes 2 --node-rank 0 --master-addr gpu-a\n"
        "gpu-b  --nnodes 2 --node-rank 1 --master-addr gpu-a --headless\n"
    )


WORLDS = """\
engine: vllm
model: {layers: 8}
worlds:
  prefill: {parallel: {tensor: 4}, nodes: [a]}
  decode: {parallel: {tensor: 2, pipeline: 2}, nodes: [a, b]}
"""


def test_each_world_is_listed_under_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, WORLDS)
    assert run(["plan", path]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("World")] == [
        "World prefill: vLLM, 4 ranks on 1 node",
        "World decode: vLLM, 4 ranks on 2 nodes",
    ]
    assert run(["plan", "--json", path]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(rank["world"], rank["rank"]) for rank in found["ranks"]] == [
        (world, rank) for world in ("prefill", "decode") for rank in range(4)
    ]
    assert found["worlds"]["decode"]["groups"]["tp"] == [[0, 1], [2, 3]]
    decode = [(rank["node"], rank["gpu_index"]) for rank in found["ranks"][4:]]
    assert decode == [("a", 4), ("a", 5), ("b", 0), ("b", 1)]
    assert run(["plan", "--hostfile", path]) == 2
    assert "the plan has several (prefill, decode)" in capsys.readouterr().err
    assert run(["plan", "--world", "4", path]) == 2
    assert "--world counts the ranks of one world" in capsys.readouterr().err
