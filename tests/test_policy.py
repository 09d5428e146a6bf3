"""What is demanded and what is borne: selection, waivers, and that neither makes a green of nothing."""

from __future__ import annotations

import msgspec
import pytest
from build import AT, FOUR, TWO, answer, comm, log, pair, placed, plan, running, snap
from hypothesis import given, settings
from hypothesis import strategies as st
from made_policy import AFTER, judged, site, states, waiver, waiving
from made_worlds import TWINS, carrier, of

from topocheck.checklist import Gate
from topocheck.errors import UsageError
from topocheck.plan import Policy
from topocheck.policy import merged, terms_of
from topocheck.report import Report, RuleReport
from topocheck.rule import Finding
from topocheck.rules import RULES
from topocheck.snapshot import FullSnapshot
from topocheck.verify import MOST_SUBJECTS

WIDE = "engine: vllm\nparallel: {tensor: 8}\nnodes: [node-a, node-b]\n"
ROW = "engine: vllm\nparallel: {tensor: 4, pipeline: 4}\nnodes: [n1, n2, n3, n4]\n"
SHORT = [18, 18, 12, 18]
"""Links of four GPUs, one of which lacks some."""
STRICT = Gate(fail_on="warning")


def row(*broken: str) -> list[FullSnapshot]:
    """Four nodes, each as it is claimed; the named ones lack NVLinks on GPU 2."""
    return [
        snap(f"n{n}", range(4 * n - 4, 4 * n), size=16, nvlinks=SHORT if f"n{n}" in broken else None)
        for n in range(1, 5)
    ]


def told(rule: RuleReport) -> list[tuple[bool, int, list[str]]]:
    """Whether each finding counts, how many subjects it has, and which."""
    return [(finding.counts, finding.count, finding.subjects) for finding in rule.findings]


def exits(found: Report) -> tuple[int, str, str]:
    return found.exit_code, found.exit_reason, found.verdict


# Waivers.


def test_ranks_that_one_subject_names_are_one_subject() -> None:
    """Counted one by one, most of them would lie in no scope."""
    text = TWO.replace("nodes: 2", "nodes: [node-a, node-b]")
    views = [snap("node-a", range(4, 8)), snap("node-b", range(4))]
    found = judged(waiving(text, waiver("ID010", "nodes: [node-a, node-b]")), *views)
    assert [(counts, count) for counts, count, _ in told(answer(found, "ID010"))] == [(False, 2)]
    assert found.exit_code == 0


def test_a_waived_finding_shows_and_does_not_count() -> None:
    found = judged(waiving(WIDE, waiver("TP001"), waiver("ID015")) + "policy: {optional: [TP002]}\n", *pair())
    rule = answer(found, "TP001")
    assert (rule.verdict, told(rule)) == ("fail", [(False, 1, ["TP group 0 (ranks 0..7)"])])
    assert rule.findings[0].waiver is not None
    assert (rule.findings[0].waiver.owner, rule.findings[0].waiver.expires) == ("ops", AFTER)
    assert exits(found) == (0, "passed", "pass")
    assert (found.counts.errors, found.counts.waived) == (0, 1)
    assert "nothing else is broken" in found.sentence
    assert "1 finding waived (TP001)" in found.sentence


def test_a_waiver_of_some_subjects_leaves_the_others_counted() -> None:
    found = judged(waiving(ROW, waiver("NV001", "nodes: [n1, n3]")), *row("n1", "n2", "n3"))
    rule = answer(found, "NV001")
    assert told(rule) == [(True, 1, ["GPU 2 of n2"]), (False, 2, ["GPU 2 of n1", "GPU 2 of n3"])]
    assert "of n2" in rule.findings[0].message  # the finding that counts speaks of what counts
    assert "n1" not in rule.findings[0].message
    assert states(found) == [("NV001", "used", 2)]
    assert found.exit_code == 1


def test_a_finding_about_several_nodes_is_split_and_what_it_does_not_list_counts() -> None:
    text = waiving(ROW, waiver("VER001", "nodes: 'n[1-2]'"))
    [rule] = [rule for rule in RULES if rule.id == "VER001"]
    terms = terms_of(plan(text), RULES, at=AT)
    named = ("n1", "n2", "n3", "stranger")
    several = Finding(message="drivers differ", fix="one", cause="differs", subjects=named, count=7)
    parts = terms.parts(rule, several, placed(text, *row()))
    assert [(part.counts, part.subjects, part.count) for part in parts] == [
        (False, ("n1", "n2"), 2),
        (True, ("n3", "stranger"), 5),
    ]
    everywhere = terms_of(plan(waiving(ROW, waiver("VER001"))), RULES, at=AT)
    [part] = everywhere.parts(rule, several, placed(text, *row()))
    assert (part.counts, part.count) == (False, 7)
    nothing = Finding(message="m", fix="f", cause="c", subjects=())
    assert [part.counts for part in terms.parts(rule, nothing, placed(text, *row()))] == [True]


