"""An NCCL log as evidence: hosts, GPUs, communicators, connections, faults, and what it does not show."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_evidence import CAPTURES, Hosts, comms, edges, everyone, facts, fixture, log, read

from topocheck.probes.capture.nccl_log import parse
from topocheck.probes.capture.reading import Text
from topocheck.snapshot import FullSnapshot

FIXTURES = (
    "nccl-2.7-sockets.log",
    "nccl-2.20-split.log",
    "nccl-2.28-split.log",
    "nccl-2.30.log",
    "nccl-bare.txt",
    "nccl-mpi-duplicates.log",
    "nccl-vllm-tp-only.log",
    "nccl-vllm-tp8-pp2.log",
)


def test_a_text_without_nccl_gives_nothing() -> None:
    assert parse(Text("x", ("export NCCL_DEBUG=INFO", "see https://x/NCCL for more", ""))) == []
    assert parse(Text("x", ())) == []


def test_vllm_builds_a_world_and_a_communicator_for_each_group() -> None:
    found = everyone(fixture("nccl-vllm-tp8-pp2.log"))
    assert Counter(len(ranks) for ranks in found.values()) == {16: 1, 8: 2, 2: 8}
    world = next(ranks for ranks in found.values() if len(ranks) == 16)
    assert {rank: host for rank, (host, _) in world.items()} == {
        rank: "hx01" if rank < 8 else "hx02" for rank in range(16)
    }
    tensor = [ranks for ranks in found.values() if len(ranks) == 8]
    assert all(len({host for host, _ in ranks.values()}) == 1 for ranks in tensor)
    pairs = [ranks for ranks in found.values() if len(ranks) == 2]
    assert all([ranks[0][0], ranks[1][0]] == ["hx01", "hx02"] for ranks in pairs)
    assert all(ranks[0][1] == ranks[1][1] for ranks in pairs)  # the same bus id on two hosts: two GPUs


def test_a_log_with_tensor_groups_only_has_ranks_twice_and_no_world() -> None:
    found = everyone(fixture("nccl-vllm-tp-only.log"))
    assert sorted(sorted(ranks) for ranks in found.values()) == [list(range(8)), list(range(8))]
    assert {next(iter(ranks.values()))[0] for ranks in found.values()} == {"hx01", "hx02"}


def test_a_connection_that_several_communicators_of_a_process_could_have_made_belongs_to_none() -> None:
    snapshots = fixture("nccl-vllm-tp8-pp2.log")
    sizes = {comm.comm: comm.size for comm in comms(snapshots["hx02"])}
    local = [edge for edge in edges(snapshots["hx02"]) if edge.via == "P2P"]
    far = [edge for host in ("hx01", "hx02") for edge in edges(snapshots[host]) if edge.via == "NET"]
    assert {sizes[edge.comm or ""] for edge in local} == {
        8
    }  # ranks 8-15 of the world are not in the brackets
    assert {edge.comm for edge in edges(snapshots["hx01"]) if edge.via == "P2P"} == {None}  # world or tensor
    assert {sizes.get(edge.comm or "") for edge in far} == {2}
    assert all(edge.gdr and edge.network == "IB" for edge in far)
    notes = [note.text for note in read(CAPTURES / "nccl-vllm-tp8-pp2.log").notes]
    assert notes == ["16 channel lines belong to no communicator: counted, accusing nobody"]


def test_equal_channels_are_one_connection() -> None:
    assert len(edges(fixture("nccl-vllm-tp-only.log")["hx01"])) == 8  # two channels each


def test_without_comm_id_ranks_that_complete_each_other_are_one_communicator() -> None:
    snapshots = fixture("nccl-2.7-sockets.log")
    found = everyone(snapshots)
    assert len(found) == 1
    assert {rank: host for rank, (host, _) in next(iter(found.values())).items()} == {
        0: "red-1",
        1: "red-1",
        2: "red-2",
        3: "red-2",
    }
    name = next(iter(found))
    assert {edge.comm for snapshot in snapshots.values() for edge in edges(snapshot)} == {name}
    assert snapshots["red-1"].software.nccl == "2.7.8"  # rank 0 printed the version, without a prefix
    assert snapshots["red-2"].software.nccl is None


def test_the_made_name_depends_on_the_processes_and_not_on_the_order_of_lines() -> None:
    lines = [f"n:{pid}:9 [0] NCCL INFO comm 0xa rank {pid} nranks 3 cudaDev 0 busId 5000 - Init COMPLETE"
             for pid in range(3)]  # fmt: skip
    assert everyone(log("\n".join(lines))).keys() == everyone(log("\n".join(reversed(lines)))).keys()


COMPLETE = "n{host}:{pid}:9 [0] NCCL INFO comm 0x{pid}{turn} rank {rank} nranks 2 cudaDev 0 - Init COMPLETE"


def complete(*places: tuple[int, int, int, int]) -> Hosts:
    lines = (COMPLETE.format(host=host, pid=pid, turn=turn, rank=rank) for host, pid, turn, rank in places)
    return log("\n".join(lines))


def test_groups_built_at_once_without_comm_id_are_not_joined_by_guess() -> None:
    found = everyone(complete((1, 11, 0, 0), (2, 21, 0, 0), (1, 12, 0, 1), (2, 22, 0, 1)))
    assert [len(ranks) for ranks in found.values()] == [1, 1, 1, 1]


def test_a_communicator_that_is_full_is_followed_by_the_next_generation() -> None:
    again = everyone(complete((1, 11, 0, 0), (1, 12, 0, 1), (1, 11, 1, 0), (1, 12, 1, 1)))
    restarted = everyone(complete((1, 11, 0, 0), (1, 12, 0, 1), (1, 31, 0, 0), (1, 32, 0, 1)))
    assert [len(ranks) for ranks in again.values()] == [2, 2]
    assert [len(ranks) for ranks in restarted.values()] == [2, 2]


def test_splits_that_share_a_comm_id_are_told_apart_by_size() -> None:
    found = everyone(fixture("nccl-2.20-split.log"))
    assert {name: sorted(ranks) for name, ranks in found.items()} == {
        "0x10": [0, 1, 2, 3],
        "0x20/2": [0, 1],
        "0x21": [0, 1],
        "0x20/3": [0, 1, 2],
    }


def test_splits_without_comm_id_are_named_after_their_parent() -> None:
    snapshots = fixture("nccl-2.28-split.log")
    found = everyone(snapshots)
    assert {name: [host for host, _ in ranks.values()] for name, ranks in found.items()} == {
        "0xfeed0001": ["eins", "eins", "zwei", "zwei"],
        "0xfeed0001/1.0": ["eins", "eins"],
        "0xfeed0001/1.1": ["zwei", "zwei"],
        "0xfeed0001/2.0": ["eins", "zwei"],
    }
    phases = [(comm.comm, comm.rank, comm.phase) for comm in comms(snapshots["eins"])]
    assert phases == [
        ("0xfeed0001", 0, "complete"),
        ("0xfeed0001", 1, "complete"),
        ("0xfeed0001/1.0", 0, "complete"),
        ("0xfeed0001/1.0", 1, "destroyed"),
        ("0xfeed0001/2.0", 0, "start"),
    ]
    (edge,) = edges(snapshots["eins"])
    assert edge.comm == "0xfeed0001/2.0"  # rank 1 on device 0 is there only


def test_a_destroyed_communicator_makes_no_more_connections() -> None:
    init = "a:1:2 [0] NCCL INFO comm 0x{p} rank 0 nranks 2 cudaDev 0 busId 5000 commId 0x{p} - Init {s}\n"
    end = "a:1:2 [0] NCCL INFO comm 0x7 rank 0 nranks 2 cudaDev 0 busId 5000 - Destroy COMPLETE\n"
    hop = "a:1:3 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    both = init.format(p=7, s="START") + init.format(p=7, s="COMPLETE")
    both += init.format(p=8, s="START") + init.format(p=8, s="COMPLETE")
    assert [edge.comm for edge in edges(log(both + hop)["a"])] == [None]
    assert [edge.comm for edge in edges(log(both + end + hop)["a"])] == ["0x8"]


def test_connections_made_while_a_thread_initialises_belong_to_that_communicator() -> None:
    text = """\
