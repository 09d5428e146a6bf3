"""Policy file, waivers and baseline as a user of `topocheck verify` meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from evidence import PLAN, snapshot, stream
from shell import topocheck

from topocheck.schema import schema_for

AT = ("--at", "2026-01-31T12:00:00Z")
BROKEN = ("verify", *AT, "--plan", "plan.yaml", "broken.jsonl")


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with a plan, a healthy job, and one with ranks 3 and 4 exchanged."""
    nodes = [snapshot(0), snapshot(1)]
    (tmp_path / "plan.yaml").write_text(PLAN + "policy: {optional: [TP002]}\n")
    (tmp_path / "nodes.jsonl").write_text(stream(*nodes))
    nodes[0]["ranks"][3]["rank"], nodes[1]["ranks"][0]["rank"] = 4, 3
    (tmp_path / "broken.jsonl").write_text(stream(*nodes))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def errors(report: dict[str, Any]) -> set[str]:
    """Rules with an error that counts."""
    return {
        rule["id"]
        for rule in report["rules"]
        for finding in rule["findings"]
        if finding["severity"] == "error" and finding["waiver"] is None and not finding["known"]
    }


def waived(job: Path) -> str:
    """A policy file that waives every error of the broken job."""
    ran = topocheck(*BROKEN, "--json", "-")
    rules = sorted(errors(json.loads(ran.out)))
    one = "- {rule: %s, reason: 'ticket 4711', owner: platform, expires: 2026-02-02}\n"
    (job / "site.yaml").write_text("waivers:\n" + "".join(one % rule for rule in rules))
    return "site.yaml"


def test_waived_errors_show_with_reason_owner_and_day_and_leave_the_gate_open(job: Path) -> None:
    assert topocheck(*BROKEN).code == 1
    ran = topocheck(*BROKEN, "--policy", waived(job), "--html", "report.html", "--json", "report.json")
    assert "TP001 waived  TP group" in ran.out
    assert "waived    ticket 4711 (platform, until 2026-02-02)" in ran.out
    page = (job / "report.html").read_text()
    assert "ticket 4711 (platform, until 2026-02-02)" in page
    assert "Policy in force" in page
    report = json.loads((job / "report.json").read_text())
    jsonschema.Draft202012Validator(schema_for("report")).validate(report)
    assert errors(report) == set()
    assert report["counts"]["waived"] == len([w for w in report["waivers"] if w["state"] == "used"]) > 0
    assert (ran.code, report["exit_code"]) == (0, 0)
    assert "waived (" in ran.last


def test_an_expired_waiver_is_told_and_the_gate_is_shut(job: Path) -> None:
    site = waived(job)
    ran = topocheck(
        "verify", "--at", "2026-02-03T00:00:00Z", "--plan", "plan.yaml", "broken.jsonl", "--policy", site
    )
    assert ran.code == 1
    assert "\nWaivers\n" in ran.out
    assert "expired on 2026-02-02: what it covered counts again" in " ".join(ran.out.split())
    assert "waived by platform until 2026-02-02, which is over" in " ".join(ran.out.split())


def test_the_policy_stands_in_one_line_if_it_is_not_the_default(job: Path) -> None:
    (job / "bare.yaml").write_text(PLAN)
    assert "  policy " not in topocheck("verify", *AT, "--plan", "bare.yaml", "nodes.jsonl").out
    (job / "site.yaml").write_text("policy: {skip: [ENV007], tensor_domain: node}\n")
    ran = topocheck("verify", *AT, "--plan", "bare.yaml", "--policy", "site.yaml", "nodes.jsonl", "-v")
    assert "  policy    skip ENV007, tensor_domain node (site.yaml)\n" in ran.out
    assert "1 deselected" in " ".join(ran.out.split())
    assert "1 rule not asked" in ran.last


def test_a_baseline_lets_only_what_is_new_count(job: Path) -> None:
    assert topocheck(*BROKEN, "--json", "base.json").code == 1
    ran = topocheck(*BROKEN, "--baseline", "base.json", "--html", "report.html")
    assert ran.code == 0
    assert "TP001 known  TP group" in ran.out
    assert "baseline  base.json of 2026-01-31T12:00:00Z: " in ran.out
    assert "known from the baseline" in ran.last
    assert "The baseline has it already." in (job / "report.html").read_text()
    healthy = topocheck("verify", *AT, "--plan", "plan.yaml", "nodes.jsonl", "--baseline", "base.json", "-v")
    assert healthy.code == 0
    assert "gone      TP001 TP group crosses nodes: TP group 0 (ranks 0..3)" in healthy.out