@pytest.mark.parametrize(
    ("scope", "covered"),
    [
        ("ranks: 6", True),
        ("ranks: 4..7", True),
        ("ranks: [0..2, 6]", True),
        ("ranks: 0..5", False),
        ("group: TP 1", True),
        ("group: TP 0", False),
        ("group: PP 2", True),
        ("group: TP 99", False),
        ("group: EP 0", False),
        ("nodes: 'n*'", True),
        ("nodes: 'n[3-9]'", False),
        ("nodes: n2, ranks: 0..3", False),
        ("nodes: n2, ranks: 6, group: TP 1", True),
        ("world: prefill", False),
    ],
)
def test_a_scope_holds_for_all_that_a_finding_names(scope: str, covered: bool) -> None:
    """GPU 2 of n2, which rank 6 drives."""
    rule = answer(judged(waiving(ROW, waiver("NV001", scope)), *row("n2")), "NV001")
    assert [finding.counts for finding in rule.findings] == [not covered]


def test_a_group_that_crosses_nodes_is_covered_only_as_a_whole() -> None:
    for scope, covered in (("nodes: node-a", False), ("nodes: 'node-?'", True), ("ranks: 0..6", False)):
        found = judged(waiving(WIDE, waiver("TP001", scope)), *pair())
        assert [finding.counts for finding in answer(found, "TP001").findings] == [not covered]


def test_a_boundary_is_not_covered_by_the_pair_of_ranks_that_stands_for_it() -> None:
    views = pair(near="SYS")
    for scope, covered in (("ranks: [0, 4]", False), ("ranks: 0..7", True), ("nodes: 'node-*'", True)):
        found = judged(waiving(TWO, waiver("PP004", scope)), *views)
        assert all(finding.counts is not covered for finding in answer(found, "PP004").findings), scope


def test_a_waiver_holds_to_the_end_of_its_last_day() -> None:
    text = waiving(ROW, waiver("NV001", expires="2026-03-01"))
    last = judged(text, *row("n2"), at="2026-03-01T23:59:59Z")
    assert states(last) == [("NV001", "used", 1)]
    over = judged(text, *row("n2"), at="2026-03-02T00:00:00Z")
    (finding,) = answer(over, "NV001").findings
    assert (finding.counts, finding.waiver) == (True, None)
    assert finding.evidence[-1].fact == "waived by ops until 2026-03-01, which is over"
    assert states(over) == [("NV001", "expired", 1)]
    assert "expired on 2026-03-01: what it covered counts again (1 subject)" in over.waivers[0].note
    assert over.waivers[0].fix.startswith("mend what it covers")


def test_unused_and_expired_waivers_are_warnings() -> None:
    text = waiving(ROW, waiver("NV001", "nodes: n9"), waiver("NV001", expires="2026-01-01"), waiver("TP001"))
    found = judged(text, *row())
    assert states(found) == [("NV001", "unused", 0), ("NV001", "expired", 0), ("TP001", "unused", 0)]
    assert (found.exit_code, found.counts.warnings - judged(ROW, *row()).counts.warnings) == (0, 3)
    shut = judged(text, *row(), gate=STRICT)
    assert exits(shut) == (1, "findings", "fail")
    assert shut.sentence.startswith(
        "the waiver of NV001 for nodes n9 (ops) covers nothing: NV001 finds nothing"
    )
    assert shut.sentence.endswith("2 warnings")


def test_an_unused_waiver_says_what_is_found_elsewhere() -> None:
    found = judged(waiving(ROW, waiver("NV001", "nodes: n9")), *row("n2"))
    assert found.waivers[0].note.endswith("NV001 finds nothing there, but about GPU 2 of n2")


def test_a_waiver_of_an_undecided_rule_is_not_called_unused() -> None:
    found = judged(waiving(TWO, waiver("NV001"), waiver("TP002")), *running())
    assert states(found) == [("NV001", "undecided", 0), ("TP002", "undecided", 0)]
    skipped = judged(waiving(ROW, waiver("NV001")) + "policy: {skip: [NV001]}\n", *row("n1"))
    assert states(skipped) == [("NV001", "undecided", 0)]


