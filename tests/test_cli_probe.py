"""`topocheck probe` as it runs on a node: with a driver, without, with one that hangs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from checkout import ROOT
from nvml_machine import Machine, command, library, machine
from real import require
from rooted import lay_out
from shell import COMMAND, Ran, topocheck
from slurm_cluster import Cluster, cluster

from topocheck.gather.stream import decode_snapshot
from topocheck.probes.node.probe import PROBES
from topocheck.snapshot import FullSnapshot

HGX = machine("hgx_h100")
WELL = HGX + f"link 6 0-17 state 1\nlink 6 0-17 enabled 1\ngpu * fabric {'0' * 32} 0 0 3 0x11aa 1"
"""The same board with all links up, and a fabric of which nothing bad is said."""
BOOT_ID = "proc/sys/kernel/random/boot_id"
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "geheim-1",
    "HF_TOKEN": "hf_geheim",
    "NCCL_NET_PROXY": "http://user:geheim-2@proxy:80/",
    "MASTER_ADDR": "tcp://user:geheim-3@blue-1:29500",
    "UCX_SECRET": "geheim-4",
    "VLLM_API_KEY": "geheim-5",
    "PET_RDZV_CONF": "password=geheim-6",
}
PLAN = "engine: megatron\nparallel: {tensor: 8}\nnodes: 1\n"


def driver(described: Machine, **env: str) -> dict[str, str]:
    """Environment in which the loader finds the double of NVML under NVIDIA's name."""
    _, found, _ = command(described)
    folder = library(described.missing).parent
    names = {name: found[name] for name in ("NVML_MACHINE", "NVML_CALLS")}
    return {"LD_LIBRARY_PATH": str(folder), **names, **env}


def torchrun(local: int, size: int = 8, **more: str) -> dict[str, str]:
    """Variables of one of the processes of a node."""
    return {
        "TORCHELASTIC_RUN_ID": "x",
        "RANK": str(local),
        "LOCAL_RANK": str(local),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        **more,
    }


def probed(*options: str | Path, env: Mapping[str, str] | None = None) -> tuple[dict[str, Any], Ran]:
    """The one document that it prints, and the run."""
    ran = topocheck("probe", *options, env=env)
    assert (ran.code, ran.err) == (0, ""), ran.err
    assert ran.out.endswith("\n")
    assert ran.out.count("\n") == 1
    document = ran.out.encode()
    decode_snapshot(document, "stdout", 1)
    msgspec.json.decode(document, type=FullSnapshot)
    return json.loads(document), ran


def faults(document: Mapping[str, Any], **wanted: str) -> list[dict[str, str]]:
    """Faults with these values."""
    return [one for one in document.get("faults", ()) if wanted.items() <= one.items()]


def test_a_machine_without_gpus_is_told_as_it_is() -> None:
    found, _ = probed(env={"LD_LIBRARY_PATH": ""})
    if faults(found, path="libnvidia-ml.so.1", kind="absent"):
        assert "gpus" not in found["coverage"]
        assert "gpus" not in found["identity"]
    assert found["identity"]["host"]["boot_id"] == Path("/", BOOT_ID).read_text().strip()
    assert found["network"]["netdevs"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["taken_at"])


def test_no_evidence_is_no_pass(tmp_path: Path) -> None:
    _, ran = probed(env={"LD_LIBRARY_PATH": ""})
    (tmp_path / "plan.yaml").write_text(PLAN)
    verdict = topocheck("verify", "--plan", tmp_path / "plan.yaml", "-", stdin=ran.out)
    assert verdict.code == 3
    assert verdict.last.startswith("UNKNOWN: ")


