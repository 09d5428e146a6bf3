"""Where launchers put ranks. The tables of Slurm, Open MPI and MPICH were recorded from real runs."""

from __future__ import annotations

import base64
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import LayoutError
from topocheck.launchers import LAUNCHERS, deepspeed, hydra, job, lws, openmpi, ray, slurm, torchrun
from topocheck.launchers.order import MAX_RANKS, deal
from topocheck.ranges import local_ranks

SLURM = [  # (tasks a node, distribution, node by rank)
    ("4,2,1(x2)", None, [0, 0, 0, 0, 1, 1, 2, 3]),
    ("1(x4)", None, [0, 1, 2, 3]),
    ("4,2,1(x2)", "cyclic", [0, 1, 2, 3, 0, 1, 0, 0]),
    ("4(x2),1(x2)", "plane=2", [0, 0, 1, 1, 2, 3, 0, 0, 1, 1]),
    ("4,2,1", "block", [0, 0, 0, 0, 1, 1, 2]),
    ("4,2,1", "cyclic:cyclic,NoPack", [0, 1, 2, 0, 1, 0, 0]),
    ("4(x2),1", "plane=4", [0, 0, 0, 0, 1, 1, 1, 1, 2]),
    ("4,2", "plane=2", [0, 0, 1, 1, 0, 0]),
]


@pytest.mark.parametrize(("tasks", "policy", "nodes"), SLURM)
def test_slurm_deals_tasks_as_its_distribution_says(tasks: str, policy: str | None, nodes: list[int]) -> None:
    assert slurm.rank_nodes(slurm.parse_tasks_per_node(tasks), None, policy) == nodes


def test_slurm_without_a_distribution_is_cyclic_up_to_one_task_a_node() -> None:
    assert slurm.rank_nodes([2, 1], 2) == [0, 1]
    assert slurm.rank_nodes([2, 1], 3) == [0, 0, 1]


def test_slurms_arbitrary_distribution_follows_the_lines_of_its_host_file() -> None:
    nodes = slurm.arbitrary(["n3", "n3", "n1", "n2", "n1"], ["n1", "n2", "n3"])
    assert nodes == [2, 2, 0, 1, 0]
    assert local_ranks(nodes) == [0, 1, 0, 0, 1]
    with pytest.raises(LayoutError, match="n9"):
        slurm.arbitrary(["n9"], ["n1"])


@pytest.mark.parametrize("policy", ["arbitrary", "plane", "plane=0", "plane=x", "spread", "blocks"])
def test_a_distribution_that_cannot_be_dealt_is_refused(policy: str) -> None:
    with pytest.raises(LayoutError):
        slurm.rank_nodes([2, 2], None, policy)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "4"}, "plane=4"),
        ({"SLURM_DISTRIBUTION": "plane=4"}, "plane=4"),
        ({"SLURM_DISTRIBUTION": "cyclic:block"}, "cyclic"),
        ({"SLURM_DISTRIBUTION": "block,NoPack"}, "block"),
        ({}, None),
    ],
)
def test_the_distribution_stands_in_the_environment(env: dict[str, str], expected: str | None) -> None:
    assert slurm.distribution(env) == expected


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("8", [8]), ("8(x2),4", [8, 8, 4]), ("2(x3)", [2, 2, 2]), ("1, 2", [1, 2]), ("0", [0])],
)
def test_tasks_per_node_are_decoded(text: str, tasks: list[int]) -> None:
    assert slurm.parse_tasks_per_node(text) == tasks


@pytest.mark.parametrize("text", ["", ",", "8(", "8(x)", "(x2)", "-1", "8x2", "8(x2", "1.5", "8(x9999999)"])
def test_tasks_per_node_that_are_none_are_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"tasks|nodes"):
        slurm.parse_tasks_per_node(text)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="0123456789(x),; -", max_size=20))
def test_tasks_per_node_of_any_text_are_numbers_or_a_value_error(text: str) -> None:
    try:
        tasks = slurm.parse_tasks_per_node(text)
    except ValueError:
        return
    assert all(count >= 0 for count in tasks)


