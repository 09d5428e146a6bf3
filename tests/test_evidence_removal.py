"""Evidence taken away piece by piece: a verdict becomes unknown, never pass, and absence never fails.

From the job that a rule passes and from the one that breaks it, each thing that the snapshots show is taken
away in turn. What may come of it beside `unknown` stands here, with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Literal

import pytest
from build import inventory, placed, plan
from hypothesis import given, settings
from hypothesis import strategies as st
from removal import parts_of, removals
from rule_cases import CASES, Job

from topocheck.origin import NOTHING_TAKEN
from topocheck.placement import Placement
from topocheck.plan import Plan
from topocheck.rule import Rule
from topocheck.rules import RULES
from topocheck.snapshot import FullSnapshot
from topocheck.verify import RuleResult, run_rules
from topocheck.worldreport import of_worlds

Kind = Literal["holds", "broken"]

IS_ABSENCE = {"EV002": "it accuses probe faults of what is missing: to take more away is its very subject"}
"""Rules that this does not ask, with the reason."""

BY_PHASE = {
    "the job was not seen running": "the logs were all that showed it running",
    "no rank claims a GPU yet": "no process of the job was looked at",
    "the job does not run yet: no GPU is in use": "no process of the job was looked at",
}
"""Reasons of `not-applicable` that hold once no process of the job is shown any more."""

AS_PREDICTED = frozenset({"ID001", "ID002", "ID004", "ID010", "PP001", "PP005", "PP008", "GR002", "GR003"})
"""Rules that pass as predicted where no rank is claimed or seen: the fault was in the claims."""

FAULT_GONE = {
    ("ID003", "snapshot 2"): "the second GPU of rank 0 is seen there alone",
    ("ID003", "observed"): "the second GPU of rank 0 is seen there alone",
    ("ID006", "ranks.node_rank"): "the numbers that are left agree",
    ("NV001", "hardware.gpus.nvlinks"): "the table of links, which is left, shows all NVLinks of every pair",
    (
        "NV004",
        "software.driver",
    ): "the fabric is completed, which only a manager of the driver's version does",
    ("NV004", "software.fabric_manager"): "the fabric is completed, which only such a manager does",
    ("OBS006", "observed.facts"): "every rank is complete, and the line of the abort is gone",
    ("EV001", "snapshot 2"): "nothing else shows the host that the plan does not have",
    ("EV001", "ranks"): "a host without ranks is none of the job's",
    ("EV004", "snapshot"): "one source alone contradicts nobody",
    ("EV004", "identity"): "what the two sources say differently is said once, or nothing ties them",
}
"""(rule, beginning of what was taken away) that leaves nothing wrong, with the reason."""


def spared(rule: str, what: str) -> bool:
    """What was taken away was the fault itself."""
    return any(rule == other and what.startswith(start) for other, start in FAULT_GONE)


BY_ID = {rule.id: rule for rule in RULES}
ASKED = sorted(CASES.keys() & BY_ID.keys() - IS_ABSENCE.keys())
BETWEEN = [BY_ID[rule] for rule in ("EV001", "ID004", "ID005", "OBS001")]
"""Rules that worlds may break between them."""
SHARED = Counter(
    (job.plan, id(job.evidence)) for cases in CASES.values() for job in (cases.holds, cases.broken)
)

PARTS = [
    pytest.param(rule, kind, part, id=f"{rule}-{kind}-{part}")
    for rule in ASKED
    for kind in ("holds", "broken")
    for part in parts_of(getattr(CASES[rule], kind).evidence)
]
EARLIER = [
    pytest.param(rule, kind, part, id=f"{rule}-{kind}-{part}")
    for rule in ASKED
    for kind in ("holds", "broken")
    for part in parts_of(getattr(CASES[rule], kind).since)
]
"""The same of what an earlier look saw."""


@cache
def declared(text: str) -> Plan:
    """A plan, read once."""
    return plan(text)


def joined(job: Job, evidence: list[FullSnapshot]) -> Placement:
    """The plan of a job, an earlier look if it has one, and what is left of its evidence."""
    return placed(declared(job.plan), *evidence, since=job.since)


KEPT: dict[tuple[str, int, str], list[tuple[str, Placement]]] = {}
"""Placements of jobs that many rules share."""


def thinned(job: Job, part: str) -> Iterator[tuple[str, Placement]]:
    """The job without each thing of one part."""
    found = ((what, joined(job, left)) for what, left in removals(job.evidence, part))
    if SHARED[job.plan, id(job.evidence)] < 2:
        yield from found
        return
    key = job.plan, id(job.evidence), part
    if key not in KEPT:
        KEPT[key] = list(found)
    yield from KEPT[key]


def wrong(kind: Kind, rule: str, what: str, found: RuleResult) -> str:
    """What is wrong with an answer, empty if nothing is."""
    told = f"{rule} without {what}: {found.verdict} {found.reason}".strip()
    if found.verdict == "error" or (found.verdict == "not-applicable" and found.reason not in BY_PHASE):
        return told
    if kind == "holds":
        return told + f" {found.findings[0].message}" if found.verdict == "fail" else ""
    predicted = rule in AS_PREDICTED and found.basis == "predicted"
    return told if found.verdict == "pass" and not (predicted or spared(rule, what)) else ""


def answers(rule: Rule[object], job: Job, part: str) -> Iterator[tuple[str, RuleResult]]:
    """Answers of one rule about a job without each thing of one part."""
    if declared(job.plan).worlds == 1:
        for what, placement in thinned(job, part):
            yield what, run_rules([rule], placement)[0]
        return
    for what, left in removals(job.evidence, part):
        judgement, _ = of_worlds(declared(job.plan), inventory(*left), [rule, *BETWEEN], NOTHING_TAKEN)
        assert judgement is not None
        yield what, judgement.results[0]


@pytest.mark.parametrize(("rule", "kind", "part"), PARTS)
def test_what_is_not_shown_leaves_a_rule_undecided(rule: str, kind: Kind, part: str) -> None:
    job: Job = getattr(CASES[rule], kind)
    found = [wrong(kind, rule, what, answer) for what, answer in answers(BY_ID[rule], job, part)]
    assert [words for words in found if words] == []


@pytest.mark.parametrize(("rule", "kind", "part"), EARLIER)
def test_what_an_earlier_look_does_not_show_leaves_a_rule_undecided(rule: str, kind: Kind, part: str) -> None:
    job: Job = getattr(CASES[rule], kind)
    found = []
    for what, left in removals(job.since, part):
        placement = placed(declared(job.plan), *job.evidence, since=left)
        found.append(wrong(kind, rule, f"earlier {what}", run_rules([BY_ID[rule]], placement)[0]))
    assert [words for words in found if words] == []


@pytest.mark.parametrize("entry", sorted(FAULT_GONE))
def test_no_exception_is_left_that_nothing_needs(entry: tuple[str, str]) -> None:
    rule, start = entry
    job = CASES[rule].broken
    parts = [part for part in parts_of(job.evidence) if start.startswith(part) or part.startswith(start)]
    verdicts = {
        answer.verdict
        for part in parts
        for what, answer in answers(BY_ID[rule], job, part)
        if what.startswith(start)
    }
    assert "pass" in verdicts


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_less_and_less_evidence_never_accuses_and_never_acquits(data: st.DataObject) -> None:
    rule = data.draw(st.sampled_from(ASKED))
    kind: Kind = data.draw(st.sampled_from(("holds", "broken")))
    job: Job = getattr(CASES[rule], kind)
    left, gone = list(job.evidence), list[str]()
    for _ in range(data.draw(st.integers(2, 5))):
        parts = parts_of(left)
        found = list(removals(left, data.draw(st.sampled_from(parts)))) if parts else []
        if found:
            what, left = data.draw(st.sampled_from(found))
            gone.append(what)
    if declared(job.plan).worlds == 1 and not any(spared(rule, what) for what in gone):
        answer = run_rules([BY_ID[rule]], joined(job, left))[0]
        assert wrong(kind, rule, " and ".join(gone), answer) == ""
