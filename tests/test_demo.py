"""`topocheck demo`: each made job gets the verdict that it was made for, and is a job that one may change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shell import Ran, topocheck

from topocheck.demo.job import TAKEN_AT
from topocheck.demo.nccl import IB
from topocheck.demo.scenario import SCENARIOS, running

BROKEN = [
    ("tp-split", 1, "TP001", "fail", "TP group 0 (ranks 0..3) crosses 2 nodes: gpu-a has ranks 0, 2"),
    ("nvlink-missing", 1, "NV001", "fail", "of gpu-b, rank 6, has 12 active NVLinks of the 18"),
    ("sockets", 1, "OBS003", "fail", "RDMA cannot be used on gpu-a: NCCL found no RDMA device"),
    ("shared-gpu", 1, "ID004", "fail", "ranks 6, 7 share GPU-"),
    ("missing-node", 3, "EV001", "unknown", "gpu-b never reported"),
    ("thin-evidence", 3, "TP002", "unknown", "nothing is proven wrong"),
]
"""Scenario, exit code, the rule that it is about, that rule's verdict, words of the sentence."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(ran: Ran) -> dict[str, Any]:
    """The JSON report of a run."""
    report: dict[str, Any] = json.loads(ran.out)
    return report


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    """Verdict of each rule."""
    return {rule["id"]: rule["verdict"] for rule in report["rules"]}


def verified_again(folder: Path) -> Ran:
    """What the command that the demo names says."""
    return topocheck(
        "verify", "--at", TAKEN_AT, "--plan", folder / "plan.yaml", folder / "evidence", "--json", "-"
    )


def test_the_healthy_job_passes_every_required_rule(here: Path) -> None:
    ran = topocheck("demo", "--json", "-")
    report = judged(ran)
    assert (ran.code, report["exit_reason"]) == (0, "passed")
    required = {rule["id"]: rule["verdict"] for rule in report["rules"] if rule["required"]}
    assert set(required.values()) <= {"pass", "not-applicable"}
    assert {"ID001", "ID004", "TP001", "TP002", "PP001", "PP003"} <= {
        rule for rule, verdict in required.items() if verdict == "pass"
    }
    assert report["phase"] == "claimed"
    assert "predicted" not in report["sentence"]
    assert sorted(path.name for path in (here / "topocheck-demo-healthy").rglob("*") if path.is_file()) == [
        "gpu-a.jsonl",
        "gpu-b.jsonl",
        "job.sbatch",
        "plan.yaml",
    ]


def test_the_running_job_proves_what_only_a_running_job_can() -> None:
    ran = topocheck("demo", "running", "--json", "-")
    report = judged(ran)
    assert ran.code == 0
    assert report["phase"] == "observed"
    seen = {rule: verdict for rule, verdict in verdicts(report).items() if rule.startswith(("OBS", "NET"))}
    assert {"NET009", "OBS001", "OBS002", "OBS003", "OBS006", "OBS008"} <= set(seen)
    assert set(seen.values()) <= {"pass", "not-applicable"}
    assert seen["OBS003"] == "pass"


@pytest.mark.parametrize(("scenario", "code", "rule", "verdict", "words"), BROKEN)
def test_a_broken_job_is_told_by_the_rule_it_was_made_for(
    scenario: str, code: int, rule: str, verdict: str, words: str
) -> None:
    ran = topocheck("demo", scenario, "--json", "-")
    report = judged(ran)
    assert (ran.code, report["exit_code"]) == (code, code)
    assert verdicts(report)[rule] == verdict
    assert words in report["sentence"]
    assert report["sentence"] in ran.last


def test_every_scenario_is_one_of_the_tested() -> None:
    assert list(SCENARIOS) == ["healthy", "running", *(scenario for scenario, *_ in BROKEN)]


def test_the_missing_node_is_named_and_nothing_is_accused() -> None:
    report = judged(topocheck("demo", "missing-node", "--json", "-"))
    assert report["exit_reason"] == "nodes_missing"
    assert [gap["about"] for gap in report["gaps"] if gap["rules"] == ["EV001"]] == [["gpu-b"]]
    assert not [rule for rule in report["rules"] if rule["findings"]]


def test_the_split_groups_are_named_with_their_nodes() -> None:
    report = judged(topocheck("demo", "tp-split", "--json", "-"))
    (found,) = [rule["findings"][0] for rule in report["rules"] if rule["id"] == "TP001"]
    assert found["severity"] == "error"
    assert "gpu-a has ranks 0, 2" in found["message"]
    assert "gpu-b has ranks 1, 3" in found["message"]