def test_two_waivers_of_one_thing_are_both_of_use_and_one_in_force_goes_first() -> None:
    old, new = waiver("NV001", expires="2026-01-01"), waiver("NV001", "nodes: n2")
    found = judged(waiving(ROW, old, new, waiver("NV001", "ranks: 6")), *row("n2"))
    assert states(found) == [("NV001", "expired", 0), ("NV001", "used", 1), ("NV001", "used", 0)]
    assert [finding.counts for finding in answer(found, "NV001").findings] == [False]


def test_unknown_cannot_be_waived() -> None:
    bare = judged(TWO, *running())
    assert exits(bare) == (3, "evidence_missing", "unknown")
    waived = judged(waiving(TWO, *(waiver(rule.id) for rule in RULES)), *running())
    assert exits(waived) == exits(bare)
    assert waived.counts.required_unknown == bare.counts.required_unknown


def test_a_required_rule_that_lacks_evidence_beside_a_waived_error_is_undecided() -> None:
    """An error decides about its subject whatever is missing; a waived one decides nothing."""
    sockets = running("NET/Socket/0")[0]
    half = log("node-b", comm("0xc0ffee", range(4, 8), host="node-b"))
    text = TWO + "policy: {optional: [TP002]}\n"
    bare = judged(text, sockets, half)
    assert answer(bare, "OBS003").findings[0].severity == "error"
    assert bare.exit_code == 1
    erring = [rule.id for rule in bare.rules if any(f.severity == "error" for f in rule.findings)]
    found = judged(waiving(text, *map(waiver, erring)), sockets, half)
    assert (found.exit_code, found.counts.errors) == (3, 0)


def test_the_severity_of_policy_is_that_of_a_waived_finding() -> None:
    text = waiving(ROW, waiver("NV001", "nodes: n1")) + "policy: {severity: {NV001: warning}}\n"
    rule = answer(judged(text, *row("n1", "n2")), "NV001")
    assert [(finding.counts, finding.severity) for finding in rule.findings] == [
        (True, "warning"),
        (False, "warning"),
    ]


def test_a_drawing_marks_what_is_waived_for_information() -> None:
    found = judged(waiving(ROW, waiver("NV001", "nodes: n1")), *row("n1", "n2"), whole=True)
    assert found.placement is not None
    marked = {tuple(mark.ranks): mark.severity for mark in found.placement.marks if mark.rule == "NV001"}
    assert marked == {(2,): "info", (6,): "error"}


def test_equal_nodes_are_named_one_by_one() -> None:
    rule = answer(judged(ROW, *row("n1", "n2", "n3", "n4")), "NV001")
    assert told(rule) == [(True, 4, [f"GPU 2 of n{n}" for n in range(1, 5)])]


def test_a_waiver_of_one_world_leaves_the_other() -> None:
    views = carrier("node-a", of("0", [0, 1, 2, 2], 4), of("1", [0, 1, 2, 2], 4, first=4))
    bare = answer(judged(TWINS, views), "ID001")
    assert bare.verdict == "fail"
    found = judged(waiving(TWINS, waiver("ID001", "world: '1'")), views)
    counting = [finding for finding in answer(found, "ID001").findings if finding.counts]
    assert counting
    assert not any("world 1" in finding.message for finding in counting)
    assert {subject for finding in counting for subject in finding.subjects} == {"rank 3 of world 0"}


def test_what_worlds_do_to_each_other_can_be_waived_without_a_scope_only() -> None:
    views = carrier("node-a", of("0", range(4), 4), of("1", range(4), 4, first=2))
    for scope, covered in (("", True), ("nodes: node-a", False), ("world: '0'", False)):
        found = judged(waiving(TWINS, waiver("ID004", scope)), views)
        assert [finding.counts for finding in answer(found, "ID004").findings] == [not covered], scope


def test_what_is_borne_in_one_order_of_the_nodes_only_counts() -> None:
    text = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\n"
    views = [snap("n1", nvlinks=SHORT), snap("n2")]
    assert answer(judged(text, *views), "NV001").verdict == "fail"
    found = judged(waiving(text, waiver("NV001", "ranks: 0..3")), *views)
    assert [finding.counts for finding in answer(found, "NV001").findings] == [True]
    found = judged(waiving(text, waiver("NV001", "nodes: n1")), *views)
    assert [finding.counts for finding in answer(found, "NV001").findings] == [False]


