"""Run the rules, keep the gaps, fold verdicts, contain crashes.

A check can only accuse. Its subject passes if something was asked, nothing was missing and nothing
was found; it is unknown if anything was missing, or nothing was asked. Where the order of nodes is
not known, rules run under every order that the evidence allows, and only an answer that all of them
give stands.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, TypeVar

import msgspec

from topocheck.ask import Ask, Gap
from topocheck.errors import PluginError
from topocheck.placement import Node, Placement
from topocheck.plan import BASES, Basis
from topocheck.plugins import reason_of
from topocheck.policy import NO_TERMS, Terms
from topocheck.remedy import joined, spread
from topocheck.rule import Alike, Evidence, Finding, NotApplicable, Rule, Verdict, severity_in

__all__ = ["RuleResult", "kind_of", "run_rules"]

MOST_SUBJECTS = 256
"""Subjects listed of one finding; its count is whole."""
MOST_EVIDENCE = 12
"""Facts listed of one finding."""
BREAKS = (Exception, SystemExit)
"""What a rule, which may be another package's, can raise and the others are asked all the same."""

T = TypeVar("T", Finding, Gap, NotApplicable)
Entry = TypeVar("Entry", bound=Hashable)
ORDER = Gap(
    "the order of the nodes",
    (),
    "name the nodes in the plan, in node-rank order",
)


@dataclass(slots=True)
class RuleResult:
    """What became of one rule."""

    rule: Rule[Any]
    verdict: Verdict = "unknown"
    passed: int = 0
    failed: int = 0
    unknown: int = 0
    undecided: int = 0
    """Subjects with missing evidence that no error decides already, failed ones with a warning included."""
    findings: list[Finding] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """Where the subject of each raised finding stands among its like: which are alike does not order them."""
    gaps: list[Gap] = field(default_factory=list)
    basis: Basis | None = None
    reason: str = ""
    """Why it does not apply, or how it broke."""
    broke: bool = False
    """The check broke about some subject: nothing is decided about it, whatever else was found."""

    @property
    def rule_id(self) -> str:
        """Id of the rule."""
        return self.rule.id

    @property
    def breakage(self) -> str:
        """Which rule broke and how; of a package that adds no rule how that came."""
        package = self.rule.package
        if package.startswith(f"{self.rule.id} "):
            return self.reason
        return f"{self.rule.id}{f' of package {package}' if package else ''} ({self.reason})"


def run_rules(rules: Sequence[Rule[Any]], placement: Placement, terms: Terms = NO_TERMS) -> list[RuleResult]:
    """Answer every rule, in the order given. Rules that need what others missed come last (EV002).

    `terms` say which findings do not count; a finding of which some subjects do and others do not is split.
    """
    variants = placement.variants()
    results: list[RuleResult] = []
    for rule in rules:
        answers = [run_rule(rule, variant, results, terms) for variant in variants]
        if rule.id in terms.rules and len({borne(answer) for answer in answers}) > 1:
            # What is borne in one order of the nodes and not in another counts.
            answers = [run_rule(rule, variant, results, NO_TERMS) for variant in variants]
        result = fold_orders(answers)
        if placement.orders_untried and result.verdict in ("pass", "fail"):
            result = undecided(result, untried(placement.orders_untried))
        results.append(result)
    return results