def test_eight_gpus_and_the_gpu_of_the_claim_by_uuid() -> None:
    devices = "7,6,5,4,3,2,1,0"
    found, _ = probed(env=driver(WELL, **torchrun(0, CUDA_VISIBLE_DEVICES=devices)))
    uuids = [gpu["uuid"] for gpu in found["identity"]["gpus"]]
    assert len(set(uuids)) == 8
    (claim,) = found["ranks"]
    assert found["identity"]["gpus"][claim["gpu"]]["uuid"] == uuids[7]
    assert found["coverage"] == {"gpus": "all", "links": "all", "nics": "all", "ranks": "part"}
    by_uuid = driver(WELL, **torchrun(3, CUDA_VISIBLE_DEVICES=",".join(reversed(uuids))))
    light, _ = probed(env=by_uuid)
    assert light["hardware"] == {}
    assert light["identity"]["gpus"][light["ranks"][0]["gpu"]]["uuid"] == uuids[4]


@pytest.mark.parametrize(
    ("call", "gpu", "shown", "gpus", "links"),
    [
        ("nvmlDeviceGetUUID", "3", "nvmlDeviceGetUUID(GPU 3)", "part", "part"),
        ("nvmlDeviceGetFieldValues", "2", "nvmlDeviceGetFieldValues(GPU 2)", "all", "part"),
    ],
)
def test_a_driver_that_hangs_is_given_up_and_the_call_is_named(
    call: str, gpu: str, shown: str, gpus: str, links: str
) -> None:
    found, _ = probed("--timeout", "2", env=driver(HGX + f"hang {call} {gpu}"))
    (fault,) = faults(found, kind="timeout")
    assert fault["path"] == shown
    assert fault["reason"] == "did not return within 2 s; its process was ended"
    assert (found["coverage"]["gpus"], found["coverage"]["links"]) == (gpus, links)
    assert found["network"]["netdevs"]


def test_a_driver_that_does_not_start_leaves_gpus_unknown() -> None:
    found, _ = probed(env=driver(HGX + "system init 9"))
    (fault,) = faults(found, part="gpus")
    assert (fault["kind"], fault["path"]) == ("absent", "nvmlInit")
    assert "gpus" not in found["coverage"]
    assert "gpus" not in found["identity"]


def test_four_processes_of_a_node_make_one_node(tmp_path: Path) -> None:
    """Each sends its own view, through another root, as containers do; their boot id joins them."""
    (tmp_path / "plan.yaml").write_text("engine: megatron\nparallel: {tensor: 4}\nnodes: 1\n")
    root = tmp_path / "host"
    lay_out((ROOT / "tests/roots/hgx-h100.txt").read_text(encoding="utf-8"), root)
    (root / BOOT_ID).write_bytes(Path("/", BOOT_ID).read_bytes())
    runs = [probed("--root", root, env=driver(WELL, **torchrun(local, 4))) for local in range(4)]
    report = tmp_path / "report.json"
    ran = topocheck(
        "verify",
        *("--plan", tmp_path / "plan.yaml", "--json", report, "-"),
        stdin="".join(run.out for _, run in runs),
    )
    told = json.loads(report.read_bytes())
    assert told["phase"] == "claimed"
    assert {rank["node"] for rank in told["placement"]["ranks"]} == {"rack7-gpu3"}
    verdicts = {rule["id"]: rule["verdict"] for rule in told["rules"]}
    assert {verdicts[rule] for rule in ("ID001", "ID002", "ID003", "ID004", "TP001", "TP002")} == {"pass"}
    assert verdicts["EV004"] == "pass"
    assert ran.code == 0, ran.out


def test_no_secret_is_in_any_output(tmp_path: Path) -> None:
    for options in ([], ["--redact"], ["--pid", str(os.getpid())], ["--processes"]):
        ran = topocheck("probe", *options, env=SECRETS | torchrun(0))
        assert ran.code == 0
        assert "geheim" not in ran.out + ran.err
    out = tmp_path / "node.json"
    assert topocheck("probe", "-o", out, env=SECRETS | torchrun(0)).out == ""
    assert "geheim" not in out.read_text()