def test_a_policy_without_a_plan_holds_over_what_the_evidence_shows(job: Path) -> None:
    (job / "site.yaml").write_text("policy: {min_basis: observed, skip: [ENV007]}\n")
    command = ("--", "vllm", "serve", "m", "-tp", "4", "-pp", "2", "--nnodes", "2")
    ran = topocheck("verify", *AT, "--policy", "site.yaml", "--json", "-", "nodes.jsonl", *command)
    report = json.loads(ran.out)
    assert ran.code == 3
    given = {key["key"]: (key["value"], key["source"]) for key in report["policy"]}
    assert given["min_basis"] == ("observed", "site.yaml")
    assert given["skip"] == ("ENV007", "site.yaml")


def test_an_option_goes_before_the_policy(job: Path) -> None:
    (job / "site.yaml").write_text("policy: {min_basis: observed}\n")
    run = ("verify", *AT, "--plan", "plan.yaml", "--policy", "site.yaml", "nodes.jsonl")
    assert topocheck(*run).code == 3
    ran = topocheck(*run, "--min-basis", "claimed", "--json", "-")
    assert ran.code == 0
    given = {key["key"]: (key["value"], key["source"]) for key in json.loads(ran.out)["policy"]}
    assert given["min_basis"] == ("claimed", "option")


def test_both_come_from_variables_too() -> None:
    topocheck(*BROKEN, "--json", "base.json")
    assert topocheck(*BROKEN, env={"TOPOCHECK_VERIFY_BASELINE": "base.json"}).code == 0
    assert topocheck(*BROKEN, env={"TOPOCHECK_VERIFY_POLICY": "none.yaml"}).code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "waivers:\n- {rule: TP001, owner: o, expires: 2026-12-31}\n",
            "site.yaml:2: no 'reason' in waivers[0]",
        ),
        ("waivers:\n- {rule: TP01, reason: r, owner: o, expires: 2026-12-31}\n", "is no single rule"),
        (
            "waivers:\n- {rule: TP777, reason: r, owner: o, expires: 2026-12-31}\n",
            "there is no such rule: TP has TP001, TP002",
        ),
        ("policy: {only: [QQ]}\n", "policy.only names QQ, and there is no such rule"),
        ("policy: {optoinal: [TP]}\n", "unknown key 'optoinal' in policy: did you mean 'optional'?"),
    ],
)
def test_a_bad_policy_is_one_sentence(job: Path, text: str, message: str) -> None:
    (job / "site.yaml").write_text(text)
    ran = topocheck(*BROKEN, "--policy", "site.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.last
    assert "Traceback" not in ran.err


def test_a_bad_baseline_is_one_sentence(job: Path) -> None:
    for name in ("nodes.jsonl", "none.json"):
        ran = topocheck(*BROKEN, "--baseline", name)
        assert (ran.code, ran.out) == (2, "")
        assert ran.last.endswith("write one with topocheck verify --json FILE")
    topocheck(*BROKEN, "--json", "base.json")
    (job / "other.yaml").write_text(PLAN.replace("pipeline: 2", "pipeline: 1"))
    ran = topocheck("verify", *AT, "--plan", "other.yaml", "nodes.jsonl", "--baseline", "base.json")
    assert ran.code == 2
    assert "base.json is the report of another job" in ran.last


def test_standard_input_is_one_thing() -> None:
    for run, both in (
        (("--policy", "-", "-"), "either the policy or evidence"),
        (("--plan", "-", "--policy", "-", "nodes.jsonl"), "either the plan or the policy"),
    ):
        ran = topocheck("verify", *run, stdin=b"policy: {skip: [ENV007]}\n")
        assert ran.code == 2
        assert f"standard input is {both}: give one of the two as a file" in ran.last
    ran = topocheck(
        "verify", "--plan", "plan.yaml", "--policy", "-", "nodes.jsonl", stdin=b"policy: {skip: [ENV007]}\n"
    )
    assert ran.code == 0
