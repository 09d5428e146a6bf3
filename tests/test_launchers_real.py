"""torchrun, Open MPI and MPICH themselves: what they set, and where they put ranks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from real import require

from topocheck.launchers import hydra, openmpi, torchrun
from topocheck.launchers.hostfile import merged, parse_hosts_option, write_hydra, write_openmpi
from topocheck.launchers.resolve import resolve
from topocheck.ranges import local_ranks

BIN = Path(sys.executable).parent
TIMEOUT_S = 120
SEED = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
"""A clean environment: the tests may themselves run under a launcher."""


@dataclass(frozen=True)
class Told:
    """What one process said of itself."""

    rank: int
    size: int
    env: dict[str, str]


TORCH_WORKER = """
import json, os, sys, torch.distributed as dist
dist.init_process_group("gloo")
with open(os.path.join(sys.argv[1], str(dist.get_rank())), "w") as file:
    json.dump([dist.get_rank(), dist.get_world_size(), dict(os.environ)], file)
dist.barrier()
dist.destroy_process_group()
"""
MPI_WORKER = """
import json, os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
with open(os.path.join(sys.argv[1], str(world.rank)), "w") as file:
    json.dump([world.rank, world.size, dict(os.environ)], file)
world.barrier()
"""


def told(folder: Path, size: int) -> list[Told]:
    """What all processes wrote, by rank."""
    names = sorted(path.name for path in folder.iterdir())
    assert sorted(map(int, names)) == list(range(size))
    return [Told(*json.loads((folder / str(rank)).read_text())) for rank in range(size)]


def beside(program: str) -> str:
    """A program that pip installed beside the interpreter."""
    return require(str(BIN / program) if (BIN / program).exists() else program)


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(commands: Sequence[Sequence[str]], env: dict[str, str], cwd: Path) -> None:
    """Start all, wait for all; each must succeed."""
    started = [
        subprocess.Popen(command, env=env | {"AGENT": str(index)}, cwd=cwd, stderr=subprocess.PIPE, text=True)
        for index, command in enumerate(commands)
    ]
    try:
        errors = [process.communicate(timeout=TIMEOUT_S)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * len(started), errors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the processes write what they are."""
    out = tmp_path / "told"
    out.mkdir()
    return out


def torchrun_agents(folder: Path, nproc: int, options: Sequence[Sequence[str]]) -> list[Told]:
    """Run one agent for each list of options, on this machine."""
    require("torch")
    worker = folder.parent / "worker.py"
    worker.write_text(TORCH_WORKER)
    common = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={nproc}"]
    env = SEED | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    run([[*common, *extra, str(worker), str(folder)] for extra in options], env, folder.parent)
    return told(folder, nproc * len(options))


def check_torchrun(ranks: Sequence[Told], nproc: int, agents: Sequence[int]) -> None:
    """Claims are what the process group says, and nodes follow each other as predicted."""
    nodes = torchrun.LAUNCHER.rank_nodes
    assert nodes is not None
    predicted = nodes([nproc] * len(agents), None, None)
    for process, node, local in zip(ranks, predicted, local_ranks(predicted), strict=True):
        claim = resolve(process.env, "torch").chosen
        assert claim is not None
        assert (claim.family, claim.rank, claim.size) == ("torchrun", process.rank, process.size)
        assert (claim.node_rank, claim.local_rank) == (node, local)
        assert (claim.local_size, claim.nodes, claim.notes) == (nproc, len(agents), ())
        assert int(process.env["AGENT"]) == agents[node]


def test_one_agent_of_torchrun_is_claimed_as_its_process_group_says(folder: Path) -> None:
    check_torchrun(torchrun_agents(folder, 2, [["--standalone"]]), 2, [0])


def test_c10d_sorts_two_agents_by_address_as_text_and_ignores_node_ranks(folder: Path) -> None:
    addresses = ["127.0.0.2", "127.0.0.10"]
    common = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=7"]
    options = [
        [*common, f"--local-addr={address}", f"--node-rank={rank}"] for rank, address in enumerate(addresses)
    ]
    order = torchrun.agent_order([(address, pid, 0) for pid, address in enumerate(addresses)])
    assert order == [1, 0]
    check_torchrun(torchrun_agents(folder, 2, options), 2, order)


def test_static_rendezvous_takes_the_node_rank_table(folder: Path) -> None:
    table = torchrun.node_rank_table(["127.0.0.1", "127.0.0.1"], 1, free_port())
    options = [options.split() for _, options in reversed(table)]
    check_torchrun(torchrun_agents(folder, 1, options), 1, [1, 0])


