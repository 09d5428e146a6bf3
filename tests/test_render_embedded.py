"""The machine-readable report inside the page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib

import msgspec
import pytest
import sample_report
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.render import html, json_report
from topocheck.render.embedded import Embedded, NotWholeError, embed, find, seal_of, unpack
from topocheck.render.lean import lean
from topocheck.report import Report

SAMPLES = {
    "healthy": sample_report.healthy(),
    "split": sample_report.split_group(),
    "unknown": sample_report.unknown_only(),
    "broken": sample_report.broken(),
    "large": sample_report.swept(252, marked=[3]),
    "hostile": sample_report.hostile("</script><!--<script id='report'>&\u202e\x00\ud800é\\u003c"),
}


def decoded(document: str) -> Report:
    return msgspec.json.decode(document, type=Report)


@pytest.mark.parametrize("report", SAMPLES.values(), ids=SAMPLES.keys())
def test_a_page_holds_the_very_document_that_json_writes(report: Report) -> None:
    block = find(html.render(report))
    document = unpack(block)
    assert document == json_report.render(report)
    assert block.digest == "sha256:" + hashlib.sha256(document.encode()).hexdigest()


@pytest.mark.parametrize("report", SAMPLES.values(), ids=SAMPLES.keys())
def test_the_page_is_what_the_report_in_it_renders_to(report: Report) -> None:
    page = html.render(report)
    block = find(page)
    assert html.render(decoded(unpack(block))) == page
    assert html.render(decoded(unpack(block)), block) == page


def test_a_small_report_is_plain_json_for_any_reader_and_a_large_one_is_packed() -> None:
    small, large = (embed(*json_report.encoded(SAMPLES[name])) for name in ("split", "large"))
    assert (small.coding, large.coding) == ("json", "columns")
    assert json.loads(small.text) == json.loads(json_report.render(SAMPLES["split"]))
    assert isinstance(json.loads(large.text), str)
    assert len(large.text) * 20 < len(json_report.render(SAMPLES["large"]))


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(codec=None), max_size=40))
def test_no_text_ends_the_element_or_begins_another(text: str) -> None:
    report = sample_report.hostile(f"</script><!--{text}-->")
    page = html.render(report)
    block = find(page)
    assert not re.search("[<>&]", block.text)
    assert unpack(block) == json_report.render(report)


def test_the_digest_stands_on_the_page_for_people_too() -> None:
    page = html.render(SAMPLES["split"])
    assert page.count(find(page).digest) == 2


def test_a_page_without_identities_does_not_say_that_it_holds_all() -> None:
    whole, short = "This page holds the whole report", "without boot ids and GUIDs"
    large = sample_report.swept(80, marked=[3])
    for report, held in ((SAMPLES["split"], whole), (lean(large), short), (lean(large, uuids=True), short)):
        page = html.render(report)
        assert (whole in page, short in page) == (held == whole, held == short)


def test_the_last_line_is_the_digest_of_all_before_it() -> None:
    page = html.render(SAMPLES["split"])
    *lines, last = page.splitlines(keepends=True)
    assert hashlib.sha256("".join(lines).encode()).hexdigest() in last
    seal = seal_of(page)
    assert seal is not None
    assert seal[0] == seal[1]
    changed = seal_of(page.replace("gpu-0000", "gpu-0009", 1))
    assert changed is not None
    assert changed[0] != changed[1]
    assert seal_of(page[:-1]) is None
    assert seal_of(f"{page} ") is None
    assert seal_of("") is None


def test_a_page_without_a_report_with_two_or_with_half_of_one_is_refused() -> None:
    page = html.render(SAMPLES["split"])
    start = page.index('<script type="application/json" id="report"')
    wrong = {
        "holds no report": page[:start],
        "holds 2 reports": page + page[start:],
        "cut off inside": page[: start + 400],
        "opening tag was changed": page.replace('data-coding="json"', 'data-coding="none"'),
    }
    for words, text in wrong.items():
        with pytest.raises(NotWholeError, match=words):
            find(text)


def packed(data: bytes) -> str:
    return f'"{base64.b64encode(zlib.compress(data)).decode()}"'


@pytest.mark.parametrize(
    "text",
    [
        "",
        '"',
        '""',
        "x",
        '"!!!!"',
        '"AAAA"',
        packed(b""),
        packed(b"[[],[9]]"),
        packed(b"[" * 100_000),
        packed(b"[[],[0]]")[:-9] + '"',
        f'"{base64.b64encode(zlib.compress(b"[[],1]") + b"more").decode()}"',
        packed(b'[["\xff"],1]'),
    ],
)
def test_a_packed_report_that_is_damaged_is_refused(text: str) -> None:
    with pytest.raises(NotWholeError):
        unpack(Embedded("columns", "sha256:" + "0" * 64, text))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 127))
def test_any_changed_character_of_a_packed_report_is_seen(place: int, code: int) -> None:
    block = embed(*json_report.encoded(SAMPLES["large"]))
    at = place % len(block.text)
    text = block.text[:at] + chr(code) + block.text[at + 1 :]
    try:
        document = unpack(Embedded("columns", block.digest, text))
    except NotWholeError:
        return
    assert text == block.text or document == json_report.render(SAMPLES["large"])


def test_the_page_of_100_000_ranks_stays_below_a_megabyte_with_its_report() -> None:
    report = sample_report.swept(12_500, marked=[77, 9000])
    page = html.render(report)
    assert len(page.encode()) < 1_000_000
    assert unpack(find(page)) == json_report.render(report)
