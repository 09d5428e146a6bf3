"""Every rule has its page section, and what the page quotes is what verify says."""

from __future__ import annotations

import dataclasses
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import rule_failures
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import InternalError
from topocheck.pages import HEADINGS, page, sections
from topocheck.rule import Rule
from topocheck.rules import RULES

WIDTH = 79
RULE = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)


def parts_of(section: str) -> dict[str, str]:
    """Text under each heading of a section, in its order."""
    _, *parts = section.split("\n### ")
    return {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts}


def pages() -> list[Path]:
    folder = files("topocheck.rules")
    return sorted(Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".md"))


@RULE
def test_the_section_of_a_rule_has_its_name_and_all_headings_with_text(rule: Rule[Any]) -> None:
    section = page(rule)
    parts = parts_of(section)
    assert section.startswith(f"## {rule.id} {rule.name}\n")
    assert tuple(parts) == HEADINGS
    assert all(parts.values()), "a heading without text"


def test_every_section_is_of_a_rule_that_exists_and_lies_beside_its_module() -> None:
    told = {name: path.stem for path in pages() for name in sections(path.read_text(encoding="utf-8"))}
    assert told == {rule.id: rule.module.rpartition(".")[2] for rule in RULES}


@RULE
def test_the_failure_that_a_page_shows_is_what_verify_says(rule: Rule[Any]) -> None:
    shown = parts_of(page(rule))["What a failure looks like"]
    assert shown == f"```text\n{rule_failures.quoted(rule.id)}```"


@RULE
def test_a_rule_is_broken_by_its_job(rule: Rule[Any]) -> None:
    report = rule_failures.reported(rule_failures.FAILURES[rule.id])
    answer = next(answer for answer in report.rules if answer.id == rule.id)
    never_fails = rule.id == "ID003"
    assert answer.verdict == ("unknown" if never_fails else "fail")


@pytest.mark.parametrize("name", rule_failures.HEALTHY)
def test_a_healthy_job_breaks_no_rule(name: str) -> None:
    report = rule_failures.reported(rule_failures.HEALTHY[name])
    assert [finding.message for rule in report.rules for finding in rule.findings] == []
    assert (report.verdict, report.exit_code, report.counts.error) == ("pass", 0, 0)


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_pages_fit_a_terminal_and_close_their_fences(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > WIDTH] == []
    assert sum(line.startswith("```") for line in lines) % 2 == 0
    assert all(line.isprintable() for line in lines)


def test_a_rule_that_a_page_names_exists() -> None:
    known = {rule.id for rule in RULES}
    families = {rule.family for rule in RULES}
    for path in pages():
        for word in path.read_text(encoding="utf-8").replace("'s", " ").split():
            name = word.strip("`.,;:()")
            if name.rstrip("0123456789") in families and name[-3:].isdigit():
                assert name in known, f"{path.name} names {name}"


def test_a_rule_without_a_page_is_an_error_of_its_package() -> None:
    def check(_ask: object, _subject: object) -> list[Any]:
        return []

    foreign = dataclasses.replace(RULES[0], id="ZZ001")
    with pytest.raises(InternalError, match="no section '## ZZ001"):
        page(foreign)
    check.__module__ = "topocheck.rules.absent"
    with pytest.raises(InternalError, match=r"absent\.md beside topocheck\.rules\.absent, is missing"):
        page(dataclasses.replace(RULES[0], check=check))
    check.__module__ = "alone"
    with pytest.raises(InternalError, match="is missing"):
        page(dataclasses.replace(RULES[0], check=check))


def test_a_heading_inside_a_fence_is_no_section() -> None:
    text = "# Page\nlead\n## A1 one\n```text\n## B2 not one\n```\nend\n## C3 two\n"
    assert sections(text) == {"A1": "## A1 one\n```text\n## B2 not one\n```\nend\n", "C3": "## C3 two\n"}


@given(st.text(alphabet=" #`\nABC1é", max_size=200))
@settings(max_examples=50, deadline=None)
def test_any_text_has_sections_that_begin_with_their_heading(text: str) -> None:
    assert all(section.startswith("##") for section in sections(text).values())
