"""What an auditor asks: by which tool, options, files and rules the answer came, and what policy decided."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from topocheck.render.embedded import digest_of
from topocheck.render.words import say
from topocheck.report import PolicyKey, Report, RuleReport

__all__ = ["JUDGED_BY", "AuditView", "FamilyRow", "audit_view"]

JUDGED_BY = {
    "tensor_domain": ("TP001", "GR001", "GR002", "NV003"),
    "boundary": ("PP003", "NET009", "NET011", "OBS003"),
    "bubble": ("PP009",),
    "imbalance": ("PP007",),
    "prefill_boundary_ms": ("PP010",),
    "decode_boundary_ms": ("PP010",),
    "head_room": ("CAP003",),
    "min_rate_gbps": ("NET002",),
    "expect_nics": ("NET010",),
    "expect_rails": ("NET001", "NET010"),
    "expect_gpus": ("VER007",),
    "expect_nvlinks": ("NV001",),
    "used_memory": ("CAP001",),
    "clock_error_s": ("ENV006",),
}
"""Rules that a key of the policy bears on. The other keys choose rules or weigh their answers."""
VERDICTS = ("pass", "fail", "unknown", "not-applicable", "error", "deselected")
MOST_RULES = 12
BASES = ("predicted", "claimed", "observed")


class FamilyRow(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of one family: how many were asked and what came of them."""

    family: str
    asked: int
    counts: list[int]
    """By verdict, in the order of `VERDICTS`."""
    subjects: int


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows for an auditor."""

    facts: list[tuple[str, str]]
    """Names and values of the run."""
    digests: list[tuple[str, str]]
    """Names and digests: of the plan in force, of all inputs together."""
    families: list[FamilyRow]
    total: FamilyRow
    verdicts: tuple[str, ...]
    packages: list[str]
    """Packages that add rules."""
    keys: list[tuple[PolicyKey, str]]
    """Keys of the policy, and what each decided."""


def audit_view(report: Report) -> AuditView:
    """The audit of a report."""
    families = list(_families(report.rules))
    return AuditView(
        facts=list(_facts(report)),
        digests=list(_digests(report)),
        families=families,
        total=_row(say("all_rules"), report.rules),
        verdicts=VERDICTS,
        packages=sorted({rule.package for rule in report.rules if rule.package}),
        keys=[(key, _decided(key, report)) for key in report.policy],
    )


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    """Tool, time, options and outcome."""
    options = {} if report.audit is None else {one.name: one for one in report.audit.options}
    yield say("audit_tool"), report.tool
    source = "audit_at_option" if "--at" in options else "audit_at_clock"
    yield say("audit_at"), f"{report.at} ({say(source if report.audit else 'audit_at_unknown')})"
    yield (
        say("audit_exit"),
        say("audit_code", code=report.exit_code, reason=report.exit_reason.replace("_", " ")),
    )
    for key in report.policy:
        if key.key in ("fail_on", "min_basis"):
            yield f"--{key.key.replace('_', '-')}", f"{key.value} ({key.source})"
    for one in options.values():
        if one.name not in ("--at", "--fail-on", "--min-basis"):
            yield one.name, f"{one.value} ({one.source})"
    if report.audit is not None:
        yield say("audit_plan"), say(f"audit_plan_{report.audit.plan}")


def _digests(report: Report) -> Iterator[tuple[str, str]]:
    """Digests that stand for much: the plan in force, and all inputs together."""
    if report.audit is not None:
        yield say("digest_plan"), report.audit.plan_digest
        if report.audit.build:
            yield say("digest_build"), report.audit.build
    if report.inputs and all(one.digest for one in report.inputs):
        yield say("digest_inputs", count=len(report.inputs)), all_inputs(report)


def all_inputs(report: Report) -> str:
    """One digest over the digests and names of all inputs, in the lines that sha256sum writes."""
    lines = "".join(f"{one.digest.removeprefix('sha256:')}  {one.name}\n" for one in report.inputs)
    return digest_of(lines)


def _families(rules: list[RuleReport]) -> Iterator[FamilyRow]:
    """Families in the order of the catalogue."""
    by_family: dict[str, list[RuleReport]] = {}
    for rule in rules:
        by_family.setdefault(rule.family, []).append(rule)
    for family, members in by_family.items():
        yield _row(family, members)


def _row(name: str, rules: list[RuleReport]) -> FamilyRow:
    """Rules counted."""
    verdicts = [rule.verdict for rule in rules]
    return FamilyRow(
        family=name,
        asked=len(rules) - verdicts.count("deselected"),
        counts=[verdicts.count(verdict) for verdict in VERDICTS],  # type: ignore[arg-type]  # they are all
        subjects=sum(rule.subjects for rule in rules),
    )


def _decided(key: PolicyKey, report: Report) -> str:
    """What a key of the policy came to in this run."""
    if key.key in JUDGED_BY:
        return _verdicts([rule for rule in report.rules if rule.id in JUDGED_BY[key.key]])
    if key.key in _OWN:
        return _OWN[key.key](key, report)
    return ""


def _verdicts(rules: list[RuleReport]) -> str:
    """Rules with their verdicts."""
    told = [f"{rule.id} {say('verdict_' + rule.verdict)}" for rule in rules[:MOST_RULES]]
    more = len(rules) - MOST_RULES
    return ", ".join(told) + (f" {say('and_more', count=more)}" if more > 0 else "")


def _fail_on(key: PolicyKey, report: Report) -> str:
    shut = report.counts.errors + (report.counts.warnings if key.value == "warning" else 0)
    return say("decided_shut", count=shut) if shut else say("decided_open")


def _min_basis(key: PolicyKey, report: Report) -> str:
    least = BASES.index(key.value) if key.value in BASES else 0
    weak = [
        rule.id
        for rule in report.rules
        if rule.required and rule.basis is not None and BASES.index(rule.basis) < least
    ]
    return say("decided_weak", rules=", ".join(weak[:MOST_RULES])) if weak else say("decided_no_weak")


def _left_out(_: PolicyKey, report: Report) -> str:
    return _verdicts([rule for rule in report.rules if rule.verdict == "deselected"])


def _named(key: PolicyKey, report: Report) -> str:
    """Rules that the value names by id or prefix."""
    names = tuple(part.split(" ")[0] for part in key.value.split(", ") if part)
    return _verdicts([rule for rule in report.rules if names and rule.id.startswith(names)])


def _profile(_: PolicyKey, report: Report) -> str:
    return ", ".join(one.name for one in report.profiles) or say("decided_no_profile")


_OWN = {
    "fail_on": _fail_on,
    "min_basis": _min_basis,
    "only": _left_out,
    "skip": _left_out,
    "optional": _named,
    "severity": _named,
    "profile": _profile,
}
"""Keys that choose rules or weigh their answers."""
