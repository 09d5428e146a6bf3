"""What every part of a snapshot is made of, where facts were read, and what could not be read."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["At", "Coverage", "Extent", "ProbeFault", "Record", "Scope", "Source"]

Extent = Literal["all", "part"]
"""Whole, or an excerpt."""

Scope = Literal["host", "container", "task", "unknown"]
"""Whose view something is."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of all evidence: immutable, compact in JSON, tolerant of fields from newer probes."""


class At(Record, frozen=True, kw_only=True):
    """Where a fact was read."""

    source: str
    """Name of a source of this snapshot: a file as the user gave it, or a probe and its path."""
    line: int | None = None
    """Line in that source, counted from 1; None where the source has no lines."""


class Source(Record, frozen=True, kw_only=True):
    """One input that contributed to this snapshot."""

    name: str
    """File name as the user gave it, or the probe's name."""
    kind: str
    """What it was recognised as, for instance `nvidia-smi topo -m` or `nccl log`."""
    digest: str | None = None
    """`sha256:` and the hex digest of its bytes; None for a live probe."""


class Coverage(Record, frozen=True, kw_only=True):
    """May one conclude from absence? `all` says yes, `part` no, None that nothing was looked at."""

    gpus: Extent | None = None
    """The list of GPUs of the node."""
    links: Extent | None = None
    """NVLink and PCIe relations between the GPUs."""
    nics: Extent | None = None
    """The list of RDMA devices and their ports."""
    ranks: Extent | None = None
    """The ranks of the job on this node."""
    observed: Extent | None = None
    """The log lines or processes of the running job."""


class ProbeFault(Record, frozen=True, kw_only=True):
    """A part that could not be read, and why. Absent, refused and unsupported stay apart."""

    part: str
    """Which part of the snapshot is missing because of it: gpus, links, nics, ranks ..."""
    kind: Literal["absent", "not-permitted", "not-supported", "timeout", "broken", "contradictory"]
    """Why."""
    path: str
    """What was read: a path or a call."""
    reason: str = ""
    """The system's own words."""