OPENMPI = [  # (slots, processes, --map-by, node by rank)
    ([2, 3], 5, None, [0, 0, 1, 1, 1]),
    ([2, 3], 4, None, [0, 0, 1, 1]),
    ([2, 3], 5, "node", [0, 1, 0, 1, 1]),
    ([3, 1, 2], 6, "node", [0, 1, 2, 0, 2, 0]),
    ([3, 1, 2], 6, "slot", [0, 0, 0, 1, 2, 2]),
    ([4, 4], 4, "ppr:2:node", [0, 0, 1, 1]),
    ([4, 4], None, "ppr:3:node", [0, 0, 0, 1, 1, 1]),
]


@pytest.mark.parametrize(("slots", "processes", "policy", "nodes"), OPENMPI)
def test_open_mpi_maps_ranks_as_map_by_says(
    slots: list[int], processes: int | None, policy: str | None, nodes: list[int]
) -> None:
    assert openmpi.rank_nodes(slots, processes, policy) == nodes


@pytest.mark.parametrize(
    ("slots", "processes", "policy"),
    [([1, 2], 6, None), ([4, 4], 4, "ppr:1:node"), ([4, 1], None, "ppr:2:node"), ([2], 1, "package")],
)
def test_open_mpi_refuses_what_does_not_fit(
    slots: list[int], processes: int | None, policy: str | None
) -> None:
    with pytest.raises(LayoutError):
        openmpi.rank_nodes(slots, processes, policy)


MPICH = [  # (processes by entry, processes, -ppn, entry by rank)
    ([2, 2], 6, None, [0, 0, 1, 1, 0, 0]),
    ([2, 3], 4, "ppn=1", [0, 1, 0, 1]),
    ([1, 1], 4, None, [0, 1, 0, 1]),
    ([2, 1, 1], 5, None, [0, 0, 1, 2, 0]),
    ([4, 4], 6, "ppn=2", [0, 0, 1, 1, 0, 0]),
    ([1, 3], 6, None, [0, 1, 1, 1, 0, 1]),
]


@pytest.mark.parametrize(("slots", "processes", "policy", "entries"), MPICH)
def test_mpich_fills_its_hosts_in_turn_and_then_begins_again(
    slots: list[int], processes: int, policy: str | None, entries: list[int]
) -> None:
    assert hydra.rank_nodes(slots, processes, policy) == entries


@pytest.mark.parametrize("policy", ["ppn=0", "ppn=", "slot"])
def test_mpich_refuses_a_placement_that_it_does_not_have(policy: str) -> None:
    with pytest.raises(LayoutError):
        hydra.rank_nodes([2], 2, policy)


def test_c10d_orders_agents_by_address_as_text_then_by_pid_as_number() -> None:
    agents = [("node-2", 90, 0), ("node-10", 7, 0), ("node-2", 100, 0), ("10.0.0.9", 1, 0)]
    assert torchrun.agent_order(agents) == [3, 1, 0, 2]


def test_torchrun_counts_ranks_over_nodes_of_any_size() -> None:
    launcher = LAUNCHERS["torchrun"]
    assert launcher.rank_nodes is not None
    nodes = launcher.rank_nodes([2, 3, 1], None, None)
    assert nodes == [0, 0, 1, 1, 1, 2]
    assert launcher.local_ranks(nodes) == [0, 1, 0, 1, 2, 0]
    with pytest.raises(LayoutError):
        launcher.rank_nodes([2], None, "cyclic")


def test_deepspeeds_local_rank_is_the_rank_modulo_the_processes_here() -> None:
    assert deepspeed.local_ranks([0] * 6 + [1] * 4) == [0, 1, 2, 3, 4, 5, 2, 3, 0, 1]


def test_the_node_rank_table_of_torchrun_names_each_host_once() -> None:
    table = torchrun.node_rank_table(["b", "a"], 8)
    assert [host for host, _ in table] == ["b", "a"]
    assert "--node-rank=1 --nproc-per-node=8" in table[1][1]
    assert all("--master-addr=b" in options and "static" in options for _, options in table)


def test_srun_takes_any_order_by_a_host_file() -> None:
    options, text = slurm.srun_arbitrary(["n2", "n1", "n2"])
    assert options == "--nodes=2 --ntasks=3 --distribution=arbitrary"
    assert text == "n2\nn1\nn2\n"


