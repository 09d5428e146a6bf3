"""A launch command says what it says: sizes, nodes, processes; the rest is kept and not guessed."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.commands import Launch, parse_command, parse_script
from topocheck.commands.command import FLAGS
from topocheck.commands.flags import Table, take
from topocheck.engines import ENGINES
from topocheck.errors import UsageError
from topocheck.plan import Parallel


def sizes(command: str) -> dict[str, str]:
    return {axis: value.text for axis, value in parse_command(command).sizes.items()}


def numbers(launch: Launch) -> tuple[str | None, str | None, int | None]:
    nodes, rank = launch.nodes, launch.node_rank
    return nodes.text if nodes else None, rank.text if rank else None, launch.processes


def test_every_engine_with_flags_is_an_engine_and_its_axes_are_its_own() -> None:
    for name, flags in FLAGS.items():
        axes = {*flags.table.values, *flags.defaults} & set(Parallel.__struct_fields__)
        assert axes <= set(ENGINES[name].sizes), name


def test_no_flag_is_written_down_twice() -> None:
    for flags in FLAGS.values():
        spelled = [flag for flags_ in flags.table.values.values() for flag in flags_.split()]
        spelled += [flag for flags_ in flags.table.switches.values() for flag in flags_.split()]
        assert len(spelled) == len(set(spelled))


@pytest.mark.parametrize(
    ("command", "engine", "found"),
    [
        ("vllm serve m -tp 8 -pp 2", "vllm", {"tensor": "8", "pipeline": "2"}),
        ("vllm serve m --tensor_parallel_size=8", "vllm", {"tensor": "8"}),
        ("vllm serve m --tensor-parallel 8 -tp 4", "vllm", {"tensor": "4"}),
        ("vllm serve m -tp 4 -pcp 2 -dcp 4 -dp 2", "vllm",
         {"tensor": "4", "context": "2", "decode_context": "4", "data": "2"}),
        ("vllm serve m -tp 4 -dp 2 -ep", "vllm", {"tensor": "4", "data": "2", "expert": "8"}),
        ("vllm serve m -tp 4 -ep --no-enable-expert-parallel", "vllm", {"tensor": "4"}),
        ("python3 -u -m vllm.entrypoints.openai.api_server --model m -tp 2", "vllm", {"tensor": "2"}),
        ("python -m sglang.launch_server --model-path m --tp 16 --pp-size 2", "sglang",
         {"tensor": "16", "pipeline": "2"}),
        ("sglang serve m --tp-size 8 --dp-size 4 --enable-dp-attention --ep 8", "sglang",
         {"tensor": "8", "attention_data": "4", "expert": "8"}),
        ("sglang serve m --tp 8 --attn-dp-size 4 --dp 2", "sglang",
         {"tensor": "8", "attention_data": "4", "data": "2"}),
        ("trtllm-serve m --tp_size 4 --pp_size 2 --ep_size 4", "tensorrt_llm",
         {"tensor": "4", "pipeline": "2", "expert": "4"}),
        ("trtllm-serve serve m --tensor_parallel_size 4", "tensorrt_llm", {"tensor": "4"}),
        ("torchrun --nproc-per-node 8 pre.py --tensor-model-parallel-size 4 --context-parallel-size 2",
         "megatron", {"tensor": "4", "context": "2"}),
        ("torchrun -m torchtitan.train --parallelism.tensor-parallel-degree=4", "torchtitan",
         {"tensor": "4"}),
        ("torchrun -m torchtitan.train --parallelism.data_parallel_shard_degree -1", "torchtitan", {}),
        ("./run_train.sh --parallelism.pipeline-parallel-degree 2", "torchtitan", {"pipeline": "2"}),
        ("deepspeed train.py --deepspeed", "deepspeed", {}),
        ("accelerate launch --parallelism_config_tp_size 2 --parallelism-config-dp-shard-size 4 t.py",
         "accelerate", {"tensor": "2", "data_shard": "4"}),
        ("accelerate launch --use_megatron_lm --megatron_lm_tp_degree 2 --megatron_lm_pp_degree 4 t.py",
         "megatron", {"tensor": "2", "pipeline": "4"}),
    ],
)  # fmt: skip
def test_sizes_are_read_as_the_engine_spells_them(command: str, engine: str, found: dict[str, str]) -> None:
    assert parse_command(command).engine == engine
    assert sizes(command) == found


@pytest.mark.parametrize(
    ("command", "starters", "found"),
    [
        ("vllm serve m --nnodes 2 --node-rank 1", [], ("2", "1", None)),
        ("srun -N2 -n16 python train.py --tensor-model-parallel-size 2", ["srun"], ("2", None, 16)),
        ("srun --nodes=2 --ntasks-per-node 8 x", ["srun"], ("2", None, 16)),
        ("srun -N 2-4 x", ["srun"], ("2:4", None, None)),
        ("sbatch -N 2 --wrap 'srun torchrun --nnodes 2 --nproc_per_node 8 t.py'",
         ["sbatch", "srun", "torchrun"], ("2", None, 16)),
        ("torchrun --nnodes=2 --nproc-per-node=8 --node_rank 1 --master_addr a t.py", ["torchrun"],
         ("2", "1", 16)),
        ("torchrun --nnodes 2 --nproc-per-node 8 --node_rank 1 --rdzv-backend c10d --rdzv_endpoint a:1 t.py",
         ["torchrun"], ("2", None, 16)),
        ("torchrun --nnodes 1:4 --nproc-per-node 8 t.py", ["torchrun"], ("1:4", None, None)),
        ("torchrun --nnodes 2:2 --nproc-per-node gpu t.py", ["torchrun"], ("2", None, None)),
        ("torchrun --standalone --nproc-per-node 8 t.py", ["torchrun"], ("1", None, 8)),
        ("PET_NNODES=4 PET_NPROC_PER_NODE=8 PET_NODE_RANK=3 torchrun t.py", ["torchrun"], ("4", "3", 32)),
        ("PET_NNODES=4 torchrun --nnodes 2 t.py", ["torchrun"], ("2", None, 2)),
        ("python -m torch.distributed.launch --nnodes 2 --nproc_per_node 4 --use_env t.py", ["torchrun"],
         ("2", None, 8)),
        ("mpirun -np 16 -H a:8,b:8 -mca pml ob1 -x A=1 x -g 1", ["mpirun"], ("2", None, 16)),
        ("mpirun -H a:8,b:8 x", ["mpirun"], ("2", None, 16)),
        ("mpirun -np 8 -H a:8,b:8 x", ["mpirun"], (None, None, 8)),
        ("mpiexec.hydra -n 16 -ppn 8 -hosts a,b -genv A 1 x", ["mpiexec.hydra"], ("2", None, 16)),
        ("mpirun -n 16 --map-by ppr:8:node x", ["mpirun"], (None, None, 16)),
        ("mpirun -n 1 x : -n 15 y", ["mpirun"], (None, None, None)),
        ("deepspeed --num_gpus 8 --num_nodes 2 t.py", ["deepspeed"], ("2", None, 16)),
        ("deepspeed --include=a:0,1@b:2,3,4 t.py", ["deepspeed"], ("2", None, 5)),
        ("accelerate launch --num_processes=16 --num-machines 2 --machine_rank 1 t.py", ["accelerate"],
         ("2", "1", 16)),
        ("nohup timeout -k 5 1h numactl -N 0 -m 0 env -u X A=1 torchrun --nnodes 2 t.py", ["torchrun"],
         ("2", None, 2)),
        ("kubectl exec -it pod -c x -- bash -lc 'cd /w && torchrun --nnodes 2 t.py'", ["torchrun"],
         ("2", None, 2)),
        ("ray job submit --address http://h:1 -- torchrun --nnodes 2 t.py", ["torchrun"], ("2", None, 2)),
        ("srun -N1 singularity exec --nv -B /a image.sif torchrun --nproc_per_node 4 t.py",
         ["srun", "torchrun"], ("1", None, 4)),
    ],
)  # fmt: skip
def test_launchers_in_front_are_taken_off_and_counted(
    command: str, starters: list[str], found: tuple[str | None, str | None, int | None]
) -> None:
    launch = parse_command(command)
    assert [starter.name for starter in launch.starters] == starters
    assert numbers(launch) == found


def test_a_variable_is_kept_as_it_is_and_is_no_number() -> None:
    launch = parse_command("sglang serve m --tp $TP --nnodes $LWS_GROUP_SIZE --dist-init-addr $HEAD:5000")
    assert launch.sizes["tensor"].text == "$TP"
    assert launch.sizes["tensor"].number is None
    assert launch.sizes["tensor"].unresolved
    assert launch.nodes is not None
    assert launch.nodes.number is None
    assert launch.rendezvous["dist-init"].text == "$HEAD:5000"


def test_variables_that_the_same_text_sets_are_replaced() -> None:
    text = (
        "export N=2\nG=8\n"
        "srun torchrun --nnodes $N --nproc_per_node ${G} p.py --tensor-model-parallel-size $TP\n"
    )
    launch = parse_command(text)
    assert numbers(launch) == ("2", None, 16)
    assert launch.sizes["tensor"].text == "$TP"


def test_unknown_flags_are_kept_and_secrets_are_not() -> None:
    launch = parse_command(
        "vllm serve m -tp 2 --foo bar --baz --api-key hunter2 --hf-token=abc -q 4 --tp-size 9"
    )
    assert launch.unknown == ("--foo bar", "--baz", "--api-key ***", "--hf-token=***", "-q 4", "--tp-size 9")
    assert sizes("vllm serve m -tp 2 --tp-size 9") == {"tensor": "2"}


def test_a_flag_without_its_value_states_nothing() -> None:
    launch = parse_command("vllm serve m --nnodes --tensor-parallel-size")
    assert launch.sizes == {}
    assert launch.nodes is None
    assert launch.unknown == ("--nnodes (without a value)", "--tensor-parallel-size (without a value)")


def test_only_the_spelling_of_the_program_counts() -> None:
    assert sizes("sglang serve m --tp_size 8") == {}
    assert sizes("trtllm-serve m --tp-size 8") == {}
    assert sizes("vllm serve m --tensor-parallel 8") == {"tensor": "8"}
    assert sizes("vllm serve m --data-parallel 8") == {}, "several flags begin so"


def test_what_changes_the_layout_is_found_in_the_environment() -> None:
    launch = parse_command("VLLM_PP_LAYER_PARTITION=15,17 API_TOKEN=x NCCL_DEBUG=INFO vllm serve m -pp 2")
    assert launch.layers is not None
    assert launch.layers.text == "15,17"
    assert dict(launch.environment) == {"VLLM_PP_LAYER_PARTITION": "15,17", "NCCL_DEBUG": "INFO"}
    launch = parse_command("mpirun -np 2 -x SGLANG_PP_LAYER_PARTITION=1,2 sglang serve m --pp 2")
    assert launch.layers is not None


def test_megatron_names_its_order_and_its_model() -> None:
    launch = parse_command(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --use-tp-pp-dp-mapping "
        "--num-layers 32 --hidden-size 4096 --num-attention-heads 32"
    )
    assert launch.order is not None
    assert launch.order.text == "tp-cp-ep-pp-dp"
    assert {name: value.number for name, value in launch.model_sizes.items()} == {
        "layers": 32, "hidden": 4096, "heads": 32,
    }  # fmt: skip


def test_addresses_are_joined_with_their_ports() -> None:
    launch = parse_command("vllm serve m --master-addr 10.1.0.1 --master-port 29501 -dpa fd00::1 -dpp 13345")
    assert {name: value.text for name, value in launch.rendezvous.items()} == {
        "master": "10.1.0.1:29501", "dp-master": "[fd00::1]:13345",
    }  # fmt: skip


def test_replicas_in_all_and_on_a_node_give_the_nodes_of_vllm() -> None:
    assert numbers(parse_command("vllm serve m -dp 8 -dpl 2 -tp 4"))[0] == "4"
    assert numbers(parse_command("vllm serve m -dp 8 -dpl 3 -tp 4"))[0] is None


def test_a_chain_takes_the_command_that_launches() -> None:
    launch = parse_command("cd /w && source env.sh && torchrun --nnodes 2 t.py 2>&1 | tee log")
    assert launch.starters[0].name == "torchrun"
    assert launch.program == "t.py"


@pytest.mark.parametrize(
    "command", ["ls -l", "", "echo torchrun", "vllm bench serve", "python train.py", "sh run.sh"]
)
def test_what_launches_nothing_known_is_refused_in_words(command: str) -> None:
    with pytest.raises(UsageError, match="nothing that topocheck knows"):
        parse_command(command)


def test_a_script_gives_all_its_launches_with_their_lines() -> None:
    text = "export NCCL_DEBUG=INFO\n\nvllm serve a -tp 2 \\\n  -pp 2\nsleep 1\nvllm serve b -tp 4\n"
    found = list(parse_script(text))
    assert [(one.line, one.launch.sizes["tensor"].text) for one in found] == [(3, "2"), (6, "4")]
    assert all(one.launch.environment == {"NCCL_DEBUG": "INFO"} for one in found)


def test_flags_with_two_values_and_glued_values_do_not_shift_the_program() -> None:
    table = Table(values={"n": "-n"}, pairs="-mca", glued=True)
    taken = take(["-n16", "-mca", "a", "b", "prog", "-n", "2"], table, program=True)
    assert (taken.stated["n"].text, taken.rest) == ("16", ["prog", "-n", "2"])


WORDS = """
vllm serve sglang torchrun srun mpirun deepspeed accelerate launch python -m -c bash sh env nohup -N -np -H
--tp -tp --nnodes --nproc-per-node 2 8 a:8,b:8 $X = A=1 -- : -x --wrap --include w:0@v --config x.yaml '' "
' \\ && ; --tensor-model-parallel-size t.py --runtime-env-json {} ray job submit kubectl exec -mca
--export=A=1 1:2 -1
"""
WORD = st.sampled_from(WORDS.split())


@given(st.lists(WORD, max_size=16))
@settings(max_examples=200, deadline=None)
def test_any_words_are_a_launch_or_refused(words: list[str]) -> None:
    for command in (words, " ".join(words)):
        try:
            launch = parse_command(command)
        except UsageError:
            continue
        assert launch.engine in {None, *FLAGS}
        assert launch.processes is None or launch.processes >= 0


@given(st.text(max_size=100))
@settings(max_examples=100, deadline=None)
def test_any_text_is_a_launch_or_refused(text: str) -> None:
    for command in (text, f"vllm serve {text}", f"srun {text}", f"torchrun {text} p.py"):
        with suppress(UsageError):
            assert parse_command(command).engine in {None, *FLAGS}
