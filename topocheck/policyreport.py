"""What of a report speaks of the policy: the keys in force, the waivers, the baseline."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["BaselineReport", "GoneReport", "PolicyKey", "WaiverReport", "WaiverState"]


class PolicyKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key of the policy in force."""

    key: str
    """Its name in a plan, or of the option: tensor_domain, fail_on."""
    value: str
    """Its value, lists and mappings in one line."""
    source: str
    """`default`, `option`, `plan`, or the policy file as the user gave it."""


class WaiverReport(msgspec.Struct, frozen=True, kw_only=True):
    """Why a finding does not count."""

    reason: str
    """The reason given."""
    owner: str
    """Who answers for it."""
    expires: str
    """Last day on which it holds."""


class WaiverState(msgspec.Struct, frozen=True, kw_only=True):
    """One waiver and what became of it. Unused and expired ones count as warnings."""

    rule: str
    """Rule whose findings it is for."""
    scope: str
    """What it is for in one line: nodes, ranks, group, world; `everything` without any of them."""
    reason: str
    """The reason given."""
    owner: str
    """Who answers for it."""
    expires: str
    """Last day on which it holds."""
    source: str
    """`plan`, or the policy file as the user gave it."""
    state: Literal["used", "unused", "expired", "undecided"]
    """used: it covers findings; unused: the rule is decided and has none there; expired: its day is over;
    undecided: the rule lacks evidence or was not asked, so that nobody knows whether it is needed."""
    subjects: int
    """Subjects of findings that it covers, or would cover had it not expired."""
    note: str
    """What follows, in one sentence."""
    fix: str
    """What to change; empty if nothing is to be."""


class GoneReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the baseline has and this run does not find again."""

    rule: str
    """Rule that found it."""
    cause: str
    """Short name of the cause inside the rule."""
    subjects: list[str]
    """What is no longer found."""
    decided: bool
    """The rule is decided now: it is gone. Else the rule lacks evidence or was not asked: nobody knows."""


class BaselineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The earlier report whose findings are known and do not count."""

    name: str
    """File as the user gave it."""
    at: str
    """The `now` of that run."""
    digest: str
    """`sha256:` and the hex digest of its bytes."""
    unlisted: int
    """Subjects that it counts and does not list: they cannot be known again, and count."""
    gone: list[GoneReport]
    """What is no longer found."""
