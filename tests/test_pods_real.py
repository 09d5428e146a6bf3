"""Printed manifests in pods that really run: behind a gate that is not open nothing starts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from pod_image import BASE, IMAGE, Podman, build
from real import require
from shell import topocheck

OPEN = "engine: vllm\nparallel: {tensor: 1}\nnodes: 1\npolicy: {optional: [ID003]}\n"
SHUT = "engine: vllm\nparallel: {tensor: 3}\nnodes: 1\nmodel: {heads: 32}\n"
UNDECIDED = "engine: vllm\nparallel: {tensor: 1}\nnodes: 1\n"
"""Here is no GPU: what a required rule asks of one stays open."""
IMAGES = ("--gpus", "0", "--image", IMAGE, "--main-image", IMAGE)
COMMAND = ("--", "/usr/bin/python", "-c", "print('the job runs')")
KEPT = {"io.podman.annotations.init.container.type": "always"}
"""Podman removes an init container that ended well, unless told so: a kubelet keeps it."""
NOT_IN_PODMAN = {"spec.nodeName", "metadata.namespace"}
"""Fields that a kubelet fills and podman 4.3 refuses; no plan here hangs on them."""


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    for program in ("podman", "runc", "conmon", "catatonit"):
        require(program)
    if os.geteuid():
        pytest.skip("containers with a storage of their own need root")
    # podman takes no storage whose path is longer than 50 characters, as pytest's own folders may be.
    with tempfile.TemporaryDirectory(prefix="pods-", ignore_cleanup_errors=True) as folder:
        started, why = build(Path(folder))
        if started is None:
            pytest.skip(f"podman is installed and this kernel lets it run no containers: {why}")
        yield started
        started("pod", "rm", "--all", "--force")
        started("rmi", "--all", "--force")


MOST_ADDED = 150_000_000
"""Bytes over its base that the image may have."""
UNCOMPILED = """
import importlib, os, sys
for name in ("topocheck.cli.gate", "topocheck.probes.node.probe", "topocheck.render.terminal"):
    importlib.import_module(name)
