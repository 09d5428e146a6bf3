"""What is demanded of a job and what is borne: the policy in force, which rules are asked, waivers.

A policy file wins over the plan key by key, and its waivers stand beside the plan's. A rule that is left
out is not asked, which is no answer: a required one keeps the gate shut unless it is optional too. A
waiver covers what lies in its scope as a whole; what it covers is still found, shows, and does not count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

from msgspec.structs import asdict, replace

from topocheck.baseline import Baseline
from topocheck.errors import PlanError, UsageError
from topocheck.inputfile import digest_of, name_of, text_in
from topocheck.placement import Placement
from topocheck.plan import Plan, Policy, Waiver
from topocheck.planfile import bytes_of, parse_policy
from topocheck.policyreport import PolicyKey
from topocheck.ranges import first
from topocheck.rule import DatedWaiver, Finding, Rule, severity_in
from topocheck.scope import NOWHERE, Places, Where
from topocheck.spelling import suggest
from topocheck.waiver import NodePatterns, parse_day, parse_group, parse_ranks

__all__ = ["NO_TERMS", "Site", "Terms", "check_rules", "chosen", "merged", "names", "read_site", "terms_of"]

BY_RULE = ("only", "skip", "optional", "severity")
"""Keys of a policy that name rules."""
DEFAULTS = Policy()


@dataclass(frozen=True, slots=True)
class Site:
    """A policy file: demands of whoever runs the machines, for many jobs."""

    name: str
    """File as the user gave it."""
    policy: Policy
    given: frozenset[str]
    """Keys that it gives."""
    waivers: tuple[Waiver, ...]
    digest: str = ""
    """`sha256:` and the hex digest of its bytes; empty of one that is no file."""


def read_site(path: str) -> Site:
    """The policy file `path`. Raises PlanError."""
    data = bytes_of(path)
    stated, given = parse_policy(text_in(data, path, PlanError), name_of(path))
    return Site(path, stated.policy, given, stated.waivers, digest_of(data))


def merged(policy: Policy, site: Site | None) -> Policy:
    """The policy of a plan with that of a file over it: a key that the file gives wins.

    Severities win rule by rule: those of the plan stay for rules of which the file says nothing.
    """
    if site is None:
        return policy
    given: dict[str, Any] = {key: getattr(site.policy, key) for key in site.given}
    if "severity" in given:
        own = given["severity"]
        given["severity"] = {rule: to for rule, to in policy.severity.items() if not names(own, rule)} | own
    return replace(policy, **given)


def names(keys: Iterable[str], rule: str) -> bool:
    """A rule is named by its id or by a prefix of it."""
    return any(rule.startswith(key) for key in keys)


def chosen(policy: Policy, rules: Sequence[Rule[Any]]) -> list[Rule[Any]]:
    """Rules that are asked, in their order. Raises UsageError if policy leaves none."""
    found = [rule for rule in rules if why_not(policy, rule.id) is None]
    if not found:
        raise UsageError("policy.only and policy.skip leave no rule to ask: nothing asked is no pass")
    return found


def why_not(policy: Policy, rule: str) -> str | None:
    """Why a rule is not asked; None if it is."""
    if names(policy.skip, rule):
        return "policy.skip leaves it out: it was not asked"
    if policy.only and not names(policy.only, rule):
        return "policy.only leaves it out: it was not asked"
    return None


def check_rules(policy: Policy, waivers: Sequence[Waiver], rules: Sequence[Rule[Any]]) -> None:
    """Refuse ids that name no rule: a misspelt one would leave a check out, or in. Raises UsageError."""
    ids = [rule.id for rule in rules]
    named = [(f"policy.{key}", rule) for key in BY_RULE for rule in getattr(policy, key)]
    named += [("waivers", waiver.rule) for waiver in waivers]
    for place, key in named:
        if not any(rule.startswith(key) for rule in ids):
            raise UsageError(f"{place} names {key}, and there is no such rule: {hint(key, ids)}")


def hint(key: str, ids: Sequence[str]) -> str:
    """What an id that names no rule may have meant."""
    if meant := suggest(key, ids):
        return f"did you mean {meant}?"
    letters = key.rstrip("0123456789")
    family = [rule for rule in ids if rule.rstrip("0123456789") == letters]
    return f"{letters} has {first(sorted(family), 12)}" if family else "topocheck rules lists them"


class Scope:
    """What a waiver is for, ready to be held against many places."""

    def __init__(self, waiver: Waiver) -> None:
        self.world = waiver.world
        self.nodes = NodePatterns(waiver.nodes) if waiver.nodes else None
        self.ranks = joined(map(parse_ranks, waiver.ranks))
        self.group = parse_group(waiver.group) if waiver.group is not None else None

    def covers(self, where: Where, places: Places | None, world: str | None) -> bool:
        """Everything that lies there is within the scope."""
        if self.world is not None and self.world != world:
            return False
        if self.nodes is None and not self.ranks and self.group is None:
            return True
        if places is None or not self._nodes_hold(where, places):
            return False
        return self._ranks_hold(where.ranks) and self._group_holds(where.ranks, places)

    def _nodes_hold(self, where: Where, places: Places) -> bool:
        if self.nodes is None:
            return True
        return where.nodes is not None and all(self.nodes.match(places.names[name]) for name in where.nodes)

    def _ranks_hold(self, ranks: tuple[range, ...] | None) -> bool:
        if not self.ranks:
            return True
        return ranks is not None and all(within(each, self.ranks) for each in ranks)

    def _group_holds(self, ranks: tuple[range, ...] | None, places: Places) -> bool:
        if self.group is None:
            return True
        axis, number = self.group
        groups = places.placement.layout.groups(axis)
        if ranks is None or number >= len(groups):
            return False
        members = frozenset(groups[number])
        return all(members.issuperset(each) for each in ranks)


def joined(ranges: Iterable[range]) -> list[range]:
    """The same numbers in as few ranges as they fit in, in order."""
    found: list[range] = []
    for one in sorted(ranges, key=lambda each: each.start):
        if found and one.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, one.stop))
        else:
            found.append(one)
    return found


def within(inner: range, outer: Sequence[range]) -> bool:
    """A range lies in one of others that do not touch."""
    return any(each.start <= inner.start and inner.stop <= each.stop for each in outer)


Treatment = tuple[DatedWaiver | None, bool]
"""Waiver that covers a subject, and whether the baseline has it."""


@dataclass(frozen=True)
class Terms:
    """The terms of a run: what of its findings counts."""

    policy: Policy = DEFAULTS
    keys: tuple[PolicyKey, ...] = ()
    """Keys of the policy that were given."""
    waivers: tuple[DatedWaiver, ...] = ()
    baseline: Baseline | None = None
    left_out: tuple[tuple[Rule[Any], str], ...] = ()
    """Rules that are not asked, and why."""
    world: str | None = None
    """World that is judged; None if there is one, or for what worlds do to each other."""
    spell: Callable[[str], str] = str
    """How the report calls a subject: of several worlds with the world's name."""
    met: set[DatedWaiver] = field(default_factory=set)
    """Waivers within whose scope something was found."""

    @cached_property
    def rules(self) -> frozenset[str]:
        """Rules of whose findings some may not count."""
        waived = frozenset(dated.waiver.rule for dated in self.waivers)
        return waived | self.baseline.rules if self.baseline is not None else waived

    @cached_property
    def _scopes(self) -> dict[str, list[tuple[DatedWaiver, Scope]]]:
        """Waivers by rule, those in force before those that expired."""
        found: dict[str, list[tuple[DatedWaiver, Scope]]] = {}
        for dated in sorted(self.waivers, key=lambda each: each.expired):
            found.setdefault(dated.waiver.rule, []).append((dated, Scope(dated.waiver)))
        return found

    def within(self, world: str, spell: Callable[[str], str]) -> Terms:
        """The same terms for one world of several."""
        return dataclasses.replace(self, world=world, spell=spell)

    def parts(self, rule: Rule[Any], finding: Finding, placement: Placement | None) -> list[Finding]:
        """A finding, split where some of its subjects are waived or known. None: about no single world."""
        if rule.id not in self.rules:
            return [finding]
        places = None if placement is None else placement.keep("places", Places)
        severity = severity_in(self.policy, rule, finding)
        alone = finding.ranks if len(finding.subjects) == 1 else ()
        by: dict[Treatment, list[str]] = {}
        for subject in finding.subjects:
            where = NOWHERE if places is None else places.locate(subject, alone)
            known = self._knows(rule.id, finding.cause, severity, subject)
            by.setdefault((self._waiver(rule.id, where, places), known), []).append(subject)
        unlisted = max(0, (finding.count or 0) - len(finding.subjects))
        rest = (self._waiver(rule.id, NOWHERE, None), False) if unlisted or not by else None
        if rest is not None:
            by.setdefault(rest, [])
        if len(by) == 1:
            [(waiver, known)] = by
            return [dataclasses.replace(finding, waiver=waiver, known=known)]
        return [
            dataclasses.replace(
                finding,
                subjects=tuple(subjects),
                count=len(subjects) + (unlisted if treatment == rest else 0),
                waiver=treatment[0],
                known=treatment[1],
            )
            for treatment, subjects in by.items()
        ]

    def _knows(self, rule: str, cause: str, severity: str, subject: str) -> bool:
        baseline = self.baseline
        return baseline is not None and baseline.knows(rule, cause, severity, self.spell(subject))

    def _waiver(self, rule: str, where: Where, places: Places | None) -> DatedWaiver | None:
        """The waiver that covers a place: one in force if there is one, else one that expired."""
        covering = [
            dated for dated, scope in self._scopes.get(rule, ()) if scope.covers(where, places, self.world)
        ]
        self.met.update(covering)
        return covering[0] if covering else None