def test_the_list_names_every_scenario_and_writes_nothing(here: Path) -> None:
    ran = topocheck("demo", "--list")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == list(SCENARIOS)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_is_the_same_bytes_each_time(scenario: str) -> None:
    first, second = topocheck("demo", scenario, "--json", "-"), topocheck("demo", scenario, "--json", "-")
    assert first == second
    assert SCENARIOS[scenario].files() == SCENARIOS[scenario].files()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_command_that_the_demo_names_repeats_it(scenario: str) -> None:
    ran = topocheck("demo", scenario, "-o", "kept", "--json", "-")
    assert f"topocheck verify --at {TAKEN_AT} --plan kept/plan.yaml kept/evidence" in ran.err
    again = verified_again(Path("kept"))
    assert (again.code, again.out) == (ran.code, ran.out)


def heal_ranks(folder: Path) -> None:
    """Ranks in blocks: 4 x node rank + local rank."""
    change_snapshots(folder, lambda claim: claim | {"rank": 4 * claim["node_rank"] + claim["local_rank"]})


def heal_links(folder: Path) -> None:
    """All NVLinks up."""
    for path in (folder / "evidence").glob("*.jsonl"):
        path.write_text(path.read_text().replace('"active":false', '"active":true'))


def heal_network(folder: Path) -> None:
    """The log of the same start with RDMA."""
    (folder / "evidence" / "nccl.log").write_text(running(IB)["nccl.log"])


def heal_devices(folder: Path) -> None:
    """Each process on the GPU of its local rank."""
    change_snapshots(folder, lambda claim: claim | {"gpu": claim["local_rank"]})


def heal_node(folder: Path) -> None:
    """The node that did not report reports."""
    heal_with(folder, "healthy")


def heal_evidence(folder: Path) -> None:
    """A probe in the job's own processes, with what it needs."""
    heal_with(folder, "healthy")


def heal_with(folder: Path, scenario: str) -> None:
    """The evidence of another scenario."""
    for name, text in SCENARIOS[scenario].files().items():
        (folder / name).write_text(text)


def change_snapshots(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change every rank claim."""
    for path in (folder / "evidence").glob("*.jsonl"):
        snapshot = json.loads(path.read_text())
        snapshot["ranks"] = [change(claim) for claim in snapshot["ranks"]]
        path.write_text(json.dumps(snapshot) + "\n")


@pytest.mark.parametrize(
    ("scenario", "heal"),
    [
        ("tp-split", heal_ranks),
        ("nvlink-missing", heal_links),
        ("sockets", heal_network),
        ("shared-gpu", heal_devices),
        ("missing-node", heal_node),
        ("thin-evidence", heal_evidence),
    ],
)
def test_a_broken_job_passes_once_its_files_are_mended(scenario: str, heal: Callable[[Path], None]) -> None:
    folder = Path("kept")
    assert topocheck("demo", scenario, "-o", folder).code != 0
    heal(folder)
    mended = verified_again(folder)
    assert mended.code == 0, mended.last


def test_the_healthy_job_fails_once_a_link_is_cut() -> None:
    folder = Path("kept")
    assert topocheck("demo", "-o", folder).code == 0
    path = folder / "evidence" / "gpu-a.jsonl"
    path.write_text(path.read_text().replace('"active":true', '"active":false', 1))
    broken = verified_again(folder)
    assert broken.code == 1
    assert verdicts(judged(broken))["NV001"] == "fail"


def test_a_folder_with_files_of_somebody_else_is_left_alone(here: Path) -> None:
    topocheck("demo")
    plan = here / "topocheck-demo-healthy" / "plan.yaml"
    plan.write_text("engine: sglang\nnodes: 1\n")
    ran = topocheck("demo")
    assert ran.code == 2
    assert "topocheck-demo-healthy/plan.yaml" in ran.last
    assert "-o DIR" in ran.last
    assert plan.read_text() == "engine: sglang\nnodes: 1\n"


def test_evidence_that_was_added_to_the_folder_is_not_taken_for_the_demos_own(here: Path) -> None:
    topocheck("demo")
    (here / "topocheck-demo-healthy" / "evidence" / "more.txt").write_text("something")
    ran = topocheck("demo")
    assert ran.code == 2
    assert "more.txt" in ran.last


def test_a_file_in_place_of_the_folder_is_a_sentence(here: Path) -> None:
    (here / "taken").write_text("")
    ran = topocheck("demo", "-o", "taken")
    assert ran.code == 2
    assert ran.last.startswith("topocheck: taken")


def test_an_unknown_scenario_is_refused_with_what_was_meant(here: Path) -> None:
    ran = topocheck("demo", "tp-spilt")
    assert ran.code == 2
    assert "did you mean tp-split?" in ran.last
    assert list(here.iterdir()) == []


def test_the_report_is_written_as_a_page_beside_the_text() -> None:
    ran = topocheck("demo", "nvlink-missing", "--html", "report.html")
    assert ran.code == 1
    assert "NV001" in Path("report.html").read_text()
    assert "NV001" in ran.out
