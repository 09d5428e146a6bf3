"""The runner acquits: verdicts, gaps, situations, orders of nodes, crashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from build import TWO, pair, placed, plan, report, snap

from topocheck.ask import Ask
from topocheck.checklist import Gate, build_report
from topocheck.placement import Node, Placement
from topocheck.rule import Evidence, Finding, NotApplicable, Rule, Situations, each, rule, severity_in, the
from topocheck.rules import RULES
from topocheck.verify import MOST_EVIDENCE, MOST_SUBJECTS, RuleResult, run_rules

Check = Callable[[Ask, Any], Iterator[Finding]]
ORDERS = plan(nodes=2)


def finding(cause: str = "cause", subject: str = "node-a", **fields: Any) -> Finding:
    return Finding(message=f"{subject} is wrong", fix="mend it", cause=cause, subjects=(subject,), **fields)


def made(check: Check, over: Any = the, **fields: Any) -> Rule[Any]:
    known: dict[str, Any] = {"severity": "error", "required": True} | fields
    return rule("ZZ001", "made", over=over, **known)(check)


def told(check: Check, over: Any = the, placement: Placement | None = None, **fields: Any) -> RuleResult:
    return run_rules([made(check, over, **fields)], placement or placed(TWO, *pair()))[0]


def quiet(ask: Ask, _: object) -> Iterator[Finding]:
    ask.know()
    yield from ()


def silent(_ask: Ask, _: object) -> Iterator[Finding]:
    yield from ()


def lacking(ask: Ask, _: object) -> Iterator[Finding]:
    ask.gap("a thing", ["node-a"], "look")
    yield from ()


def accusing(ask: Ask, subject: object) -> Iterator[Finding]:
    ask.know()
    yield finding(subject=str(subject))


def breaking(ask: Ask, subject: object) -> Iterator[Finding]:
    ask.know()
    raise KeyError(str(subject))
    yield


def two(placement: Placement) -> Situations[Node]:
    return each(placement.nodes)


def test_a_subject_passes_if_something_was_asked_and_nothing_is_missing_or_wrong() -> None:
    assert (told(quiet).verdict, told(quiet).passed) == ("pass", 1)


def test_asking_nothing_is_no_pass() -> None:
    assert (told(silent).verdict, told(silent).unknown) == ("unknown", 1)


def test_anything_missing_is_unknown_and_anything_found_is_a_failure() -> None:
    assert told(lacking).verdict == "unknown"
    assert told(accusing).verdict == "fail"


def test_no_subject_at_all_is_unknown() -> None:
    found = told(quiet, lambda _: {})
    assert (found.verdict, found.reason) == ("unknown", "there was nothing to look at")


def test_a_rule_stands_aside_with_its_reason() -> None:
    found = told(quiet, lambda _: NotApplicable("one rank"))
    assert (found.verdict, found.reason, found.undecided) == ("not-applicable", "one rank", 0)


def test_one_bad_subject_is_enough() -> None:
    def first(ask: Ask, node: Node) -> Iterator[Finding]:
        ask.know()
        if node.index == 0:
            yield finding(subject=node.name)

    found = told(first, two)
    assert (found.verdict, found.passed, found.failed) == ("fail", 1, 1)

    def second(ask: Ask, node: Node) -> Iterator[Finding]:
        ask.know()
        if node.index == 1:
            ask.gap("a thing", [node.name], "look")
        yield from ()

    found = told(second, two)
    assert (found.verdict, found.passed, found.unknown) == ("unknown", 1, 1)


def test_findings_of_one_cause_are_one_with_a_count() -> None:
    found = told(accusing, lambda p: each([*p.nodes, "third"]))
    [only] = found.findings
    assert (only.count, only.subjects) == (3, ("node-a", "node-b", "third"))


def test_causes_and_severities_stay_apart() -> None:
    def several(ask: Ask, _: object) -> Iterator[Finding]:
        ask.know()
        yield finding("one")
        yield finding("two")
        yield finding("one", severity="warning")

    assert len(told(several).findings) == 3


def test_a_situation_stands_for_its_members_and_no_list_is_endless() -> None:
    found = told(accusing, lambda _: {0: [f"n{n}" for n in range(1000)]})
    [only] = found.findings
    assert (found.failed, only.count, len(only.subjects)) == (1000, 1000, MOST_SUBJECTS)

    def wordy(ask: Ask, _: object) -> Iterator[Finding]:
        ask.know()
        yield finding(evidence=tuple(Evidence(source="log", line=n, fact="fact") for n in range(100)))

    assert len(told(wordy).findings[0].evidence) == MOST_EVIDENCE


def test_a_gap_of_a_situation_is_about_the_nodes_of_all_its_members() -> None:
    def nodeless(ask: Ask, node: Node) -> Iterator[Finding]:
        ask.gap("a thing", [node.name], "look")
        yield from ()

    found = told(nodeless, lambda p: {"all": list(p.nodes)})
    assert [gap.about for gap in found.gaps] == [("node-a", "node-b")]


def test_a_crash_is_an_error_that_names_itself_and_the_other_subjects_are_still_judged() -> None:
    def half(ask: Ask, node: Node) -> Iterator[Finding]:
        ask.know()
        if node.index == 0:
            raise ZeroDivisionError("by nothing")
        yield from ()

    found = told(half, two)
    assert (found.verdict, found.passed, found.unknown, found.broke) == ("error", 1, 1, True)
    assert "ZeroDivisionError: by nothing" in found.reason
    assert found.undecided == 1


def test_what_was_found_before_a_crash_stands() -> None:
    def late(ask: Ask, node: Node) -> Iterator[Finding]:
        yield from accusing(ask, node)
        raise RuntimeError("later")

    found = told(late, two)
    assert (found.verdict, found.failed, found.broke) == ("fail", 2, True)


@pytest.mark.parametrize("where", ["over", "check"])
def test_a_rule_that_breaks_leads_to_exit_3_and_is_named(where: str) -> None:
    def over(_: Placement) -> Situations[object]:
        raise ValueError("no subjects")

    broken = made(quiet, over) if where == "over" else made(breaking)
    placement = placed(TWO, *pair())
    answers = run_rules([*RULES, broken], placement)
    found = build_report(placement, answers, [], at="2026-01-01T00:00:00Z", gate=Gate())
    assert (found.exit_code, found.exit_reason, found.verdict) == (3, "internal_error", "unknown")
    assert "ZZ001" in found.sentence
    assert found.counts.error == 1


def test_a_broken_rule_does_not_open_a_gate_that_a_warning_leaves_open() -> None:
    def late(ask: Ask, node: Node) -> Iterator[Finding]:
        yield from accusing(ask, node)
        raise RuntimeError("later")

    placement = placed(TWO, *pair())
    answers = run_rules([made(late, two, severity="warning")], placement)
    found = build_report(placement, answers, [], at="2026-01-01T00:00:00Z", gate=Gate(exit_zero=True))
    assert (found.exit_code, found.exit_reason) == (3, "internal_error")


def test_a_warning_leaves_a_subject_with_missing_evidence_undecided() -> None:
    def both(ask: Ask, _: object) -> Iterator[Finding]:
        ask.gap("a thing", ["node-a"], "look")
        yield finding()

    assert told(both).undecided == 0
    assert told(both, severity="warning").undecided == 1


def test_the_policys_severity_decides_what_is_undecided() -> None:
    def both(ask: Ask, _: object) -> Iterator[Finding]:
        ask.gap("a thing", ["node-a"], "look")
        yield finding()

    mild = placed(TWO + "policy: {severity: {ZZ: warning}}\n", *pair())
    assert told(both, placement=mild).undecided == 1
    strict = placed(TWO + "policy: {severity: {ZZ001: error}}\n", *pair())
    assert told(both, placement=strict, severity="warning").undecided == 0


def test_the_longest_name_in_the_policy_decides() -> None:
    policy = plan(TWO + "policy: {severity: {ZZ: info, ZZ001: warning, TP: error}}\n").policy
    assert severity_in(policy, made(quiet), finding()) == "warning"
    assert severity_in(plan().policy, made(quiet), finding(severity="info")) == "info"


def first_place(placement: Placement) -> Situations[Node]:
    return the(placement.nodes[0])


def unequal() -> Placement:
    return placed(ORDERS, snap("node-a"), snap("node-b", count=3))


def test_what_holds_in_some_orders_only_is_unknown() -> None:
    def first_is_a(ask: Ask, node: Node) -> Iterator[Finding]:
        ask.know()
        if node.name != "node-a":
            yield finding(subject=node.name)

    found = told(first_is_a, first_place, unequal())
    assert found.verdict == "unknown"
    assert "order of the nodes" in found.gaps[-1].need
    assert "node-rank order" in found.gaps[-1].supply


def test_what_holds_or_fails_in_every_order_stands() -> None:
    assert told(quiet, first_place, unequal()).verdict == "pass"
    found = told(accusing, first_place, unequal())
    assert found.verdict == "fail"
    assert "every possible order fails" in found.findings[0].evidence[-1].fact


def test_severities_that_hang_on_the_order_are_undecided() -> None:
    def harsh(ask: Ask, node: Node) -> Iterator[Finding]:
        ask.know()
        yield finding(severity="error" if node.name == "node-a" else "warning")

    assert told(harsh, first_place, unequal()).verdict == "unknown"


def test_a_crash_in_one_order_is_a_crash() -> None:
    def touchy(ask: Ask, node: Node) -> Iterator[Finding]:
        ask.know()
        if node.name == "node-b":
            raise RuntimeError("order")
        yield from ()

    assert told(touchy, first_place, unequal()).verdict == "error"


def test_a_crash_beside_a_finding_in_one_order_is_a_crash_with_its_reason() -> None:
    def touchy(ask: Ask, node: Node) -> Iterator[Finding]:
        ask.know()
        if node.name == "node-b":
            yield finding(severity="warning")
            raise RuntimeError("order")

    found = told(touchy, first_place, unequal())
    assert (found.verdict, found.broke) == ("error", True)
    assert "RuntimeError: order" in found.reason


def test_more_orders_than_can_be_tried_decide_nothing() -> None:
    many = placed(plan(nodes=8, parallel=plan().parallel), *[snap(f"n{n}", count=n + 1) for n in range(8)])
    assert many.orders_untried
    assert told(quiet, placement=many).verdict == "unknown"
    found = told(accusing, placement=many)
    assert found.verdict == "unknown"
    assert "40,320 orders" in found.gaps[-1].need


def test_one_odd_host_among_many_equal_ones_is_accused_wherever_it_stands() -> None:
    hosts = [snap(f"n{n}", count=3 if n == 7 else 4) for n in range(110)]
    many = placed(plan(nodes=110, parallel=plan().parallel), *hosts)

    def odd(ask: Ask, placement: Placement) -> Iterator[Finding]:
        ask.know()
        for node in placement.nodes:
            if node.shape is not None and node.shape.gpus == 3:
                yield finding(subject=node.name)

    assert told(odd, the, placement=many).verdict == "fail"


def test_later_rules_see_what_earlier_ones_missed() -> None:
    seen: list[str] = []

    def last(ask: Ask, _: object) -> Iterator[Finding]:
        ask.know()
        seen.extend(gap.need for answer in ask.earlier for gap in answer.gaps)
        yield from ()

    run_rules([made(lacking), made(last)], placed(TWO, *pair()))
    assert seen == ["a thing"]


def test_the_same_input_gives_the_same_report() -> None:
    assert report(TWO, *pair()) == report(TWO, *pair())
