"""What launchers are told: hostfile, rankfile, node ranks, options of srun."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.declared import Declared, declare
from topocheck.errors import UsageError
from topocheck.launchers import slurm
from topocheck.launchfile import by_slurm_order, hostfile, node_ranks, rankfile, srun_options
from topocheck.plan import Parallel, Plan


def declared(engine: str, nodes: int | tuple[str, ...], **sizes: int) -> Declared:
    return declare(Plan(engine=engine, parallel=Parallel(**sizes), nodes=nodes))


def moved(one: Declared, nodes: list[int]) -> Declared:
    """The same with its ranks on these nodes."""
    seen: Counter[int] = Counter()
    local = []
    for node in nodes:
        local.append(seen[node])
        seen[node] += 1
    return msgspec.structs.replace(one, nodes=nodes, local_ranks=local, gpus=local)


def options(text: str) -> dict[str, str]:
    pairs = (word.removeprefix("--").partition("=") for word in text.split())
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize(
    ("engine", "sizes", "expected"),
    [
        (
            "megatron",
            {"data": 4},
            [
                f"{name}  torchrun --nnodes=2 --node-rank={rank} --nproc-per-node=2 --rdzv-backend=static "
                "--master-addr=a --master-port=29500"
                for rank, name in enumerate("ab")
            ],
        ),
        (
            "sglang",
            {"tensor": 4},
            [
                "a  --nnodes 2 --node-rank 0 --dist-init-addr a:20000",
                "b  --nnodes 2 --node-rank 1 --dist-init-addr a:20000",
            ],
        ),
        (
            "accelerate",
            {"data_shard": 4},
            [
                f"{name}  accelerate launch --num_machines 2 --machine_rank {rank} --num_processes 4 "
                "--main_process_ip a --main_process_port 29500"
                for rank, name in enumerate("ab")
            ],
        ),
    ],
)
def test_node_ranks_are_in_the_words_of_what_starts_the_engine(
    engine: str, sizes: dict[str, int], expected: list[str]
) -> None:
    assert list(node_ranks(declared(engine, ("a", "b"), **sizes))) == expected


def test_an_engine_of_mpi_has_no_node_ranks() -> None:
    with pytest.raises(UsageError, match="no node rank: its ranks are mpirun's or srun's"):
        node_ranks(declared("tensorrt_llm", ("a", "b"), tensor=4))


@pytest.mark.parametrize("form", [hostfile, node_ranks])
def test_a_cyclic_order_is_no_hostfile_and_no_node_rank(form: object) -> None:
    one = moved(declared("megatron", ("a", "b"), data=4), [0, 1, 0, 1])
    with pytest.raises(UsageError, match="do not fill one node after the other"):
        form(one)  # type: ignore[operator]
    assert list(rankfile(one)) == [
        "rank 0=a slot=0",
        "rank 1=b slot=0",
        "rank 2=a slot=1",
        "rank 3=b slot=1",
    ]


def test_srun_options_are_the_shortest_that_give_the_order() -> None:
    one = declared("megatron", ("n2", "n10"), data=8)
    common = "--nodes=2 --ntasks=8 --ntasks-per-node=4"
    assert srun_options(one) == f"{common} --distribution=block --nodelist=n2,n10"
    assert srun_options(declared("megatron", 2, data=8)) == f"{common} --distribution=block"
    cyclic = moved(one, [0, 1] * 4)
    assert srun_options(cyclic) == f"{common} --distribution=cyclic --nodelist=n2,n10"
    plane = moved(one, [0, 0, 1, 1] * 2)
    assert srun_options(plane) == f"{common} --distribution=plane=2 --nodelist=n2,n10"
    odd = moved(one, [0, 1, 1, 0, 0, 0, 0, 1])
    assert srun_options(odd) == (
        "--nodes=2 --ntasks=8 --distribution=arbitrary --nodelist=n2,n10,n10,n2,n2,n2,n2,n10"
    )


def test_nodes_in_another_order_than_slurms_are_listed_rank_by_rank() -> None:
    one = declared("megatron", ("n10", "n2"), data=4)
    assert srun_options(one) == ("--nodes=2 --ntasks=4 --distribution=arbitrary --nodelist=n10,n10,n2,n2")
    assert by_slurm_order(["n2", "n10", "n10-a"])
    assert not by_slurm_order(["n10", "n9"])


def test_an_engine_that_starts_its_own_ranks_takes_one_task_a_node() -> None:
    assert srun_options(declared("vllm", ("a", "b"), tensor=8)) == (
        "--nodes=2 --ntasks=2 --ntasks-per-node=1 --distribution=block --nodelist=a,b"
    )


def test_an_odd_order_of_nodes_without_names_cannot_be_asked_for() -> None:
    one = moved(declared("megatron", 2, data=4), [0, 1, 1, 0])
    with pytest.raises(UsageError, match="the plan names no nodes"):
        srun_options(one)


def test_names_that_fit_no_argument_are_refused() -> None:
    names = tuple(f"{'n' * 60}{place}" for place in (2, 1))
    one = declared("megatron", names, data=4_000)
    with pytest.raises(UsageError, match="too long for --nodelist"):
        srun_options(one)


@given(st.data(), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=80, deadline=None)
def test_srun_would_deal_the_ranks_as_the_plan_has_them(data: st.DataObject, nodes: int, each: int) -> None:
    """The options, read back by the rule that predicts srun's order."""
    names = tuple(f"n{place}" for place in range(nodes))
    tasks = [node for node in range(nodes) for _ in range(each)]
    order = data.draw(st.permutations(tasks) | st.sampled_from([tasks, [*range(nodes)] * each]))
    one = moved(declared("megatron", names, data=nodes * each), list(order))
    said = options(srun_options(one))
    if said["distribution"] == "arbitrary":
        assert [names.index(name) for name in said["nodelist"].split(",")] == list(order)
    else:
        counts = [int(said["ntasks-per-node"])] * int(said["nodes"])
        assert slurm.rank_nodes(counts, int(said["ntasks"]), said["distribution"]) == list(order)
