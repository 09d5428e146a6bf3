"""What one gate tells the others: a verdict, which is for ever, or a remark, which is none.

Both come from a store in which others may write, so that both are held against the run that they claim.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from topocheck.errors import InternalError, UsageError
from topocheck.question import difference
from topocheck.report import Report

__all__ = [
    "DECIDED",
    "REMARK_SCHEMA",
    "SCHEMA",
    "Decision",
    "Remark",
    "decode_remark",
    "decode_verdict",
    "digest_of",
]

SCHEMA, REMARK_SCHEMA = "topocheck.verdict/1", "topocheck.remark/1"
DECIDED = (0, 1)
"""Exit codes that are a verdict."""
UNDECIDED = (2, 3)
"""Those of a gate that has none: a remark with another one would let its readers exit as if they had."""
NO_DOCUMENT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of a run, or what one of its gates could not decide."""

    schema: str
    """`topocheck.verdict/` and the major version."""
    run: str
    """Run that it is of."""
    by: str
    """Entry of the gate that verified."""
    asked: str = ""
    """What that gate was asked."""
    hosts: list[str] = []
    """Hosts whose evidence it saw, as entries name them: no other host may take a pass for its own."""
    report: Report
    """The whole answer."""

    @property
    def exit_code(self) -> int:
        """What every gate of the run exits with."""
        return self.report.exit_code


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate that could not decide tells those that would find the same."""

    schema: str
    """`topocheck.remark/` and the major version."""
    run: str
    """Run that it is of."""
    by: str
    """Entry of the gate that verified."""
    entries: str
    """Digest of the names of all entries that there were."""
    marks: list[str]
    """Marks of those that were read: who finds its own knows that it was looked at."""
    found: Decision | None
    """What is undecided; None where verifying itself was refused."""
    error: str = ""
    """Why it was refused."""
    exit_code: int = 3
    """What it leads to."""

    def answer(self) -> Decision:
        """What is undecided. Raises UsageError or InternalError where verifying was refused."""
        if self.found is not None:
            return self.found
        raise (UsageError if self.exit_code == UsageError.exit_code else InternalError)(self.error)


def decode_verdict(data: bytes, run: str, store: str, asked: str) -> Decision:
    """A verdict from the store. Raises UsageError for what is none, of another run or another question."""
    try:
        found = msgspec.json.decode(data, type=Decision)
    except NO_DOCUMENT as error:
        raise UsageError(f"{store}: the verdict of run {run} cannot be read: {error}") from None
    if found.run != run or found.schema != SCHEMA:
        raise UsageError(f"{store}: the verdict there is of run {found.run[:80]}, not {run}")
    if found.exit_code not in DECIDED:
        raise UsageError(f"{store}: the verdict of run {run} is none: it has exit code {found.exit_code}")
    if found.asked != asked:
        raise UsageError(
            f"{store}: the verdict of run {run} by {found.by[:120]} answers another question: the "
            f"{difference(asked, found.asked)} of this node is not the one that it was given over: give all "
            "nodes the same, and another try another --run-id"
        )
    return found


def decode_remark(data: bytes | None, run: str) -> Remark | None:
    """A remark from the store; None for what is none of this run: it is no evidence, and nobody needs it."""
    try:
        found = None if data is None else msgspec.json.decode(data, type=Remark)
    except NO_DOCUMENT:
        return None
    if found is None or found.run != run or found.schema != REMARK_SCHEMA:
        return None
    codes = {found.exit_code, found.exit_code if found.found is None else found.found.exit_code}
    return found if codes.issubset(UNDECIDED) else None


def digest_of(names: Iterable[str]) -> str:
    """Digest of names, in whatever order they come."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()
