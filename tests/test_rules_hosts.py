"""ID005: each host is one machine, and each machine one host."""

from __future__ import annotations

import pytest
from build import RING, TWO, answer, comm, edge, gpus, log, pair, report, running, snap, text_of

from topocheck.report import RuleReport
from topocheck.snapshot import Edge, FullSnapshot, GpuId, Host, Identity

TWIN = Identity(host=Host(name="node-b", boot_id="boot-of-node-b"), gpus=gpus("node-a"))


def of(*views: FullSnapshot, text: str = TWO) -> RuleReport:
    return answer(report(text, *views), "ID005")


def test_one_gpu_under_two_boot_ids_is_one_finding_with_both_hosts() -> None:
    [only] = of(snap("node-a", range(4)), snap("node-b", range(4, 8), identity=TWIN)).findings
    assert "4 GPUs" in only.message
    assert (only.subjects, only.count) == (["node-a", "node-b"], 2)
    assert len(only.evidence) == 2


def test_machines_that_share_a_name_are_told_apart_by_their_boot_ids() -> None:
    other = Identity(host=Host(name="clone", boot_id="b2"), gpus=gpus("other"))
    clones = [snap("clone", range(4), boot="b1"), snap("clone", range(4, 8), identity=other)]
    text = TWO.replace("[node-a, node-b]", "2")
    assert of(*clones, text=text).verdict == "pass"
    found = of(*clones, log("clone"), text=text)
    assert found.verdict == "fail"
    assert "the name clone belongs to two hosts" in text_of(found)


def test_a_full_name_and_its_first_label_are_one_host() -> None:
    views = [snap("node-a.cluster", range(4)), snap("node-b.cluster", range(4, 8)), *running()]
    found = report(TWO, *views)
    assert answer(found, "ID005").verdict == "pass"
    assert answer(found, "EV001").verdict == "pass"


def test_two_uuids_in_one_slot_of_one_boot_are_two_machines() -> None:
    host = Host(name="node-a", boot_id="boot-of-node-a")
    other = Identity(host=host, gpus=(GpuId(uuid="GPU-x", bus=gpus()[0].bus),))
    found = report(TWO, *pair(), log("node-a", identity=other))
    assert "GPU-x" in text_of(answer(found, "ID005"))
    assert answer(found, "EV004").verdict == "pass"


@pytest.mark.parametrize("how", ["P2P/IPC", "P2P/CUMEM", "SHM/direct/direct"])
def test_local_transport_between_two_hosts_is_told(how: str) -> None:
    found = of(*running(edges={"node-a": [edge(3, 4, how, line=77)]}))
    text = text_of(found)
    assert found.verdict == "fail"
    assert all(words in text for words in ("3->4", "node-a", "node-b", "node-a.log:77"))


def test_multi_node_nvlink_is_no_local_transport() -> None:
    assert of(*running(edges={"node-a": [edge(3, 4, "P2P/MNNVL")]})).findings == []


def local(*devices: tuple[int, str], comms: str = RING) -> list[Edge]:
    return [edge(0, rank, "SHM/direct", src_dev="0", dst_dev=device, comm=comms) for rank, device in devices]


def bare(*edges: Edge) -> list[FullSnapshot]:
    """node-a without bus ids or UUIDs."""
    identity = Identity(host=Host(name="node-a"), gpus=gpus(uuid=False, bus=False))
    return [log("node-a", comm(RING, range(4)), edges=edges, identity=identity), running()[1]]


def test_two_ranks_with_one_device_number_alone_are_told_with_the_other_reading() -> None:
    found = of(*bare(*local((1, "1"), (2, "2"), (3, "2"))))
    text = text_of(found)
    assert found.verdict == "fail"
    assert all(words in text for words in ("ranks 2, 3", "device 2", "node-a", "ID004", "node-a.log:40"))


def test_device_numbers_of_different_groups_are_not_compared() -> None:
    group = comm("0x7a", [0, 1], size=2, gpu=None, pid=None)
    edges = [*local((1, "1")), *local((2, "1"), comms="0x7a")]
    views = bare(*edges)
    assert of(*views, log("node-a", group)).findings == []


def test_tasks_that_each_call_their_gpu_0_accuse_nobody() -> None:
    found = report(TWO, *bare(*local((1, "0"), (2, "0"), (3, "0"))))
    assert answer(found, "ID005").findings == []
    assert any(gap.need == "which GPU each rank drives" for gap in found.gaps)


def test_hosts_known_by_name_alone_are_unknown_and_no_fault() -> None:
    found = report(TWO, *running())
    assert answer(found, "ID005").verdict == "unknown"
    assert any("boot_id" in gap.supply for gap in found.gaps)
