"""What manifests show to be wrong before anything is created, ready to be shown: `topocheck verify-manifest`.

`topocheck schema manifest` prints its JSON Schema.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["SCHEMA", "ManifestFinding", "ManifestReport", "ReadJob"]

SCHEMA = "topocheck.manifest/1"


class ManifestFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    rule: str
    """Rule that would fail for it in the running job: `topocheck explain` has its page."""
    severity: Literal["error", "warning"]
    """error: the job cannot work as it is declared. warning: it may be slower, or fail on some nodes."""
    file: str
    """File that it stands in."""
    line: int
    """Line, from 1."""
    message: str
    """What is wrong."""
    fix: str
    """What to write instead."""


class ReadJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job that was found in a manifest."""

    file: str
    """File that it stands in."""
    line: int
    """Line where it starts."""
    kind: str
    """Kind of the object."""
    name: str
    """Its name; empty if it has none."""
    pods: int | None
    """Pods of one copy; null if the manifest does not say."""
    gpus: int | None
    """GPUs of all of them; null if the manifest does not say."""
    ranks: int | None
    """Ranks that its command declares; null if no command says so."""


class ManifestReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer."""

    schema: str
    """`topocheck.manifest/` and the major version."""
    exit_code: int
    """0 nothing is wrong, 1 an error was found."""
    jobs: list[ReadJob]
    """Jobs that were found."""
    findings: list[ManifestFinding]
    """What is wrong, by file and line."""
    notes: list[str]
    """What could not be checked, and why."""
