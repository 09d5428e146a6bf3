"""GR: what the job leaves unused."""

from __future__ import annotations

from build import TWO, answer, report, snap, text_of
from stating import launch, of, said

from topocheck.report import RuleReport
from topocheck.snapshot import FullSnapshot


def allotted(*counts: str) -> list[FullSnapshot]:
    """The healthy job with SLURM_GPUS_ON_NODE of each node; empty for a node without."""
    return [
        snap(name, ranks, environment={"SLURM_GPUS_ON_NODE": count} if count else {"A": "1"})
        for name, ranks, count in zip(("node-a", "node-b"), (range(4), range(4, 8)), counts, strict=True)
    ]


def idle(*views: FullSnapshot) -> RuleReport:
    return answer(report(TWO, *views), "GR005")


def test_the_schedulers_variables_of_all_nodes_count() -> None:
    assert idle(*allotted("4", "4")).verdict == "pass"
    found = idle(*allotted("8", "4"))
    assert [finding.severity for finding in found.findings] == ["warning"]
    assert "given 12 GPUs and has 8 ranks: 4 stay idle" in text_of(found)
    assert idle(*allotted("8", "")).verdict == "unknown"


def test_lists_go_before_counts() -> None:
    views = [
        snap(name, ranks, environment={"SLURM_JOB_GPUS": "0,1,2,3", "SLURM_GPUS_ON_NODE": "8"})
        for name, ranks in (("node-a", range(4)), ("node-b", range(4, 8)))
    ]
    assert idle(*views).verdict == "pass"


def test_a_batch_script_gives_nodes_times_gpus_or_tasks_times_gpus() -> None:
    def script(*facts: tuple[str, str, str]) -> RuleReport:
        return of("GR005", said(*facts))

    nodes = ("nodes", "launcher", "2")
    assert script(nodes, ("gpus-per-node", "launcher", "4")).verdict == "pass"
    assert script(nodes, ("gpus-per-node", "launcher", "8")).verdict == "fail"
    tasks = ("processes", "launcher", "8")
    assert script(tasks, ("gpus-per-task", "launcher", "1")).verdict == "pass"
    assert script(tasks, ("gpus-per-task", "launcher", "2")).verdict == "fail"
    assert script(nodes).verdict == "unknown"


def test_what_a_cluster_or_a_hostfile_or_the_engine_names_is_not_the_jobs() -> None:
    cluster = said(("cluster-gpus", "ray", "64"), ("cluster-nodes", "ray", "16"))
    assert of("GR005", cluster).verdict == "unknown"
    hosts = said(("host-slots", "node-a", "64"), ("host-slots", "node-b", "64"))
    assert of("GR005", hosts).verdict == "unknown"
    engine = launch(("nodes", "", "2"), ("gpus-per-node", "", "8"))
    assert of("GR005", engine).verdict == "unknown"


def test_a_manifest_counts_the_roles_that_show_their_gpus() -> None:
    pods = ("pods", "leader", "1"), ("pods", "worker", "1")
    whole = *pods, ("gpus-per-node", "leader", "4"), ("gpus-per-node", "worker", "4")
    assert of("GR005", said(*whole)).verdict == "pass"
    assert of("GR005", said(*pods, ("gpus-per-node", "worker", "4"))).verdict == "unknown"
    assert of("GR005", said(*pods, ("gpus-per-node", "worker", "16"))).verdict == "fail"


def test_fewer_gpus_than_ranks_are_an_allocation_that_is_too_small() -> None:
    small = said(("nodes", "launcher", "2"), ("gpus-per-node", "launcher", "2"))
    assert of("GR005", small).findings == []
    assert "given 4 GPUs and needs 8" in text_of(of("ID015", small))