# Selection.


def test_what_is_not_asked_is_deselected_and_never_passes() -> None:
    found = judged(ROW + "policy: {skip: [NV, VER001], optional: [TP]}\n", *row("n1"))
    left = [rule for rule in found.rules if rule.verdict == "deselected"]
    assert {rule.id for rule in left} == {rule.id for rule in RULES if rule.family == "NV"} | {"VER001"}
    assert all(rule.reason == "policy.skip leaves it out: it was not asked" for rule in left)
    assert all((rule.subjects, rule.findings, rule.basis) == (0, [], None) for rule in left)
    assert found.counts.deselected == len(left)
    assert len(found.rules) == len(RULES)


def test_a_required_rule_that_is_deselected_keeps_the_gate_shut_unless_it_is_optional_too() -> None:
    whole = judged(ROW, *row())
    assert whole.exit_code == 0
    found = judged(ROW + "policy: {skip: [TP001]}\n", *row())
    assert exits(found) == (3, "rules_deselected", "unknown")
    assert "1 required rule was not asked (TP001)" in found.sentence
    assert found.counts.required_unknown == 1
    both = judged(ROW + "policy: {skip: [TP001], optional: [TP001]}\n", *row())
    assert exits(both) == (0, "passed", "pass")
    assert "1 rule not asked, the required TP001 among them" in both.sentence


def test_missing_evidence_goes_before_deselection_and_an_error_before_both() -> None:
    half = [snap("node-a", range(4))]
    assert judged(TWO + "policy: {skip: [TP002]}\n", *half).exit_reason == "nodes_missing"
    assert judged(TWO + "policy: {skip: [EV001]}\n", *half).exit_reason == "evidence_missing"
    assert judged(WIDE + "policy: {skip: [EV001]}\n", *pair()).exit_code == 1


def test_only_asks_nothing_else() -> None:
    found = judged(ROW + "policy: {only: [NV001, TP], skip: [TP008]}\n", *row("n1"))
    asked = {rule.id for rule in found.rules if rule.verdict != "deselected"}
    assert asked == {rule.id for rule in RULES if rule.id.startswith(("NV001", "TP"))} - {"TP008"}
    assert found.exit_code == 1


