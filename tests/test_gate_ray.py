"""Gate and run beside a real Ray: a head and three hosts with GPUs, in namespaces of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ray_hosts import GPUS, RayHosts, ray_hosts
from real import require
from shell import COMMAND

PLAN = "engine: vllm\nparallel: {tensor: 4, pipeline: 3}\nnodes: 3\npolicy: {boundary: any}\n"


@pytest.fixture(scope="module")
def running() -> Iterator[RayHosts]:
    if os.geteuid():
        pytest.skip("hosts in namespaces of their own need root")
    with ray_hosts(4) as started:
        yield started


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


@contextmanager
def changed(path: Path, text: str) -> Iterator[None]:
    """What a host shows, for a while; the file stays the one that is mounted."""
    before = path.read_text()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(before)


def test_a_healthy_cluster_opens_the_gate_and_its_head_is_no_node_of_the_job(
    running: RayHosts, plan: Path, tmp_path: Path
) -> None:
    done = running.topocheck("gate", "--ray", "--plan", plan, "--json", tmp_path / "report.json")
    assert done.returncode == 0, done.stdout + done.stderr
    head, *others = running.hosts
    assert f"{head.name} ({head.address}): Ray offers no GPU there: it carries no rank" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("topocheck gate: OPEN")
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert [node["name"] for node in report["placement"]["nodes"]] == in_rays_order(running)
    assert sorted(report["inputs"][0]["hosts"]) == sorted(host.name for host in others)


def in_rays_order(running: RayHosts) -> list[str]:
    """Hosts with GPUs by their ids in Ray, as vLLM sorts them behind a driver that takes no rank."""
    code = (
        "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR');"
        "print(*(n['NodeManagerHostname'] for n in sorted(ray.nodes(), key=lambda n: n['NodeID'])"
        " if n['Resources'].get('GPU')))"
    )
    command = [*running.hosts[0].enter(), sys.executable, "-c", code, running.address]
    done = subprocess.run(
        command, env=dict(running.env), capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split()


def test_a_nvlink_that_is_down_shuts_it_and_its_node_is_named(running: RayHosts, plan: Path) -> None:
    host = running.hosts[2]
    shown = host.shown / "machine.txt"
    down = "link 1 * state 0\n"
    with changed(shown, shown.read_text() + down):
        done = running.topocheck("gate", "--ray", "--plan", plan)
    assert done.returncode == 1, done.stdout + done.stderr
    assert host.name in done.stderr.splitlines()[-1]
    assert "NV001" in done.stdout


def test_tp_that_no_node_can_hold_shuts_it(running: RayHosts, plan: Path) -> None:
    plan.write_text(PLAN.replace("tensor: 4, pipeline: 3", "tensor: 6, pipeline: 2"))
    done = running.topocheck("gate", "--ray", "--plan", plan)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "TP group 0 (ranks 0..5) crosses 2 nodes" in done.stderr


def test_a_cluster_that_offers_fewer_gpus_than_the_job_needs_shuts_it(running: RayHosts, plan: Path) -> None:
    plan.write_text(PLAN.replace("pipeline: 3", "pipeline: 6"))
    done = running.topocheck("gate", "--ray", "--plan", plan)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"the cluster offers {3 * GPUS} GPUs and the job needs 24" in done.stdout.replace("\n    ", " ")


def test_gpus_that_ray_offers_and_the_node_lacks_are_a_contradiction(running: RayHosts, plan: Path) -> None:
    """One fell off the bus after the raylet had counted them."""
    host = running.hosts[3]
    shown = host.shown / "machine.txt"
    with changed(shown, shown.read_text() + f"system gpus {GPUS - 1}\n"):
        done = running.topocheck("gate", "--ray", "--plan", plan)
    assert done.returncode == 1, done.stdout + done.stderr
    told = " ".join(done.stdout.split())
    assert f"about {host.name}: Ray offers {GPUS} GPUs there, and the node shows {GPUS - 1}" in told


def test_run_starts_the_command_behind_an_open_gate_and_keeps_it_from_a_shut_one(
    running: RayHosts, plan: Path, tmp_path: Path
) -> None:
    command = ["--", "sh", "-c", f"env > {tmp_path}/started; exit 5"]
    done = running.topocheck("run", "--ray", "--plan", plan, *command)
    assert done.returncode == 5, done.stdout + done.stderr
    started = (tmp_path / "started").read_text().splitlines()
    assert {line.partition("=")[0] for line in started if line.startswith("RAY_")} == {
        "RAY_ADDRESS",
        "RAY_USAGE_STATS_ENABLED",
    }
    (tmp_path / "started").unlink()
    plan.write_text(PLAN.replace("tensor: 4, pipeline: 3", "tensor: 6, pipeline: 2"))
    done = running.topocheck("run", "--ray", "--plan", plan, *command)
    assert done.returncode == 1
    assert "sh is not started" in done.stderr
    assert not (tmp_path / "started").exists()


def test_rays_empty_list_of_devices_is_not_taken_for_the_jobs(
    running: RayHosts, plan: Path, tmp_path: Path
) -> None:
    """Where it empties the list of a task without GPUs, as older releases always do."""
    setting = {"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"}}
    env = {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": setting})}
    done = running.topocheck("gate", "--ray", "--plan", plan, env=env)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_gate_can_be_the_entry_command_of_a_node_with_gpus(running: RayHosts, plan: Path) -> None:
    """The driver's node comes first then: the others follow by id."""
    report = plan.parent / "report.json"
    done = running.topocheck("gate", "--ray-address", running.address, "--plan", plan, "--json", report, on=2)
    assert done.returncode == 0, done.stdout + done.stderr
    names = [node["name"] for node in json.loads(report.read_bytes())["placement"]["nodes"]]
    own = running.hosts[2].name
    assert names == [own, *(name for name in in_rays_order(running) if name != own)]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("__version__ = '0.0.1'\n", "has topocheck 0.0.1, and this gate is"),
        ("raise ModuleNotFoundError('no topocheck')\n", "topocheck cannot be imported there: no topocheck"),
    ],
)
def test_a_node_with_another_topocheck_or_none_is_named(
    running: RayHosts, plan: Path, module: str, words: str
) -> None:
    host = running.hosts[1]
    package = host.shown / "modules" / "topocheck"
    package.mkdir()
    try:
        (package / "__init__.py").write_text(module)
        done = running.topocheck("gate", "--ray", "--plan", plan)
    finally:
        for path in sorted(package.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        package.rmdir()
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"{host.name} ({host.address}): {words}" in done.stderr
    assert f"1 of 3 nodes did not answer: {host.name}" in done.stderr.splitlines()[-1]


def test_a_driver_that_hangs_on_one_node_holds_nobody(running: RayHosts, plan: Path) -> None:
    shown = running.hosts[1].shown / "machine.txt"
    with changed(shown, shown.read_text() + "hang nvmlDeviceGetUUID *\n"):
        done = running.topocheck("gate", "--ray", "--plan", plan, "--timeout", "40")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "did not answer" not in done.stderr
    assert "nvmlDeviceGetUUID" in done.stdout


def test_a_plan_that_names_nodes_waits_for_these_alone(running: RayHosts, plan: Path) -> None:
    names = [host.name for host in running.hosts[1:3]]
    plan.write_text(PLAN.replace("pipeline: 3", "pipeline: 2").replace("nodes: 3", f"nodes: {names}"))
    shown = running.hosts[3].shown / "machine.txt"
    with changed(shown, shown.read_text() + "link 1 * state 0\n"):
        done = running.topocheck("gate", "--ray", "--plan", plan)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_node_that_dies_is_named_while_it_is_asked_and_afterwards(running: RayHosts, plan: Path) -> None:
    host = running.hosts[3]
    host.stop(signal.SIGSTOP)
    asked = ["gate", "--ray", "--plan", str(plan)]
    silent = running.topocheck(*asked, "--timeout", "20")
    assert silent.returncode == 3, silent.stdout + silent.stderr
    assert f"{host.name} ({host.address}): no answer within 20 s" in silent.stderr
    assert f"1 of 3 nodes did not answer: {host.name}" in silent.stderr.splitlines()[-1]
    gate = subprocess.Popen(
        running.command(running.hosts[0], *asked, "--timeout", "120"),
        env={**running.env, "RAY_ADDRESS": running.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(4)  # it may die before it is asked, too: the answer is the same
    host.stop(signal.SIGKILL)
    out, err = gate.communicate(timeout=240)
    assert gate.returncode == 3, out + err
    assert f"1 of 3 nodes did not answer: {host.name}" in err.splitlines()[-1]
    after = running.topocheck(*asked)
    assert after.returncode == 3, after.stdout + after.stderr
    assert f"{host.name} ({host.address}): is dead in Ray" in after.stderr
    assert f"1 of 3 nodes did not answer: {host.name}" in after.stderr.splitlines()[-1]


@pytest.mark.parametrize(("address", "code"), [("auto", 2), ("127.0.0.1:1", 3)])
def test_a_cluster_that_is_not_there_is_one_sentence(plan: Path, address: str, code: int) -> None:
    """None runs here: usage. One that is named and does not answer may be on its way up: undecided."""
    for program in ("ray", "unshare"):
        require(program)
    if os.geteuid():
        pytest.skip("to see no other process needs root")
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--mount"]
    done = subprocess.run(
        [*apart, *COMMAND, "gate", "--ray", "--plan", str(plan), "--timeout", "20"],
        env={**os.environ, "RAY_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert f"--ray-address {address}: " in done.stderr
