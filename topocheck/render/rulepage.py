"""The page of a rule as HTML: what `topocheck explain` prints, folded into the checklist of the report.

The pages are Markdown of four forms: paragraphs, lists, fenced text and `code`. Anything else stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby

from markupsafe import Markup, escape

from topocheck.pages import FENCE, HEADINGS, own_pages, parts
from topocheck.report import RuleReport

__all__ = ["blocks", "rule_page"]

IN_SHORT = HEADINGS[:2]
"""Headings that a rule shows that nothing is to be done about."""
SETTLED = {"pass", "not-applicable", "deselected"}
CODE = re.compile("`([^`]+)`")
ITEM = "- "


def rule_page(rule: RuleReport) -> Markup:
    """The page of a rule of topocheck's own, in short where nothing is to be done; empty without one.

    A rule of another package has none here: a check of the report, which renders it again, may run without
    that package.
    """
    return Markup() if rule.package else _page(rule.id, rule.verdict in SETTLED)


@cache
def _page(rule: str, short: bool) -> Markup:
    """The page of the rule with this id."""
    told = parts(own_pages().get(rule, ""))
    return Markup().join(
        Markup("<h4>{}</h4>{}").format(heading, Markup().join(blocks(text)))
        for heading, text in told.items()
        if heading in IN_SHORT or not short
    )


def blocks(text: str) -> Iterator[Markup]:
    """Paragraphs, lists and fenced texts of Markdown, in their order."""
    lines = iter(text.splitlines())
    for fenced, group in groupby(lines, key=_Fences()):
        if fenced:
            yield Markup("<pre>{}</pre>").format(
                "\n".join(line for line in group if not line.startswith(FENCE))
            )
            continue
        for told, paragraph in groupby(group, key=lambda line: bool(line.strip())):
            if told:
                yield _paragraph(list(paragraph))


class _Fences:
    """Whether a line, asked in their order, lies in a fence or is one."""

    def __init__(self) -> None:
        self.inside = False

    def __call__(self, line: str) -> bool:
        is_fence = line.startswith(FENCE)
        self.inside ^= is_fence
        return self.inside or is_fence


def _paragraph(lines: list[str]) -> Markup:
    """Lines without an empty one: a list where the first is an item, else a paragraph."""
    if not lines[0].startswith(ITEM):
        return Markup("<p>{}</p>").format(_inline(lines))
    items: list[list[str]] = []
    for line in lines:
        if line.startswith(ITEM):
            items.append([line[len(ITEM) :]])
        else:
            items[-1].append(line)
    return Markup("<ul>{}</ul>").format(
        Markup().join(Markup("<li>{}</li>").format(_inline(item)) for item in items)
    )


def _inline(lines: list[str]) -> Markup:
    """Lines as one text, with its code marked."""
    text = str(escape(" ".join(line.strip() for line in lines)))
    # Escaped before: what is put around it are two tags of ours.
    return Markup(CODE.sub(r"<code>\1</code>", text))  # noqa: S704
