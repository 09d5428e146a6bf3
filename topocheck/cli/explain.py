"""`topocheck explain`: the page of a rule."""

from __future__ import annotations

from typing import Any

import click

from topocheck.cli.rules import selected, table
from topocheck.cli.streams import show
from topocheck.pages import page
from topocheck.rule import Rule

__all__ = ["explain"]


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def explain(ids: tuple[str, ...]) -> None:
    """Explain rules: what is checked, why it matters, what to do.

    The beginning of an id, such as TP, lists the rules that begin so.
    """
    show("\n\n".join(map(explained, ids)))


def explained(name: str) -> str:
    """The page of the rule `name`, else a list of the rules that begin so. Raises UsageError for none."""
    found = selected(name)
    exact = [rule for rule in found if rule.id == name.strip().upper()]
    return section(exact[0]) if exact else table(found)


def section(rule: Rule[Any]) -> str:
    """The page, and under its heading what the code says of the rule."""
    heading, _, body = page(rule).rstrip().partition("\n")
    required = "; required: while it is undecided the gate stays shut (exit 3)" if rule.required else ""
    package = f"\nPackage: {rule.package}" if rule.package else ""
    return f"{heading}\n\nSeverity: {rule.severity}{required}{package}\n{body}\n"
