"""The answer, ready to be rendered: what every output format is made from.

Everything here is plain ordered data. The same evidence, plan and `--at` give the same report, byte
for byte. `topocheck schema report` prints its JSON Schema.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from topocheck.pipelinereport import (
    BalancePart,
    BubblePart,
    CrossingPart,
    LackingPart,
    PipelineReport,
    StageShare,
    TransferPart,
)
from topocheck.policyreport import BaselineReport, GoneReport, PolicyKey, WaiverReport, WaiverState
from topocheck.rankreport import (
    DeviceReport,
    GpuReport,
    GroupReport,
    NicReport,
    NodeReport,
    PlacementReport,
    Placing,
    RankReport,
    ShapeReport,
)
from topocheck.record import Record
from topocheck.remedy import Devices, Exclude, NodeOrder, Remedy, Variable

__all__ = [
    "SCHEMA",
    "AuditReport",
    "BalancePart",
    "BaselineReport",
    "BubblePart",
    "Counts",
    "CrossingPart",
    "DeviceReport",
    "Devices",
    "Evidence",
    "Exclude",
    "GapReport",
    "GoneReport",
    "GpuReport",
    "GroupReport",
    "InputReport",
    "LackingPart",
    "NicReport",
    "NodeOrder",
    "NodeReport",
    "OptionReport",
    "PipelineReport",
    "PlacementReport",
    "Placing",
    "PolicyKey",
    "ProfileReport",
    "RankReport",
    "Report",
    "ReportedFinding",
    "RuleReport",
    "ShapeReport",
    "StageShare",
    "TransferPart",
    "Variable",
    "WaiverReport",
    "WaiverState",
    "WorldReport",
]

SCHEMA = "topocheck.report/1"

RuleVerdict = Literal["pass", "fail", "unknown", "not-applicable", "error", "deselected"]
Outcome = Literal["pass", "fail", "unknown"]
ExitReason = Literal[
    "passed",
    "findings",
    "internal_error",
    "nodes_missing",
    "nodes_disagree",
    "evidence_missing",
    "stale_evidence",
    "rules_deselected",
]


class Part(msgspec.Struct, frozen=True):
    """Base of everything in a report."""


class Evidence(Part, frozen=True, kw_only=True):
    """One fact and where it was read."""

    source: str
    """File as the user gave it, or probe and path, or `plan`."""
    line: int | None = None
    """Line in that file, from 1; null where there are no lines."""
    fact: str
    """What it says."""


class ReportedFinding(Part, frozen=True, kw_only=True):
    """One thing that is wrong, once for each cause."""

    message: str
    """The fact, why it matters here, in one or two sentences."""
    severity: Literal["error", "warning", "info"]
    """How bad."""
    subjects: list[str]
    """What it is about: ranks, hosts, GPUs, groups; the first ones if there are very many."""
    count: int
    """How many subjects it is about in all."""
    evidence: list[Evidence]
    """Facts it rests on."""
    fix: str
    """What to change."""
    cause: str
    """Short name of the cause inside its rule."""
    remedies: list[Remedy] = []
    """What would mend it, where a file can say that (topocheck verify --write-fixes DIR)."""
    waiver: WaiverReport | None = None
    """The waiver that keeps it from counting."""
    known: bool = False
    """The baseline has it already, which keeps it from counting."""

    @property
    def counts(self) -> bool:
        """Neither a waiver nor the baseline keeps it from counting."""
        return self.waiver is None and not self.known


class RuleReport(Part, frozen=True, kw_only=True):
    """What became of one rule."""

    id: str
    """Stable id: TP001."""
    name: str
    """Short name in words."""
    family: str
    """Family in words."""
    severity: Literal["error", "warning", "info"]
    """Severity that its findings have unless they say otherwise."""
    required: bool
    """Unknown keeps the gate shut (exit 3)."""
    package: str = ""
    """Package that adds it, with its version; empty for topocheck's own."""
    verdict: RuleVerdict
    """What became of it."""
    basis: Literal["predicted", "claimed", "observed"] | None
    """Weakest way in which the placement that it used is known; null if it used none."""
    subjects: int
    """How many subjects it looked at."""
    passed: int
    """How many of them pass."""
    failed: int
    """How many fail."""
    unknown: int
    """How many cannot be decided."""
    reason: str
    """Why it is not applicable, unknown, in error or deselected, in one sentence; else empty."""
    findings: list[ReportedFinding]
    """What is wrong, worst first."""
    gaps: list[int]
    """Indexes into the report's `gaps`: evidence that it misses."""


class GapReport(Part, frozen=True, kw_only=True):
    """Evidence that is missing, listed once whatever number of rules it blocks."""

    need: str
    """What is missing."""
    about: list[str]
    """About what: nodes, ranks; the first ones if there are very many."""
    count: int
    """About how many in all."""
    supply: str
    """The command or the step that gives it."""
    rules: list[str]
    """Rules that it keeps from deciding."""
    required: bool = True
    """A required rule is among them: this gap keeps the gate shut."""


class Counts(Part, frozen=True, kw_only=True):
    """How many rules and findings of each kind."""

    passed: int
    """Rules that pass."""
    failed: int
    """Rules that fail."""
    unknown: int
    """Rules that cannot be decided."""
    not_applicable: int
    """Rules that do not apply, proven so."""
    error: int
    """Rules that broke."""
    errors: int
    """Findings of severity error that count."""
    warnings: int
    """Findings of severity warning that count, and waivers that are unused or expired."""
    infos: int
    """Findings of severity info that count."""
    waived: int
    """Findings that a waiver keeps from counting."""
    required_unknown: int
    """Required rules with an undecided subject, and those that policy deselects without making them
    optional."""
    known: int = 0
    """Findings that the baseline has already, which keeps them from counting."""
    deselected: int = 0
    """Rules that policy leaves out: they were not asked."""


