"""The pages of rules inside the report."""

from __future__ import annotations

import re

import msgspec
import pytest
import sample_report
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.pages import HEADINGS, own_pages, page, parts
from topocheck.render import html
from topocheck.render.lean import lean
from topocheck.render.rulepage import blocks, rule_page
from topocheck.rules import RULES

RULE = sample_report.by_id("TP001")


def rendered(text: str) -> str:
    return "".join(blocks(text))


def test_own_pages_are_those_that_explain_prints() -> None:
    assert own_pages() == {rule.id: page(rule) for rule in RULES}


def test_paragraphs_lists_fences_and_code_are_marked() -> None:
    assert rendered("One\ntwo `a < b`.\n\n- x\n  y\n- z\n\n```text\n- <i>\n\n  at\n```\nEnd") == (
        "<p>One two <code>a &lt; b</code>.</p><ul><li>x y</li><li>z</li></ul>"
        "<pre>- &lt;i&gt;\n\n  at</pre><p>End</p>"
    )


@given(st.text(st.sampled_from("a<>&`-# \n\"'"), max_size=60))
@settings(max_examples=100, deadline=None)
def test_no_text_of_a_page_becomes_markup(text: str) -> None:
    tags = set(re.findall("<[^>]*>", rendered(text)))
    assert tags <= {f"<{end}{tag}>" for tag in ("p", "ul", "li", "pre", "code") for end in ("", "/")}
    bare = re.sub("<[^>]*>", "", rendered(text))
    assert not re.search("[<>\"']", bare)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_text_of_every_page_is_there_and_marked_to_the_end(rule: object) -> None:
    told = parts(own_pages()[rule.id])  # type: ignore[attr-defined]
    assert tuple(told) == HEADINGS
    for text in told.values():
        bare = re.sub("<[^>]*>", " ", rendered(text))
        assert len(bare.split()) >= len(re.sub("```\\w*|^- ", " ", text, flags=re.MULTILINE).split()) - 2
        assert "```" not in bare
        assert "`" not in re.sub("<pre>.*?</pre>", "", rendered(text), flags=re.DOTALL)


@pytest.mark.parametrize(
    ("verdict", "headings"),
    [
        ("pass", HEADINGS[:2]),
        ("not-applicable", HEADINGS[:2]),
        ("deselected", HEADINGS[:2]),
        ("fail", HEADINGS),
        ("unknown", HEADINGS),
        ("error", HEADINGS),
    ],
)
def test_a_rule_that_something_is_to_be_done_about_has_all_of_its_page(
    verdict: str, headings: tuple[str, ...]
) -> None:
    shown = rule_page(msgspec.structs.replace(RULE, verdict=verdict))
    assert tuple(re.findall("<h4>([^<]*)</h4>", shown)) == headings


def test_each_row_of_the_checklist_has_the_page_of_its_rule_without_a_script() -> None:
    text = html.render(sample_report.split_group())
    folded = re.findall(
        r'<details class="about"><summary>About this rule</summary><h4>What it checks</h4>', text
    )
    assert len(folded) == len(sample_report.CATALOGUE)
    assert "All ranks of a TP group lie on one node." in text


@pytest.mark.parametrize("change", [{"package": "more 1.0"}, {"id": "ZZ999"}, {"id": "</td>"}])
def test_a_rule_of_another_package_or_of_none_has_no_page(change: dict[str, str]) -> None:
    assert rule_page(msgspec.structs.replace(RULE, **change)) == ""
    made = msgspec.structs.replace(sample_report.healthy(), rules=[msgspec.structs.replace(RULE, **change)])
    assert 'class="about"' not in html.render(made)


def test_the_page_of_100_000_ranks_stays_below_a_megabyte_with_the_pages_of_all_rules() -> None:
    rules = [
        msgspec.structs.replace(RULE, id=rule.id, name=rule.name, family=rule.module, verdict="unknown")
        if place % 8 == 0
        else msgspec.structs.replace(RULE, id=rule.id, name=rule.name, family=rule.module)
        for place, rule in enumerate(RULES)
    ]
    made = msgspec.structs.replace(sample_report.swept(12_500, marked=[77, 9000]), rules=rules)
    text = html.render(lean(made))
    assert text.count('class="about"') == len(RULES)
    assert len(text.encode()) < 1_000_000
