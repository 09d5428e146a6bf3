"""What is stated about the job as a whole: by launch commands, scripts, hostfiles and engine arguments."""

from __future__ import annotations

from topocheck.placement import Placement
from topocheck.rule import Situations, the
from topocheck.snapshot import JobFact

__all__ = ["facts_of", "number", "the_job"]


def facts_of(placement: Placement, *kinds: str) -> list[JobFact]:
    """Statements about the whole job of these kinds."""
    return [fact for fact in placement.inventory.job if fact.kind in kinds]


def the_job(placement: Placement) -> Situations[Placement]:
    """The job as a whole."""
    return the(placement)


def number(text: str) -> int | None:
    """A whole number, if the text is one."""
    return int(text) if text.isdecimal() and len(text) < 10 else None
