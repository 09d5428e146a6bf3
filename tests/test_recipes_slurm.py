"""What `topocheck manifest` prints for Slurm: as text, and in a real Slurm over hosts of their own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real import require
from shell import Ran, topocheck
from slurm_cluster import Cluster, stop, wait
from slurm_hosts import hosts, serve

from topocheck.errors import UsageError
from topocheck.slurmscript import Batch, Gate, batch_script, task_prolog

Running = tuple[Cluster, Mapping[str, str]]

PLAN = "engine: megatron\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\npolicy: {boundary: any}\n"
CYCLIC = {"SLURM_DISTRIBUTION": "cyclic"}
"""A site's or a user's own setting, by which TP groups come to lie across nodes."""
LINE = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def gate(**changed: object) -> Gate:
    return Gate(**{"plan": "/shared/plan.yaml", "store": "file:/shared/gates", "timeout_s": 9, **changed})  # type: ignore[arg-type]


def batch(**changed: object) -> Batch:
    values = {"name": "job", "nodes": 2, "tasks_per_node": 4, "gpus": 8, "gate": gate(), "command": ["true"]}
    return Batch(**{**values, **changed})  # type: ignore[arg-type]


def in_bash(script: str, folder: Path, **variables: str) -> list[list[str]]:
    """Calls of srun and topocheck, with their words, when bash runs a script in which both succeed."""
    for name in ("srun", "topocheck"):
        tool = folder / name
        tool.write_text(
            f"#!{sys.executable}\nimport json, sys\nopen('calls','a').write(json.dumps(sys.argv) + '\\n')\n"
        )
        tool.chmod(0o755)
    (folder / "calls").write_text("")
    path = f"{folder}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-s"], input=script.encode(), cwd=folder, env={"PATH": path, **variables}, check=False
    )
    assert done.returncode == 0
    return [json.loads(line)[1:] for line in (folder / "calls").read_text().splitlines()]


@given(plan=LINE, store=LINE, name=LINE, words=st.lists(WORD, min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_any_word_of_a_user_arrives_in_srun_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, plan: str, store: str, name: str, words: list[str]
) -> None:
    script = batch_script(batch(name=name, gate=gate(plan=plan, store=store), command=words))
    asked, job = in_bash(script, tmp_path_factory.mktemp("words"))
    shape = ["--nodes=2", "--ntasks=8", "--ntasks-per-node=4"]
    assert asked == [*shape, "topocheck", "gate", f"--plan={plan}", f"--store={store}", "--timeout=9"]
    assert job == [*shape, *words]


@given(plan=LINE, store=LINE)
@settings(max_examples=25, deadline=None)
def test_any_path_arrives_in_the_gate_of_a_task_prolog(
    tmp_path_factory: pytest.TempPathFactory, plan: str, store: str
) -> None:
    script = task_prolog(gate(plan=plan, store=store))
    calls = in_bash(script, tmp_path_factory.mktemp("words"), SLURM_STEP_ID="3")
    assert calls == [["gate", f"--plan={plan}", f"--store={store}", "--timeout=9"]]


def test_a_task_prolog_leaves_batch_scripts_and_jobs_without_a_plan_alone(tmp_path: Path) -> None:
    fixed, open_to_all = task_prolog(gate()), task_prolog(gate(plan=None))
    assert in_bash(fixed, tmp_path, SLURM_STEP_ID="4294967291") == []
    assert in_bash(fixed, tmp_path) == []
    assert in_bash(fixed, tmp_path, SLURM_STEP_ID="0", TOPOCHECK_PLAN="") == []
    assert in_bash(open_to_all, tmp_path, SLURM_STEP_ID="0") == []
    [[_, plan, *_]] = in_bash(open_to_all, tmp_path, SLURM_STEP_ID="0", TOPOCHECK_PLAN="/my plan")
    assert plan == "--plan=/my plan"


def test_a_job_of_one_node_has_no_store() -> None:
    assert "store" not in batch_script(batch(nodes=1, gate=gate(store=None)))
    assert "--store" not in task_prolog(gate(store=None))


@pytest.mark.parametrize("text", ["a\nb", "a\0b", "a\rb", "a\x1b[2Jb", "\udc80"])
def test_what_no_line_of_a_script_can_hold_is_refused(text: str) -> None:
    for wrong in (lambda: batch(name=text), lambda: gate(plan=text), lambda: gate(store=text)):
        with pytest.raises(UsageError, match="text of one line"):
            wrong()
    if "\0" in text or text == "\udc80":
        with pytest.raises(UsageError, match="no script can hold it"):
            batch(command=["echo", text])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sbatch"], "give the command of the job after --"),
        (["task-prolog", "--", "true"], "takes no command"),
        (["sbatch", "--claim", "x", "--", "true"], "--claim has no place"),
        (["task-prolog", "--gpus", "8"], "--gpus has no place"),
        (["task-prolog", "--store", "k8s:"], "expected a folder that all nodes share"),
        (["sbatch", "--plan", "-", "--", "true"], "give a file that all nodes can read"),
    ],
)
def test_what_a_recipe_cannot_use_is_said(arguments: list[str], said: str) -> None:
    done = topocheck("manifest", "--for", *arguments, stdin=PLAN)
    assert done.code == 2
    assert said in done.last


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    for program in ("slurmctld", "slurmd", "srun", "sbatch", "munged", "ip", "unshare", "gcc"):
        require(program)
    if os.geteuid():
        pytest.skip("hosts in namespaces of their own need root")
    with hosts(tmp_path_factory.mktemp("slurm"), 3) as started:
        yield started


def printed(kind: str, folder: Path, *arguments: str, plan: str = PLAN) -> Path:
    """A recipe as a user gets it, in a folder whose name has a blank and a quote."""
    place = folder / "it's here"
    (place / "gates").mkdir(parents=True, exist_ok=True)
    (place / "plan.yaml").write_text(plan)
    options = ["--plan", str(place / "plan.yaml"), "--store", f"file:{place}/gates", "--timeout", "30"]
    done = topocheck("manifest", "--for", kind, *options, *arguments)
    assert done.code == 0, done.err
    script = place / "script.sh"
    script.write_text(done.out)
    script.chmod(0o755)
    return script


def slurm(running: Running, command: list[str], **variables: str) -> Ran:
    """A command of Slurm to its end, with `topocheck` on the PATH."""
    cluster, shown = running
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        env=cluster.env | dict(shown) | {"PATH": path} | variables,
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def submitted(running: Running, script: Path, folder: Path, **variables: str) -> tuple[int, str]:
    """Exit code of a batch job, and what it printed. `sbatch --wait` would look for its end every 32 s."""
    done = slurm(running, ["sbatch", "--parsable", "-o", f"{folder}/out", str(script)], **variables)
    assert done.code == 0, done.err
    end = time.monotonic() + 120
    while time.monotonic() < end:
        shown = running[0].output("scontrol", "show", "job", "-o", done.out.strip())
        job = dict(field.split("=", 1) for field in shown.split() if "=" in field)
        if job["EndTime"] != "Unknown" and job["JobState"] not in ("PENDING", "RUNNING"):
            return int(job["ExitCode"].partition(":")[0]), (folder / "out").read_text()
        time.sleep(0.2)
    raise AssertionError(shown)


def undrained(running: Running) -> bool:
    """No node is drained or down, and no node has a reason to be."""
    told = running[0].output("sinfo", "-hN", "-o", "%T %E").splitlines()
    return all(line.endswith(" none") and "drain" not in line and "down" not in line for line in told)


BATCH = ("--gpus", "0", "--tasks-per-node", "4", "--")


def test_behind_an_open_gate_the_main_step_runs_and_gives_the_exit_code(
    running: Running, tmp_path: Path
) -> None:
    name = f'it\'s $(touch {tmp_path}/x) "q" \\ \\\\ `id` #1'
    mark = f"touch {tmp_path}/ran.$SLURM_PROCID; printf 'name=%s\\n' \"$SLURM_JOB_NAME\"; exit 7"
    script = printed("sbatch", tmp_path, "--name", name, *BATCH, "sh", "-c", mark)
    code, out = submitted(running, script, tmp_path)
    assert code == 7, out
    assert len(list(tmp_path.glob("ran.*"))) == 8
    assert out.count("topocheck gate: OPEN") == 8
    assert f"name={name}\n" in out
    assert not (tmp_path / "x").exists()


def test_behind_a_shut_gate_it_does_not_and_the_job_ends_with_1(running: Running, tmp_path: Path) -> None:
    script = printed("sbatch", tmp_path, *BATCH, "touch", f"{tmp_path}/ran")
    code, out = submitted(running, script, tmp_path, **CYCLIC)
    assert code == 1, out
    assert not (tmp_path / "ran").exists()
    assert "topocheck gate: SHUT: TP group 0 (ranks 0..3) crosses 2 nodes" in out


def test_a_bad_plan_ends_the_job_with_2(running: Running, tmp_path: Path) -> None:
    script = printed("sbatch", tmp_path, *BATCH, "touch", f"{tmp_path}/ran")
    (script.parent / "plan.yaml").write_text(PLAN.replace("tensor", "tensr"))
    code, out = submitted(running, script, tmp_path)
    assert code == 2, out
    assert not (tmp_path / "ran").exists()
    assert "did you mean 'tensor'" in out


def test_a_node_that_is_down_is_named_and_the_job_is_undecided(running: Running, tmp_path: Path) -> None:
    """Its slurmd ends between the allocation and the gates, which is when nobody else can see it."""
    cluster, _ = running
    script = printed("sbatch", tmp_path, *BATCH, "touch", f"{tmp_path}/ran")
    away = cluster.output("sinfo", "-hN", "-o", "%N").split()[1]
    ended = f"kill $(cat {shlex.quote(str(cluster.folder / f'slurmd.{away}.pid'))})\n"
    script.write_text(script.read_text().replace("set -u\n", f"set -u\n{ended}"))
    try:
        code, out = submitted(running, script, tmp_path)
    finally:
        stop([cluster.folder / f"slurmd.{away}.pid"])
        serve(cluster.folder, away, cluster.env)
        wait(cluster, 3)
    assert code == 3, out
    assert not (tmp_path / "ran").exists()
    assert f"failed on node {away}" in out
    assert "UNDECIDED, the job's step does not run" in out


STEP = ["srun", "-N2", "-n8", "--ntasks-per-node=4"]


def test_behind_an_open_task_prolog_every_task_runs(running: Running, tmp_path: Path) -> None:
    script = printed("task-prolog", tmp_path)
    done = slurm(running, [*STEP, "-m", "block", f"--task-prolog={script}", "sh", "-c", "echo task ran"])
    assert done.code == 0, done.out + done.err
    assert done.out.count("task ran") == 8
    assert done.out.count("topocheck gate: OPEN") == 8


def test_behind_a_shut_one_none_does_and_no_node_is_drained(running: Running, tmp_path: Path) -> None:
    script = printed("task-prolog", tmp_path)
    done = slurm(running, [*STEP, "-m", "cyclic", f"--task-prolog={script}", "touch", f"{tmp_path}/ran"])
    assert done.code == 1, done.out + done.err
    assert not (tmp_path / "ran").exists()
    assert done.out.count("topocheck gate: SHUT: TP group 0 (ranks 0..3) crosses 2 nodes") == 8
    assert "task-prolog failed status=1" in done.err
    assert undrained(running)


def test_a_shut_task_prolog_of_the_whole_site_drains_no_node_either(running: Running, tmp_path: Path) -> None:
    cluster, _ = running
    script = printed("task-prolog", tmp_path)
    link = tmp_path / "prolog"  # slurm.conf takes no path with a blank
    link.symlink_to(script)
    configuration = cluster.folder / "slurm.conf"
    before = configuration.read_text()
    configuration.write_text(f"TaskProlog={link}\n{before}")
    try:
        reconfigured(cluster, "TaskProlog", str(link))
        shut = slurm(running, [*STEP, "-m", "cyclic", "touch", f"{tmp_path}/ran"])
        spared = slurm(running, [*STEP, "-m", "cyclic", "echo", "ran"], TOPOCHECK_PLAN="")
        (tmp_path / "job.sh").write_text("#!/bin/sh\necho batch script ran\n")
        code, out = submitted(running, tmp_path / "job.sh", tmp_path)
    finally:
        configuration.write_text(before)
        reconfigured(cluster, "TaskProlog", "(null)")
    assert shut.code == 1, shut.out + shut.err
    assert not (tmp_path / "ran").exists()
    assert (spared.code, spared.out.count("ran")) == (0, 8)
    assert (code, out) == (0, "batch script ran\n")
    assert undrained(running)


def reconfigured(cluster: Cluster, key: str, value: str) -> None:
    """Have all daemons read the configuration again, and ask the controller whether it has."""
    cluster.output("scontrol", "reconfigure")
    lines = cluster.output("scontrol", "show", "config").splitlines()
    assert any(line.split("=")[0].strip() == key and line.endswith(f"= {value}") for line in lines)
    wait(cluster, 3)
