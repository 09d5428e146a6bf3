"""Healthy machines that careless checks accuse."""

from __future__ import annotations

import msgspec
import pytest
from build import (
    FOUR,
    GB200,
    H100,
    TWO,
    answer,
    completed,
    gpus,
    log,
    pair,
    report,
    running,
    snap,
    sockets,
)
from made_ports import bond, nic, node, rails

from topocheck.report import Report
from topocheck.snapshot import FullSnapshot, GpuId, Hardware, Host, Identity, NicShape, Port, RankClaim

NVL, GH200, SPARK = "NVIDIA H100 NVL", "NVIDIA GH200 480GB", "NVIDIA GB10"


def flat(_a: int, _b: int) -> str:
    """One socket, no NVLink."""
    return "NODE"


def named(view: FullSnapshot, name: str) -> FullSnapshot:
    """The same machine under another name."""
    host = Host(name=name, boot_id=view.identity.host.boot_id)
    return msgspec.structs.replace(view, identity=msgspec.structs.replace(view.identity, host=host))


def errors(found: Report) -> list[str]:
    return [rule.id for rule in found.rules for finding in rule.findings if finding.severity == "error"]


def findings(found: Report) -> list[str]:
    return [rule.id for rule in found.rules if rule.findings]


def test_bridged_pairs_with_twelve_of_eighteen_links() -> None:
    view = snap(
        "node-a",
        range(4),
        size=4,
        model=NVL,
        nvlinks=[12] * 4,
        links=lambda a, b: "NV12" if a // 2 == b // 2 else "SYS",
        switch=None,
    )
    text = "engine: vllm\nparallel: {tensor: 2, pipeline: 2}\nnodes: [node-a]\n"
    assert findings(report(text, view)) == []


def test_trays_of_four_gpus_in_one_rack_carry_tp16_and_boxes_of_eight_do_not() -> None:
    text = "engine: vllm\nparallel: {tensor: 16}\nnodes: 4\npolicy: {tensor_domain: nvlink}\n"
    rack = [
        snap(f"t{n}", range(4 * n, 4 * n + 4), size=16, model=GB200, fabric=completed()) for n in range(4)
    ]
    assert answer(report(text, *rack), "TP001").verdict == "pass"
    boxes = [snap(f"b{n}", range(8 * n, 8 * n + 8), size=16, count=8, model=H100) for n in range(2)]
    assert errors(report(text.replace("nodes: 4", "nodes: 2"), *boxes)) == ["TP001"]


@pytest.mark.parametrize("model", [GH200, SPARK])
def test_one_gpu_a_node_must_cross_and_is_a_warning(model: str) -> None:
    text = "engine: vllm\nparallel: {tensor: 2}\nnodes: [node-a, node-b]\n"
    views = [
        snap(name, [rank], count=1, size=2, model=model, switch=None)
        for rank, name in enumerate(("node-a", "node-b"))
    ]
    found = report(text, *views)
    assert errors(found) == []
    assert "TP001" in findings(found)


def test_a_head_node_without_gpus_is_no_domain_and_no_odd_node() -> None:
    head = snap("head", count=0, ports=(), links=None, near=None)
    found = report(TWO, *pair(), head)
    assert findings(found) == []
    assert found.exit_code == 0
    assert any("head" in note for note in found.notes)


def test_storage_nics_and_bonds_beside_the_compute_fabric() -> None:
    down = Port(state="DOWN", physical="Disabled", layer="Ethernet")
    ports = (*rails(), bond(), nic("roce_rail7", down))
    assert findings(report(TWO, *(node(name, ports) for name in ("node-a", "node-b")))) == []


def test_a_fabric_without_mellanox_names() -> None:
    efa = (NicShape(name="rdmap16s27", kind="efa", ports=(Port(state="ACTIVE", physical="LinkUp"),)),)
    assert findings(report(TWO, *pair(ports=efa))) == []


def tasks(name: str, first: int) -> list[FullSnapshot]:
    """Slurm with one GPU a task: each task sees one GPU and calls it 0."""
    return [
        log(
            name,
            count=1,
            ranks=(RankClaim(rank=first + n, local_rank=n, gpu=0, size=8, pid=50 + n),),
            identity=Identity(
                host=Host(name=name, boot_id=f"boot-of-{name}"),
                gpus=(GpuId(uuid=gpus(name)[n].uuid, nvml=0, scope="task"),),
            ),
        )
        for n in range(4)
    ]


def test_tasks_that_each_see_one_gpu_as_0() -> None:
    found = report(TWO, *tasks("node-a", 0), *tasks("node-b", 4))
    assert (findings(found), errors(found)) == (["TP007"], [])  # no duplicates, but hidden from each other
    assert {answer(found, rule).verdict for rule in ("ID001", "ID003", "ID004", "TP001")} == {"pass"}


def test_cloned_host_names_with_boot_ids_of_their_own() -> None:
    clones = [
        snap("localhost", range(4 * n, 4 * n + 4), identity=Identity(host=host, gpus=gpus(f"n{n}")))
        for n, host in enumerate(Host(name="localhost", boot_id=f"b{n}") for n in range(2))
    ]
    found = report(TWO.replace("[node-a, node-b]", "2"), *clones)
    assert findings(found) == []
    assert found.exit_code == 0


def test_two_pods_of_one_machine_are_one_node() -> None:
    own = [gpus("m", 2, first=2 * n, nvml=False) for n in range(2)]
    hosts = [Host(name=f"pod-{n}", boot_id="boot-of-the-machine") for n in range(2)]
    pods = [
        snap(ranks=range(2 * n, 2 * n + 2), count=2, size=4, identity=Identity(host=hosts[n], gpus=own[n]))
        for n in range(2)
    ]
    found = report(FOUR.replace("[node-a]", "1"), *pods)
    assert answer(found, "TP001").verdict == "pass"
    assert answer(found, "ID004").verdict == "pass"
    assert errors(found) == []


def test_full_names_in_the_probe_and_first_labels_in_the_log() -> None:
    views = [named(view, f"{view.identity.host.name}.example.org") for view in pair()]
    found = report(TWO, *views, *running())
    assert findings(found) == []
    assert found.exit_code == 0


def test_spare_nodes_and_an_odd_number_of_them() -> None:
    text = "engine: torch\nparallel: {data: 6}\nnodes: {min: 1, max: 5}\n"
    views = [snap(f"n{n}", range(2 * n, 2 * n + 2), size=6, count=2) for n in range(3)]
    found = report(text, *views, snap("spare-1", count=2), snap("spare-2", count=2))
    assert findings(found) == []
    assert found.exit_code == 0


def test_no_nvlink_and_no_infiniband_by_design() -> None:
    view = snap(
        "node-a",
        range(4),
        size=4,
        model="NVIDIA L40S",
        links=flat,
        numa=[0] * 4,
        switch=None,
        ports=(),
        near=None,
    )
    found = report(FOUR, view)
    assert findings(found) == []
    assert found.exit_code == 0


def test_boards_on_two_sockets_with_one_stage_each() -> None:
    view = snap("node-a", range(4), size=4, model="NVIDIA L40S", links=sockets, switch=None)
    text = "engine: vllm\nparallel: {tensor: 2, pipeline: 2}\nnodes: [node-a]\n"
    assert findings(report(text, view)) == []


def test_a_node_of_the_job_that_shows_nic_names_alone() -> None:
    view = snap(
        "node-a", range(4), hardware=Hardware(gpus=snap().hardware.gpus, nics=(NicShape(name="mlx5_0"),))
    )
    assert findings(report(TWO, view, pair()[1])) == []