def run_rule(
    rule: Rule[Any], placement: Placement, earlier: Sequence[RuleResult], terms: Terms
) -> RuleResult:
    """Answer one rule for one order of nodes. A crash is an `error`, never a pass."""
    result = RuleResult(rule)
    inquiry = Inquiry(placement, earlier, terms)
    try:
        situations = rule.over(placement)
        if isinstance(situations, NotApplicable):
            result.verdict, result.reason = "not-applicable", sound(situations, NotApplicable).reason
            return result
        for members in situations.values():
            judge(result, inquiry, members)
    except BREAKS as error:  # a rule that breaks is reported by name, whatever broke
        result.reason, result.broke = result.reason or spell(error), True
    order = sorted(range(len(result.findings)), key=result.places.__getitem__)
    result.findings = one_of_each(result.findings[number] for number in order)
    result.verdict = fold(result)
    if result.verdict == "unknown" and not result.unknown:
        result.reason = "there was nothing to look at"
    return result


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What one rule is asked with."""

    placement: Placement
    earlier: Sequence[RuleResult]
    terms: Terms

    def ask(self, result: RuleResult, subject: Any) -> tuple[Ask, list[Finding], bool]:
        """Ask about one subject: what was asked, what was found, and whether the check broke."""
        ask, findings = Ask(self.placement, earlier=self.earlier), list[Finding]()
        try:
            findings.extend(sound(finding, Finding) for finding in result.rule.check(ask, subject))
            if result.rule.package:
                ask.gaps = [sound(gap, Gap) for gap in ask.gaps]
        except BREAKS as error:  # as above; what it found before stands
            result.reason, result.broke = result.reason or spell(error), True
            if result.rule.package:
                ask.gaps = []  # nobody knows what is in them
            return ask, findings, True
        return ask, findings, False


def sound(value: T, kind: type[T]) -> T:
    """The same value. Raises msgspec.ValidationError if it holds what no report can show."""
    if not isinstance(value, kind):
        raise TypeError(f"a check gave a {type(value).__name__} and not a {kind.__name__}")
    msgspec.convert({each.name: getattr(value, each.name) for each in fields(kind)}, kind)
    return value


def spell(error: BaseException) -> str:
    """How a rule broke."""
    if isinstance(error, PluginError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{reason_of(error)} ({place.name}, line {place.lineno})"


def judge(result: RuleResult, inquiry: Inquiry, members: Sequence[Any]) -> None:
    """Add the verdict of one situation, which stands for all its members."""
    ask, findings, broke = inquiry.ask(result, members[0])
    count, decided = len(members), not (broke or ask.gaps or not ask.asked)
    severe = False
    if findings:
        result.failed += count
        severe = accuse(result, inquiry, findings, members)
    elif decided:
        result.passed += count
    else:
        result.unknown += count
    if not decided and not severe:
        result.undecided += count
    result.gaps += shared(ask, members) if count > 1 else ask.gaps
    if ask.basis is not None and (result.basis is None or BASES.index(ask.basis) < BASES.index(result.basis)):
        result.basis = ask.basis


def accuse(result: RuleResult, inquiry: Inquiry, findings: list[Finding], members: Sequence[Any]) -> bool:
    """Add what was found about the members of a situation; whether each of them has an error that counts.

    As many members as a finding lists are asked themselves, so that each is named as the rule names it; all
    of them where some findings of the rule do not count. The first stands for the others.
    """
    rule, placement, terms = result.rule, inquiry.placement, inquiry.terms
    told = len(members) if rule.id in terms.rules else max(1, MOST_SUBJECTS - len(result.findings))
    severe, policy = True, placement.plan.policy
    for place, member in enumerate(members[:told]):
        found = inquiry.ask(result, member)[1] if place else findings
        if place == told - 1 and len(members) > told:
            found = [standing(finding, placement, members[place:]) for finding in found]
        parts = [part for finding in found for part in terms.parts(rule, counted(finding), placement)]
        weight = 1 if place else 1 + max(0, len(members) - told)
        for part in parts:
            result.findings.append(replace(part, count=(part.count or 0) * weight) if weight > 1 else part)
            result.places.append(place_of(member))
        severe = severe and any(part.counts and severity_in(policy, rule, part) == "error" for part in parts)
    return severe


def place_of(member: Any) -> int:
    """Number of a subject, or of its node or first rank; what has none comes last."""
    node, ranks = getattr(member, "node", None), getattr(member, "ranks", None)
    index = getattr(member, "index", None) if node is None else node.index
    if isinstance(index, int):
        return index
    return ranks[0] if ranks else sys.maxsize


def standing(finding: Finding, placement: Placement, members: Sequence[Any]) -> Finding:
    """A finding about the first of these members whose remedies are for all of them."""
    if not finding.remedies:
        return finding
    first, *others = (home(placement, member) for member in members)
    return replace(finding, remedies=spread(finding.remedies, first, others))


def counted(finding: Finding) -> Finding:
    """The same with the number of its subjects, one at least."""
    return finding if finding.count is not None else replace(finding, count=max(1, len(finding.subjects)))


def shared(ask: Ask, members: Sequence[Any]) -> list[Gap]:
    """Gaps of the first member as those of all: a node that one names stands for the others' nodes."""
    first = home(ask.placement, members[0])
    if not any(first in gap.about for gap in ask.gaps):
        return ask.gaps
    # Situations are kept, and many rules are asked over the same: their nodes are looked up once.
    kept = ask.placement.keep("homes", lambda _: dict[int, tuple[Sequence[Any], tuple[str, ...]]]())
    if id(members) not in kept:
        kept[id(members)] = members, tuple(dict.fromkeys(homes(ask.placement, members)))
    names = kept[id(members)][1]
    return [replace(gap, about=joint(gap.about, names)) if first in gap.about else gap for gap in ask.gaps]


