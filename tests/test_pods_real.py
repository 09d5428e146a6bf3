"""Printed manifests in pods that really run: behind a gate that is not open nothing starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pod_image import IMAGE, Podman, build
from real import require
from shell import topocheck

OPEN = "engine: vllm\nparallel: {tensor: 1}\nnodes: 1\npolicy: {optional: [ID003]}\n"
SHUT = "engine: vllm\nparallel: {tensor: 3}\nnodes: 1\nmodel: {heads: 32}\n"
UNDECIDED = "engine: vllm\nparallel: {tensor: 1}\nnodes: 1\n"
"""Here is no GPU: what a required rule asks of one stays open."""
NOT_IN_PODMAN = {"spec.nodeName", "metadata.namespace"}
"""Fields that a kubelet fills and podman 4.3 refuses; no plan here hangs on them."""


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    for program in ("podman", "runc", "conmon"):
        require(program)
    if os.geteuid():
        pytest.skip("containers with a storage of their own need root")
    started, why = build(tmp_path_factory.mktemp("podman"))
    if started is None:
        pytest.skip(f"podman cannot run containers here: {why}")
    yield started
    started("pod", "rm", "--all", "--force")
    started("rmi", "--all", "--force")


def played(podman: Podman, folder: Path, plan: str, name: str) -> tuple[int, dict[str, Any], str]:
    """Print a manifest and run it: exit code of the gate, its configuration, and what the job printed."""
    (folder / "plan.yaml").write_text(plan)
    options = ["--plan", folder / "plan.yaml", "--gpus", "0", "--image", IMAGE, "--main-image", IMAGE]
    command = ["--", "/usr/bin/python", "-c", "print('the job runs')"]
    printed = topocheck("manifest", "--for", "pod", "--name", name, *options, *command)
    assert printed.code == 0, printed.err
    documents = list(yaml.safe_load_all(printed.out))
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
    ("plan", "name", "code", "word"),
    [(SHUT, "red", 1, "SHUT"), (UNDECIDED, "grey", 3, "UNDECIDED")],
)
def test_behind_a_gate_that_is_not_open_it_does_not(
    podman: Podman, tmp_path: Path, plan: str, name: str, code: int, word: str
) -> None:
    found, _, said = played(podman, tmp_path, plan, name)
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