NO_TERMS = Terms()
"""Every finding counts."""


def terms_of(
    plan: Plan,
    rules: Sequence[Rule[Any]],
    *,
    at: str,
    site: Site | None = None,
    baseline: Baseline | None = None,
) -> Terms:
    """The terms of a run over a plan that has the policy in force already. `at` is the `now`, RFC 3339.

    Raises UsageError for ids that name no rule.
    """
    today = date.fromisoformat(at[:10])
    given = [(waiver, "plan") for waiver in plan.waivers]
    if site is not None:
        given += [(waiver, site.name) for waiver in site.waivers]
    check_rules(plan.policy, [waiver for waiver, _ in given], rules)
    return Terms(
        policy=plan.policy,
        keys=tuple(keys_of(plan.policy, site)),
        waivers=tuple(
            DatedWaiver(waiver, source, today > parse_day(waiver.expires)) for waiver, source in given
        ),
        baseline=baseline,
        left_out=tuple((rule, why) for rule in rules if (why := why_not(plan.policy, rule.id)) is not None),
    )


def keys_of(policy: Policy, site: Site | None) -> Iterable[PolicyKey]:
    """Keys that were given, with their value in one line."""
    for key, value in asdict(policy).items():
        of_site = site is not None and key in site.given
        if site is not None and of_site:
            source = site.name
            if key == "severity" and value != site.policy.severity:
                source = f"plan, {site.name}"
        elif value == getattr(DEFAULTS, key):
            continue
        else:
            source = "plan"
        yield PolicyKey(key=key, value=spelled(value), source=source)


def spelled(value: object) -> str:
    """A value in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
