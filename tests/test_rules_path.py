"""TP006 and TP007: variables that cut a group's path, and processes that cannot reach each other's memory."""

from __future__ import annotations

import msgspec
import pytest
from build import (
    A40,
    L40S,
    TWO,
    answer,
    completed,
    fact,
    pair,
    report,
    running,
    snap,
    sockets,
    text_of,
)
from captured import of_capture, read_text
from made_fabric import RACK, both, trays
from made_path import SHARED, apart, told

from topocheck.report import RuleReport
from topocheck.snapshot import FullSnapshot, GpuId, Hardware, Limits, NcclFile

RTX = "NVIDIA GeForce RTX 4090"


def of(rule: str, *views: FullSnapshot, text: str = TWO) -> RuleReport:
    return answer(report(text, *views), rule)


def boxed(model: str, refused: bool, **variables: str) -> list[FullSnapshot]:
    """Two boxes without NVLink whose ranks have these variables."""
    pairs = [(a, b) for a in range(4) for b in range(a)] if refused else []
    return both(model=model, links=sockets, switch=None, refused=pairs, environment=variables)


@pytest.mark.parametrize(("model", "refused"), [(RTX, True), (RTX, False), (L40S, True), (L40S, False)])
def test_boxes_without_nvlink_run_well_without_peer_access(model: str, refused: bool) -> None:
    assert of("TP006", *boxed(model, refused, NCCL_P2P_DISABLE="1")).verdict == "pass"


@pytest.mark.parametrize("value", ["0", "true", "2", "", "yes"])
def test_only_the_number_one_switches_peer_access_off(value: str) -> None:
    assert of("TP006", *told(NCCL_P2P_DISABLE=value)).verdict == "pass"


@pytest.mark.parametrize("value", ["1", " 1", "0x1", "01"])
def test_one_is_one_however_it_is_written(value: str) -> None:
    assert of("TP006", *told(NCCL_P2P_DISABLE=value)).verdict == "fail"


@pytest.mark.parametrize(
    ("level", "verdict"), [("LOC", "fail"), ("0", "fail"), ("NVL", "pass"), ("SYS", "pass")]
)
def test_a_level_cuts_nvlink_only_where_it_allows_nothing(level: str, verdict: str) -> None:
    assert of("TP006", *told(NCCL_P2P_LEVEL=level)).verdict == verdict


def test_a_level_of_nvlink_costs_pairs_on_one_pcie_switch_their_access() -> None:
    views = both(model=A40, links=lambda _a, _b: "PIX", switch=None, environment={"NCCL_P2P_LEVEL": "NVL"})
    assert [finding.severity for finding in of("TP006", *views).findings] == ["warning"]


def test_pairs_across_sockets_lose_nothing_by_it() -> None:
    views = both(model=A40, links=sockets, switch=None, environment={"NCCL_P2P_DISABLE": "1"})
    assert of("TP006", *views).findings == []


def test_bridged_pairs_lose_their_bridge() -> None:
    text = "engine: vllm\nparallel: {tensor: 2, pipeline: 2}\nnodes: [node-a]\n"
    view = snap(
        "node-a",
        (),
        links=lambda a, b: "NV4" if a // 2 == b // 2 else "PHB",
        model=A40,
        switch=None,
        environment={"NCCL_P2P_DISABLE": "1"},
    )
    assert of("TP006", view, text=text).verdict == "fail"


def test_shared_memory_is_the_only_way_where_peer_access_is_refused() -> None:
    found = of("TP006", *boxed(RTX, True, NCCL_SHM_DISABLE="1"))
    assert [finding.severity for finding in found.findings] == ["error"]
    assert "the network" in text_of(found)
    assert of("TP006", *boxed(RTX, False, NCCL_SHM_DISABLE="1")).findings == []
    assert of("TP006", *told(NCCL_SHM_DISABLE="1")).verdict == "pass"


@pytest.mark.parametrize(
    "setting", [{"NCCL_MNNVL_ENABLE": "0"}, {"NCCL_CUMEM_ENABLE": "0"}, {"NCCL_P2P_DISABLE": "1"}]
)
def test_a_group_of_two_trays_loses_the_domain(setting: dict[str, str]) -> None:
    views = [msgspec.structs.replace(view, environment=setting) for view in trays(completed(), completed())]
    found = of("TP006", *views, text=RACK)
    assert any("NVLink between its nodes" in finding.message for finding in found.findings)
    inside = of("TP006", *views)
    assert (inside.verdict == "fail") == ("NCCL_P2P_DISABLE" in setting)


@pytest.mark.parametrize("value", ["0", "1"])
def test_nvls_leaves_the_path_where_it_is(value: str) -> None:
    assert of("TP006", *told(NCCL_NVLS_ENABLE=value)).verdict == "pass"


