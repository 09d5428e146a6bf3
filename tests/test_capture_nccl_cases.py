"""NCCL logs of real jobs, read as they must be."""

from __future__ import annotations

from pathlib import Path

import pytest
from nccl_evidence import comms, edges, everyone, facts, hosts, read

from topocheck.probes.capture.reading import Reading

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"


def case(name: str) -> Reading:
    path = CASES / name
    if not path.exists():
        pytest.skip("shared cases are not here")
    return read(path)


def test_c16_two_pairs_of_ranks_on_one_gpu_each() -> None:
    snapshots = hosts(case("C16-nccl-init-2gpu-nodes.log"))
    assert everyone(snapshots) == {
        "0x26b3ece72ee71028": {
            0: ("node-a", "0000:31:00.0"),
            2: ("node-a", "0000:31:00.0"),
            1: ("node-a", "0000:4b:00.0"),
            3: ("node-a", "0000:4b:00.0"),
            7: ("node-c", "0000:4b:00.0"),
        }
    }
    assert facts(snapshots["node-b"], "hca") == ["mlx5_0:1/IB", "mlx5_2:1/RoCE"]
    assert comms(snapshots["node-b"]) == ()


def test_c18_all_ranks_on_one_gpu_through_mpirun_tags() -> None:
    reading = case("C18-horovod-dup-mpi-prefix.log")
    (snapshot,) = reading.snapshots
    assert {comm.rank for comm in comms(snapshot)} == {0, 1, 2, 4, 5, 6, 7}
    assert [gpu.bus for gpu in snapshot.identity.gpus] == ["0000:01:00.0"]
    assert sorted(facts(snapshot, "mpi-rank")) == ["0", "2", "3", "4", "5", "6", "7"]
    assert [(note.line, note.kind) for note in reading.notes] == [(32, "cut")]


def test_c22_ipc_within_one_name_and_pods_with_one_host_id() -> None:
    snapshot = hosts(case("C22-nccl-samehost-ipc.log"))["trainhost"]
    pairs = [(edge.src, edge.dst) for edge in edges(snapshot)]
    assert pairs == [(2, 3), (4, 5), (1, 2), (3, 7), (7, 4), (6, 10)]
    assert len({edge.comm for edge in edges(snapshot)} - {None}) == 1
    assert {comm.rank: comm.cuda for comm in comms(snapshot)} == {
        rank: rank for rank in (0, 1, 2, 3, 4, 6, 7)
    }
    assert facts(snapshot, "ring-size") == ["20+"]  # NCCL of that time prints no more than 20
    pods = hosts(case("C22-nccl-hostid-pods.log"))
    assert everyone(pods) == {
        "0x9eddd89fcffb8f13": {1: ("pod-worker-0", "0000:a2:00.0"), 0: ("pod-worker-1", "0000:08:00.0")}
    }
    assert facts(pods["pod-worker-1"], "hostid") == ["10.10.10.10"]


def test_c33_fabric_of_four_gpus() -> None:
    snapshot = hosts(case("C33-nccl-mnnvl-gb200.log"))["node-a"]
    (fabric,) = snapshot.fabric
    assert (len(fabric.gpus), fabric.clique, fabric.state, fabric.health_mask) == (
        4,
        32766,
        "Completed",
        0xAA,
    )
    assert fabric.cluster_uuid == "1" * 16 + "2" * 16
    assert {gpu.bus for gpu in snapshot.identity.gpus} == {
        "0008:01:00.0",
        "0009:01:00.0",
        "0018:01:00.0",
        "0019:01:00.0",
    }


def test_c36_c37_c49_why_sockets_are_used() -> None:
    container = hosts(case("C36-nccl217-container-noib.log"))["node-a"]
    assert facts(container, "no-rdma-device") == [""]
    assert facts(container, "network") == ["Socket"]
    assert facts(container, "plugin-loaded") == ["NCCL RDMA Plugin", "IBext"]
    interfaces = facts(container, "socket-interface")
    assert len(interfaces) == 5
    assert sum(value.endswith(":10.2.0.201") for value in interfaces) == 3
    assert container.software.nccl == "2.17.1"
    refused = hosts(case("C37-ibstatus-openfail.txt"))[None]
    assert facts(refused, "device-open-failed") == ["ibv_open_device", "mlx5_bond_0"]
    assert facts(refused, "env") == ["NCCL_IB_DISABLE=0"]
    veth = hosts(case("C49-nccl278-ansi-veth.log"))["node-a"]
    assert facts(veth, "no-verbs") == ["libibverbs"]
    assert [(comm.size, comm.rank) for comm in comms(veth)] == [(2, 0)]
    assert [gpu.bus for gpu in veth.identity.gpus] == ["0000:00:1e.0"]
    assert [(edge.network, edge.comm is None) for edge in edges(veth)] == [("Socket", False)]


def test_c39_two_ranks_on_two_hosts_and_a_refused_queue() -> None:
    snapshot = hosts(case("C39-nccl278-createcq.log"))["spark01"]
    assert [(comm.size, comm.rank, comm.gpu) for comm in comms(snapshot)] == [(2, 0, 0)]
    assert [gpu.bus for gpu in snapshot.identity.gpus] == ["0000:03:00.0"]
    assert [(edge.src, edge.dst, edge.how, edge.gdr) for edge in edges(snapshot)] == [
        (1, 0, "NET/IB/0", False),
        (0, 1, "NET/IB/0", False),
    ]
    assert facts(snapshot, "verbs-call-failed") == ["ibv_create_cq"]