a:1:2 [0] NCCL INFO comm 0x7 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 5000 commId 0x7 - Init START
a:1:2 [0] NCCL INFO comm 0x7 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 5000 commId 0x7 - Init COMPLETE
a:1:2 [0] NCCL INFO comm 0x8 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 5000 commId 0x8 - Init START
a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
a:1:2 [0] NCCL INFO comm 0x8 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 5000 commId 0x8 - Init COMPLETE
"""
    assert [edge.comm for edge in edges(log(text)["a"])] == ["0x8"]


def test_a_ring_and_trees_imply_a_communicator_where_no_init_line_is() -> None:
    text = """\
a:1:2 [0] NCCL INFO Channel 00/02 :    0   1   2
a:5:6 [1] NCCL INFO Trees [0] -1/-1/-1->2->0 [1] 0/-1/-1->2->-1
b:1:2 [0] NCCL INFO Ring 00 : 0 -> 1 -> 2
b:1:2 [0] NCCL INFO Channel 00 : 0[5000] -> 1[6000] [receive] via NET/IB/0
"""
    snapshots = log(text)
    assert [sorted(ranks.items()) for ranks in everyone(snapshots).values()] == [
        [(0, ("a", None)), (1, ("b", "0000:06:00.0")), (2, ("a", None))]
    ]
    assert {comm.size for snapshot in snapshots.values() for comm in comms(snapshot)} == {3}
    assert {comm.phase for snapshot in snapshots.values() for comm in comms(snapshot)} == {"seen"}


def test_rings_that_contradict_each_other_are_not_joined() -> None:
    text = """\