def joint(about: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of both, each once. Mostly a gap is about the first node alone: then all gaps share one tuple."""
    return names if about == names[:1] else tuple(dict.fromkeys((*about, *names)))


def homes(placement: Placement, members: Sequence[Any]) -> list[str]:
    """Names of the nodes that subjects are, or lie on."""
    if isinstance(members, Alike) and members.places:
        places = [members.places[number] for number in members.numbers]
        if None not in places:
            return [placement.nodes[place].name for place in places if place is not None]
    return [home(placement, member) for member in members]


def home(placement: Placement, member: Any) -> str:
    """Name of the node that a subject is, or lies on."""
    if isinstance(member, Node):
        return member.name
    node = getattr(member, "node", None)
    if node is None and getattr(member, "ranks", None):
        place = placement.placed.node[member.ranks[0]]
        node = None if place is None else placement.nodes[place]
    return str(member) if node is None else str(node)


def one_of_each(raised: Iterable[Finding]) -> list[Finding]:
    """One finding for one cause: further subjects join the first."""
    by_kind: dict[tuple[object, ...], list[Finding]] = {}
    for finding in raised:
        by_kind.setdefault(kind_of(finding), []).append(finding)
    return [united(alike) for alike in by_kind.values()]


def united(alike: Sequence[Finding]) -> Finding:
    """Findings of one kind as one, its lists cut and its count whole."""
    first = alike[0]
    marks = alike if first.mark in ("edge", "gpu") else alike[:1]
    return replace(
        first,
        subjects=distinct((finding.subjects for finding in alike), MOST_SUBJECTS),
        evidence=distinct((finding.evidence for finding in alike), MOST_EVIDENCE),
        count=sum(finding.count or 1 for finding in alike),
        ranks=tuple(chain.from_iterable(finding.ranks for finding in marks)),
        remedies=joined(chain.from_iterable(finding.remedies for finding in alike)),
    )


def distinct(lists: Iterable[Sequence[Entry]], most: int) -> tuple[Entry, ...]:
    """The first entries of several lists, each once."""
    found: dict[Entry, None] = {}
    for each in lists:
        found.update(dict.fromkeys(each))
        if len(found) >= most:
            break
    return tuple(found)[:most]


def kind_of(finding: Finding) -> tuple[object, ...]:
    """Findings of one kind are one."""
    return finding.cause, finding.severity, finding.waiver, finding.known


def borne(result: RuleResult) -> frozenset[tuple[str, str, bool]]:
    """What counts among the findings, and what does not."""
    return frozenset(
        (finding.cause, finding.severity or result.rule.severity, finding.counts)
        for finding in result.findings
    )


def fold(result: RuleResult) -> Verdict:
    """Worst of the subjects: fail, error, unknown, then pass; no subject at all is unknown."""
    if result.findings:
        return "fail"
    if result.broke:
        return "error"
    return "unknown" if result.unknown or not result.passed else "pass"


def fold_orders(answers: list[RuleResult]) -> RuleResult:
    """One answer from the answers under all orders of nodes."""
    first = answers[0]
    if len(answers) == 1:
        return first
    if any(answer.verdict == "error" for answer in answers):
        return next(answer for answer in answers if answer.verdict == "error")
    kinds = {(answer.verdict, severities(answer)) for answer in answers}
    broken = next((answer for answer in answers if answer.broke), None)
    if len(kinds) > 1:
        open_ = undecided(first)
        if broken is not None:
            open_.verdict, open_.broke, open_.reason = "error", True, broken.reason
        return open_
    if broken is not None:
        first.broke, first.reason = True, broken.reason
    first.unknown = max(answer.unknown for answer in answers)
    first.undecided = max(answer.undecided for answer in answers)
    note = Evidence(
        source="plan", fact="the order of the nodes is not known: every possible order fails here"
    )
    first.findings = [replace(finding, evidence=(*finding.evidence, note)) for finding in first.findings]
    return first


def severities(result: RuleResult) -> frozenset[str]:
    """Severities among the findings."""
    return frozenset(finding.severity or result.rule.severity for finding in result.findings)


def untried(orders: int) -> Gap:
    """Why an answer under one order of the nodes says nothing of the others."""
    return replace(ORDER, need=f"{ORDER.need}: unlike hosts may stand in {orders:,} orders, too many to try")


def undecided(result: RuleResult, gap: Gap = ORDER) -> RuleResult:
    """It holds in some orders of the nodes and not in others, or nobody knows."""
    subjects = max(1, result.passed + result.failed + result.unknown)
    return RuleResult(result.rule, "unknown", unknown=subjects, gaps=[*result.gaps, gap], basis=result.basis)
