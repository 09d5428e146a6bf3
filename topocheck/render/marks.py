"""What findings mark in the drawing, worst first."""

from __future__ import annotations

from collections.abc import Iterable

from topocheck.report import GroupReport

__all__ = ["SEVERITIES", "by_severity", "worst_marks"]

SEVERITIES = ("error", "warning", "info")
"""Severities, worst first."""


def by_severity(marks: Iterable[GroupReport]) -> list[GroupReport]:
    """The marks, worst first and else in their order."""
    return sorted(marks, key=lambda mark: SEVERITIES.index(mark.severity))


def worst_marks(marks: Iterable[GroupReport]) -> dict[int, tuple[str, str]]:
    """Worst severity and its rule for each marked rank."""
    found: dict[int, tuple[str, str]] = {}
    for mark in by_severity(marks):
        for rank in mark.ranks:
            found.setdefault(rank, (mark.severity, mark.rule))
    return found