paths = [getattr(module, "__cached__", None) for module in list(sys.modules.values())]
print(os.getuid(), [path for path in paths if path and not os.path.exists(path)])
"""


def shown(podman: Podman, image: str) -> dict[str, Any]:
    [found] = yaml.safe_load(podman("image", "inspect", image).stdout)
    return dict(found)


def test_the_image_is_small_and_belongs_to_nobody(podman: Podman) -> None:
    image = shown(podman, IMAGE)
    assert 0 < image["Size"] - shown(podman, BASE)["Size"] < MOST_ADDED
    assert image["Config"]["User"] == "65532:65532"
    assert image["Config"]["Entrypoint"] == ["topocheck"]
    assert image["Config"]["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_the_image_runs_read_only_and_finds_its_bytecode_made(podman: Podman) -> None:
    bare = ("run", "--rm", "--network=host", "--read-only", "--cap-drop=all")
    assert podman(*bare, IMAGE, "--version").stdout.startswith("topocheck, version")
    python = podman(*bare, "--entrypoint", "/opt/topocheck/bin/python", IMAGE, "-c", UNCOMPILED)
    assert (python.returncode, python.stdout) == (0, "65532 []\n"), python.stderr


def test_the_image_holds_nothing_of_how_it_was_made(podman: Podman) -> None:
    listing = "import os; print(sorted(os.listdir('/')), os.listdir('/tmp'), os.listdir('/opt'))"
    done = podman("run", "--rm", "--network=host", "--entrypoint", "/usr/bin/python", IMAGE, "-c", listing)
    assert "src" not in done.stdout
    assert done.stdout.endswith("[] ['topocheck']\n")


def test_its_wheels_install_where_there_is_no_network(podman: Podman, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    line = ["install", "-q", "--no-index", "--find-links", "wheels", "topocheck-placement"]
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "venv/bin/python")]
    alone = ["unshare", "--net", *pip, *line]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(
        alone, cwd=podman.folder / "context", env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert topocheck("--version", command=[str(tmp_path / "venv/bin/topocheck")]).code == 0
    assert " ".join(["pip", *line]) in (ROOT / "README.md").read_text(encoding="utf-8")


def played(podman: Podman, folder: Path, plan: str, name: str) -> tuple[int, dict[str, Any], str]:
    """Print a manifest and run it: exit code of the gate, its configuration, and what the job printed."""
    (folder / "plan.yaml").write_text(plan)
    options = ["--plan", str(folder / "plan.yaml"), *IMAGES]
    printed = topocheck("manifest", "--for", "pod", "--name", name, *options, *COMMAND)
    assert printed.code == 0, printed.err
    documents = list(yaml.safe_load_all(printed.out))
    documents[1]["metadata"]["annotations"] = KEPT
    gate = documents[1]["spec"]["initContainers"][0]
    gate["env"] = [one for one in gate["env"] if field_of(one) not in NOT_IN_PODMAN]
    (folder / "pod.yaml").write_text(yaml.safe_dump_all(documents))
    podman("kube", "play", "--network=host", str(folder / "pod.yaml"))
    podman("wait", f"{name}-main", "--condition=exited", "--condition=created")
    [shown] = yaml.safe_load(podman("inspect", f"{name}-topocheck").stdout)
    said = podman("logs", f"{name}-topocheck")
    return (
        shown["State"]["ExitCode"],
        shown,
        said.stdout + said.stderr + podman("logs", f"{name}-main").stdout,
    )


def field_of(entry: dict[str, Any]) -> str:
    return str(entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", ""))


def test_behind_an_open_gate_the_job_runs(podman: Podman, tmp_path: Path) -> None:
    code, _, said = played(podman, tmp_path, OPEN, "green")
    assert code == 0, said
    assert "topocheck gate: OPEN" in said
    assert "the job runs" in said


@pytest.mark.parametrize(
    ("plan", "code", "word"),
    [(SHUT, 1, "SHUT"), (UNDECIDED, 3, "UNDECIDED")],
)
def test_behind_a_gate_that_is_not_open_it_does_not(
    podman: Podman, tmp_path: Path, plan: str, code: int, word: str
) -> None:
    found, _, said = played(podman, tmp_path, plan, word.lower())
    assert found == code, said
    assert word in said
    assert "the job runs" not in said


def test_the_gate_runs_without_any_right_and_with_nothing_to_write_to(podman: Podman, tmp_path: Path) -> None:
    code, shown, said = played(podman, tmp_path, OPEN, "bare")
    assert code == 0, said
    assert shown["Config"]["User"] == "65532:65532"
    assert shown["HostConfig"]["ReadonlyRootfs"] is True
    assert not shown["EffectiveCaps"]
    assert "no-new-privileges" in str(shown["HostConfig"]["SecurityOpt"]) or not shown["BoundingCaps"]


def pod_of_job(job: dict[str, Any], index: int, store: Path) -> dict[str, Any]:
    """What the Job controller makes of a template for one index; the claim is a folder of this machine."""
    spec = yaml.safe_load(yaml.safe_dump(job["spec"]["template"]["spec"]))
    for container in (*spec["initContainers"], *spec["containers"]):
        fields = [one for one in container.get("env", ()) if field_of(one) not in NOT_IN_PODMAN]
        container["env"] = [*fields, {"name": "JOB_COMPLETION_INDEX", "value": str(index)}]
    for volume in spec["volumes"]:
        if volume.pop("persistentVolumeClaim", None):
            volume["hostPath"] = {"path": str(store)}
    labels = {"batch.kubernetes.io/controller-uid": "0d9c-uid"}
    name = f"{job['metadata']['name']}-{index}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": KEPT},
        "spec": spec,
    }


def test_two_pods_of_a_job_meet_under_its_uid_and_get_one_verdict(podman: Podman, tmp_path: Path) -> None:
    """Both run on this one machine, which their boot ids show: the two nodes of the plan are not there."""
    store = tmp_path / "store"
    store.mkdir()
    os.chown(store, 65532, 65532)
    (tmp_path / "plan.yaml").write_text("engine: vllm\nparallel: {tensor: 1, pipeline: 2}\nnodes: 2\n")
    options = ["--plan", str(tmp_path / "plan.yaml"), *IMAGES, "--name", "pair", "--timeout", "60"]
    printed = topocheck("manifest", "--for", "indexed-job", *options, *COMMAND)
    plan, _, job = yaml.safe_load_all(printed.out)
    for index in range(2):
        documents = [plan, pod_of_job(job, index, store)]
        (tmp_path / f"{index}.yaml").write_text(yaml.safe_dump_all(documents))
    with ThreadPoolExecutor(2) as pool:
        plays = [("kube", "play", "--network=host", str(tmp_path / f"{index}.yaml")) for index in range(2)]
        said = [done.stderr for done in pool.map(lambda words: podman(*words), plays)]
    ends = [podman("logs", f"pair-{index}-topocheck") for index in range(2)]
    lines = [end.stderr.strip().rpartition("\n")[2] for end in ends]
    assert all("exited with code" in line for line in said), said
    entries = [path.name for path in (store / "0d9c-uid" / "entries").iterdir()]
    assert sorted(name.partition("-topo")[0][:6] for name in entries) == ["pair-0", "pair-1"], lines
    assert lines[0].partition(" (verified by")[0] == lines[1].partition(" (verified by")[0]
    assert "OPEN" not in lines[0]