class WorldReport(Part, frozen=True, kw_only=True):
    """One world of a job of several: ranks from 0 of its own."""

    name: str
    """Its name in the plan."""
    job: str
    """It in one line: engine, sizes, nodes."""
    phase: Literal["predicted", "claimed", "observed"]
    """Which column its verdicts rest on."""
    verdict: Outcome
    """What the rules say of it alone."""
    placement: PlacementReport | None = None
    """Rank -> stage -> node -> GPU of its ranks; null where no output needs it."""
    pipeline: PipelineReport | None = None
    """The arithmetic of its stages; null where no output needs it, and for one stage."""


class ProfileReport(Part, frozen=True, kw_only=True):
    """What is taken for right on one kind of machine of the job."""

    name: str
    """Its name, as `policy.profile` has it."""
    title: str
    """In words."""
    chosen: Literal["evidence", "plan"]
    """Whether the evidence of the nodes or the policy chose it."""
    why: str
    """What shows it."""
    decides: list[str]
    """What follows from it, each with the rules that ask it."""
    nodes: list[str]
    """Nodes that it is for; the first ones if there are very many."""
    count: int
    """How many in all."""


class InputReport(Part, frozen=True, kw_only=True):
    """One input and what became of it."""

    name: str
    """File as the user gave it."""
    kind: str
    """What it was recognised as."""
    digest: str
    """`sha256:` and the hex digest of its bytes."""
    hosts: list[str]
    """Hosts that it speaks of; the first ones if there are very many."""
    notes: list[str]
    """What was cut, ignored or contradictory in it."""
    label: str = ""
    """Host that the user says it is of (`LABEL=FILE`); empty without."""


class OptionReport(Part, frozen=True, kw_only=True):
    """One option that was given and bears on the answer; where outputs go does not."""

    name: str
    """As it is written: --fail-on."""
    value: str
    """Its value, `on` for a switch."""
    source: Literal["command line", "environment"]
    """Where it was given: a TOPOCHECK_ variable is of the environment."""


class AuditReport(Part, frozen=True, kw_only=True):
    """What was asked, so that somebody else can ask it again."""

    plan: Literal["file", "command", "evidence"]
    """Whether a file, a launch command or the evidence itself declares the plan."""
    plan_digest: str
    """`sha256:` and the hex digest of the plan in force as JSON: with the sizes that follow from others, and
    the policy of all files merged."""
    files: list[InputReport] = []
    """Files that declare: plan, policy, baseline, earlier look."""
    options: list[OptionReport] = []
    """Options that were given and are not the default."""
    build: str = ""
    """`sha256:` and the hex digest of topocheck's own files; empty if it runs from no files."""


class Report(Part, frozen=True, kw_only=True):
    """The whole answer."""

    schema: str
    """`topocheck.report/` and the major version."""
    tool: str
    """topocheck and its version."""
    at: str
    """The `now` that ages and expiries were held against, RFC 3339."""
    evidence_from: str | None = None
    """When the oldest evidence that counts was taken, RFC 3339; null where no evidence shows its time."""
    evidence_to: str | None = None
    """When the newest was taken; evidence that does not show its time may be older or newer."""
    verdict: Outcome
    """pass: gate open; fail: gate shut by a finding; unknown: not decided."""
    exit_code: int
    """Exit code of the command."""
    exit_reason: ExitReason
    """Why that exit code."""
    sentence: str
    """The verdict in one sentence."""
    job: str
    """The job in one line: engine, sizes, nodes."""
    phase: Literal["predicted", "claimed", "observed"]
    """Which column the verdict rests on."""
    counts: Counts
    """How many of each."""
    assumptions: list[str]
    """What was assumed because nothing said otherwise."""
    rules: list[RuleReport]
    """All rules in the order of the catalogue."""
    gaps: list[GapReport]
    """Missing evidence, the gap that blocks most first."""
    inputs: list[InputReport]
    """All inputs with their digests."""
    notes: list[str]
    """Facts that accuse nobody: unused hosts, unattributed lines, unlabelled files."""
    policy: list[PolicyKey] = []
    """The policy in force: what shuts the gate, and every key that was given."""
    profiles: list[ProfileReport] = []
    """What is taken for right on the machines of the job, by kind of machine."""
    waivers: list[WaiverState] = []
    """All waivers, and what became of each."""
    baseline: BaselineReport | None = None
    """The report whose findings are known; null without one."""
    placement: PlacementReport | None = None
    """Rank -> stage -> node -> GPU; left out where no output needs it, and where there are several worlds."""
    audit: AuditReport | None = None
    """Plan, files and options that the answer rests on beside the evidence; null where no output needs it."""
    pipeline: PipelineReport | None = None
    """The arithmetic of the stages; null where no output needs it, for one stage and for several worlds."""
    record: Record | None = None
    """The run as an acceptance record, as far as plan and evidence fill it: topocheck record adds what was
    measured. `placement` has its mapping, `inputs` its files. Null where no output needs it, and for several
    worlds."""
    worlds: list[WorldReport] | msgspec.UnsetType = msgspec.UNSET
    """The worlds of a job that has several; left out where there is one."""