def test_a_rankfile_binds_each_rank_to_its_place() -> None:
    assert openmpi.rankfile(["b", "a"], [0, 1]) == "rank 0=b slot=0\nrank 1=a slot=1\n"


def test_pods_of_groups_and_child_jobs_are_counted_through() -> None:
    assert lws.pod_index(group=2, index=1, group_size=4) == 9
    assert job.pod_index(job=1, index=2, pods_a_job=3) == 5


def test_ray_orders_bundles_by_driver_then_by_node_id() -> None:
    assert ray.bundle_order(["b0", "a1", "b0", "c2"], driver="b0") == [0, 2, 1, 3]
    assert ray.engine_node_order(["x", "y", "z"], engine="y") == [1, 0, 2]


def test_older_ray_executors_put_nodes_with_fewer_workers_first_and_compare_addresses_as_text() -> None:
    addresses = ["10.0.0.2", "10.0.0.2", "10.0.0.10", "10.0.0.10", "10.0.0.7", "10.0.0.1"]
    assert ray.worker_order(addresses, driver="10.0.0.1") == [5, 4, 2, 3, 0, 1]


def test_world_info_is_decoded_in_its_order() -> None:
    text = base64.urlsafe_b64encode(json.dumps({"w2": [0, 3], "w1": [1]}).encode()).decode()
    assert list(deepspeed.parse_world_info(text).items()) == [("w2", (0, 3)), ("w1", (1,))]


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.text(max_size=40),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(-3, 9), st.text(max_size=3)),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=8,
        ).map(lambda value: base64.urlsafe_b64encode(json.dumps(value).encode()).decode()),
    )
)
def test_world_info_of_any_text_is_a_table_or_a_value_error(text: str) -> None:
    try:
        table = deepspeed.parse_world_info(text)
    except ValueError:
        return
    assert all(slot >= 0 for slots in table.values() for slot in slots)


def test_deepspeeds_filters_keep_the_order_of_the_host_file() -> None:
    slots = {"w1": 4, "w2": 4, "w3": 2}
    assert deepspeed.select(slots, include="w3@w1:2,0") == {"w1": (0, 2), "w3": (0, 1)}
    assert deepspeed.select(slots, exclude="w1@w2:1") == {"w2": (0, 2, 3), "w3": (0, 1)}
    assert deepspeed.select(slots) == {"w1": (0, 1, 2, 3), "w2": (0, 1, 2, 3), "w3": (0, 1)}


@pytest.mark.parametrize(
    ("include", "exclude", "words"),
    [
        ("w1:2,3", "", "no slot '2' on host w1"),
        ("w9", "", "w9"),
        ("w1:", "", "no slot ''"),
        ("w1", "w2", "not both"),
        ("@", "", "hostname ''"),
    ],
)
def test_a_slot_or_host_that_the_host_file_lacks_is_refused(include: str, exclude: str, words: str) -> None:
    with pytest.raises(LayoutError, match=words):
        deepspeed.select({"w1": 2, "w2": 2}, include, exclude)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=6), st.none() | st.integers(1, 4), st.data())
def test_dealing_uses_each_slot_once_and_never_more(
    slots: list[int], run: int | None, data: st.DataObject
) -> None:
    processes = data.draw(st.integers(0, sum(slots)))
    nodes = deal(slots, processes, run=run)
    assert len(nodes) == processes
    counts = Counter(nodes)
    assert all(counts[node] <= slots[node] for node in counts)
    pairs = list(zip(nodes, local_ranks(nodes), strict=True))
    assert len(set(pairs)) == len(pairs)
    if processes == sum(slots):
        assert [counts[node] for node in range(len(slots))] == slots


@pytest.mark.parametrize(("slots", "processes"), [([-1], None), ([1], 2), ([1], -1), ([MAX_RANKS, 1], None)])
def test_dealing_what_is_not_there_is_refused(slots: list[int], processes: int | None) -> None:
    with pytest.raises(LayoutError):
        deal(slots, processes)


def test_a_hundred_thousand_ranks_are_dealt_round_robin_over_unequal_nodes() -> None:
    nodes = deal([1] * 50_000 + [50_000], run=1)
    assert nodes[:3] == [0, 1, 2]
    assert nodes[-1] == 50_000
