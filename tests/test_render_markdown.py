"""The report as Markdown: short, and inert whatever a host is called."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pytest
import sample_report
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from topocheck.render import markdown
from topocheck.report import Evidence, Report

FOREIGN = (
    "@someone #12 !3 GH-4 ~label %milestone $x$ &1 https://evil.example www.evil.example a@b.example "
    "![x](http://e.example/x.png) [a](b) <b>x</b> <!-- c --> | a | ``` ~~~ `x` :tada: [^1] *e* __s__ ~~d~~ "
    "{{x}} &lt;b&gt; \\ deadbeefdeadbeefdeadbeefdeadbeefdeadbeef"
    "\n\n# h\n- x\n1. y\n> q\n---\n|a|\n|-|\n    code"
)
ACTIVE = {"html_block", "html_inline", "link_open", "image", "table_open", "blockquote_open", "em_open"}
ACTIVE |= {"fence", "code_block", "hr", "strong_open", "s_open", "hardbreak", "ordered_list_open"}
REFERENCE = re.compile(r"@\w|[#!~%&^]\w|\$\w|GH-\d|\w://|www\.|:[\w+-]+:|[0-9a-f]{40}")


def tokens(text: str) -> Iterator[Token]:
    """Blocks and what stands in them, as a reader of GitHub's Markdown finds them."""
    for block in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        yield block
        yield from block.children or ()


def trouble(text: str) -> list[str]:
    """What of a page would do more than stand there; bold rule ids are our own."""
    found = [token for token in tokens(text) if token.type in ACTIVE - {"strong_open"}]
    prose = [token.content for token in tokens(text) if token.type == "text"]
    return [token.type for token in found] + [words for words in prose if REFERENCE.search(words)]


def outline(text: str) -> list[tuple[str, str]]:
    """Blocks with their tags, whatever they say."""
    return [(block.type, block.tag) for block in tokens(text) if block.block]


def test_it_says_what_a_ticket_needs() -> None:
    text = markdown.render(sample_report.split_group())
    assert text.startswith("## ❌ FAIL: Tensor group 0 (ranks 0..3) is split over gpu-0000 and gpu-0001")
    for expected in (
        "- Exit code 1: findings",
        "- Findings: 2 errors, 1 warning, 0 infos, 1 waived",
        "- **TP001** error: Tensor groups 0 and 1",
        "  - about ranks 0..7",
        "  - evidence `evidence/hostfile:1`: `gpu-0000 slots=2`",
        "  - fix: Give both nodes slots=4",
        "  - waived: known, board on order (infra, until 2031-04-01)",
        "- `plan.yaml` plan `sha256:" + "1f" * 32 + "`",
    ):
        assert f"\n{expected}" in text
    assert trouble(text) == []


def test_what_is_missing_stands_there_with_the_command() -> None:
    text = markdown.render(sample_report.unknown_only())
    assert "\n- missing: link classes between its GPUs (gpu-0000; gpu-0001)\n" in text
    assert "\n  - give `nvidia-smi topo -m > NODE-topo.txt`\n  - blocks TP002, PP003\n" in text


def test_trouble_of_topocheck_is_told_as_such() -> None:
    assert "Trouble of topocheck, not of the job." in markdown.render(sample_report.broken())


def test_an_open_gate_is_a_few_lines() -> None:
    text = markdown.render(sample_report.healthy())
    assert text.startswith("## ✅ PASS: ")
    assert len(text.splitlines()) < 20


def test_the_reader_of_the_test_sees_what_the_page_must_not_hold() -> None:
    assert set(trouble(FOREIGN)) >= {"html_inline", "link_open", "image", "s_open"}


@pytest.mark.parametrize(
    "text", [FOREIGN, *FOREIGN.split(), "`", "``", "|", "\\", " ", "", "> x", "# x", "- x"]
)
def test_names_of_others_are_inert(text: str) -> None:
    assert trouble(markdown.render(sample_report.hostile(text))) == []


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("`|\\<>[]()!*_~#@:/&$^-+.=0a \n\t") | st.characters(codec=None), max_size=40))
def test_no_text_changes_the_outline(text: str) -> None:
    told = markdown.render(sample_report.hostile(f"a{text}a"))
    assert outline(told) == outline(markdown.render(sample_report.hostile("aa")))
    assert trouble(told) == []


@pytest.mark.parametrize("text", ["x" * 5000, "_*[]()<b>" * 600, "@" * 5000, "` " * 3000, "| " * 3000])
def test_a_comment_takes_it_however_much_there_is(text: str) -> None:
    report = sample_report.hostile(text)
    many = [msgspec.structs.replace(rule, findings=rule.findings * 30) for rule in report.rules]
    large = msgspec.structs.replace(
        report, rules=many, gaps=report.gaps * 900, inputs=report.inputs * 900, waivers=report.waivers * 900
    )
    assert len(markdown.render(large).encode()) < 65_536
    assert "the JSON and the HTML report have" in markdown.render(large)


@pytest.mark.parametrize("report", [sample_report.healthy(), sample_report.hostile(FOREIGN)])
def test_the_same_report_gives_the_same_text(report: Report) -> None:
    assert markdown.render(report) == markdown.render(report)
    assert markdown.render(report).endswith("\n")


@pytest.mark.parametrize(("facts", "said"), [(3, None), (4, "and 1 more fact\n"), (5, "and 2 more facts\n")])
def test_facts_that_are_left_out_are_counted(facts: int, said: str | None) -> None:
    fact = Evidence(source="plan.yaml", line=1, fact="nodes: 2")
    rule = sample_report.failed(
        sample_report.by_id("TP001"), [sample_report.finding("It crosses.", evidence=[fact] * facts)]
    )
    text = markdown.render(sample_report.report("It crosses.", [rule], verdict="fail", reason="findings"))
    assert (" more fact" in text) == (said is not None)
    assert said is None or said in text
