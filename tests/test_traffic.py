"""Edges of the running job in global ranks."""

from __future__ import annotations

import pytest
from build import RING, TWO, comm, edge, log, members, placed, running, snap

from topocheck.communicators import Communicator
from topocheck.placement import Placement
from topocheck.snapshot import CommRank, Edge, FullSnapshot
from topocheck.traffic import Flow, flows, global_members

TENSOR = {
    "node-a": members("0x7a", [(n, n) for n in range(4)], host="node-a", size=4),
    "node-b": members("0x7b", [(n, n) for n in range(4)], host="node-b", size=4),
}


def communicator(found: Placement, name: str) -> Communicator:
    return found.seen.communicators[name]


def flow(*edges: Edge, host: str = "node-a") -> list[Flow]:
    """These edges beside those of the healthy job."""
    return [found for found in flows(placed(TWO, *running(), log(host, edges=edges))) if found.edge in edges]


def test_ranks_of_the_world_are_global_ranks() -> None:
    found = placed(TWO, *running())
    assert global_members(found, communicator(found, RING)) == {rank: rank for rank in range(8)}


def test_ranks_of_a_group_are_tied_by_process_and_by_gpu() -> None:
    found = placed(TWO, *running(more=TENSOR))
    assert global_members(found, communicator(found, "0x7b")) == {0: 4, 1: 5, 2: 6, 3: 7}
    no_pid = CommRank(comm="0xg", size=4, rank=0, gpu=2)
    no_gpu = CommRank(comm="0xp", size=4, rank=1, pid=9003)
    found = placed(TWO, *running(), log("node-b", [no_pid, no_gpu]))
    assert global_members(found, communicator(found, "0xg")) == {0: 6}
    assert global_members(found, communicator(found, "0xp")) == {1: 7}


def test_a_process_that_drives_several_gpus_is_tied_by_gpu_alone() -> None:
    world = comm(RING, range(4), pid=5)
    found = placed(TWO, log("node-a", [*world, *comm("0x7a", range(4), size=4, pid=5)]))
    assert global_members(found, communicator(found, "0x7a")) == {rank: rank for rank in range(4)}


def test_a_gpu_that_two_ranks_share_ties_nothing() -> None:
    world = [*comm(RING, [0, 1]), *comm(RING, [2], pid=9007, gpu=1)]
    group = comm("0x7a", [0, 1], size=4, pid=None)
    found = placed(TWO, log("node-a", [*world, *group]))
    assert global_members(found, communicator(found, "0x7a")) == {0: 0}


def test_ranks_of_communicators_that_contradict_each_other_are_not_global() -> None:
    found = placed(TWO, log("node-a", [*comm(RING, range(4)), *comm("0xb", [3, 2, 1, 0])]))
    assert global_members(found, communicator(found, RING)) == {}


@pytest.mark.parametrize(
    ("how", "ends"),
    [
        ("P2P/CUMEM", ("node-a", "node-a")),
        ("SHM/direct/direct", ("node-a", "node-a")),
    ],
)
def test_both_ends_of_a_local_transport_are_on_the_host_that_logged_it(
    how: str, ends: tuple[str, str]
) -> None:
    group = members("0x7a", [(0, 0)], host="node-a", size=4)
    found = placed(TWO, log("node-a", group, edges=[edge(0, 1, how, comm="0x7a")]))
    [only] = flows(found)
    assert (str(only.src_node), str(only.dst_node)) == ends
    assert not only.between_nodes


@pytest.mark.parametrize(("side", "ends"), [("send", ("node-a", "None")), ("receive", ("None", "node-a"))])
def test_the_near_end_of_a_network_edge_is_the_one_that_logged_it(side: str, ends: tuple[str, str]) -> None:
    group = members("0x7a", [(0, 0)], host="node-a", size=4)
    found = placed(TWO, log("node-a", group, edges=[edge(2, 3, "NET/IB/0", comm="0x7a", side=side)]))
    [only] = flows(found)
    assert (str(only.src_node), str(only.dst_node)) == ends
    assert only.between_nodes


def test_a_network_edge_inside_one_host_does_not_join_two_nodes() -> None:
    [inside] = flow(edge(0, 1, "NET/IB/0", line=99))
    assert not inside.between_nodes
    [between] = flow(edge(3, 4, "NET/IB/0", line=99))
    assert between.between_nodes
    assert [str(node) for node in between.nodes] == ["node-a", "node-b"]


def test_multi_node_nvlink_joins_two_nodes() -> None:
    [found] = flow(edge(3, 4, "P2P/MNNVL", line=99))
    assert found.between_nodes


@pytest.mark.parametrize("loose", [edge(0, 1, "P2P/IPC", comm=None), edge(0, 1, "P2P/IPC", comm="0xnobody")])
def test_an_edge_of_no_known_communicator_accuses_nobody(loose: Edge) -> None:
    assert flow(loose) == []


def test_an_edge_of_a_host_without_a_place_is_left_out() -> None:
    spare: FullSnapshot = log("spare", edges=[edge(0, 1, "P2P/IPC")])
    assert flows(placed(TWO, snap("node-a"), snap("node-b"), spare)) == []


@pytest.mark.parametrize("rank", [-1, 8, 10**12])
def test_a_rank_outside_the_world_lies_nowhere(rank: int) -> None:
    [found] = flow(edge(rank, 0, "NET/IB/0", side=None, line=99))
    assert found.src_node is None


def test_an_edge_says_how_and_where() -> None:
    [found] = flow(edge(3, 4, "NET/IB/0/GDRDMA", line=77))
    assert (str(found), found.how) == ("3->4", "NET/IB")
    assert (found.evidence().source, found.evidence().line) == ("node-a.log", 77)
    assert "NET/IB/0/GDRDMA" in found.evidence().fact
