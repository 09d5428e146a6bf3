"""By pipe, at once: `srun topocheck probe | topocheck verify --plan plan.yaml -` over real Slurm.

Four hosts in namespaces of their own, each with a recorded /sys and the double of NVML.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from real import require
from shell import COMMAND, Ran, topocheck
from slurm_cluster import Cluster
from slurm_hosts import hosts

PLAN = "engine: megatron\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\npolicy: {boundary: any}\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Mapping[str, str]]]:
    for program in ("slurmctld", "slurmd", "srun", "munged", "ip", "unshare", "gcc"):
        require(program)
    if os.geteuid():
        pytest.skip("hosts in namespaces of their own need root")
    with hosts(tmp_path_factory.mktemp("slurm"), 4) as started:
        yield started


def verified(running: tuple[Cluster, Mapping[str, str]], folder: Path, *options: str) -> tuple[Ran, Any]:
    """What verify says of what the tasks of one srun print, and its report."""
    cluster, variables = running
    out = cluster.output("srun", "-l", *options, *COMMAND, "probe", env=dict(variables))
    (folder / "plan.yaml").write_text(PLAN)
    report = folder / "report.json"
    ran = topocheck("verify", "--plan", folder / "plan.yaml", "--json", report, "-", stdin=out)
    return ran, json.loads(report.read_bytes())


def verdicts(report: Any) -> dict[str, str]:
    return {rule["id"]: rule["verdict"] for rule in report["rules"]}


def test_each_host_shows_itself(running: tuple[Cluster, Mapping[str, str]], tmp_path: Path) -> None:
    """One view a node, as `srun --ntasks-per-node=1 topocheck probe` prints it."""
    cluster, variables = running
    lines = cluster.output("srun", "-l", "-N4", "-n4", *COMMAND, "probe", env=dict(variables))
    found = [json.loads(line.partition(": ")[2]) for line in joined(lines)]
    identities = [view["identity"] for view in found]
    assert len({identity["host"]["name"] for identity in identities}) == 4
    assert len({identity["host"]["boot_id"] for identity in identities}) == 4
    assert len({gpu["uuid"] for identity in identities for gpu in identity["gpus"]}) == 16
    assert all(view["hardware"]["nics"] for view in found)


def joined(text: str) -> list[str]:
    """Lines of `srun -l` by task, the pieces of a long one put together."""
    pieces: dict[str, str] = {}
    for line in text.splitlines():
        tag, _, body = line.partition(": ")
        pieces[tag] = pieces.get(tag, "") + body
    return [f"{tag}: {body}" for tag, body in pieces.items()]


def test_block_distribution_keeps_tensor_groups_in_their_nodes(
    running: tuple[Cluster, Mapping[str, str]], tmp_path: Path
) -> None:
    ran, report = verified(running, tmp_path, "-N2", "-n8", "--ntasks-per-node=4", "-m", "block")
    found = verdicts(report)
    assert (found["ID001"], found["ID004"], found["TP001"], found["TP002"]) == ("pass",) * 4, ran.out
    assert report["phase"] == "claimed"
    assert ran.code == 0, ran.out


@pytest.mark.parametrize(("policy", "ranks"), [("cyclic", "has ranks 0, 2"), ("plane=2", "has ranks 0, 1")])
def test_other_distributions_are_told_by_the_ranks_that_they_scatter(
    running: tuple[Cluster, Mapping[str, str]], tmp_path: Path, policy: str, ranks: str
) -> None:
    ran, report = verified(running, tmp_path, "-N2", "-n8", "--ntasks-per-node=4", "-m", policy)
    assert ran.code == 1
    assert verdicts(report)["TP001"] == "fail"
    assert verdicts(report)["ID001"] == "pass"
    assert ranks in ran.last
    assert "TP group 0 (ranks 0..3) crosses 2 nodes" in ran.last


def test_one_view_a_node_before_launch_is_a_prediction(
    running: tuple[Cluster, Mapping[str, str]], tmp_path: Path
) -> None:
    ran, report = verified(running, tmp_path, "-N2", "-n2", "--ntasks-per-node=1")
    found = verdicts(report)
    assert report["phase"] == "predicted", ran.out
    assert (found["EV001"], found["TP001"], found["TP002"]) == ("pass",) * 3, ran.out
