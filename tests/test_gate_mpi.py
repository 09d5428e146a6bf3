"""The gate between other launchers and their program: mpirun of Open MPI and MPICH, torchrun."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from mpi_hosts import agent, variables
from real import require
from shell import COMMAND
from test_launchers_real import SEED, beside, free_port, mpi_env

PLAN = "engine: tensorrt_llm\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\npolicy: {boundary: any}\n"
HOSTS = ("mpi-a", "mpi-b")
MARK = "import os, sys; open(os.path.join(sys.argv[1], 'ran.' + str(os.getpid())), 'w').close()"


def started(command: Sequence[str], env: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """One launch to its end."""
    return subprocess.run(
        command, env=dict(env), cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def ran(folder: Path) -> int:
    """Processes of the program that started."""
    return len(list(folder.glob("ran.*")))


def gated(folder: Path, plan: str, *options: str) -> list[str]:
    """`topocheck run` in front of a program that leaves a mark."""
    (folder / "plan.yaml").write_text(plan)
    (folder / "store").mkdir(exist_ok=True)
    asked = ["--plan", str(folder / "plan.yaml"), "--store", f"file:{folder}/store", "--timeout", "60"]
    return [*COMMAND, "run", *asked, *options, "--", sys.executable, "-c", MARK, str(folder)]


def launched(
    library: str, folder: Path, *, block: bool, run_id: str | None = "job-7.1"
) -> subprocess.CompletedProcess[str]:
    """Eight ranks on two hosts, four after four or by turns."""
    if os.geteuid():
        pytest.skip("hosts of their own need root")
    rsh, wanted = agent(folder, HOSTS), gated(folder, PLAN, *(["--run-id", run_id] if run_id else []))
    if library == "openmpi":
        program = beside("prterun")
        launch = [program, "--personality", "ompi", "--prefix", str(Path(program).parent.parent)]
        launch += ["--prtemca", "plm_ssh_agent", str(rsh), "--host", ",".join(f"{name}:4" for name in HOSTS)]
        launch += ["--map-by", "slot" if block else "node", "--bind-to", "none", "-n", "8"]
    else:
        program = beside("mpiexec.hydra")
        launch = [program, "-launcher", "rsh", "-launcher-exec", str(rsh), "-iface", "lo"]
        launch += [
            "-hosts",
            ",".join(f"{name}:4" for name in HOSTS),
            "-n",
            "8",
            *([] if block else ["-ppn", "1"]),
        ]
    env = mpi_env(library, program)
    shown = variables(folder)
    env |= shown | {"LD_LIBRARY_PATH": f"{shown['LD_LIBRARY_PATH']}:{env['LD_LIBRARY_PATH']}"}
    names = sorted(shown)
    if library == "openmpi":
        launch += [word for name in names for word in ("-x", name)]
    else:
        launch += ["-genvlist", ",".join(names)]
    return started([*launch, *wanted], env, folder)


@pytest.mark.parametrize("library", ["openmpi", "mpich"])
def test_ranks_that_lie_as_the_engine_needs_them_all_start(library: str, tmp_path: Path) -> None:
    done = launched(library, tmp_path, block=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ran(tmp_path) == 8
    assert done.stderr.count("topocheck gate: OPEN") == 8


@pytest.mark.parametrize("library", ["openmpi", "mpich"])
def test_of_ranks_by_turns_none_starts(library: str, tmp_path: Path) -> None:
    done = launched(library, tmp_path, block=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert ran(tmp_path) == 0
    assert "TP group 0 (ranks 0..3) crosses 2 nodes" in done.stderr


@pytest.mark.parametrize("library", ["openmpi", "mpich"])
def test_mpirun_has_no_id_of_its_launch_and_the_gate_asks_for_one(library: str, tmp_path: Path) -> None:
    done = launched(library, tmp_path, block=True, run_id=None)
    assert done.returncode == 2, done.stdout + done.stderr
    assert ran(tmp_path) == 0
    assert "no launcher shows a run id: give --run-id" in done.stderr
    assert "Traceback" not in done.stderr


ONE = "engine: torch\nparallel: {data: 4}\nnodes: 1\n"
MANY = "engine: torch\nparallel: {data: 8}\nnodes: 1\n"


def on_host(folder: Path, command: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
    """A command on a host with four GPUs."""
    if os.geteuid():
        pytest.skip("hosts of their own need root")
    require("torch")
    env = SEED | {"OMP_NUM_THREADS": "1"} | more
    (folder / "command.sh").write_text(f"exec {shlex.join(command)}\n")
    rsh = agent(folder, HOSTS[:1])
    return started([str(rsh), HOSTS[0], "sh", str(folder / "command.sh")], env | variables(folder), folder)


def torchrun(*options: str) -> list[str]:
    """One agent of four workers."""
    where = f"127.0.0.1:{free_port()}"
    common = [
        "--nproc-per-node=4",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={where}",
        "--local-addr=127.0.0.1",
    ]
    return [sys.executable, "-m", "torch.distributed.run", *common, *options]


def test_torchrun_in_front_tells_the_id_of_its_launch_and_all_workers_start(tmp_path: Path) -> None:
    done = on_host(tmp_path, [*torchrun("--rdzv-id=job-8", "--no-python"), *gated(tmp_path, ONE)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert ran(tmp_path) == 4
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["job-8-0"]


def test_torchrun_in_front_of_a_shut_gate_starts_no_worker(tmp_path: Path) -> None:
    command = [*torchrun("--rdzv-id=job-9", "--no-python"), *gated(tmp_path, ONE)]
    done = on_host(tmp_path, command, CUDA_VISIBLE_DEVICES="0,1,1,2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert ran(tmp_path) == 0
    assert "topocheck gate: SHUT" in done.stderr


@pytest.mark.parametrize(("plan", "code", "workers"), [(ONE, 0, 4), (MANY, 1, 0)])
def test_torchrun_behind_starts_as_the_gate_says(tmp_path: Path, plan: str, code: int, workers: int) -> None:
    (tmp_path / "worker.py").write_text(MARK)
    gate = gated(tmp_path, plan, "--run-id", "job-10")
    behind = torchrun(str(tmp_path / "worker.py"), str(tmp_path))
    done = on_host(tmp_path, [*gate[: gate.index("--") + 1], *behind])
    assert done.returncode == code, done.stdout + done.stderr
    assert ran(tmp_path) == workers
