"""The report as HTML."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from importlib.resources import files

import msgspec
import pytest
import sample_report
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.render import html
from topocheck.render.embedded import Embedded
from topocheck.report import Evidence, InputReport, Report

SAMPLES = [
    sample_report.healthy,
    sample_report.split_group,
    sample_report.unknown_only,
    sample_report.broken,
    lambda: sample_report.swept(40, marked=[3]),
    lambda: sample_report.swept(252, marked=[3, 200]),
    lambda: msgspec.structs.replace(
        sample_report.healthy(), placement=None, inputs=[], notes=[], assumptions=[], rules=[]
    ),
]
TAGS = ("style", "script")
VOID = {"meta", "input", "br", "hr", "link", "img"}


class Page(HTMLParser):
    """Elements, attributes and text of a page; fails on elements that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend((tag, name, value or "") for name, value in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend((tag, name, value or "") for name, value in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.words.append(data)

    def all(self, tag: str, name: str) -> list[str]:
        """Values of an attribute of a kind of element."""
        return [value for one, key, value in self.attributes if (one, key) == (tag, name)]


def words(text: str) -> str:
    """Text of a page, white space folded."""
    return " ".join(" ".join(Page(text).words).split())


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_page_is_well_formed_and_every_reference_has_its_target(sample: Callable[[], Report]) -> None:
    page = Page(html.render(sample()))
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = [value.removeprefix("#") for value in page.all("a", "href")]
    labels = [value for _, name, value in page.attributes if name == "aria-labelledby"]
    assert set(targets + labels) <= set(ids)
    assert page.tags.count("h1") == 1
    assert page.all("html", "lang") == ["en"]


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_page_asks_nothing_of_anybody(sample: Callable[[], Report]) -> None:
    page = Page(html.render(sample()))
    assert not {"link", "img", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    names = {name for _, name, _ in page.attributes}
    assert not {
        name for name in names if name in {"src", "srcset", "style", "action"} or name.startswith("on")
    }
    assert all(value.startswith("#") for _, name, value in page.attributes if name == "href")


def test_the_policy_allows_this_style_and_this_script_and_nothing_else() -> None:
    text = html.render(sample_report.healthy())
    css, script = (text[text.index(f"<{tag}>") + len(tag) + 2 : text.rindex(f"</{tag}>")] for tag in TAGS)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.replace("&#39;", "'") == (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(css)}; "
        "base-uri 'none'; form-action 'none'"
    )
    assert "url(" not in css
    assert "@import" not in css


def digest(text: str) -> str:
    """As a policy writes it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_script_makes_nothing_out_of_text_but_text() -> None:
    files_of = files("topocheck.templates")
    for name in ("report.js", "rank_table.js", "placement_map.js"):
        script = files_of.joinpath(name).read_text(encoding="utf-8")
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "eval(",
            "Function(",
            "document.write",
            "fetch(",
        ):
            assert word not in script
        assert "</" not in script


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_same_report_gives_the_same_bytes(sample: Callable[[], Report]) -> None:
    assert html.render(sample()) == html.render(sample())


def test_the_page_says_what_a_reader_needs() -> None:
    shown = words(html.render(sample_report.split_group()))
    for expected in (
        "Tensor group 0 (ranks 0..3) is split over gpu-0000 and gpu-0001",
        "vLLM 0.11.0, TP 4 x PP 2",
        "predicted, not proven",
        "Give both nodes slots=4",
        "About ranks 0..7",
        "evidence/hostfile:1 gpu-0000 slots=2",
        "ibstat > gpu-0001-ibstat.txt",
        "known, board on order (infra, until 2031-04-01)",
        "≠ gpu-0000",
        "environment of rank 2",
        "sha256:" + "1f" * 32,
        "CUDA_VISIBLE_DEVICES is unset",
        "Hosts that carry no rank gpu-0007",
        "exit code 1 (findings)",
    ):
        assert expected in shown


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        (
            "2031-03-04T04:00:00Z",
            "2031-03-04T05:00:00Z",
            "from 2031-03-04T04:00:00Z to 2031-03-04T05:00:00Z,",
        ),
        ("2031-03-04T04:00:00Z", "2031-03-04T04:00:00Z", "Evidence taken at 2031-03-04T04:00:00Z,"),
        (None, None, "When the evidence was taken is not shown."),
    ],
)
def test_the_head_says_from_when_the_evidence_is(first: str | None, last: str | None, said: str) -> None:
    made = msgspec.structs.replace(sample_report.healthy(), evidence_from=first, evidence_to=last)
    shown = words(html.render(made))
    assert said in shown
    assert "Ages held against 2031-03-04T05:06:07Z" in shown


def test_a_verdict_has_a_word_and_a_mark_beside_its_colour() -> None:
    shown = words(html.render(sample_report.split_group()))
    assert "✗ FAIL" in shown
    assert "✓ pass" in shown
    assert "? unknown" in shown
    assert "- not applicable" in shown
    assert "! broke" in words(html.render(sample_report.broken()))


def test_rules_stand_in_their_families_in_the_order_of_the_catalogue() -> None:
    text = html.render(sample_report.healthy())
    order = re.findall(r'scope="rowgroup"[^>]*><h3>([^<]*)|<tr class="\S+" id="rule-(\w+)"', text)
    assert [rule for _, rule in order if rule] == [rule[0] for rule in sample_report.CATALOGUE]
    families = list(dict.fromkeys(rule[2] for rule in sample_report.CATALOGUE))
    assert [family for family, _ in order if family] == families


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    shown = words(html.render(sample_report.unknown_only()))
    assert "? UNKNOWN" in shown
    assert "gpu-0001 \N{EN DASH} unknown" in shown
    assert "CAP001 GPUs are free: no GPU was seen" in shown
    assert "Give topocheck probe > gpu-0001.json" in shown


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "</title><script>alert(1)</script>",
        "</style><style>*{display:none}</style>",
        "\"><img src=x onerror='alert(1)'>",
        "' onmouseover='alert(1)",
        "{{ 7 * 7 }}{% raw %}",
        "javascript:alert(1)",
        "\x1b[31m\u202egnp.exe\u2066",
        "&lt;b&gt; &#x202e;",
        "]]><!-- --!>",
        "\udc80\x00\ufffe",
        "A" * 50_000,
    ],
)
def test_hostile_text_stays_text(text: str) -> None:
    calm = Page(html.render(sample_report.hostile("calm")))
    page = Page(html.render(sample_report.hostile(text)))
    assert page.tags == calm.tags
    assert [item[:2] for item in page.attributes] == [item[:2] for item in calm.attributes]
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", "".join(page.words)
    )


@given(st.text(st.characters(), max_size=40))
@settings(max_examples=50, deadline=None)
def test_any_text_leaves_the_elements_as_they_are(text: str) -> None:
    rendered = html.render(sample_report.hostile("x" + text))
    rendered.encode()
    assert Page(rendered).tags == CALM


CALM = Page(html.render(sample_report.hostile("calm"))).tags


@pytest.mark.parametrize("rows", [512, None])
def test_a_report_of_100_000_ranks_is_small_and_still_shows_where_the_red_is(rows: int | None) -> None:
    made = sample_report.swept(12_500, rows=rows, marked=[77, 5000, 5001, 12_499])
    text = html.render(made)
    page = Page(text)
    assert len(text.encode()) < 1_500_000
    assert len(page.tags) < 20_000
    assert page.tags.count("svg") >= 2
    shown = words(text)
    assert "4 marked by an error" in shown
    assert "512 of 100000 ranks are shown" in shown
    assert "gpu-12499" in shown


def test_marked_ranks_are_listed_before_others() -> None:
    text = html.render(sample_report.swept(252, marked=[240]))
    rows = re.findall(r'<tr class="error"><th scope="row">(\d+)', text)
    assert rows == [str(rank) for rank in range(1920, 1928)]


def test_a_flood_stays_below_five_megabytes() -> None:
    # A little more of each than the page shows: all of it is also encoded, and must fit in memory.
    long = "x" * 5_000
    finding = sample_report.finding(long, fix=long, evidence=[Evidence(source=long, fact=long)] * 10)
    rules = [
        sample_report.failed(sample_report.by_id(rule[0]), [finding] * 6) for rule in sample_report.CATALOGUE
    ]
    made = sample_report.report(long, rules, verdict="fail", reason="findings")
    placement = sample_report.hostile(long).placement
    assert placement is not None
    flood = msgspec.structs.replace(placement, world=600, ranks=placement.ranks[:1] * 600)
    entry = InputReport(name=long, kind=long, digest=long, hosts=[long] * 10, notes=[long] * 10)
    changes = {"inputs": [entry] * 300, "notes": [long] * 300, "placement": flood}
    # What the page itself shows: the report that it holds is as large as the report is.
    text = html.render(msgspec.structs.replace(made, **changes), Embedded("json", "", "{}"))
    assert len(text.encode()) < 5_000_000
    assert "100 of 120 findings are shown" in words(text)
    assert "256 of 300 inputs are shown" in words(text)


def test_names_of_one_gpu_by_uuid_and_by_bus_are_no_contradiction() -> None:
    made = sample_report.split_group()
    assert made.placement is not None
    rank = made.placement.ranks[0]
    claim = msgspec.structs.replace(rank.sources["predicted"], gpu="0000:17:00.0", source="log")
    made.placement.ranks[0] = msgspec.structs.replace(rank, sources={"claimed": claim})
    made.placement.ranks[2] = msgspec.structs.replace(made.placement.ranks[2], sources={})
    assert "≠" not in words(html.render(made))


def contrast(one: str, other: str) -> float:
    """Contrast of two colours as WCAG 2 has it, 1 to 21."""
    lights = sorted(_luminance(colour) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_text_has_the_contrast_that_wcag_aa_asks(mode: int) -> None:
    css = files("topocheck.templates").joinpath("report.css").read_text(encoding="utf-8")
    block = re.findall(r":root \{([^}]*--g7[^}]*)\}", css)[mode]
    colour = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    pairs = [("ink", name) for name in ("paper", "panel", "plain-bg", "good-bg", "bad-bg", "open-bg")]
    pairs += [("ink", f"g{number}") for number in range(8)]
    pairs += [("soft", name) for name in ("paper", "panel", "plain-bg")]
    pairs += [("link", name) for name in ("paper", "panel")]
    pairs += [(name, f"{name}-bg") for name in ("good", "bad", "open", "broke")]
    pairs += [("on-sign", name) for name in ("good", "bad", "open", "link")]
    assert [pair for pair in pairs if contrast(colour[pair[0]], colour[pair[1]]) < 4.5] == []


def test_what_the_sentence_names_is_the_first_thing_to_do() -> None:
    report = sample_report.split_group()
    found = [(rule.id, finding.fix) for rule in report.rules for finding in rule.findings if finding.counts]
    for rule, fix in found:
        named = msgspec.structs.replace(report, sentence=f"something is wrong [{rule}]")
        first, *_ = re.findall(r"<li><strong>(.*?)</strong>", html.render(named))
        assert first == fix
