"""Gate and run in front of a real Slurm step, over hosts in namespaces of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from real import require
from shell import COMMAND
from slurm_cluster import Cluster
from slurm_hosts import hosts

PLAN = "engine: megatron\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\npolicy: {boundary: any}\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Mapping[str, str]]]:
    for program in ("slurmctld", "slurmd", "srun", "sbatch", "munged", "ip", "unshare", "gcc"):
        require(program)
    if os.geteuid():
        pytest.skip("hosts in namespaces of their own need root")
    with hosts(tmp_path_factory.mktemp("slurm"), 3) as started:
        yield started


def step(
    running: tuple[Cluster, Mapping[str, str]], folder: Path, options: list[str], *command: str
) -> subprocess.CompletedProcess[str]:
    """One srun of a topocheck command, with a plan and a store."""
    cluster, variables = running
    (folder / "plan.yaml").write_text(PLAN)
    (folder / "store").mkdir(exist_ok=True)
    asked = ["--plan", str(folder / "plan.yaml"), "--store", f"file:{folder}/store"]
    return subprocess.run(
        ["srun", *options, *COMMAND, command[0], *asked, *command[1:]],
        env=cluster.env | dict(variables),
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_every_gate_of_a_healthy_step_opens(
    running: tuple[Cluster, Mapping[str, str]], tmp_path: Path
) -> None:
    done = step(running, tmp_path, ["-N2", "-n2", "--ntasks-per-node=1"], "gate")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("topocheck gate: OPEN") == 2
    assert done.stdout.count("PASS: ") == 1  # one tells it all, the other says who verified


def test_run_starts_all_ranks_of_a_block_step_and_hands_on_their_exit_code(
    running: tuple[Cluster, Mapping[str, str]], tmp_path: Path
) -> None:
    options = ["-N2", "-n8", "--ntasks-per-node=4", "-m", "block"]
    mark = ["--", "sh", "-c", f"touch {tmp_path}/started.$SLURM_PROCID; exit 5"]
    done = step(running, tmp_path, options, "run", *mark)
    assert len(list(tmp_path.glob("started.*"))) == 8, done.stdout + done.stderr
    assert done.returncode == 5


def test_run_keeps_a_cyclic_step_from_starting(
    running: tuple[Cluster, Mapping[str, str]], tmp_path: Path
) -> None:
    options = ["-N2", "-n8", "--ntasks-per-node=4", "-m", "cyclic"]
    done = step(running, tmp_path, options, "run", "--", "touch", f"{tmp_path}/started")
    assert done.returncode == 1
    assert not (tmp_path / "started").exists()
    assert done.stderr.count("touch is not started") == 8
    assert "TP group 0 (ranks 0..3) crosses 2 nodes" in done.stderr


def test_warn_tells_it_and_starts_all_the_same(
    running: tuple[Cluster, Mapping[str, str]], tmp_path: Path
) -> None:
    options = ["-N2", "-n8", "--ntasks-per-node=4", "-m", "cyclic"]
    done = step(
        running,
        tmp_path,
        options,
        "run",
        "--on-fail",
        "warn",
        "--",
        "sh",
        "-c",
        f"touch {tmp_path}/$SLURM_PROCID",
    )
    assert done.returncode == 0
    assert len(list(tmp_path.glob("[0-7]"))) == 8
    assert "SHUT" in done.stderr


def test_a_node_that_does_not_come_is_named(
    running: tuple[Cluster, Mapping[str, str]], tmp_path: Path
) -> None:
    """Three hosts are in the step, and one of them never gets as far as its gate."""
    words = " ".join(f"'{word}'" for word in COMMAND)
    asked = f"gate --plan {tmp_path}/plan.yaml --store file:{tmp_path}/store --timeout 4 --expect 3"
    (tmp_path / "plan.yaml").write_text(PLAN.replace("nodes: 2", "nodes: {min: 2, max: 3}"))
    (tmp_path / "store").mkdir()
    cluster, variables = running
    script = f"if [ $SLURM_NODEID = 2 ]; then sleep 6; else exec {words} {asked}; fi"
    done = subprocess.run(
        ["srun", "-N3", "-n3", "sh", "-c", script],
        env=cluster.env | dict(variables),
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    names = cluster.output("sinfo", "-hN", "-o", "%N").split()
    assert f"1 of 3 nodes did not report: {names[2]}" in done.stderr


def test_the_main_step_of_a_batch_job_does_not_run_behind_a_shut_gate(
    running: tuple[Cluster, Mapping[str, str]], tmp_path: Path
) -> None:
    cluster, variables = running
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "store").mkdir()
    words = " ".join(f"'{word}'" for word in COMMAND)
    script = (
        "#!/bin/sh\nset -e\n"
        f"srun -N2 -n8 --ntasks-per-node=4 -m cyclic {words} gate --plan {tmp_path}/plan.yaml "
        f"--store file:{tmp_path}/store\n"
        f"srun -N2 -n8 touch {tmp_path}/main-step\n"
    )
    (tmp_path / "job.sh").write_text(script)
    done = subprocess.run(
        ["sbatch", "--wait", "-N2", "-n8", "-o", str(tmp_path / "out"), str(tmp_path / "job.sh")],
        env=cluster.env | dict(variables),
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, (tmp_path / "out").read_text()
    assert not (tmp_path / "main-step").exists()
    assert "SHUT" in (tmp_path / "out").read_text()
