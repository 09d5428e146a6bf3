"""Workers that run, looked at from outside: real processes, and recorded ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rooted import roots_at, write

from topocheck.probes.node.gpus import NodeGpus
from topocheck.probes.node.roots import Roots
from topocheck.probes.node.workers import Workers, parse_environ, parse_parent, parse_title, read_workers
from topocheck.snapshot import (
    Coverage,
    GpuId,
    GpuShape,
    GpuState,
    Host,
    NodeClaim,
    ProbeFault,
    Process,
    RankClaim,
)

HOST = Host(name="blue-1")
SECRET = {"HF_TOKEN": "geheim"}
BOX = "5e" * 32
"""Id of a container."""


def gpus(*pids: int) -> NodeGpus:
    """Four GPUs, the first ones held by these processes."""
    held = dict(enumerate(pids))
    return NodeGpus(
        ids=tuple(
            GpuId(uuid=f"GPU-{n}", bus=f"0000:{n + 16:02x}:00.0", nvml=n, scope="host") for n in range(4)
        ),
        shapes=(GpuShape(model="H100"),) * 4,
        states=tuple(
            GpuState(gpu=n, processes=(Process(pid=held[n]),) if n in held else ()) for n in range(4)
        ),
        coverage=Coverage(gpus="all", links="all"),
    )


def torchrun(rank: int, **more: str) -> dict[str, str]:
    """Variables of one of four processes of a node."""
    return {
        "TORCHELASTIC_RUN_ID": "job",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % 4),
        "GROUP_RANK": str(rank // 4),
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        **more,
    }


@contextmanager
def running(env: Mapping[str, str], title: str = "", code: str = "") -> Iterator[int]:
    """A process of its own, until the end of the block."""
    script = code or "print('up', flush=True); input()"
    process = subprocess.Popen(
        [title or sys.executable, "-c", script],
        executable=sys.executable,
        env={"PATH": os.environ["PATH"], **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
    finally:
        process.communicate(b"\n")


def recorded(
    root: Path,
    pid: int,
    env: Mapping[str, str],
    *,
    parent: int = 1,
    title: str = "python",
    cgroup: str = "/user",
    locked: str = "unlimited",
) -> None:
    """A process as /proc shows it."""
    folder = root / "proc" / str(pid)
    write(folder / "environ", "".join(f"{name}={text}\0" for name, text in env.items()))
    write(folder / "cmdline", f"{title}\0--api-key\0geheim\0")
    write(folder / "status", f"Name:\tpython\nPPid:\t{parent}\nCapEff:\t0000000000004000\n")
    write(folder / "cgroup", f"0::{cgroup}\n")
    limit = f"Max locked memory         {locked:<20} {locked:<20} bytes \n"
    write(
        folder / "limits",
        f"{limit}Max open files            1024                 4096                 files \n",
    )


def found_in(root: Path, *pids: int, on: NodeGpus | None = None) -> tuple[Workers, tuple[ProbeFault, ...]]:
    """Workers of a recorded machine, without the faults of files that the record lacks."""
    workers, faults = read_workers(roots_at(root), pids, on or gpus(), HOST)
    return workers, faults


def test_a_running_worker_claims_as_it_would_itself() -> None:
    with running(torchrun(5, NCCL_DEBUG="INFO", **SECRET)) as pid:
        workers, faults = read_workers(Roots.real(), [pid], gpus(pid), HOST)
    assert workers.ranks == (
        RankClaim(rank=5, size=8, local_rank=1, node_rank=1, gpu=1, pid=pid, family="torchrun"),
    )
    assert faults == ()
    assert workers.environment["NCCL_DEBUG"] == "INFO"
    assert "geheim" not in repr(workers)
    assert workers.limits.scope == "task"
    assert workers.limits.nofile is not None


def test_an_engines_title_tells_coordinates_and_the_driver_the_gpu() -> None:
    with running({}, title="VLLM::Worker_PP1_TP0") as pid:
        workers, _ = read_workers(Roots.real(), [pid], gpus(0, 0, pid), HOST)
    facts = {(fact.kind, fact.name, fact.value) for fact in workers.job}
    assert ("engine", "", "vllm") in facts
    assert ("process", str(pid), "pipeline 1, tensor 0") in facts
    assert ("device", "pipeline 1, tensor 0", "2") in facts
    assert {fact.at.source for fact in workers.job if fact.at} == {f"/proc/{pid}/cmdline"}
    assert {fact.host for fact in workers.job if fact.kind != "engine"} == {"blue-1"}


def test_all_workers_are_found_and_who_looks_is_none_of_them() -> None:
    code = (
        "import os; from topocheck.probes.node.workers import read_workers\n"
        "from topocheck.probes.node.gpus import NodeGpus\n"
        "from topocheck.probes.node.roots import Roots\nfrom topocheck.snapshot import Host\n"
        "found = read_workers(Roots.real(), [], NodeGpus(), Host())[0].ranks\n"
        "print('up', flush=True); input()\n"
        "print([c.pid for c in found if c.family == 'torchrun' and c.size == 977], os.getpid())"
    )
    env = torchrun(0, WORLD_SIZE="977")
    with running(torchrun(1, WORLD_SIZE="977")) as pid:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **env},
            input="\n",
            capture_output=True,
            check=True,
            text=True,
        )
    listed, _, own = done.stdout.splitlines()[-1].rpartition(" ")
    assert listed == f"[{pid}]"
    assert own != str(pid)


def test_a_process_that_is_gone_is_a_fault_if_it_was_named(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    workers, faults = found_in(tmp_path, 77)
    assert workers.ranks == ()
    assert ("absent", str(tmp_path / "proc/77/environ")) in {(one.kind, one.path) for one in faults}


def test_a_process_of_another_user_is_a_fault() -> None:
    if os.geteuid():
        pytest.skip("root alone can start a process of another user")
    code = (
        "import os, sys\n"
        "from topocheck.probes.node.workers import read_workers\n"
        "from topocheck.probes.node.gpus import NodeGpus\nfrom topocheck.probes.node.roots import Roots\n"
        "from topocheck.snapshot import Host\nroots = Roots.real()\nos.setuid(65534)\n"
        "for fault in read_workers(roots, [int(sys.argv[1])], NodeGpus(), Host())[1]:\n"
        "    print(fault.kind, fault.path)"
    )
    with running(torchrun(0)) as pid:
        done = subprocess.run(
            [sys.executable, "-c", code, str(pid)], capture_output=True, check=True, text=True
        )
    assert f"not-permitted /proc/{pid}/environ" in done.stdout.splitlines()


def test_a_title_that_was_written_over_the_variables_leaves_none(tmp_path: Path) -> None:
    recorded(tmp_path, 70, {})
    write(tmp_path / "proc/70/environ", "\0\0\0 up --and --away\0")
    _, faults = found_in(tmp_path, 70)
    assert [fault.reason for fault in faults if fault.kind == "broken"] == [
        "no variable is left in it: the process wrote its title over it"
    ]


def test_of_processes_that_inherit_a_rank_the_one_with_the_gpu_is_the_worker(tmp_path: Path) -> None:
    for pid, parent in ((50, 1), (51, 50), (52, 51)):
        recorded(tmp_path, pid, torchrun(0), parent=parent)
    (by_driver,) = found_in(tmp_path, on=gpus(51))[0].ranks
    (by_lineage,) = found_in(tmp_path, on=gpus())[0].ranks
    assert (by_driver.pid, by_lineage.pid) == (51, 50)


def test_two_processes_that_hold_one_rank_are_both_told(tmp_path: Path) -> None:
    for pid in (50, 60):
        recorded(tmp_path, pid, torchrun(0))
    assert [one.pid for one in found_in(tmp_path)[0].ranks] == [50, 60]


def test_a_machine_without_workers_says_so(tmp_path: Path) -> None:
    recorded(tmp_path, 9, {"HOME": "/root"})
    workers, faults = found_in(tmp_path)
    assert workers.ranks == ()
    assert "no process of a job was found" in {fault.reason for fault in faults}


def test_in_a_container_devices_count_among_those_that_it_was_given(tmp_path: Path) -> None:
    env = torchrun(1, NVIDIA_VISIBLE_DEVICES="2,3")
    recorded(tmp_path, 50, env, cgroup=f"/kubepods/pod1/{BOX}")
    workers, _ = found_in(tmp_path, 50)
    assert workers.ranks[0].gpu == 3
    assert workers.limits.container == BOX


def test_where_a_container_hides_its_gpus_the_drivers_list_tells(tmp_path: Path) -> None:
    recorded(tmp_path, 50, torchrun(1), cgroup=f"/kubepods/pod1/{BOX}")
    assert found_in(tmp_path, 50)[0].ranks[0].gpu is None
    assert found_in(tmp_path, 50, on=gpus(0, 0, 50))[0].ranks[0].gpu == 2


def test_slurm_may_have_hidden_gpus_from_a_task(tmp_path: Path) -> None:
    """Its lists are then relative to what the task sees."""
    recorded(tmp_path, 50, torchrun(1, SLURM_JOB_ID="4", CUDA_VISIBLE_DEVICES="0,1"))
    assert found_in(tmp_path, 50)[0].ranks[0].gpu is None


def test_workers_share_variables_and_limits_or_they_are_not_told(tmp_path: Path) -> None:
    recorded(tmp_path, 50, torchrun(0, NCCL_DEBUG="INFO", NCCL_IB_HCA="mlx5_0"))
    recorded(tmp_path, 51, torchrun(1, NCCL_DEBUG="INFO", NCCL_IB_HCA="mlx5_1"), locked="65536")
    workers, faults = found_in(tmp_path)
    assert workers.environment["NCCL_DEBUG"] == "INFO"
    assert "NCCL_IB_HCA" not in workers.environment
    assert workers.own == ({"NCCL_IB_HCA": "mlx5_0"}, {"NCCL_IB_HCA": "mlx5_1"})
    assert (workers.limits.memlock_bytes, workers.limits.nofile) == (None, 1024)
    assert workers.limits.ipc_lock is True
    assert "the workers differ in memlock_bytes: not told" in {fault.reason for fault in faults}


def test_what_one_worker_alone_has_is_told_apart(tmp_path: Path) -> None:
    recorded(tmp_path, 50, torchrun(0, NCCL_ALGO="Ring", NCCL_DEBUG="INFO"))
    recorded(tmp_path, 51, torchrun(1, NCCL_DEBUG="INFO"))
    recorded(tmp_path, 52, torchrun(2, NCCL_DEBUG="INFO", OMP_NUM_THREADS="8"))
    workers, _ = found_in(tmp_path)
    assert workers.own == ({"NCCL_ALGO": "Ring"}, {})
    assert found_in(tmp_path, 51, 52)[0].own == ()


def test_the_index_of_a_pod_is_the_nodes_rank(tmp_path: Path) -> None:
    recorded(tmp_path, 50, {"JOB_COMPLETION_INDEX": "3"}, title="sglang::scheduler_TP0")
    workers, _ = found_in(tmp_path, 50)
    assert workers.node == NodeClaim(node_rank=3, family="indexed_job")


def test_parts_of_a_process() -> None:
    assert parse_environ("A=1\0B=x=y\0\0junk\0=2\0") == {"A": "1", "B": "x=y"}
    assert parse_title("VLLM::Worker_TP0\0\0\0") == "VLLM::Worker_TP0"
    assert parse_title("sglang::scheduler_PP0_TP1    \0") == "sglang::scheduler_PP0_TP1"
    assert parse_title("/usr/bin/python\0-m\0vllm\0--api-key\0geheim") is None
    assert parse_parent("Name:\tx\nPPid:\t12\n") == 12
    assert parse_parent("") is None


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_variables_a_title_or_nothing(text: str) -> None:
    assert all(name and "=" not in name for name in parse_environ(text))
    title = parse_title(text)
    assert title is None or title.startswith(("VLLM::", "sglang::"))
    parse_parent(text)