a:1:2 [0] NCCL INFO Channel 00/02 :    0   1   2
b:1:2 [0] NCCL INFO Channel 00/02 :    0   1
b:3:4 [0] NCCL INFO Trees [0] -1/-1/-1->1->0
"""
    found = log(text)
    assert len(everyone(found)) == 3
    assert [comm.size for comm in comms(found["b"])] == [2, None]


def test_connections_alone_make_no_communicator() -> None:
    text = "a:1:2 [0] NCCL INFO Channel 00 : 0[5000] -> 1[6000] [send] via NET/IB/0\n"
    snapshot = log(text)["a"]
    assert comms(snapshot) == ()
    assert [edge.comm for edge in edges(snapshot)] == [None]


def test_a_clique_belongs_to_the_communicator_that_is_being_initialised() -> None:
    snapshot = fixture("nccl-2.30.log")["rack9-3"]
    assert [(comm.rank, comm.clique, comm.clique_size) for comm in comms(snapshot)] == [
        (0, None, None),
        (1, "2a", 2),
    ]


def test_gpus_that_agree_share_one_fabric_entry() -> None:
    snapshot = fixture("nccl-2.30.log")["rack9-3"]
    assert [(fabric.gpus, fabric.state, fabric.clique) for fabric in snapshot.fabric] == [
        ((0,), "Completed", 42),
        ((1,), "In Progress", 42),
    ]
    assert {fabric.cluster_uuid for fabric in snapshot.fabric} == {"1122334455667788ddccbbaa00990011"}


def test_a_warning_is_an_abort_only_if_it_is_returned() -> None:
    snapshot = fixture("nccl-2.30.log")["rack9-3"]
    assert [value[:14] for value in facts(snapshot, "abort")] == ["Multiple Ranks"]
    assert facts(snapshot, "warn") == ["Call to bind failed: Address already in use"]
    assert facts(snapshot, "duplicate-gpu") == [""]


def test_duplicate_warnings_put_both_ranks_on_one_gpu_of_the_host() -> None:
    snapshot = fixture("nccl-mpi-duplicates.log")["box7"]
    assert [gpu.bus for gpu in snapshot.identity.gpus] == ["0000:2f:00.0"]
    assert [(comm.comm, comm.size, comm.rank, comm.gpu, comm.pid) for comm in comms(snapshot)] == [
        ("duplicate:box7", None, 0, 0, 3100),
        ("duplicate:box7", None, 1, 0, 3101),
        ("duplicate:box7", None, 2, 0, 3102),
    ]
    assert facts(snapshot, "mpi-rank") == ["0", "1", "2", "3"]
    assert len(facts(snapshot, "abort")) == 2  # nothing was returned after the third warning


def test_a_text_that_stops_inside_a_line_is_said_to_be_cut() -> None:
    (note,) = read(CAPTURES / "nccl-mpi-duplicates.log").notes
    assert (note.line, note.kind) == (8, "cut")


def test_lines_that_name_no_host_stay_without_one() -> None:
    snapshots = fixture("nccl-bare.txt")
    assert list(snapshots) == [None]
    assert [(edge.comm, edge.gdr, edge.side) for edge in edges(snapshots[None])] == [
        (None, True, "send"),
        (None, False, "receive"),
    ]
    assert facts(snapshots[None], "device-open-failed") == ["ibv_open_device", "mlx5_4"]


def test_a_rank_that_is_not_below_the_size_is_not_used() -> None:
    text = "a:1:2 [0] NCCL INFO comm 0x7 rank 9 nranks 8 cudaDev 0 busId 5000 - Init COMPLETE"
    (reading,) = parse(Text("x", (text,)))
    assert comms(reading.snapshots[0]) == ()
    assert [note.kind for note in reading.notes] == ["contradictory"]


def test_a_gpu_that_two_containers_number_differently_has_no_index() -> None:
    line = "a:{p}:2 [0] NCCL INFO comm 0x{p} rank {r} nranks 3 cudaDev 0 nvmlDev {n} busId {b} - Init START\n"
    text = line.format(p=1, r=0, n=0, b="5000") + line.format(p=2, r=1, n=0, b="6000")
    snapshot = log(text + line.format(p=3, r=2, n=1, b="5000"))["a"]
    assert [(gpu.bus, gpu.nvml) for gpu in snapshot.identity.gpus] == [
        ("0000:05:00.0", None),
        ("0000:06:00.0", 0),
    ]


def test_two_libraries_on_one_host_are_both_facts_and_no_version() -> None:
    snapshot = log(
        "a:1:2 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\na:3:4 [0] NCCL INFO NCCL version 2.27.3+cuda12.9"
    )["a"]
    assert facts(snapshot, "nccl-version") == ["2.21.5+cuda12.4", "2.27.3+cuda12.9"]
    assert snapshot.software.nccl is None


@pytest.mark.parametrize("name", FIXTURES)
def test_a_log_never_says_that_something_is_absent(name: str) -> None:
    for snapshot in fixture(name).values():
        assert snapshot.coverage.observed == "part"
        assert snapshot.coverage.gpus in {"part", None}
        assert snapshot.coverage.ranks is None


@pytest.mark.parametrize("name", FIXTURES)
def test_every_fact_has_its_line(name: str) -> None:
    lines = (CAPTURES / name).read_text().splitlines()
    for snapshot in fixture(name).values():
        assert snapshot.observed is not None
        places = [comm.at for comm in snapshot.observed.comms]
        places += [edge.at for edge in snapshot.observed.edges]
        places += [fact.at for fact in snapshot.observed.facts]
        for at in places:
            assert at is not None
            assert at.source == name
            assert "NCCL" in lines[(at.line or 0) - 1] or "via" in lines[(at.line or 0) - 1]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_damaged_logs_never_fail_and_stay_valid_evidence(data: st.DataObject) -> None:
    text = (CAPTURES / data.draw(st.sampled_from(FIXTURES))).read_text()
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(text)))
        text = text[:place] + data.draw(st.text(max_size=5)) + text[place + data.draw(st.integers(0, 200)) :]
    for reading in parse(Text("x", tuple(text.split("\n")))):
        for snapshot in reading.snapshots:
            assert msgspec.json.decode(msgspec.json.encode(snapshot), type=FullSnapshot) == snapshot
            gpus = len(snapshot.identity.gpus)
            assert all(comm.gpu is None or comm.gpu < gpus for comm in comms(snapshot))
            assert all(comm.size is None or comm.rank < comm.size for comm in comms(snapshot))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text()))
def test_any_text_is_read_without_failing(lines: list[str]) -> None:
    parse(Text("x", tuple(lines)))