def test_c45_gpudirect_off_or_on_one_side() -> None:
    asymmetric = hosts(case("C45-nccl-gdr-asym.txt"))[None]
    assert [(edge.src, edge.dst, edge.side, edge.gdr, edge.comm) for edge in edges(asymmetric)] == [
        (9, 2, "send", True, None),
        (9, 2, "receive", False, None),
    ]
    disabled = hosts(case("C45-nccl-gdr-disabled.log"))
    assert facts(disabled["node-a"], "gdr-disabled") == ["mlx5_0", "mlx5_1"]
    assert facts(disabled["node-b"], "gdr-disabled") == ["GPU ca000 / HCA 0 (distance 7 > 4)"]
    assert [(comm.rank, comm.size) for comm in comms(disabled["node-a"])] == [(0, 16)]
    control = hosts(case("C45-nccl225-roce-ok.log"))["r1-head-0"]
    assert len(facts(control, "hca")) == 4
    assert control.software.nccl == "2.25.1"
    assert facts(control, "env")[-1] == "NCCL_IB_HCA=mlx5_"


def test_c51_c52_what_failed_and_where() -> None:
    plugin = hosts(case("C51-ofi-old-mpirun.log"))["10.0.35.83"]
    assert len(facts(plugin, "ofi-no-provider")) == 1
    assert facts(plugin, "env")[0].startswith("NCCL_TOPO_FILE=/home/ds/")
    unnamed = hosts(case("C52-nccl218-topofile.log"))[None]
    assert facts(unnamed, "topo-device-missing") == ["dev 1"]
    assert facts(unnamed, "abort") == ["XML Import Channel : dev 1 not found."]
    assert [gpu.bus for gpu in unnamed.identity.gpus] == ["0001:00:00.0"]
    assert unnamed.software.nccl == "2.18.6"


def test_c63_a_healthy_world_of_two_hosts() -> None:
    snapshots = hosts(case("C63-nccl2x-h100-2node-ib.log"))
    (world,) = everyone(snapshots).values()
    assert {rank: host for rank, (host, _) in world.items()} == {
        rank: "node-a" if rank < 8 else "node-b" for rank in range(16)
    }
    for snapshot in snapshots.values():
        places = {comm.rank: snapshot.identity.gpus[comm.gpu or 0].nvml for comm in comms(snapshot)}
        assert all(nvml == rank % 8 for rank, nvml in places.items())
        assert {fabric.cluster_uuid for fabric in snapshot.fabric} == {"0" * 32}
        assert {edge.comm for edge in edges(snapshot)} == {"0x1111222233334444"}
        assert {edge.via for edge in edges(snapshot)} == {"P2P"}
    assert facts(snapshots["node-b"], "network") == ["NCCL RDMA Plugin v8"] * 2
    assert len(facts(snapshots["node-b"], "hca")) == 8


def test_c64_sockets_between_hosts_and_shared_memory_inside() -> None:
    snapshots = hosts(case("C64-nccl278-v100-2node-socket.log"))
    (world,) = everyone(snapshots).values()
    assert [world[rank][0] for rank in range(8)] == ["node-a"] * 4 + ["node-b"] * 4
    assert {comm.phase for snapshot in snapshots.values() for comm in comms(snapshot)} == {"complete"}
    found = {(edge.src, edge.dst): edge for edge in edges(snapshots["node-a"])}
    assert {pair for pair, edge in found.items() if edge.network == "Socket"} == {
        (3, 4),
        (7, 0),
        (4, 1),
        (0, 5),
    }
    assert {pair for pair, edge in found.items() if edge.via == "SHM"} == {(1, 2), (2, 1)}
    assert None not in {edge.comm for edge in found.values()}
    assert facts(snapshots["node-a"], "no-verbs") == ["libibverbs"]


def test_c65_one_nvlink_clique_over_two_trays() -> None:
    snapshots = hosts(case("C65-nccl2297-gb300-2tray-mnnvl.log"))
    (world,) = everyone(snapshots).values()
    assert [world[rank][0] for rank in range(8)] == ["tray-04"] * 4 + ["tray-05"] * 4
    cliques = {
        comm.rank: (comm.clique, comm.clique_size) for host in snapshots.values() for comm in comms(host)
    }
    assert {rank for rank, clique in cliques.items() if clique == ("d26", 8)} == {1, 5, 6}
    assert facts(snapshots["tray-05"], "warn") == ["Call to bind failed: Address already in use"]
    assert facts(snapshots["tray-05"], "abort") == []


def test_c66_lines_of_many_jobs_are_not_joined() -> None:
    reading = case("C66-nccl-channel-lines-mixed.log")
    snapshots = hosts(reading)
    assert all(comms(snapshot) == () for snapshot in snapshots.values())
    found = [edge for snapshot in snapshots.values() for edge in edges(snapshot)]
    assert len(found) == 12
    assert {edge.comm for edge in found} == {None}
    assert {edge.network for edge in found} == {"IB", "AWS Libfabric", "IBext_v8", None}
    assert facts(snapshots["node-f"], "env") == ["NCCL_P2P_DISABLE=1"]
    assert [note.text[:3] for note in reading.notes] == ["12 "]
