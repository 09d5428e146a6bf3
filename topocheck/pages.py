"""The page of a rule: what `topocheck explain` prints, and what the HTML report folds in.

Each family of rules has a page beside its module, of the same stem (`rules/tensor.py`, `rules/tensor.md`),
with one section a rule. Rules of other packages have theirs beside their own modules in the same way.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topocheck.errors import InternalError

if TYPE_CHECKING:  # what renders reads pages and knows no rules
    from importlib.abc import Traversable

    from topocheck.rule import Rule

__all__ = ["HEADINGS", "own_pages", "page", "parts", "sections"]

HEADINGS = (
    "What it checks",
    "Why it matters",
    "What a failure looks like",
    "What to do",
    "References",
)
"""Headings of a section, in their order."""

FENCE = "```"


def page(rule: Rule[Any]) -> str:
    """Section of a rule from its family's page, as Markdown that ends in a newline.

    Raises InternalError where the page or the section is missing: the package of the rule is not whole.
    """
    stem = rule.module.rpartition(".")[2]
    try:
        text = (folder_of(rule.module) / f"{stem}.md").read_text(encoding="utf-8")
    except (OSError, ValueError, ModuleNotFoundError) as error:
        raise InternalError(f"the page of {rule.id}, {stem}.md beside {rule.module}, is missing") from error
    found = sections(text).get(rule.id)
    if found is None:
        raise InternalError(f"{stem}.md beside {rule.module} has no section '## {rule.id} ...'")
    return found


@cache
def own_pages() -> dict[str, str]:
    """Sections of topocheck's own rules by id, without a look at the rules. Raises InternalError."""
    folder = files("topocheck").joinpath("rules")
    try:
        texts = [
            entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".md")
        ]
    except (OSError, ValueError) as error:
        raise InternalError(f"the pages of the rules cannot be read: {error}") from error
    return {name: section for text in texts for name, section in sections(text).items()}


def folder_of(module: str) -> Traversable:
    """Folder that a module lies in. Raises ValueError, ModuleNotFoundError if it lies in none."""
    package = module.rpartition(".")[0]
    if package:
        return files(package)
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(module)
    return Path(spec.origin).parent


def parts(section: str) -> dict[str, str]:
    """Text of a section under each of its headings, in their order."""
    _, *told = f"\n{section}".split("\n### ")
    cut = [part.partition("\n") for part in told]
    return {heading.strip(): text.strip() for heading, _, text in cut}


def sections(text: str) -> dict[str, str]:
    """Sections of a page by the first word of their heading; what stands before the first is left out."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith(FENCE)
        if line.startswith("## ") and not fenced:
            lines = found.setdefault(line.split()[1] if line.split()[1:] else "", [])
        lines.append(line)
    return {name: "\n".join(body).strip() + "\n" for name, body in found.items()}
