"""The inputs of real faults against the answer key: what `topocheck verify` must say about each."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from topocheck.cli.main import run

SHARED = Path(__file__).resolve().parents[2] / "shared"
KEY, INPUTS, JUDGE = SHARED / "data/cases/expected.yaml", SHARED / "data/cases", SHARED / "judge.py"

MUST = {
    *("C01-a", "C01-b", "C01-c", "C02-a", "C05-a", "C05-b", "C06-a", "C08-a", "C09-a", "C10-a", "C10-b"),
    *("C33-a", "C33-b", "C33-c", "C34-a", "C34-b", "C34-c", "C34-d", "C51-a", "C52-a"),
    *("C11-a", "C13-a", "C14-a", "C14-b"),
    *("C35-a", "C50-a", "C56-a", "C56-b", "C57-a", "C57-b", "C57-c", "C60-a", "C60-b", "C60-c"),
    *("C15-a", "C16-a", "C16-b", "C18-a", "C18-b", "C22-a", "C22-b", "C22-c", "C23-a", "C23-b"),
    *("C25-a", "C25-b", "C28-a", "C28-b", "C28-c", "C39-a", "C43-a", "C43-b"),
    *("C45-a", "C45-b", "C45-c", "C46-a", "C46-b", "C46-c", "C46-d", "C47-a", "C47-b"),
    *("C48-a", "C48-b", "C48-c", "C49-a", "C63-a", "C63-b", "C63-c", "C63-d", "C63-e", "C63-f"),
    *("C64-a", "C64-b", "C64-c", "C64-d", "C65-a", "C65-b", "C65-c", "C65-d", "C66-a"),
}
"""Runs whose inputs are read and whose rules are asked: these must hold."""

pytestmark = pytest.mark.skipif(not KEY.exists(), reason="the collected cases are not here")


def runs() -> list[dict[str, Any]]:
    """All runs of the key, by id."""
    if not KEY.exists():
        return []
    cases = yaml.safe_load(KEY.read_text())["cases"].values()
    return [each for case in cases for each in case.get("runs") or []]


RUNS = {each["id"]: each for each in runs()}


def judge() -> ModuleType:
    """The judge's own comparison."""
    spec = importlib.util.spec_from_file_location("judge", JUDGE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Done:
    """What the judge asks of a finished process."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.returncode, self.stdout, self.stderr = code, out, err


@pytest.fixture
def verify(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    """`topocheck verify` in process: (done, report)."""

    def checked(plan: Any, *evidence: str) -> tuple[Done, dict[str, Any]]:
        place, out = tmp_path / "plan.yaml", tmp_path / "report.json"
        place.write_text(yaml.safe_dump(plan, sort_keys=False))
        out.unlink(missing_ok=True)
        code = run(["verify", "--plan", str(place), "--json", str(out), *evidence])
        told = capfd.readouterr()
        report = json.loads(out.read_text()) if out.exists() else {}
        return Done(code, told.out, told.err), report

    return checked


def arguments(each: dict[str, Any]) -> list[str]:
    """Evidence of a run as the command line takes it."""
    label = f"{each['label']}=" if each.get("label") else ""
    found = [label + str(INPUTS / each["input"])]
    for extra in each.get("extra_inputs", []):
        name, sign, path = extra.rpartition("=")
        found.append(name + sign + str(INPUTS / path))
    return found


def rule(report: dict[str, Any], name: str) -> dict[str, Any]:
    """One rule of a report."""
    found: dict[str, Any] = next(each for each in report["rules"] if each["id"] == name)
    return found


def said(report: dict[str, Any], name: str) -> str:
    """Everything that the findings of a rule say."""
    return json.dumps(rule(report, name)["findings"], ensure_ascii=False)


@pytest.mark.parametrize("name", sorted(RUNS.keys() & MUST))
def test_a_run_of_the_key_holds(name: str, verify: Any) -> None:
    each = RUNS[name]
    done, report = verify(each["plan"], *arguments(each))
    assert list(judge().faults(each, done, report)) == []


@pytest.mark.parametrize("name", sorted(each for each, run in RUNS.items() if run.get("plan")))
def test_a_case_never_ends_in_a_traceback_and_accuses_nothing_that_it_must_not(
    name: str, verify: Any
) -> None:
    each = RUNS[name]
    done, report = verify(each["plan"], *arguments(each))
    assert done.returncode in {0, 1, 2, 3}
    assert "Traceback" not in done.stderr + done.stdout
    assert "internal error" not in done.stderr
    only_false_alarms = {**each, "expect": {k: v for k, v in each["expect"].items() if k != "fail"}}
    wrong = list(judge().faults(only_false_alarms, done, report)) if report else []
    allowed = ("exit ", "none of ", "is not-applicable", "not unknown", " is pass", "None")
    assert [fault for fault in wrong if not any(word in fault for word in allowed)] == []


TP8_PP2 = {"engine": "vllm", "parallel": {"tensor": 8, "pipeline": 2}, "nodes": 2}
C63 = str(INPUTS / "C63-nccl2x-h100-2node-ib.log")


def required_unknown(report: dict[str, Any]) -> set[str]:
    return {each["id"] for each in report["rules"] if each["required"] and each["verdict"] == "unknown"}


def test_the_two_node_log_lacks_exactly_links_rdma_and_an_edge_between_the_nodes(verify: Any) -> None:
    done, report = verify(TP8_PP2, C63)
    assert done.returncode == 3
    assert required_unknown(report) == {"TP002", "PP003", "OBS003"}
    assert rule(report, "OBS006")["verdict"] == "unknown"
    assert report["counts"]["errors"] == report["counts"]["warnings"] == 0
    for name in ("ID001", "ID002", "ID003", "ID004", "ID010", "TP001", "PP001"):
        assert (rule(report, name)["verdict"], rule(report, name)["basis"]) == ("pass", "observed")


def test_the_two_node_log_opens_the_gate_where_these_three_are_optional(verify: Any) -> None:
    done, report = verify({**TP8_PP2, "policy": {"optional": ["TP002", "PP003", "OBS003"]}}, C63)
    assert done.returncode == 0
    assert rule(report, "TP002")["verdict"] == "unknown"


def test_tp16_in_one_node_is_refused_naming_both_hosts(verify: Any) -> None:
    plan = {"engine": "vllm", "parallel": {"tensor": 16}, "nodes": 2, "policy": {"tensor_domain": "node"}}
    done, report = verify(plan, C63)
    assert done.returncode == 1
    assert all(name in said(report, "TP001") for name in ("node-a", "node-b", "0..15", "C63-nccl2x"))


def test_sockets_between_nodes_are_told_edge_by_edge(verify: Any) -> None:
    each = RUNS["C64-a"]
    _, report = verify(each["plan"], *arguments(each))
    assert all(edge in said(report, "OBS003") for edge in ("3->4", "7->0", "4->1", "0->5"))
    assert "libibverbs" in said(report, "OBS003")


def test_two_gpus_with_two_ranks_each_are_both_named(verify: Any) -> None:
    plan = {"engine": "vllm", "parallel": {"tensor": 8}, "nodes": 4}
    _, report = verify(plan, str(INPUTS / "C16-nccl-init-2gpu-nodes.log"))
    text = said(report, "ID004")
    assert all(words in text for words in ("0, 2", "1, 3", "node-a", "0000:31:00.0", "0000:4b:00.0"))
    assert len(rule(report, "ID004")["findings"]) == 1


def test_duplicate_warnings_under_mpirun_tags_are_one_finding(verify: Any) -> None:
    each = RUNS["C18-a"]
    _, report = verify(each["plan"], *arguments(each))
    findings = rule(report, "ID004")["findings"]
    assert len(findings) == 1
    assert "0000:01:00.0" in findings[0]["message"]


def test_bridged_pairs_are_regrouped_and_the_order_is_printed(verify: Any) -> None:
    each = RUNS["C25-a"]
    _, report = verify(each["plan"], *arguments(each))
    assert "CUDA_VISIBLE_DEVICES=0,2,1,3" in said(report, "TP002")


def test_tp4_over_bridged_pairs_is_advised_to_be_tp2_x_pp2(verify: Any) -> None:
    each = RUNS["C25-b"]
    _, report = verify(each["plan"], *arguments(each))
    text = said(report, "TP002")
    assert "4 of 6 pairs" in text
    assert "TP2 x PP2" in text
    assert "0,2,1,3" in text


def test_a_table_without_a_host_accuses_nobody_beside_a_job(verify: Any) -> None:
    table = str(INPUTS / "C28-topo8-4090.txt")
    _, alone = verify(TP8_PP2, C63)
    done, report = verify(TP8_PP2, C63, table)
    assert done.returncode == 3
    assert report["counts"]["errors"] == report["counts"]["warnings"] == 0
    assert required_unknown(report) == required_unknown(alone)
    assert any("not named" in note for note in report["notes"])


def test_a_labelled_table_gives_its_node_the_links(verify: Any) -> None:
    table = str(INPUTS / "C47-topo8-h100-9nic.txt")
    _, report = verify(TP8_PP2, C63, f"node-a={table}")
    found = rule(report, "TP002")
    assert (found["verdict"], found["passed"], found["unknown"]) == ("unknown", 1, 1)
    gap = next(report["gaps"][at] for at in found["gaps"])
    assert gap["about"] == ["node-b"]
    _, report = verify(TP8_PP2, C63, f"node-a={table}", f"node-b={table}")
    assert rule(report, "TP002")["verdict"] == "pass"


def test_a_label_on_a_log_of_two_hosts_does_not_make_them_one(verify: Any) -> None:
    _, bare = verify(TP8_PP2, C63)
    done, report = verify(TP8_PP2, f"node-x={C63}")
    assert done.returncode == 3
    assert [each["verdict"] for each in report["rules"]] == [each["verdict"] for each in bare["rules"]]
    assert sorted(report["inputs"][0]["hosts"]) == ["node-a", "node-b"]


def test_the_order_of_the_arguments_changes_no_byte(verify: Any, tmp_path: Path) -> None:
    table = str(INPUTS / "C47-topo8-h100-9nic.txt")
    arguments = [C63, f"node-a={table}", f"node-b={table}"]
    texts = []
    for order in (arguments, arguments[::-1], [*arguments, C63]):
        verify(TP8_PP2, "--at", "2026-03-01T00:00:00Z", *order)
        texts.append((tmp_path / "report.json").read_text())
    assert texts[0] == texts[1] == texts[2]
