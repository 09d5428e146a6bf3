"""What a rule is: a stable id, the subjects it is asked over, and a check that can only accuse.

    @rule("TP001", "TP group in one domain", over=tensor_groups, severity="error", required=True)
    def tensor_group_in_one_domain(ask: Ask, group: Group) -> Iterator[Finding]: ...

A check yields findings from facts that `Ask` gave it. It never acquits: the runner does, and only if
something was asked and nothing was missing. Equal situations are checked once: `over` may give a
mapping from a situation to all subjects that are in it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from topocheck.placement import Placement
from topocheck.plan import Policy, Waiver
from topocheck.remedy import Remedy
from topocheck.report import Evidence
from topocheck.snapshot import At

if TYPE_CHECKING:
    from topocheck.ask import Ask

__all__ = [
    "FAMILIES",
    "Alike",
    "DatedWaiver",
    "Evidence",
    "Finding",
    "NotApplicable",
    "Rule",
    "Severity",
    "Verdict",
    "each",
    "read_at",
    "rule",
    "severity_in",
    "situations",
    "the",
]

Severity = Literal["error", "warning", "info"]
Verdict = Literal["pass", "fail", "unknown", "not-applicable", "error"]
Subject = TypeVar("Subject")

FAMILIES = {
    "EV": "Evidence",
    "ID": "Identity",
    "TP": "Tensor groups",
    "PP": "Pipeline stages",
    "GR": "Other groups",
    "NV": "NVLink and NVSwitch",
    "NET": "Network",
    "ENV": "Environment",
    "VER": "Sameness",
    "CAP": "Capacity",
    "OBS": "After launch",
}
"""Family names by the letters of the rule id, in the order of the catalogue."""


@dataclass(frozen=True, slots=True)
class DatedWaiver:
    """A waiver on the day of the run."""

    waiver: Waiver
    source: str
    """`plan`, or the policy file."""
    expired: bool
    """Its last day is over: what it covers counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    message: str
    """The fact, why it matters here, in one or two sentences."""
    fix: str
    """What to change."""
    cause: str
    """Short name of the cause inside the rule; names no subject. Findings of one cause are one."""
    subjects: tuple[str, ...]
    """What it is about: ranks, hosts, GPUs."""
    evidence: tuple[Evidence, ...] = ()
    """Facts it rests on."""
    severity: Severity | None = None
    """Where it is not the rule's own."""
    count: int | None = None
    """About how many subjects, if not all are listed."""
    ranks: tuple[int, ...] = ()
    """Ranks to mark in a drawing: a group, or the two ends of an edge."""
    mark: Literal["group", "edge", "gpu"] = "group"
    """What to mark."""
    remedies: tuple[Remedy, ...] = ()
    """What would mend it, where a file can say that."""
    waiver: DatedWaiver | None = None
    """Waiver that covers it, expired or not. No check sets it: the runner does."""
    known: bool = False
    """The baseline has it. No check sets it: the runner does."""

    @property
    def counts(self) -> bool:
        """Neither a waiver in force nor the baseline keeps it from counting."""
        return not self.known and (self.waiver is None or self.waiver.expired)


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """The rule has nothing to ask here, proven by plan, phase or evidence."""

    reason: str
    """Why, in words."""


@dataclass(frozen=True, slots=True, eq=False)
class Alike(Sequence[Subject]):
    """Subjects of one situation, each made when it is looked at: of thousands that pass that is one."""

    numbers: Sequence[int]
    """What each is made of: its index, its node ..."""
    make: Callable[[int], Subject]
    places: Sequence[int | None] = ()
    """Index of the node of its first rank by the number of a subject; () where none lies on a node."""

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> Subject: ...

    @overload
    def __getitem__(self, place: slice) -> Alike[Subject]: ...

    def __getitem__(self, place: int | slice) -> Subject | Alike[Subject]:
        if isinstance(place, slice):
            return Alike(self.numbers[place], self.make, self.places)
        return self.make(self.numbers[place])

    def __iter__(self) -> Iterator[Subject]:
        return map(self.make, self.numbers)


Situations = Mapping[Hashable, Sequence[Subject]]
Check = Callable[["Ask", Subject], Iterable[Finding]]
Over = Callable[[Placement], "Situations[Subject] | NotApplicable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[Subject]):
    """One question."""

    id: str
    """For ever: TP001."""
    name: str
    """In a few words."""
    severity: Severity
    """Of its findings, unless they say otherwise."""
    required: bool
    """Unknown keeps the gate shut."""
    over: Over[Subject]
    """Its subjects."""
    check: Check[Subject]
    """Accuses one subject."""
    package: str = ""
    """Package that adds it, with its version; empty for topocheck's own."""

    @property
    def family(self) -> str:
        """Letters of the id."""
        return self.id.rstrip("0123456789")

    @property
    def title(self) -> str:
        """The family in words; third-party families by their letters."""
        return FAMILIES.get(self.family, self.family)

    @property
    def module(self) -> str:
        """Module that defines it; its page lies beside it."""
        return self.check.__module__


def rule(
    id: str,  # noqa: A002 - the field's own name
    name: str,
    *,
    over: Over[Subject],
    severity: Severity,
    required: bool = False,
) -> Callable[[Check[Subject]], Rule[Subject]]:
    """Make a rule of a check."""

    def decorate(check: Check[Subject]) -> Rule[Subject]:
        return Rule(id=id, name=name, severity=severity, required=required, over=over, check=check)

    return decorate


def severity_in(policy: Policy, rule: Rule[Any], finding: Finding) -> Severity:
    """Severity of a finding: the policy's by the longest id or prefix that it names, else the catalogue's."""
    longest = max((key for key in policy.severity if rule.id.startswith(key)), key=len, default=None)
    return finding.severity or rule.severity if longest is None else policy.severity[longest]


def each(subjects: Iterable[Subject]) -> dict[Hashable, list[Subject]]:
    """Every subject is a situation of its own."""
    return {number: [subject] for number, subject in enumerate(subjects)}


def situations(
    keys: Iterable[Hashable],
    make: Callable[[int], Subject],
    numbers: Iterable[int],
    places: Sequence[int | None] = (),
) -> dict[Hashable, Sequence[Subject]]:
    """Subjects by the keys of their situations, each made of its number where it is looked at."""
    found: dict[Hashable, array[int]] = {}
    own, last = array("l"), None  # those of one situation mostly follow each other
    for number, key in zip(numbers, keys, strict=True):
        if key != last:
            own, last = found.setdefault(key, array("l")), key
        own.append(number)
    return {key: Alike(own, make, places) for key, own in found.items()}


def the(subject: Subject) -> dict[Hashable, list[Subject]]:
    """One subject: the job, the world."""
    return {0: [subject]}


def read_at(at: At | None, fact: str, source: str = "evidence") -> Evidence:
    """A fact with the place where it was read."""
    if at is None:
        return Evidence(source=source, fact=fact)
    return Evidence(source=at.source, line=at.line, fact=fact)
