"""Where the launcher of a command puts ranks, by its own rule."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.commands import parse_command
from topocheck.commands.rankorder import RankOrder, rank_order

SCRIPT = "p.py --tensor-model-parallel-size 2"
TRTLLM = "trtllm-serve m --tp_size 8"


def order(command: str, nodes: int = 2, world: int = 8, folder: Path | None = None) -> RankOrder:
    found = rank_order(parse_command(command, folder), nodes, world, folder=folder)
    assert found is not None
    return found


BLOCK, CYCLIC = [0, 0, 0, 0, 1, 1, 1, 1], [0, 1] * 4


@pytest.mark.parametrize(
    ("command", "nodes"),
    [
        (f"srun -N2 --ntasks-per-node=4 {SCRIPT}", BLOCK),
        (f"srun -N2 --ntasks-per-node=4 -m cyclic:block {SCRIPT}", CYCLIC),
        (f"srun -N2 -n8 --ntasks-per-node=4 -m plane=2 {SCRIPT}", [0, 0, 1, 1] * 2),
        (f"SLURM_DISTRIBUTION=cyclic srun -N2 --ntasks-per-node=4 {SCRIPT}", CYCLIC),
        (f"sbatch -N2 --ntasks-per-node=4 --wrap 'srun -m cyclic python {SCRIPT}'", CYCLIC),
        (f"mpirun -np 8 -H a:4,b:4 {SCRIPT}", BLOCK),
        (f"mpirun -np 8 -H a:4,b:4 --map-by node {SCRIPT}", CYCLIC),
        (f"mpirun -np 8 --bynode -H a:4,b:4 {SCRIPT}", CYCLIC),
        (f"mpirun -np 8 --map-by ppr:4:node:PE=8 -H a:8,b:8 {SCRIPT}", BLOCK),
        (f"mpirun --npernode 4 -H a,b {SCRIPT}", BLOCK),
        (f"OMPI_MCA_rmaps_base_mapping_policy=node mpirun -np 8 -H a:4,b:4 {SCRIPT}", CYCLIC),
        (f"mpirun -np 8 -H a:6,b:6 {SCRIPT}", [0] * 6 + [1] * 2),
        (f"mpiexec.hydra -ppn 2 -n 8 -hosts a,b {SCRIPT}", [0, 0, 1, 1] * 2),
        (f"torchrun --nnodes 2 --nproc-per-node 4 {SCRIPT}", BLOCK),
        (f"srun -N2 --ntasks-per-node=1 -m cyclic torchrun --nnodes 2 --nproc-per-node 4 {SCRIPT}", BLOCK),
        ("accelerate launch --num_machines 2 --num_processes 8 t.py", BLOCK),
        ("deepspeed --num_nodes 2 --num_gpus 4 t.py", BLOCK),
    ],
)
def test_ranks_go_where_the_launcher_puts_them(command: str, nodes: list[int]) -> None:
    found = order(command)
    assert found.refusal == ""
    assert list(found.nodes) == nodes
    assert found.rule


def test_a_host_in_two_places_of_a_list_is_filled_twice_by_hydra_and_once_by_open_mpi(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a:2\nb:4\na:2\n")
    for hydra in ("mpiexec.hydra -n 8 -f hosts", "mpiexec -n 8 -f hosts", "mpirun -n 8 -hosts a:2,b:4,a:2"):
        found = order(f"{hydra} {SCRIPT}", folder=tmp_path)
        assert (list(found.nodes), found.hosts) == ([0, 0, 1, 1, 1, 1, 0, 0], ("a", "b"))
        assert list(found.local_ranks) == [0, 1, 0, 1, 2, 3, 0, 1]
    found = order(f"mpirun -np 8 -H a:2,b:4,a:2 {SCRIPT}")
    assert (list(found.nodes), list(found.local_ranks)) == (BLOCK, [0, 1, 2, 3] * 2)


def test_three_hosts_of_which_two_are_used() -> None:
    found = order(f"mpirun -np 8 -H a:4,b:4,c:4 {SCRIPT}")
    assert (list(found.nodes), found.hosts) == (BLOCK, ("a", "b"))
    assert "on 2 nodes, and the plan has 3" in order(f"mpirun -np 8 -H a:4,b:4,c:4 {SCRIPT}", 3).refusal


def test_a_process_drives_the_gpu_of_its_local_rank_and_tensorrt_llms_that_of_its_rank() -> None:
    command = "mpirun -np 8 -H a:4,b:4 --map-by node "
    assert list(order(command + SCRIPT).gpus) == [0, 0, 1, 1, 2, 2, 3, 3]
    found = order(command + TRTLLM)
    assert list(found.local_ranks) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert list(found.gpus) == [0, 1, 2, 3] * 2


def test_deepspeed_takes_the_selected_gpus(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a slots=4\nb slots=4\nc slots=4\n")
    found = order("deepspeed -H hosts --include c:1,3@a t.py", 2, 6, tmp_path)
    assert found.hosts == ("a", "c")
    assert list(found.nodes) == [0, 0, 0, 0, 1, 1]
    assert list(found.gpus) == [0, 1, 2, 3, 1, 3]
    assert list(found.local_ranks) == [0, 1, 2, 3, 0, 1]


def test_a_dynamic_rendezvous_sorts_the_nodes_by_name() -> None:
    command = (
        "srun -N 2 -w node-[9-10] --ntasks-per-node=1 torchrun --nnodes 2 --nproc-per-node 4 "
        f"--rdzv-backend {{}} {SCRIPT}"
    )
    found = order(command.format("c10d"))
    assert found.hosts == ("node-10", "node-9")
    assert any("by their addresses as text" in note for note in found.notes)
    assert order(command.format("static")).hosts == ("node-9", "node-10")


def test_an_arbitrary_distribution_follows_its_host_file(tmp_path: Path) -> None:
    (tmp_path / "order").write_text("n2\nn1\nn1\n\nn2\n")
    command = f"SLURM_HOSTFILE=order srun -N2 -n4 --distribution=arbitrary {SCRIPT}"
    found = order(command, 2, 4, tmp_path)
    assert (found.hosts, list(found.nodes)) == (("n2", "n1"), [0, 1, 1, 0])
    assert "SLURM_HOSTFILE has 4 lines" in order(command, 2, 8, tmp_path).refusal


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"srun -N2 -n8 -m arbitrary {SCRIPT}", "srun: --distribution=arbitrary follows SLURM_HOSTFILE"),
        (f"srun -N2 -n8 -m spread {SCRIPT}", "Slurm has no distribution 'spread'"),
        (f"srun -N2 -n8 --ntasks-per-node=2 {SCRIPT}", "8 tasks do not fit into 2 nodes of 2 tasks"),
        (f"mpirun -np 8 -H a:4,b:4 --map-by numa {SCRIPT}", "where --map-by 'numa' puts ranks is not known"),
        (f"mpirun -np 8 -H a:4,b:4 --map-by slot:PE=2 {SCRIPT}", "is not known"),
        (f"mpirun -np 8 -H a:4,b:4 --rank-by node {SCRIPT}", "--rank-by node numbers ranks is not known"),
        (f"mpirun -np 8 --rankfile f {SCRIPT}", "a rankfile orders the ranks"),
        (f"mpirun -np 8 -H a:2,b:4 {SCRIPT}", "8 processes do not fit into the 6 slots"),
    ],
)
def test_what_a_launcher_refuses_or_does_not_show_is_a_reason(command: str, said: str) -> None:
    found = order(command)
    assert said in found.refusal
    assert not found.nodes


def test_a_host_file_without_slots_leaves_the_order_open(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a\nb\n")
    assert "how many slots" in order(f"mpirun -np 8 --hostfile hosts {SCRIPT}", folder=tmp_path).refusal


@pytest.mark.parametrize(
    "command",
    [
        "srun -N2 --ntasks-per-node=4 -m cyclic vllm serve m -tp 8",
        "mpirun -np 2 --map-by node python -m sglang.launch_server --tp 8 --nnodes 2",
        "sbatch -N2 --ntasks-per-node=4 p.py --tensor-model-parallel-size 2",
    ],
)
def test_engines_that_start_their_own_ranks_keep_their_own_order(command: str) -> None:
    assert rank_order(parse_command(command), 2, 8) is None


def test_vllms_external_launcher_takes_the_launchers_processes() -> None:
    command = "torchrun --nnodes 2 --nproc-per-node 4 vllm serve m -tp 8 --distributed-executor-backend "
    assert rank_order(parse_command(command + "mp"), 2, 8) is None
    assert order(command + "external_launcher").launcher == "torchrun"


def test_uneven_tasks_of_slurm_are_an_assumption() -> None:
    found = order(f"srun -N2 -n8 {SCRIPT}")
    assert list(found.nodes) == BLOCK
    assert any("--ntasks-per-node" in note for note in found.notes)
    assert not order(f"srun -N2 -n8 --ntasks-per-node=4 {SCRIPT}").notes


@given(
    st.sampled_from(["block", "cyclic", "plane=2", "plane=3", None]),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(["srun -N{n} --ntasks-per-node={e} {m}", "mpirun -np {w} -H {h} {m}"]),
)
@settings(max_examples=80, deadline=None)
def test_every_rank_has_a_seat_of_its_own(policy: str | None, nodes: int, each: int, form: str) -> None:
    mpi = form.startswith("mpirun")
    flag = "" if policy is None else f"-m {policy}"
    if mpi:
        flag = "--map-by node" if policy == "cyclic" else ""
    hosts = ",".join(f"h{node}:{each}" for node in range(nodes))
    start = form.format(n=nodes, e=each, w=nodes * each, h=hosts, m=flag)
    found = order(f"{start} p.py --tensor-model-parallel-size 1", nodes, nodes * each)
    assert Counter(found.nodes) == dict.fromkeys(range(nodes), each)
    seats = set(zip(found.nodes, found.local_ranks, strict=True))
    assert seats == {(node, local) for node in range(nodes) for local in range(each)}
    assert list(found.gpus) == list(found.local_ranks)
