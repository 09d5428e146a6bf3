"""Answers of the rules -> counts, outcome, exit code, sentence."""

from __future__ import annotations

import pytest
from build import FOUR, RING, TWO, answer, comm, edge, full, log, nics, pair, paired, report, running, snap

from topocheck.checklist import Gate
from topocheck.report import Report

WIDE = "engine: vllm\nparallel: {tensor: 8}\nnodes: [node-a, node-b]\n"
SOCKETS = TWO + "policy: {boundary: any, optional: [TP002]}\n"


def gate(found: Report) -> tuple[int, str, str]:
    return found.exit_code, found.exit_reason, found.verdict


def test_a_healthy_job_opens_the_gate() -> None:
    found = report(TWO, *pair())
    assert gate(found) == (0, "passed", "pass")
    assert found.sentence.endswith("without evidence")
    assert (found.counts.failed, found.counts.required_unknown) == (0, 0)


def test_an_error_shuts_it_whatever_else_is_missing() -> None:
    found = report(WIDE, *running())
    assert gate(found) == (1, "findings", "fail")
    assert found.counts.required_unknown > 0
    assert "[TP001]" in found.sentence
    assert "undecided" in found.sentence


def test_a_missing_node_is_told_from_missing_evidence() -> None:
    assert gate(report(TWO, snap("node-a"))) == (3, "nodes_missing", "unknown")
    assert gate(report(TWO, *running())) == (3, "evidence_missing", "unknown")
    assert "TP002" in report(TWO, *running()).sentence


def test_no_evidence_at_all_is_no_pass() -> None:
    for text in (TWO, FOUR, "engine: vllm\nnodes: 1\n", "engine: torch\nnodes: [a]\n"):
        assert gate(report(text))[0] == 3


def test_an_optional_rule_may_stay_unknown_and_still_shows() -> None:
    found = report(TWO + "policy: {optional: [TP002, EV]}\n", *running())
    assert gate(found) == (0, "passed", "pass")
    assert (answer(found, "TP002").verdict, answer(found, "TP002").required) == ("unknown", False)


def test_a_warning_leaves_the_gate_open_unless_it_is_asked_to_shut_it() -> None:
    views = [snap("node-a", range(4), near="SYS"), snap("node-b", range(4, 8), near="SYS")]
    assert gate(report(TWO, *views)) == (0, "passed", "pass")
    assert gate(report(TWO, *views, gate=Gate(fail_on="warning"))) == (1, "findings", "fail")
    assert "1 warning" in report(TWO, *views).sentence


def test_a_required_rule_with_a_warning_and_missing_evidence_stays_undecided() -> None:
    half = log("node-b", comm(RING, range(4, 8), host="node-b"))
    sockets = running("NET/Socket/0")[0]
    found = report(SOCKETS + "", sockets, half)
    assert answer(found, "OBS003").verdict == "fail"
    assert {finding.severity for finding in answer(found, "OBS003").findings} == {"warning"}
    assert found.exit_code == 3


def test_the_policy_may_make_a_finding_milder_or_harsher() -> None:
    mild = report(WIDE + "policy: {severity: {TP001: warning}, optional: [TP002]}\n", *pair())
    assert answer(mild, "TP001").findings[0].severity == "warning"
    assert mild.exit_code == 0
    harsh = report(TWO + "policy: {severity: {PP004: error}}\n", *pair(near="SYS"))
    assert gate(harsh) == (1, "findings", "fail")


@pytest.mark.parametrize(
    ("basis", "views", "code"),
    [
        ("predicted", [snap("node-a"), snap("node-b")], 0),
        ("claimed", [snap("node-a"), snap("node-b")], 3),
        ("claimed", pair(), 0),
        ("observed", pair(), 3),
        ("observed", [*running(), *pair()], 0),
    ],
)
def test_a_pass_counts_only_on_the_basis_that_is_asked_for(basis: str, views: list, code: int) -> None:  # type: ignore[type-arg]
    found = report(TWO, *views, gate=Gate(min_basis=basis))  # type: ignore[arg-type]
    assert found.exit_code == code


