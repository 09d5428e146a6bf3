"""A launch command becomes a plan, or one sentence says what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.commands import origins, parse_command, to_plan, world_of
from topocheck.errors import UsageError
from topocheck.plan import Model, NodeRange, Parallel, Plan

TP, PP = "--tensor-model-parallel-size", "--pipeline-model-parallel-size"


def plan(command: str) -> Plan:
    return to_plan(parse_command(command))


def refusal(command: str) -> str:
    with pytest.raises(UsageError) as caught:
        plan(command)
    return str(caught.value)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve m -tp 8 -pp 2 --nnodes 2",
         Plan(engine="vllm", parallel=Parallel(tensor=8, pipeline=2), nodes=2)),
        ("vllm serve m -tp 4 --distributed-executor-backend mp",
         Plan(engine="vllm", parallel=Parallel(tensor=4), nodes=1)),
        ("vllm serve m", Plan(engine="vllm", nodes=1)),
        ("srun -N 2 vllm serve m -tp 16", Plan(engine="vllm", parallel=Parallel(tensor=16), nodes=2)),
        ("VLLM_PP_LAYER_PARTITION=15,17 vllm serve m -pp 2 --nnodes 2",
         Plan(engine="vllm", parallel=Parallel(pipeline=2), nodes=2, layers="15,17")),
        ("sglang serve m --tp 8", Plan(engine="sglang", parallel=Parallel(tensor=8), nodes=1)),
        ("trtllm-serve m --tp_size 4", Plan(engine="tensorrt_llm", parallel=Parallel(tensor=4), nodes=1)),
        ("mpirun -np 8 -H a:4,b:4 trtllm-serve m --tp_size 8",
         Plan(engine="tensorrt_llm", parallel=Parallel(tensor=8), nodes=("a", "b"))),
        (f"torchrun --nnodes 2 --nproc_per_node 8 p.py {TP} 4 --use-tp-pp-dp --num-layers 32",
         Plan(engine="megatron", parallel=Parallel(tensor=4, data=4), nodes=2, order="tp-cp-ep-pp-dp",
              model=Model(layers=32, tied=True))),
        ("torchrun --nnodes 2 --nproc_per_node 8 -m torchtitan.train --parallelism.tensor_parallel_degree 8",
         Plan(engine="torchtitan", parallel=Parallel(tensor=8, data_shard=2), nodes=2)),
        ("deepspeed --num_gpus 4 t.py", Plan(engine="deepspeed", parallel=Parallel(data=4), nodes=1)),
        ("deepspeed --include a:0,1@b:0,1 t.py",
         Plan(engine="deepspeed", parallel=Parallel(data=4), nodes=("a", "b"))),
        ("accelerate launch --num_processes 8 --num_machines 2 --use_fsdp t.py",
         Plan(engine="accelerate", parallel=Parallel(data_shard=8), nodes=2)),
        ("accelerate launch --num_processes 8 t.py",
         Plan(engine="accelerate", parallel=Parallel(data_replicate=8), nodes=1)),
        ("accelerate launch --num_processes 8 --use_megatron_lm --megatron_lm_tp_degree 4 t.py",
         Plan(engine="megatron", parallel=Parallel(tensor=4, data=2), nodes=1)),
    ],
)  # fmt: skip
def test_a_command_is_a_plan(command: str, expected: Plan) -> None:
    assert plan(command) == expected


def test_an_elastic_job_has_a_range_of_nodes() -> None:
    launch = parse_command("torchrun --nnodes 1:4 --nproc_per_node 8 sglang.launch_server --tp 8")
    assert to_plan(launch).nodes == NodeRange(min=1, max=4)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("vllm serve m -tp 16", "does not say on how many nodes vLLM runs: give --nodes N"),
        ("vllm serve m -tp 16 --distributed-executor-backend ray", "runs under Ray: give --nodes N"),
        ("vllm serve m -tp $TP --nnodes 2", "-tp $TP: only the shell that runs it knows"),
        ("vllm serve m -tp 8 --nnodes $N", "--nnodes $N: only the shell"),
        ("vllm serve m -tp 0 --nnodes 2", "-tp 0: tensor must be a number from 1"),
        ("vllm serve m -tp eight --nnodes 2", "-tp eight: tensor must be a number"),
        ("vllm serve m --config x.yaml", "takes settings from x.yaml"),
        ("torchrun --nproc-per-node 8 train.py", "torchrun starts 'train.py', whose sizes"),
        ("srun -N 2", "srun starts no program"),
        ("mpirun -np 8 trtllm-serve m --tp_size 8", "on how many nodes TensorRT-LLM runs"),
        ("srun python p.py --tensor-model-parallel-size 2", "does not say how many processes run"),
        (
            "torchrun --nproc-per-node 6 p.py --tensor-model-parallel-size 4",
            "6 processes are not divisible by",
        ),
        (
            "torchrun --nproc-per-node auto p.py --tensor-model-parallel-size 4",
            "does not say how many processes",
        ),
        ("torchrun -m torchtitan.train --job.config_file a.toml", "takes settings from a.toml"),
        (
            "accelerate launch --num_processes 8 --use_fsdp --fsdp_sharding_strategy HYBRID_SHARD t.py",
            "HYBRID_SHARD",
        ),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(command: str, said: str) -> None:
    words = refusal(command)
    assert said in words
    assert "\n" not in words


def test_what_the_command_leaves_open_can_be_given() -> None:
    launch = parse_command("vllm serve m -tp 16")
    assert to_plan(launch, nodes=2).nodes == 2
    assert to_plan(launch, nodes=["a", "b"]).nodes == ("a", "b")


def test_every_value_says_where_it_comes_from() -> None:
    launch = parse_command("srun -N2 vllm serve m --tensor-parallel-size 8 --foo bar")
    said = origins(launch)
    assert "engine vllm: the command starts vllm serve" in said
    assert "tensor 8: --tensor-parallel-size" in said
    assert "nodes 2: srun -N" in said
    assert "pipeline 1, vLLM's default" in said
    assert "not used, and its meaning not guessed: --foo bar" in said


SPLIT = "torchrun --nproc_per_node 4 p.py --pipeline-model-parallel-size 4 --num-layers 30 "


@pytest.mark.parametrize(
    ("flags", "layers"),
    [
        ("--decoder-first-pipeline-num-layers 6", {"first_stage": 6}),
        (
            "--decoder-last-pipeline-num-layers 0 --num-virtual-stages-per-pipeline-rank 2",
            {"last_stage": 0, "virtual_stages": 2},
        ),
        (
            "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
            {"account_for_embedding": True, "account_for_loss": True},
        ),
        ("--num-layers-per-virtual-pipeline-stage 3", {"layers_per_virtual_stage": 3}),
        ("--pipeline-model-parallel-layout Et*10|t*10|t*10|L", "Et*10|t*10|t*10|L"),
        (
            "--pipeline-model-parallel-layout Et*10|t*10|t*10|mL --mtp-num-layers 1",
            {"layout": "Et*10|t*10|t*10|mL", "mtp_layers": 1},
        ),
    ],
)
def test_flags_that_split_the_layers_are_words_of_the_plan(flags: str, layers: object) -> None:
    launch = parse_command([*SPLIT.split(), *flags.split()])
    found = to_plan(launch)
    assert found.layers == layers
    assert found.model == Model(layers=30, tied=True)
    if isinstance(layers, dict):
        said = origins(launch)
        assert all(
            any(line.startswith(f"layers.{word} ") for line in said) for word in {*layers} - {"layout"}
        )


def test_megatron_ties_its_embeddings_unless_told() -> None:
    launch = parse_command(SPLIT + "--untie-embeddings-and-output-weights")
    assert to_plan(launch).model == Model(layers=30, tied=False)
    assert "tied false: --untie-embeddings-and-output-weights" in origins(launch)
    assert any(line.startswith("tied true, Megatron's default") for line in origins(parse_command(SPLIT)))


@pytest.mark.parametrize(
    ("schedule", "layers"),
    [
        ("1F1B", None),
        ("Interleaved1F1B", {"virtual_stages": 2}),
        ("ZBVZeroBubble", {"virtual_stages": 2, "style": "v"}),
    ],
)
def test_a_schedule_of_torchtitan_has_its_virtual_stages(schedule: str, layers: object) -> None:
    command = (
        "torchrun --nproc_per_node 4 -m torchtitan.train --parallelism.pipeline_parallel_degree 4 "
        f"--parallelism.pipeline_parallel_schedule {schedule}"
    )
    assert plan(command).layers == layers


def test_a_local_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps({"num_hidden_layers": 61, "hidden_size": 7168}))
    launch = parse_command("vllm serve m -tp 2 --nnodes 1", tmp_path)
    model = to_plan(launch, folder=tmp_path).model
    assert model is not None
    assert (model.layers, model.hidden) == (61, 7168)
    assert to_plan(launch).model is None
    assert to_plan(parse_command("vllm serve other/m --nnodes 1"), folder=tmp_path).model is None


def test_only_engines_that_read_their_ranks_have_the_launchers_world() -> None:
    assert world_of(parse_command("mpirun -np 8 trtllm-serve m --tp_size 4")) == 8
    assert world_of(parse_command("srun -N2 -n2 vllm serve m -tp 16")) is None


@given(
    tensor=st.integers(1, 9), pipeline=st.integers(1, 5), nodes=st.integers(1, 5), each=st.integers(1, 9),
    engine=st.sampled_from([
        "vllm serve m -tp {t} -pp {p} --nnodes {n}",
        "sglang serve m --tp {t} --pp {p} --nnodes {n}",
        f"torchrun --nnodes {{n}} --nproc-per-node {{e}} p.py {TP} {{t}} {PP} {{p}}",
        "srun -N {n} --ntasks-per-node {e} trtllm-serve m --tp_size {t} --pp_size {p}",
    ]),
)  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_sizes_come_through_as_they_are_or_are_refused(
    tensor: int, pipeline: int, nodes: int, each: int, engine: str
) -> None:
    command = engine.format(t=tensor, p=pipeline, n=nodes, e=each)
    if "torchrun" in command and nodes * each % (tensor * pipeline):
        assert "not divisible" in refusal(command)
        return
    found = plan(command)
    assert (found.parallel.tensor, found.parallel.pipeline, found.nodes) == (tensor, pipeline, nodes)