def test_a_file_is_written_whole_and_in_one_place(tmp_path: Path) -> None:
    out = tmp_path / "node.json"
    out.write_text("old")
    assert topocheck("probe", "-o", out, "--run", "r1").code == 0
    assert json.loads(out.read_text())["run"] == "r1"
    assert [path.name for path in tmp_path.iterdir()] == ["node.json"]
    refused = topocheck("probe", "-o", tmp_path / "none" / "node.json")
    assert (refused.code, refused.out) == (2, "")


def test_pseudonyms_are_stable_and_hang_on_the_key() -> None:
    def host(**env: str) -> Any:
        return probed("--redact", "--only", "identity", env=env)[0]["identity"]["host"]

    plain = probed("--only", "identity")[0]["identity"]["host"]
    assert host() == host()
    assert host(TOPOCHECK_REDACT_KEY="k") != host()
    assert {plain["boot_id"], plain["name"]}.isdisjoint({host()["boot_id"], host()["name"]})


def test_only_and_skip_choose_probes() -> None:
    only, _ = probed("--only", "limits")
    assert only["limits"]["scope"]
    assert only["identity"] == {"host": {}}
    skipped, _ = probed("--skip", "network", "--skip", "clock")
    assert skipped["state"] == {}
    assert skipped["identity"]["host"]["boot_id"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "gpu"], "'gpu'"),
        (["--timeout", "0"], "--timeout"),
        (["--timeout", "soon"], "--timeout"),
        (["--root", "/nowhere"], "--root /nowhere: no such folder"),
        (["--only", "clock", "--skip", "clock"], "leave no probe to ask"),
        (["--pid", "0"], "--pid"),
    ],
)
def test_what_cannot_be_asked_is_usage(options: list[str], words: str) -> None:
    ran = topocheck("probe", *options)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_help_names_every_probe() -> None:
    told = topocheck("probe", "--help").out
    assert [name for name in PROBES if not re.search(rf"\b{name}\b", told)] == []


def test_options_come_from_variables_too() -> None:
    assert probed(env={"TOPOCHECK_PROBE_RUN": "r7"})[0]["run"] == "r7"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    for program in ("slurmctld", "slurmd", "srun", "munged"):
        require(program)
    if os.geteuid():
        pytest.skip("Slurm's daemons on several nodes of one machine need root")
    with cluster(tmp_path_factory.mktemp("slurm"), nodes=2) as started:
        yield started


def under_srun(running: Cluster, tmp_path: Path, *options: str) -> tuple[Ran, Any]:
    """The verdict over what tasks of a real srun printed, and the report."""
    out = running.output("srun", *options, *COMMAND, "probe", env=driver(WELL))
    (tmp_path / "plan.yaml").write_text(PLAN)
    report = tmp_path / "report.json"
    ran = topocheck("verify", "--plan", tmp_path / "plan.yaml", "--json", report, "-", stdin=out)
    return ran, json.loads(report.read_bytes())


def test_tasks_of_srun_pipe_their_views_into_verify(running: Cluster, tmp_path: Path) -> None:
    """With -l the pieces of their long lines are put together again."""
    ran, report = under_srun(running, tmp_path, "-l", "-N2", "-n8", "--ntasks-per-node=4", "-m", "block")
    assert report["inputs"][0]["notes"] == []
    verdicts = {rule["id"]: rule["verdict"] for rule in report["rules"]}
    assert verdicts["ID001"] == "pass", ran.out
    assert verdicts["ID002"] == "pass"


def test_one_task_a_node_is_no_job_of_one_rank_a_node(running: Cluster, tmp_path: Path) -> None:
    """`srun --ntasks-per-node=1 topocheck probe | topocheck verify --plan plan.yaml -`."""
    ran, report = under_srun(running, tmp_path, "-N1", "--ntasks-per-node=1")
    assert report["phase"] == "predicted"
    assert report["inputs"][0]["hosts"] != []
    assert ran.code == 0, ran.out
