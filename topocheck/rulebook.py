"""All rules: topocheck's own, and those that other packages add by the entry point group `topocheck.rules`.

An entry point stands for a sequence of rules, as topocheck's own `topocheck.rules:RULES` does. What a package
adds is asked after topocheck's own rules. A package that cannot be used is named and keeps no other rule from
its answer; what it would have asked is not decided.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from topocheck.errors import PluginError
from topocheck.placement import Placement
from topocheck.plugins import RULES as GROUP
from topocheck.plugins import Offer, load, offers
from topocheck.rule import NotApplicable, Rule, Situations
from topocheck.rules import RULES

__all__ = ["Rulebook", "in_force", "rulebook"]

ID = re.compile(r"[A-Z]{2,12}[0-9]{3}")
SEVERITIES = ("error", "warning", "info")


class Rulebook(NamedTuple):
    """Rules, and what is wrong with packages that were to add some."""

    rules: tuple[Rule[Any], ...]
    """In the order in which they are asked."""
    troubles: tuple[tuple[Offer, PluginError], ...] = ()


def rulebook() -> Rulebook:
    """All rules that are installed. Packages are looked up each time: that costs a millisecond."""
    rules = {rule.id: rule for rule in RULES}
    troubles = []
    for offer in offers(GROUP):
        try:
            added = read(offer)
        except PluginError as error:
            troubles.append((offer, error))
            continue
        for rule in added:
            if rule.id in rules:
                troubles.append((offer, clash(offer, rules[rule.id])))
            else:
                rules[rule.id] = rule
    return Rulebook(tuple(rules.values()), tuple(troubles))


def read(offer: Offer) -> list[Rule[Any]]:
    """Rules of one entry point, each with its package. Raises PluginError if they cannot be used."""
    found = load(offer)
    if not isinstance(found, Iterable) or isinstance(found, str):
        raise PluginError(f"{offer} is no sequence of rules: {offer.value} is a {type(found).__name__}")
    try:
        return [checked(offer, rule) for rule in found]
    except PluginError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{offer} cannot be listed ({type(error).__name__}: {error})") from error


def checked(offer: Offer, rule: object) -> Rule[Any]:
    """A rule with its package. Raises PluginError if it is none, or names itself as no report can."""
    if not isinstance(rule, Rule):
        raise PluginError(f"{offer} holds a {type(rule).__name__}, which is no rule: make it with @rule")
    if not isinstance(rule.id, str) or not ID.fullmatch(rule.id):
        raise PluginError(
            f"{offer} has a rule {str(rule.id)[:40]!r}: ids are capitals and three digits, ACME001"
        )
    if not isinstance(rule.name, str) or rule.severity not in SEVERITIES:
        raise PluginError(
            f"{rule.id} of package {offer.package} needs a name and a severity ({', '.join(SEVERITIES)})"
        )
    return dataclasses.replace(rule, required=bool(rule.required), package=offer.package)


def clash(offer: Offer, known: Rule[Any]) -> PluginError:
    """The refusal of a rule whose id is taken."""
    owner = f"package {known.package}" if known.package else "topocheck itself"
    return PluginError(
        f"rule {known.id} of package {offer.package} is refused: {owner} has a rule of that id"
    )


def in_force() -> tuple[Rule[Any], ...]:
    """All rules that are installed; in the place of what a package cannot add stands a rule that says why."""
    book = rulebook()
    by_package: dict[str, list[PluginError]] = {}
    for offer, error in book.troubles:
        by_package.setdefault(offer.package, []).append(error)
    return (*book.rules, *(stand_in(package, errors) for package, errors in by_package.items()))


def stand_in(package: str, errors: list[PluginError]) -> Rule[Any]:
    """A rule that breaks, called as the package: what that was to ask is not decided."""

    def over(_: Placement) -> Situations[Any] | NotApplicable:
        raise PluginError("; ".join(map(str, errors)))

    return Rule(
        id=package.partition(" ")[0],
        name="rules of another package",
        severity="error",
        required=False,
        over=over,
        check=lambda *_: (),
        package=package,
    )
