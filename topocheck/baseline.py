"""An earlier report whose findings are known: only what is new counts.

A finding is known again by its rule, its cause and its subject, if it is no worse than it was. What the
baseline counts without listing it is not known again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from topocheck.errors import InputError
from topocheck.inputfile import name_of, read_bytes
from topocheck.report import SCHEMA, BaselineReport, GoneReport, RuleReport

__all__ = ["Baseline", "parse_baseline", "read_baseline"]

MAX_BYTES = 2_000_000_000
"""The report of 100,000 ranks is a tenth of it."""
SEVERITIES = ("error", "warning", "info")
MEND = "write one with topocheck verify --json FILE"

Key = tuple[str, str]
"""Rule and cause."""


class EarlierFinding(msgspec.Struct, frozen=True):
    """What of a finding is known again."""

    cause: str
    severity: Literal["error", "warning", "info"]
    subjects: list[str]
    count: int


class EarlierRule(msgspec.Struct, frozen=True):
    """A rule with its findings."""

    id: str
    findings: list[EarlierFinding]


class EarlierReport(msgspec.Struct, frozen=True):
    """What of a report a baseline is made of."""

    schema: str
    at: str
    job: str
    rules: list[EarlierRule]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The findings of an earlier report."""

    name: str
    """File as the user gave it."""
    digest: str
    at: str
    job: str
    """The job in one line: another job's findings are no baseline."""
    known: Mapping[Key, Mapping[str, str]]
    """Worst severity of each subject, by rule and cause."""
    unlisted: int
    """Subjects that are counted and not listed."""
    found: set[tuple[Key, str]] = field(default_factory=set)
    """What this run found again."""

    @property
    def rules(self) -> frozenset[str]:
        """Rules that have findings in it."""
        return frozenset(rule for rule, _ in self.known)

    def knows(self, rule: str, cause: str, severity: str, subject: str) -> bool:
        """Whether this subject had that fault already, and no milder."""
        earlier = self.known.get((rule, cause), {}).get(subject)
        if earlier is None:
            return False
        self.found.add(((rule, cause), subject))
        return SEVERITIES.index(earlier) <= SEVERITIES.index(severity)

    def report(self, rules: Iterable[RuleReport]) -> BaselineReport:
        """What this run says of it: what is gone, if its rule is decided."""
        decided = {
            rule.id: rule.verdict in ("pass", "fail", "not-applicable") and not rule.unknown for rule in rules
        }
        gone = []
        for key, subjects in self.known.items():
            lost = [subject for subject in subjects if (key, subject) not in self.found]
            if lost:
                rule, cause = key
                known = decided.get(rule, False)
                gone.append(GoneReport(rule=rule, cause=cause, subjects=lost, decided=known))
        return BaselineReport(
            name=self.name, at=self.at, digest=self.digest, unlisted=self.unlisted, gone=gone
        )


def read_baseline(path: str) -> Baseline:
    """The report in the file `path` as a baseline. Raises InputError."""
    return parse_baseline(read_bytes(path, MAX_BYTES, "is larger than any report", fix=MEND), name_of(path))


def parse_baseline(data: bytes, name: str) -> Baseline:
    """The same of the bytes of a report; `name` is the file's. Raises InputError."""
    try:
        report = msgspec.json.decode(data, type=EarlierReport)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is no report of topocheck ({error})", path=name, fix=MEND) from None
    if report.schema != SCHEMA:
        raise InputError(f"is no {SCHEMA} but {report.schema[:60]!r}", path=name, fix=MEND)
    known: dict[Key, dict[str, str]] = {}
    unlisted = 0
    for rule in report.rules:
        for finding in rule.findings:
            unlisted += max(0, finding.count - len(finding.subjects))
            subjects = known.setdefault((rule.id, finding.cause), {})
            for subject in finding.subjects:
                worst = min(subjects.get(subject, finding.severity), finding.severity, key=SEVERITIES.index)
                subjects[subject] = worst
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return Baseline(name, digest, report.at, report.job, known, unlisted)
