"""`topocheck rules`: what is asked of a placement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from topocheck.cli.streams import say, show
from topocheck.errors import PluginError, UsageError
from topocheck.rule import FAMILIES, Rule
from topocheck.rulebook import rulebook
from topocheck.spelling import suggest

__all__ = ["catalogue", "rules", "selected", "table", "troubled"]

FOOT = "* required: while it is undecided the gate stays shut (exit 3)"


@click.command()
@click.option("--select", "prefixes", multiple=True, metavar="PREFIX", help="Only these: TP001, or TP.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, one object a rule.")
def rules(prefixes: tuple[str, ...], as_json: bool) -> int:
    """List the rules: id, severity, family, and what is asked.

    `*` marks a required rule: while it is undecided the gate stays shut. Packages that cannot add theirs
    are named, and lead to exit 3.
    """
    found = [rule for prefix in prefixes for rule in selected(prefix)] if prefixes else catalogue()
    listed = list({rule.id: rule for rule in found}.values())
    show(json.dumps([described(rule) for rule in listed], indent=2) + "\n" if as_json else table(listed))
    return troubled()


def troubled() -> int:
    """Name the packages whose rules cannot be used; gives the exit code."""
    troubles = rulebook().troubles
    for _, error in troubles:
        say(f"topocheck: {error}")
    return PluginError.exit_code if troubles else 0


def catalogue() -> list[Rule[Any]]:
    """All rules, families in the order of the catalogue and ids in order inside."""
    families = list(FAMILIES)
    return sorted(
        rulebook().rules,
        key=lambda rule: (
            families.index(rule.family) if rule.family in families else len(families),
            rule.title,
            rule.id,
        ),
    )


def selected(prefix: str) -> list[Rule[Any]]:
    """Rules whose id begins with `prefix`, in either case. Raises UsageError if there is none."""
    wanted = prefix.strip().upper()
    found = [rule for rule in catalogue() if wanted and rule.id.startswith(wanted)]
    if not found:
        raise UsageError(f"no rule {prefix.strip()[:40]!r}: {hint(wanted)}")
    return found


def hint(wanted: str) -> str:
    """What an unknown id may have meant: one of the rules of its family, else a rule spelt alike."""
    ids = [rule.id for rule in catalogue()]
    letters = wanted.rstrip("0123456789")
    family = [rule.id for rule in catalogue() if rule.family == letters]
    if family:
        return f"{letters} has {', '.join(family)}"
    meant = suggest(wanted, ids)
    told = "".join(f"; {error}" for _, error in rulebook().troubles)
    return (f"did you mean {meant}?" if meant else "topocheck rules lists them") + told


def described(rule: Rule[Any]) -> dict[str, str | bool]:
    """One rule as JSON has it."""
    return {
        "id": rule.id,
        "name": rule.name,
        "severity": rule.severity,
        "required": rule.required,
        "family": rule.title,
        "package": rule.package,
    }


def table(listed: Sequence[Rule[Any]]) -> str:
    """Rules as a table, one a line, a family after the other."""
    lines: list[str] = []
    for rule in listed:
        if rule.title not in lines:
            lines += [rule.title]
        of = f" (package {rule.package})" if rule.package else ""
        lines.append(f"  {rule.id:7}{'*' if rule.required else ' '} {rule.severity:8} {rule.name}{of}")
    if any(rule.required for rule in listed):
        lines += ["", FOOT]
    return "\n".join(lines) + "\n"