def test_a_prediction_says_that_it_is_one() -> None:
    found = report(TWO, snap("node-a"), snap("node-b"))
    assert found.sentence.startswith("predicted, not proven")
    assert found.phase == "predicted"
    assert found.assumptions


def test_report_only_exits_0_and_keeps_the_verdict() -> None:
    found = report(WIDE, *pair(), gate=Gate(exit_zero=True))
    assert (found.exit_code, found.exit_reason, found.verdict) == (0, "findings", "fail")


def test_the_worst_finding_is_the_sentence() -> None:
    found = report(WIDE, *pair(near="SYS"))
    assert found.counts.warnings > 0
    assert found.sentence.startswith("TP group 0 (ranks 0..7) crosses 2 nodes")


def test_one_gap_is_listed_once_with_all_the_rules_that_it_blocks() -> None:
    found = report(TWO, *running()[:1])
    gap = next(gap for gap in found.gaps if gap.need == "which node and GPU a rank is on")
    assert {"ID001", "ID003", "TP001", "PP001", "PP003"} <= set(gap.rules)
    assert gap.about == ["ranks 4..7"]
    assert len({(gap.need, gap.supply) for gap in found.gaps}) == len(found.gaps)
    for rule in found.rules:
        assert all(rule.id in found.gaps[index].rules for index in rule.gaps)


def test_gaps_that_keep_the_gate_shut_come_first() -> None:
    required = [gap.required for gap in report(TWO, *running()).gaps]
    assert required == sorted(required, reverse=True)
    assert required[0]
    assert not required[-1]


def test_a_gap_lists_its_first_nodes_and_counts_all() -> None:
    text = "engine: vllm\nparallel: {tensor: 4, pipeline: 40}\nnodes: 40\n"
    views = [snap(f"n{n:02}", range(4 * n, 4 * n + 4), size=160, ports=nics(state=None)) for n in range(40)]
    gap = next(gap for gap in report(text, *views).gaps if gap.need == "working RDMA")
    assert (gap.count, len(gap.about)) == (40, 16)


def test_rules_stand_in_the_order_of_the_catalogue() -> None:
    families = [rule.family for rule in report(TWO).rules]
    assert families[0] == "Evidence"
    assert families[-1] == "After launch"
    assert sorted(set(families), key=families.index) == list(dict.fromkeys(families))


def test_counts_are_those_of_the_rules() -> None:
    found = report(WIDE, *pair(near="SYS"))
    verdicts = [rule.verdict for rule in found.rules]
    assert (found.counts.passed, found.counts.failed) == (verdicts.count("pass"), verdicts.count("fail"))
    findings = [finding for rule in found.rules for finding in rule.findings]
    assert found.counts.errors == sum(finding.severity == "error" for finding in findings)


def test_what_accuses_nobody_is_a_note() -> None:
    loose = log("node-a", edges=[edge(0, 1, "P2P/IPC", comm=None)])
    notes = " ".join(report(TWO, *pair(), snap("spare"), log(None), loose).notes)
    assert "spare" in notes
    assert "not named" in notes
    assert "1 connection" in notes


def test_the_job_is_one_line() -> None:
    assert report(TWO).job == "vLLM, tensor 4 x pipeline 2: 8 ranks on 2 nodes"
    assert (
        report("engine: vllm\nengine_version: 0.24.0\nnodes: 1\n").job
        == "vLLM 0.24.0, one rank: 1 ranks on 1 node"
    )


def test_a_group_that_another_order_would_link_is_an_error_even_where_the_rest_is_unknown() -> None:
    text = "engine: vllm\nparallel: {tensor: 2, pipeline: 2}\nnodes: [node-a]\n"
    found = report(text, snap(links=paired, switch=None, model="NVIDIA A40", coverage=full()))
    assert found.exit_code == 1
    assert found.sentence.startswith("the one pair of TP group 0")