def test_selection_holds_for_every_world() -> None:
    found = judged(
        TWINS + "policy: {skip: [ID004]}\n", carrier("node-a", of("0", range(4), 4), of("1", range(4), 4))
    )
    assert answer(found, "ID004").verdict == "deselected"
    assert found.exit_code in {1, 3}
    assert found.worlds
    assert all(world.verdict != "pass" for world in found.worlds)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("only: [TP009]", "policy.only names TP009, and there is no such rule: did you mean TP00"),
        ("skip: [ENV07]", "policy.skip names ENV07, and there is no such rule: did you mean ENV007?"),
        ("optional: [QQ]", "policy.optional names QQ, and there is no such rule"),
        ("severity: {ZZZZ001: info}", "policy.severity names ZZZZ001, and there is no such rule"),
        (
            "only: [NV001], skip: [NV]",
            "policy.only and policy.skip leave no rule to ask: nothing asked is no pass",
        ),
    ],
)
def test_a_policy_that_names_no_rule_or_leaves_none_is_refused(policy: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        judged(FOUR + f"policy: {{{policy}}}\n")
    assert str(caught.value).startswith(message)


def test_a_waiver_of_no_rule_is_refused() -> None:
    with pytest.raises(UsageError, match="waivers names NV999, and there is no such rule"):
        judged(waiving(FOUR, waiver("NV999")))


# A file of its own.


def test_a_policy_file_wins_key_by_key() -> None:
    own = Policy(
        tensor_domain="any", boundary="any", skip=("NV001",), severity={"NV001": "info", "TP001": "info"}
    )
    over = site("policy: {boundary: rdma, skip: [ENV007], severity: {NV: error}}\n")
    assert merged(own, over) == Policy(
        tensor_domain="any", boundary="rdma", skip=("ENV007",), severity={"NV": "error", "TP001": "info"}
    )
    assert merged(own, None) == own


def test_waivers_of_plan_and_file_stand_side_by_side() -> None:
    over = site(f"waivers: [{waiver('NV001', 'nodes: n2', owner='site')}]\n")
    found = judged(waiving(ROW, waiver("NV001", "nodes: n1")), *row("n1", "n2"), site=over)
    assert [(each.source, each.owner, each.state) for each in found.waivers] == [
        ("plan", "ops", "used"),
        ("site.yaml", "site", "used"),
    ]
    assert found.counts.waived == 2


def test_the_report_shows_the_policy_in_force_and_where_it_comes_from() -> None:
    over = site("policy: {skip: [ENV007], boundary: rdma, severity: {NV001: error}}\n")
    text = ROW + "policy: {optional: [TP, PP], min_basis: claimed, severity: {TP001: info}}\n"
    found = judged(text, *row(), site=over, gate=Gate("warning", "claimed"))
    assert [(key.key, key.value, key.source) for key in found.policy] == [
        ("fail_on", "warning", "option"),
        ("min_basis", "claimed", "plan"),
        ("skip", "ENV007", "site.yaml"),
        ("optional", "TP, PP", "plan"),
        ("severity", "TP001 info, NV001 error", "plan, site.yaml"),
        ("boundary", "rdma", "site.yaml"),
    ]
    plain = judged(ROW, *row()).policy
    assert [(key.key, key.value, key.source) for key in plain] == [
        ("fail_on", "error", "default"),
        ("min_basis", "predicted", "default"),
    ]


# What must hold whatever is waived.

SCOPES = (
    "",
    "nodes: 'n*'",
    "nodes: n1",
    "nodes: 'n[2-3]'",
    "ranks: 0..7",
    "ranks: 6",
    "group: TP 1",
    "world: x",
)
LADDER = {0: 0, 3: 1, 1: 2}
"""Exit codes, the laxest first."""


@st.composite
def some_waivers(draw: st.DrawFn) -> list[str]:
    rules = st.sampled_from([rule.id for rule in RULES])
    days = st.sampled_from(["2026-01-01", "2026-03-01", AFTER])
    one = st.builds(waiver, rules, st.sampled_from(SCOPES), days)
    return draw(st.lists(one, max_size=12, unique=True))


@given(some_waivers(), st.sets(st.sampled_from(["n1", "n2", "n3", "n4"])), st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_waiver_never_makes_the_gate_stricter_and_never_makes_a_pass_of_unknown(
    waivers: list[str], broken: set[str], bare: bool
) -> None:
    views = row(*broken)
    if bare:
        views = [msgspec.structs.replace(view, ranks=()) for view in views[:3]]
    before = judged(ROW, *views)
    after = judged(waiving(ROW, *waivers) if waivers else ROW, *views)
    assert LADDER[after.exit_code] <= LADDER[before.exit_code]
    if before.exit_code == 3:
        assert after.exit_code == 3
    assert after.counts.required_unknown >= before.counts.required_unknown
    assert [(rule.id, rule.verdict, rule.subjects, rule.passed) for rule in after.rules] == [
        (rule.id, rule.verdict, rule.subjects, rule.passed) for rule in before.rules
    ]
    for old, new in zip(before.rules, after.rules, strict=True):
        found = {subject for finding in old.findings for subject in finding.subjects}
        assert {subject for finding in new.findings for subject in finding.subjects} == found
        assert sum(f.count for f in new.findings) == sum(f.count for f in old.findings)
    strict = judged(waiving(ROW, *waivers) if waivers else ROW, *views, gate=STRICT)
    loud = any(each.state in ("unused", "expired") for each in strict.waivers)
    assert loud or LADDER[strict.exit_code] <= LADDER[judged(ROW, *views, gate=STRICT).exit_code]


def test_no_list_is_endless_and_every_count_is_whole() -> None:
    nodes = MOST_SUBJECTS + 44
    text = f"engine: vllm\nparallel: {{tensor: 4, pipeline: {nodes}}}\nnodes: n[1-{nodes}]\n"
    views = [
        snap(f"n{n}", range(4 * n - 4, 4 * n), size=4 * nodes, nvlinks=SHORT) for n in range(1, nodes + 1)
    ]
    assert [(count, len(subjects)) for _, count, subjects in told(answer(judged(text, *views), "NV001"))] == [
        (nodes, MOST_SUBJECTS)
    ]
    rule = answer(judged(waiving(text, waiver("NV001", f"nodes: 'n[1-{nodes - 1}]'")), *views), "NV001")
    assert [(counts, count) for counts, count, _ in told(rule)] == [(True, 1), (False, nodes - 1)]
    assert rule.findings[0].subjects == [f"GPU 2 of n{nodes}"]
