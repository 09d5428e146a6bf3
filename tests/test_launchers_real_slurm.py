"""Slurm itself, four nodes of it: what srun sets, and where each distribution puts ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from real import require
from slurm_cluster import Cluster, cluster

from topocheck.declared import declare
from topocheck.hostlist import expand
from topocheck.launchers import slurm
from topocheck.launchers.resolve import resolve
from topocheck.launchfile import srun_options
from topocheck.plan import Parallel, Plan
from topocheck.ranges import local_ranks


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    for program in ("slurmctld", "slurmd", "srun", "munged"):
        require(program)
    if os.geteuid():
        pytest.skip("Slurm's daemons on several nodes of one machine need root")
    with cluster(tmp_path_factory.mktemp("slurm"), nodes=4) as started:
        yield started


def environment(path: Path) -> dict[str, str]:
    """What `env -0` printed."""
    return dict(entry.split("=", 1) for entry in path.read_text().split("\0") if "=" in entry)


def tasks(running: Cluster, *options: str, env: dict[str, str] | None = None) -> list[dict[str, str]]:
    """Environments of all tasks of one srun, by rank."""
    outputs = running.folder / "task.%t"
    for old in running.folder.glob("task.*"):
        old.unlink()
    running.output("srun", "-o", str(outputs), *options, "env", "-0", env=env)
    printed = running.folder.glob("task.*")
    return [environment(path) for path in sorted(printed, key=lambda path: int(path.suffix[1:]))]


def check(found: Sequence[dict[str, str]], predicted: Sequence[int]) -> None:
    """Claims and predicted order against what each task was given."""
    nodes = expand(found[0]["SLURM_STEP_NODELIST"])
    assert len(found) == len(predicted)
    for rank, (env, node, local) in enumerate(zip(found, predicted, local_ranks(predicted), strict=True)):
        claim = resolve(env, "torch").chosen
        assert claim is not None
        assert (claim.family, claim.rank, claim.size) == ("slurm", rank, len(found))
        assert (claim.node_rank, claim.local_rank) == (node, local)
        assert (claim.local_size, claim.nodes) == (list(predicted).count(node), len(nodes))
        assert (claim.node_name, claim.notes) == (nodes[node], ())


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        (["-N4", "-n4"], None),
        (["-N4", "-n8"], None),
        (["-N3", "-n7"], "block"),
        (["-N4", "-n8"], "cyclic"),
        (["-N4", "-n10"], "plane=2"),
        (["-N3", "-n9"], "plane=4"),
        (["-N3", "-n7"], "cyclic:block"),
    ],
)
def test_srun_places_tasks_as_predicted(running: Cluster, options: list[str], policy: str | None) -> None:
    found = tasks(running, *options, *(["-m", policy] if policy else []))
    assert slurm.distribution(found[0]) == (policy.split(":")[0] if policy else None)
    counts = slurm.parse_tasks_per_node(found[0]["SLURM_STEP_TASKS_PER_NODE"])
    check(found, slurm.rank_nodes(counts, None, slurm.distribution(found[0])))


def test_srun_takes_the_order_that_its_host_file_gives(running: Cluster) -> None:
    hosts = ["n3", "n3", "n1", "n2", "n1"]
    options, text = slurm.srun_arbitrary(hosts)
    path = running.folder / "order"
    path.write_text(text)
    found = tasks(running, *options.split(), env={"SLURM_HOSTFILE": str(path)})
    check(found, slurm.arbitrary(hosts, expand(found[0]["SLURM_STEP_NODELIST"])))
    assert [env["SLURMD_NODENAME"] for env in found] == hosts


@pytest.mark.parametrize(
    ("nodes", "order"),
    [
        (("n1", "n3"), [0, 0, 1, 1]),
        (("n1", "n2"), [0, 1, 0, 1]),
        (("n2", "n1"), [0, 0, 1, 1]),
        (("n3", "n1", "n2"), [2, 0, 0, 1, 2, 0]),
    ],
)
def test_srun_takes_the_order_that_a_plan_asks_for(
    running: Cluster, nodes: tuple[str, ...], order: list[int]
) -> None:
    one = declare(Plan(engine="torch", parallel=Parallel(data=6), nodes=nodes), None)
    options = srun_options(replace(one, nodes=order, local_ranks=local_ranks(order)))
    found = tasks(running, *options.split())
    assert [env["SLURMD_NODENAME"] for env in found] == [nodes[node] for node in order]


def test_a_batch_script_leaks_into_what_srun_does_not_start(running: Cluster) -> None:
    out = running.folder / "batch"
    script = f"env -0 > {out}.script; srun -n1 env -0 > {out}.step"
    running.output("sbatch", "--wait", "-N2", "-n4", "-o", "/dev/null", "--wrap", script)
    leaked, step = environment(out.with_suffix(".script")), environment(out.with_suffix(".step"))
    assert leaked["SLURM_PROCID"] == "0"
    assert [note.kind for claim in resolve(leaked, "torch").others for note in claim.notes] == ["leaked"]
    for env in (leaked, step):  # a step of one task ranks nobody either
        assert resolve(env, "torch").chosen is None


def test_pmi_from_srun_is_slurms_own(running: Cluster) -> None:
    for rank, env in enumerate(tasks(running, "-N2", "-n4", "--mpi=pmi2")):
        assert env["PMI_RANK"] == str(rank)
        resolution = resolve(env, "tensorrt_llm")
        assert resolution.chosen is not None
        assert (resolution.chosen.family, resolution.chosen.rank) == ("slurm", rank)
        assert resolution.disagreements == ()