def test_a_script_accuses_all_nodes_though_no_process_is_there_yet() -> None:
    script = (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\nexport NCCL_P2P_DISABLE=1\n"
        "srun vllm serve m --tensor-parallel-size 4 --pipeline-parallel-size 2\n"
    )
    bare = [msgspec.structs.replace(view, ranks=(), environment={}) for view in pair()]
    found = of("TP006", *bare, *read_text(script))
    assert found.verdict == "fail"
    assert "capture.txt" in text_of(found)


def test_an_nccl_conf_that_nobody_sees_is_named() -> None:
    hidden = NcclFile(path="/etc/nccl.conf", kind="settings", settings={"NCCL_P2P_DISABLE": "1"})
    assert "/etc/nccl.conf" in text_of(of("TP006", *both(files=(hidden,))))


def test_a_running_job_proves_its_path_and_its_log_accuses() -> None:
    assert of("TP006", *running()).verdict == "pass"
    off = [fact("env", "NCCL_P2P_DISABLE=1", line=9)]
    found = of("TP006", *pair(), *running(inside="SHM/direct/direct", facts=off))
    assert "node-a.log:9" in text_of(found)


def test_a_host_without_ranks_accuses_no_group() -> None:
    text = "engine: vllm\nparallel: {tensor: 8, pipeline: 2}\nnodes: 2\n"
    assert answer(of_capture("C66-nccl-channel-lines-mixed.log", text), "TP006").findings == []


def test_equal_groups_are_one_finding() -> None:
    text = "engine: vllm\nparallel: {tensor: 2, pipeline: 4}\nnodes: [node-a, node-b]\n"
    found = of("TP006", *both(environment={"NCCL_P2P_DISABLE": "1"}), text=text)
    assert [finding.count for finding in found.findings] == [4]


def numbered(view: FullSnapshot, *numbers: int) -> FullSnapshot:
    """The node as processes list it that see one GPU each."""
    gpus = tuple(
        GpuId(uuid=gpu.uuid, bus=gpu.bus, nvml=number, scope="task")
        for gpu, number in zip(view.identity.gpus, numbers, strict=True)
    )
    return msgspec.structs.replace(view, identity=msgspec.structs.replace(view.identity, gpus=gpus))


def test_processes_that_each_call_their_gpu_zero_are_hidden_from_each_other() -> None:
    first, second = both(limits=SHARED)
    found = of("TP007", numbered(first, 0, 0, 0, 0), second)
    assert [finding.severity for finding in found.findings] == ["warning"]
    assert "both GPU 0" in text_of(found)
    assert of("TP007", numbered(first, 0, 1, 2, 3), second).findings == []


def test_real_tasks_that_see_both_gpus_are_not_accused() -> None:
    text = "engine: torch\nparallel: {tensor: 2}\nnodes: [node1]\n"
    found = of_capture("C15-srun-nvidia-smi-L.txt", text)
    assert answer(found, "TP007").findings == []


def test_slurm_that_shows_each_task_one_gpu_is_a_warning() -> None:
    text = "engine: megatron\nparallel: {tensor: 8}\nnodes: 1\n"
    whole = of_capture("C14-gpus-per-task.sbatch", text)
    assert {finding.severity for finding in answer(whole, "TP007").findings} <= {"warning"}


@pytest.mark.parametrize("narrow", ["0", "3"])
def test_a_narrow_list_of_visible_devices_alone_is_no_fault(narrow: str) -> None:
    views = both(limits=SHARED, environment={"CUDA_VISIBLE_DEVICES": narrow})
    assert of("TP007", *views).verdict == "pass"


def test_one_container_a_node_and_the_host_itself_pass() -> None:
    assert of("TP007", *apart("a1", "a1", "a1", "a1")).verdict == "pass"
    assert of("TP007", *both(limits=Limits(scope="host"))).verdict == "pass"


def test_two_containers_of_two_ranks_each_are_unknown() -> None:
    assert of("TP007", *apart("a1", "a1", "b2", "b2")).verdict == "unknown"


def test_a_container_whose_name_is_hidden_is_unknown() -> None:
    assert of("TP007", *both(limits=Limits(scope="container"))).verdict == "unknown"


def test_edges_over_peer_access_prove_more_than_names_of_containers() -> None:
    assert of("TP007", *apart("a1", "b2", "c3", "d4"), *running()).findings == []


def test_no_model_is_needed_where_nothing_is_cut() -> None:
    bare = [msgspec.structs.replace(view, hardware=Hardware(gpus=view.hardware.gpus)) for view in pair()]
    assert of("TP006", *bare).verdict == "pass"
    named = [msgspec.structs.replace(view, environment={"NCCL_P2P_DISABLE": "1"}) for view in bare]
    assert of("TP006", *named).verdict == "fail"  # the board has NVLink by design


def test_an_unknown_board_with_a_cut_is_unknown() -> None:
    views = both(
        model=None, links=None, switch=None, nvlinks=[None] * 4, environment={"NCCL_P2P_DISABLE": "1"}
    )
    assert of("TP006", *views).verdict == "unknown"