def mpi_env(library: str, program: str) -> dict[str, str]:
    """mpi4py bound to one of the two MPI libraries that may lie side by side."""
    return SEED | {
        "LD_LIBRARY_PATH": str(Path(program).parent.parent / "lib"),
        "MPI4PY_MPIABI": library,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def mpi_command(folder: Path) -> list[str]:
    require("mpi4py")
    worker = folder.parent / "worker.py"
    worker.write_text(MPI_WORKER)
    return [sys.executable, str(worker), str(folder)]


@pytest.mark.parametrize(
    ("hosts", "processes", "ppn"),
    [("h2:2,h1:2", 4, None), ("h1:1,h2:3", 4, None), ("h1:2,h2:2", 4, 1), ("h1:1,h2:1", 2, None)],
)
def test_mpich_places_and_numbers_as_predicted(
    folder: Path, hosts: str, processes: int, ppn: int | None
) -> None:
    program = beside("mpiexec.hydra")
    entries = parse_hosts_option(hosts)
    written = folder.parent / "hosts"
    written.write_text(write_hydra(entries))
    command = [program, "-launcher", "fork", "-f", str(written), "-n", str(processes)]
    command += ["-ppn", str(ppn)] if ppn else []
    run([[*command, *mpi_command(folder)]], mpi_env("mpich", program), folder.parent)
    policy = f"ppn={ppn}" if ppn else None
    predicted = hydra.rank_nodes([entry.slots or 0 for entry in entries], processes, policy)
    for process, node, local in zip(told(folder, processes), predicted, local_ranks(predicted), strict=True):
        claim = resolve(process.env, "tensorrt_llm").chosen
        assert claim is not None
        assert (claim.family, claim.rank, claim.size) == ("mpich", process.rank, process.size)
        assert (claim.local_rank, claim.local_size) == (local, predicted.count(node))
        assert (claim.node_name, claim.notes) == (entries[node].host, ())


def open_mpi(folder: Path, options: Sequence[str], *, hosts: bool) -> list[Told]:
    """Run Open MPI's mpirun; with `hosts`, each of its daemons under a host name of its own."""
    program = beside("prterun")
    command = [program, "--personality", "ompi", "--prefix", str(Path(program).parent.parent)]
    if hosts:
        agent = folder.parent / "agent"
        agent.write_text('#!/bin/bash\nname=$1; shift\nexec unshare -u bash -c "hostname $name; $*"\n')
        agent.chmod(0o755)
        command += ["--prtemca", "plm_ssh_agent", str(agent)]
    processes = int(options[options.index("-n") + 1])
    run([[*command, *options, *mpi_command(folder)]], mpi_env("openmpi", program), folder.parent)
    return told(folder, processes)


def check_open_mpi(ranks: Sequence[Told], predicted: Sequence[int], names: Sequence[str]) -> None:
    for process, node, local in zip(ranks, predicted, local_ranks(predicted), strict=True):
        resolution = resolve(process.env, "tensorrt_llm")
        claim = resolution.chosen
        assert claim is not None
        assert (claim.family, claim.rank, claim.size) == ("openmpi", process.rank, process.size)
        assert (claim.local_rank, claim.local_size) == (local, list(predicted).count(node))
        assert claim.node_name == names[node]
        assert resolution.disagreements == ()


@pytest.mark.parametrize("processes", [2, 4])
def test_open_mpi_on_one_node_numbers_as_predicted(folder: Path, processes: int) -> None:
    options = ["--map-by", ":oversubscribe", "--bind-to", "none", "-n", str(processes)]
    check_open_mpi(open_mpi(folder, options, hosts=False), [0] * processes, [socket.gethostname()])


def needs_host_names() -> None:
    if subprocess.run(["unshare", "-u", "true"], check=False, capture_output=True).returncode:
        pytest.skip("host names of their own need the right to make a UTS namespace")


@pytest.mark.parametrize(
    ("hosts", "policy"), [("nb:1,na:3", "slot"), ("nb:3,na:1", "node"), ("nb:2,na:2", "ppr:2:node")]
)
def test_open_mpi_maps_hosts_as_predicted(folder: Path, hosts: str, policy: str) -> None:
    needs_host_names()
    entries = merged(parse_hosts_option(hosts))
    written = folder.parent / "hosts"
    written.write_text(write_openmpi(entries))
    options = ["--hostfile", str(written), "--map-by", policy, "--bind-to", "none", "-n", "4"]
    predicted = openmpi.rank_nodes([entry.slots or 0 for entry in entries], 4, policy)
    check_open_mpi(open_mpi(folder, options, hosts=True), predicted, [entry.host for entry in entries])


def test_open_mpi_obeys_the_rankfile(folder: Path) -> None:
    needs_host_names()
    if (os.cpu_count() or 1) < 2:
        pytest.skip("a rankfile binds each of two ranks of a node to a core of its own")
    hosts = ["nb", "na", "na", "nb"]
    files = {"hosts": "na slots=2\nnb slots=2\n", "ranks": openmpi.rankfile(hosts, [0, 0, 1, 1])}
    for name, text in files.items():
        (folder.parent / name).write_text(text)
    options = ["--hostfile", "hosts", "--map-by", "rankfile:file=ranks", "-n", "4"]
    check_open_mpi(open_mpi(folder, options, hosts=True), [0, 1, 1, 0], ["nb", "na"])
