"""What users see of the engines' own pitfalls, from a plan or a launch to the sentence and its fix."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from shell import topocheck

SGLANG = "python -m sglang.launch_server --model-path /m"


def findings(folder: Path, plan: str, texts: dict[str, str], code: int = 1) -> dict[str, dict[str, Any]]:
    """First finding of each rule that fails over these texts; `NODE=NAME` labels one."""
    (folder / "plan.yaml").write_text(plan)
    for name, text in texts.items():
        (folder / name.rpartition("=")[2]).write_text(text)
    ran = topocheck("verify", "--plan", "plan.yaml", "--json", "-", *texts, cwd=folder)
    assert ran.code == code, ran.err
    rules = json.loads(ran.out)["rules"]
    return {rule["id"]: rule["findings"][0] for rule in rules if rule["findings"]}


def gpu_list(host: str, count: int) -> str:
    """`nvidia-smi -L` at a prompt."""
    rows = [
        f"GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-{n:08}-0000-0000-0000-{sum(host.encode()):012})"
        for n in range(count)
    ]
    return "\n".join((f"root@{host}:~# nvidia-smi -L", *rows, f"root@{host}:~# ", ""))


def planned(*command: str) -> str:
    ran = topocheck("plan", "--", *command)
    assert ran.code == 0, ran.err
    return re.sub(r"\s+", " ", ran.out)


def test_sglangs_gpu_step_is_seen_before_the_launch() -> None:
    out = planned(*SGLANG.split(), "--tp", "2", "--pp-size", "2", "--gpu-id-step", "2")
    assert re.search(r"ranks 1,? 2 drive one GPU: GPU 2 of node 0", out)
    assert "leave --gpu-id-step at 1" in out


def test_a_step_that_shares_no_gpu_is_laid_out_as_it_is() -> None:
    out = planned(*SGLANG.split(), "--tp", "4", "--base-gpu-id", "1", "--gpu-id-step", "2")
    assert "clash" not in out
    assert "--gpu-id-step 2" in out
    assert re.findall(r"node 0 \d (\d)", out) == ["1", "3", "5", "7"]


@pytest.mark.parametrize(
    "text",
    [
        f"$ {SGLANG} --tp 2 --pp-size 2 --gpu-id-step 2\n",
        "[2026-03-02 10:00:00] server_args=ServerArgs(tp_size=2, pp_size=2, gpu_id_step=2, nnodes=1)\n",
    ],
)
def test_sglangs_gpu_step_is_a_finding_that_names_the_flag_and_the_fix(tmp_path: Path, text: str) -> None:
    plan = "engine: sglang\nparallel: {tensor: 2, pipeline: 2}\nnodes: 1\n"
    found = findings(tmp_path, plan, {"launch.txt": text})["ID004"]
    assert found["severity"] == "error"
    assert "ranks 1, 2 share GPU 2" in found["message"]
    assert "leave --gpu-id-step at 1" in found["fix"]
    assert any("gpu_id_step 2" in evidence["fact"] for evidence in found["evidence"])


@pytest.mark.parametrize(
    ("stages", "nodes", "words"),
    [
        (3, 2, "no node would start stage 2"),
        (5, 2, "no node would start stage 4"),
        (7, 4, "no node would start stage 4..6"),
        (2, 3, "node 2 would start stage 2, which does not exist"),
        (3, 4, "node 3 would start stage 3, which does not exist"),
    ],
)
def test_stages_that_sglang_would_start_wrong_are_named(
    tmp_path: Path, stages: int, nodes: int, words: str
) -> None:
    """SGLang checks only that the nodes divide the ranks."""
    tensor = nodes * 2
    plan = f"engine: sglang\nparallel: {{tensor: {tensor}, pipeline: {stages}}}\nnodes: {nodes}\n"
    found = findings(tmp_path, plan, {f"n{n}.txt": gpu_list(f"n{n}", 8) for n in range(nodes)})["PP001"]
    assert words in found["message"]
    assert "number of nodes that divides the stages" in found["fix"]
    options = ["--tp", f"{tensor}", "--pp-size", f"{stages}", "--nnodes", f"{nodes}", "--node-rank", "0"]
    assert words in planned(*SGLANG.split(), *options, "--dist-init-addr", "n0:5000")


def test_tensorrt_llm_shares_gpus_where_a_node_shows_fewer_than_it_has_ranks(tmp_path: Path) -> None:
    plan = "engine: tensorrt_llm\nparallel: {tensor: 8, pipeline: 2}\nnodes: [na, nb]\n"
    found = findings(tmp_path, plan, {"na.txt": gpu_list("na", 8), "nb.txt": gpu_list("nb", 4)})
    assert "ranks 8, 12 share" in found["ID004"]["message"]
    assert "rank % visible GPUs" in found["ID004"]["fix"]
    assert "nb has 4 GPUs and must hold 8 ranks" in found["ID015"]["message"]


def test_tensorrt_llm_with_more_gpus_than_ranks_takes_others_and_shares_none(tmp_path: Path) -> None:
    """Rank 4 takes GPU 4 of 8 on the second node."""
    plan = "engine: tensorrt_llm\nparallel: {tensor: 4, pipeline: 2}\nnodes: [na, nb]\n"
    texts = {"na.txt": gpu_list("na", 8), "nb.txt": gpu_list("nb", 8)}
    assert "ID004" not in findings(tmp_path, plan, texts, code=3)
    ran = topocheck("verify", "--plan", "plan.yaml", "--json", "-", *texts, cwd=tmp_path)
    ranks = json.loads(ran.out)["placement"]["ranks"]
    assert [rank["gpu"].split("-")[1] for rank in ranks] == [f"{n:08}" for n in range(8)]


VLLM = "engine: vllm\nparallel: {tensor: 8, pipeline: 2}\nnodes: 2\n"
COMMAND = "vllm serve /m -tp 8 -pp 2 --nnodes 2 --node-rank 0 --master-addr 10.9.0.1"
LOG = (
    "(APIServer pid=7) INFO 03-02 10:00:00 [utils.py:233] non-default args: {'model': '/m', "
    "'tensor_parallel_size': 8, 'pipeline_parallel_size': 2, 'nnodes': 2, 'node_rank': 0, 'master_addr': "
    "'10.9.0.1'}\nINFO 03-02 10:00:00 [config.py:1] Inferred data_parallel_rank 0 from node_rank 0\n"
)


@pytest.mark.parametrize(
    "texts",
    [
        {"node-a=a.log": LOG, "node-b=b.log": LOG},
        {f"{n}.txt": f"root@node-{n}:~# {COMMAND}\n" for n in "ab"},
    ],
    ids=["logs", "commands"],
)
def test_a_node_rank_that_is_the_same_everywhere_is_wrong(tmp_path: Path, texts: dict[str, str]) -> None:
    found = findings(tmp_path, VLLM, texts)["ID007"]
    assert "node rank 0 is on node-a, node-b" in found["message"]
    assert "--node-rank" in found["fix"]


def test_a_template_that_gives_all_workers_one_node_rank_is_wrong_from_three_pods_on(tmp_path: Path) -> None:
    manifest = (
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: s}\nspec:\n"
        "  replicas: 1\n  leaderWorkerTemplate:\n    size: SIZE\n"
    )
    for role, rank in (("leader", 0), ("worker", 1)):
        manifest += (
            f"    {role}Template:\n      spec:\n        containers:\n          - name: c\n"
            f'            command: ["sh", "-c"]\n            args: ["{SGLANG} --tp 24 --nnodes SIZE '
            f'--node-rank {rank} --dist-init-addr h:5000"]\n'
        )
    plan = "engine: sglang\nparallel: {tensor: 24}\nnodes: SIZE\npolicy: {tensor_domain: any}\n"
    three = findings(tmp_path, plan.replace("SIZE", "3"), {"j.yaml": manifest.replace("SIZE", "3")})
    assert "node rank 1" in three["ID007"]["message"]
    two = findings(tmp_path, plan.replace("SIZE", "2"), {"j.yaml": manifest.replace("SIZE", "2")}, code=3)
    assert "ID007" not in two


def test_what_vllm_says_of_ray_stands_by_the_crossing_group(tmp_path: Path) -> None:
    line = (
        "WARNING 03-02 10:00:00 [ray_utils.py:1] tensor_parallel_size=2 is bigger than a reserved number of "
        "GPUs (1 GPUs) in a node {}. Tensor parallel workers can be spread out to 2+ nodes which\n"
    )
    log = line.format("c0ffee01" * 7) + line.format("0a11ce01" * 7)
    plan = "engine: vllm\nparallel: {tensor: 2}\nnodes: 2\n"
    found = findings(tmp_path, plan, {"ray.log": log}, code=3)["TP001"]
    assert found["severity"] == "warning"
    assert [evidence["line"] for evidence in found["evidence"][:2]] == [1, 2]


def test_an_engine_that_says_a_group_spans_nodes_is_believed(tmp_path: Path) -> None:
    log = (
        "(Worker pid=4) INFO 03-02 10:00:00 [p.py:803] world_size=16 rank=9 local_rank=1 "
        "distributed_init_method=tcp://10.9.0.1:4000 backend=nccl\n"
        "(Worker pid=4) WARNING 03-02 10:00:00 [custom_all_reduce.py:80] Custom allreduce is disabled "
        "because this process group spans across nodes.\n"
    )
    crossing = VLLM.replace("tensor: 8, pipeline: 2", "tensor: 16")
    found = findings(tmp_path, crossing, {"worker.log": log})["TP001"]
    assert (found["severity"], found["evidence"][0]["line"]) == ("error", 2)
    assert "tensor 8 x pipeline 2" in found["fix"]
    declared = crossing + "policy: {tensor_domain: any}\n"
    assert findings(tmp_path, declared, {"worker.log": log}, code=3)["TP001"]["severity"] == "warning"


def test_gloo_on_loopback_is_told_once_with_its_own_fix(tmp_path: Path) -> None:
    log = (
        "[rank9]:[W ProcessGroupGloo.cpp:721] Warning: Unable to resolve hostname to a (local) address. "
        "Using the loopback address as fallback. (function operator())\n"
        "[rank9]:[E ProcessGroupGloo.cpp:144] Gloo connectFullMesh failed with no error\n"
        "ERROR 08-02 08:50:03 worker_base.py:382] Error executing method init_device. This might cause "
        "deadlock in distributed execution.\n"
    )
    log = "".join(f"(RayWorkerWrapper pid=11, ip=10.9.0.2) {line}\n" for line in log.splitlines())
    found = findings(tmp_path, VLLM, {"driver.log": log})
    assert found.keys() == {"ID014"}
    assert "GLOO_SOCKET_IFNAME where that process runs" in found["ID014"]["fix"]


def test_ranks_in_another_order_than_the_plans_are_told(tmp_path: Path) -> None:
    log = "\n".join(
        f"(Worker pid={rank}) INFO 03-02 10:00:00 [p.py:1] rank {rank} in world size 4 is assigned as DP "
        f"rank 0, PP rank {rank % 2}, TP rank {rank // 2}, EP rank N/A"
        for rank in range(4)
    )
    plan = "engine: vllm\nparallel: {tensor: 2, pipeline: 2}\nnodes: 1\n"
    found = findings(tmp_path, plan, {"node-a=w.log": log + "\n"})["OBS001"]
    assert "rank 1 is at pipeline 1, the plan's layout has it at 0" in found["message"]
    assert "engine_version" in found["fix"]


def test_ray_places_a_job_as_its_own_list_of_nodes_shows(tmp_path: Path) -> None:
    """The driver's node first, then by node id and not by address or name."""
    ids = {"na": "f0" * 28, "nb": "c0" * 28, "nc": "0a" * 28}
    rows = [
        f" {n}  {ident}  10.9.0.{n + 1}  {n == 0}  ALIVE   10.9.0.{n + 1}  GPU: 8.0  ray.io/node_id: {ident}"
        for n, ident in enumerate(ids.values())
    ]
    ray = (
        "root@10.9.0.1:~# vllm serve /m -tp 8 -pp 3 --distributed-executor-backend ray\n"
        + "\n".join(rows)
        + "\n"
    )
    plan = "engine: vllm\nparallel: {tensor: 8, pipeline: 3}\nnodes: [10.9.0.1, 10.9.0.2, 10.9.0.3]\n"
    hosts = {f"10.9.0.{n + 1}=n{n}.txt": re.sub("root@.*:~#", "$", gpu_list(f"n{n}", 8)) for n in range(3)}
    findings(tmp_path, plan, {**hosts, "ray.txt": ray}, code=3)
    ran = topocheck("verify", "--plan", "plan.yaml", "--json", "-", *hosts, "ray.txt", cwd=tmp_path)
    nodes = [node["name"] for node in json.loads(ran.out)["placement"]["nodes"]]
    assert nodes == ["10.9.0.1", "10.9.0.3", "10.9.0.2"]
