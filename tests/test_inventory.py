"""Hosts as all the evidence together shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from build import at, claims, full, gpus, inventory, log, pair, snap

from topocheck.claims import UNKNOWN
from topocheck.errors import SnapshotError
from topocheck.gather.files import arguments, gather
from topocheck.gather.stream import decode_snapshot, undecoded
from topocheck.inventory import Inventory
from topocheck.snapshot import (
    Coverage,
    FullSnapshot,
    GpuShape,
    Hardware,
    Host,
    Identity,
    LinkMatrix,
    NvLink,
    PeerAccess,
    RankClaim,
    Software,
)


def named(found: Inventory) -> list[str]:
    return [machine.name for machine in found.machines]


def document(**changes: Any) -> dict[str, Any]:
    """A healthy snapshot as JSON, some parts changed."""
    text: dict[str, Any] = json.loads(msgspec.json.encode(snap(ranks=range(4))))
    return text | changes


def read(*documents: dict[str, Any], folder: Path) -> Inventory:
    """A stream of documents, as verify reads it."""
    path = folder / "all.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in documents))
    found = Inventory()
    gather(arguments([str(path)]), found)
    return found


def test_views_of_one_boot_are_one_host_whatever_they_call_it() -> None:
    pod = snap("pod-1", boot="boot-of-node-a", identity=snap().identity)
    named_pod = msgspec.structs.replace(
        pod, identity=msgspec.structs.replace(pod.identity, host=Host(name="pod-1", boot_id="boot-of-node-a"))
    )
    found = inventory(snap("node-a"), named_pod)
    assert named(found) == ["node-a"]
    assert found.machines[0].names == ("node-a", "pod-1")
    assert len(found.machines[0].gpus) == 4


def test_a_log_joins_the_probe_of_its_host_by_name_and_gpus_by_bus() -> None:
    found = inventory(snap("node-a"), log("node-a"))
    assert named(found) == ["node-a"]
    assert len(found.machines[0].gpus) == 4
    assert found.machines[0].gpus[2].uuid == gpus("node-a")[2].uuid
    assert found.machines[0].sources == ("node-a.json", "node-a.log")


def test_nccl_cuts_the_name_at_the_first_dot_and_it_is_still_the_same_host() -> None:
    assert named(inventory(snap("node-a.cluster.local"), log("node-a"))) == ["node-a.cluster.local"]


def test_text_without_a_host_waits_and_goes_to_the_only_node_of_a_job_of_one() -> None:
    found = inventory(log(None))
    assert (named(found), len(found.unlabelled)) == ([], 1)
    found.settle_unlabelled()
    assert (len(found.machines), found.unlabelled) == (1, [])
    several = inventory(*pair(), log(None))
    several.settle_unlabelled()
    assert len(several.unlabelled) == 1


def test_a_label_names_text_and_is_one_more_name_of_a_host_that_has_one() -> None:
    found = Inventory()
    found.add(undecoded(log(None)), "node-a")
    found.add(undecoded(log("pod-7")), "node-b")
    assert [machine.names for machine in found.machines] == [("node-a",), ("pod-7", "node-b")]


def test_the_order_of_the_hosts_does_not_hang_on_the_order_of_the_input() -> None:
    names = ["node-10", "node-9", "b", "node-1"]
    views = [snap(name, [rank]) for rank, name in enumerate(names)]
    for order in (views, views[::-1]):
        found = inventory(*order)
        found.arrange()
        assert named(found) == ["b", "node-1", "node-9", "node-10"]
        columns = found.claims[""]
        placed = {rank: named(found)[m] for rank, m in zip(columns.rank, columns.machine, strict=True)}
        assert placed == dict(enumerate(names))
        found.add(undecoded(log("node-9")))
        assert len(found.machines) == 4


def test_one_gpu_on_two_hosts_is_noticed_however_late_its_uuid_is_shown() -> None:
    twin = snap("node-b", identity=Identity(host=Host(name="node-b", boot_id="b2"), gpus=gpus("node-a")))
    assert len(inventory(snap("node-a"), twin).twice) == 4
    bare = log("node-b")
    late = msgspec.structs.replace(twin, identity=Identity(host=Host(name="node-b"), gpus=gpus("node-a")))
    found = inventory(snap("node-a"), bare, late)
    assert {(a, b) for _, a, b in found.twice} == {(0, 1)}
    found.arrange()
    assert len(found.twice) == 4


def test_one_view_given_twice_changes_nothing() -> None:
    once, twice = inventory(*pair()), inventory(*pair(), *pair())
    assert named(once) == named(twice)
    for a, b in zip(once.machines, twice.machines, strict=True):
        assert list(a.gpus) == list(b.gpus)
        assert a.shape
        assert b.shape
        assert a.shape.hardware == b.shape.hardware
        assert (b.conflicts, b.sources) == ((), a.sources)


def test_equal_hardware_is_one_shape() -> None:
    found = inventory(*[snap(f"node-{n}") for n in range(50)], snap("odd", count=3))
    assert len({id(machine.shape) for machine in found.machines}) == 2


def test_sources_that_differ_are_kept_with_both_places() -> None:
    other = snap("node-a", models=["NVIDIA A40"] + ["NVIDIA H100 80GB HBM3"] * 3, source="second.json")
    newer = msgspec.structs.replace(other, software=Software(driver="570.1"))
    found = inventory(snap("node-a", software=Software(driver="560.1")), newer)
    told = {conflict.about: conflict for conflict in found.machines[0].conflicts}
    assert told["driver version"].values == ("560.1", "570.1")
    assert told["model of GPU 0"].values == ("NVIDIA H100 80GB HBM3", "NVIDIA A40")
    assert [place and place.source for place in told["model of GPU 0"].places] == [
        "node-a.json",
        "second.json",
    ]


def test_an_index_counts_gpus_as_an_unrestricted_process_does() -> None:
    whole = inventory(snap()).machines[0]
    assert [whole.at_index(n) for n in range(5)] == [0, 1, 2, 3, None]
    task = inventory(snap(identity=Identity(host=Host(name="a"), gpus=gpus(scope="task")))).machines[0]
    assert task.at_index(0) == 0  # the list is whole and nothing numbers it otherwise
    part = inventory(
        snap(identity=Identity(host=Host(name="a"), gpus=gpus(nvml=False)), coverage=full(gpus="part"))
    )
    assert part.machines[0].at_index(0) is None


def test_a_gpu_has_the_best_name_that_is_known() -> None:
    machine = inventory(log("a", count=1), snap("b", count=1)).machines
    assert machine[0].gpu_name(0) == "0000:1b:00.0"
    assert machine[1].gpu_name(0).startswith("GPU-")
    assert machine[0].gpu_name(7) == "GPU 7"


def test_claims_are_columns_with_gpus_in_the_machines_ordinals() -> None:
    second = snap("node-a", identity=Identity(host=Host(name="node-a"), gpus=gpus("node-a")[::-1]))
    claim = RankClaim(rank=5, gpu=0, at=at("node-a", 3), world="")
    found = inventory(snap("node-a", range(2)), msgspec.structs.replace(second, ranks=(claim,)))
    columns = found.claims[""]
    assert list(columns.rank) == [0, 1, 5]
    assert list(columns.gpu) == [0, 1, 3]
    assert list(columns.pid) == [9000, 9001, UNKNOWN]
    assert columns.at == {2: at("node-a", 3)}


def test_node_ranks_are_those_of_all_processes() -> None:
    assert inventory(snap("node-a", [0, 1])).machines[0].node_ranks == ()
    parts = claims([0], node_rank=1), claims([1], node_rank=1), claims([2], node_rank=0)
    views = [log("node-a", ranks=part) for part in parts]
    assert inventory(*views).machines[0].node_ranks == (1, 0)


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("hardware", {"gpus": "many"}, "gpus"),
        ("hardware", {"gpus": [{}] * 5}, "`hardware` lists 5 GPUs and `identity` 4"),
        ("hardware", {"gpus": [{}], "matrix": {"gpus": [["X", "SYS"]]}}, "not 1 x 1"),
        ("hardware", {"gpus": [{}], "nics": [{"name": "a"}], "matrix": {"nics": [[]]}}, "not 1 x 1"),
        ("hardware", {"gpus": [{}], "peers": [{"a": 0, "b": 9, "status": "OK"}]}, "ordinal is 9"),
        ("hardware", {"gpus": [{"links": [{"link": 0, "peer": -1}]}]}, "ordinal is -1"),
        ("environment", ["NCCL_DEBUG"], "object"),
        ("ranks", [{"rank": 0, "gpu": 4}], "GPU ordinal 4"),
        ("ranks", [{"rank": 0, "gpu": -1}], "GPU ordinal -1"),
        ("observed", {"comms": [{"comm": "c", "rank": 0, "gpu": 77}]}, "GPU ordinal 77"),
    ],
)
def test_ordinals_that_point_nowhere_are_refused_in_a_sentence(
    part: str, value: Any, words: str, tmp_path: Path
) -> None:
    with pytest.raises(SnapshotError) as error:
        read(document(**{part: value}), folder=tmp_path)
    assert words in str(error.value)
    assert "all.jsonl" in str(error.value)


@pytest.mark.parametrize("first", [True, False])
def test_a_second_view_is_held_against_the_same_rules(first: bool, tmp_path: Path) -> None:
    odd = document(hardware={"gpus": [{}] * 5})
    with pytest.raises(SnapshotError):
        read(*([odd, document()] if first else [document(), odd]), folder=tmp_path)


def test_a_huge_rank_is_a_claim_like_any_other(tmp_path: Path) -> None:
    huge = 2**70
    found = read(document(ranks=[{"rank": huge, "pid": huge, "local_rank": huge}]), folder=tmp_path)
    assert list(found.claims[""].rank) == [huge]


def test_a_view_without_hardware_leaves_the_shape_alone() -> None:
    found = inventory(snap(), log("node-a"))
    assert found.machines[0].shape
    assert found.machines[0].shape.gpus == 4


def test_a_view_with_links_by_index_gives_them_to_the_gpus_of_a_log() -> None:
    table = snap(None, identity=Identity(host=Host(name="node-a"), gpus=gpus("x", uuid=False, bus=False)))
    shuffled = log("node-a")
    shuffled = msgspec.structs.replace(
        shuffled, identity=Identity(host=Host(name="node-a"), gpus=gpus("node-a", uuid=False)[::-1])
    )
    machine = inventory(shuffled, table).machines[0]
    assert machine.shape
    assert machine.numbering == (3, 2, 1, 0)
    assert str(machine.shape.link(0, 3)) == "NV18"
    assert machine.coverage == Coverage(gpus="all", links="all", nics="all", observed="part")


def test_peers_and_links_of_a_second_view_come_in_the_machines_ordinals() -> None:
    identity = Identity(host=Host(name="node-a"), gpus=gpus("node-a")[::-1])
    shape = Hardware(
        gpus=tuple(
            GpuShape(links=(NvLink(link=0, active=True, remote="gpu", peer=1 - n),) if n < 2 else ())
            for n in range(4)
        ),
        matrix=LinkMatrix(
            gpus=tuple(tuple("X" if a == b else "SYS" if a > 1 else None for b in range(4)) for a in range(4))
        ),
        peers=(PeerAccess(a=0, b=1, status="NS"),),
    )
    second = FullSnapshot(schema="topocheck.snapshot/1", identity=identity, hardware=shape)
    machine = inventory(log("node-a"), second).machines[0]
    assert machine.shape
    assert machine.shape.peer(3, 2) == "NS"
    assert machine.shape.hardware.gpus[3].links == (NvLink(link=0, active=True, remote="gpu", peer=2),)
    assert str(machine.shape.link(0, 1)) == "SYS"
    assert str(machine.shape.link(2, 3)) == "NV1"


def test_a_document_over_several_lines_is_one_snapshot() -> None:
    text = json.dumps(document(), indent=1).encode()
    assert decode_snapshot(text, "a.json", None).identity.host.name == "node-a"
