"""The timeline as text and as SVG."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real import require
from test_pipeline_schedule import pipeline, pipelines

from topocheck.pipeline.duration import spell_duration
from topocheck.pipeline.schedule import Pipeline, run
from topocheck.pipeline.timeline import MOST_ROWS, svg, text

SVG = "{http://www.w3.org/2000/svg}"


def drawn(one: Pipeline, width: int = 80) -> list[str]:
    return list(text(run(one), spell_duration, width))


def test_fill_and_drain_look_like_a_staircase() -> None:
    assert drawn(pipeline("forward", 3, 2), 40) == [
        "         0                      20 ns",
        "stage 0  [0>>>>][1>>>>]..............",
        "stage 1  .......[0>>>>][1>>>>].......",
        "stage 2  ..............[0>>>>][1>>>>]",
        "> forward, . idle, number: microbatch",
    ]


def test_backward_has_a_sign_of_its_own() -> None:
    assert drawn(pipeline("1f1b", 2, 2), 46)[1:] == [
        "stage 0  [0>][1>]........[0<<<<<]....[1<<<<<]",
        "stage 1  ....[0>][0<<<<<][1>][1<<<<<]........",
        "> forward, < backward, . idle, number: microbatch",
    ]


def test_chunks_of_a_stage_are_told_apart() -> None:
    lines = drawn(pipeline("interleaved", 2, 2, 2), 120)
    assert "[0.0>" in lines[1]
    assert "[1.1<" in lines[2]
    assert lines[-1].endswith("number: microbatch.chunk")


@given(pipelines(), st.integers(40, 120))
@settings(max_examples=100, deadline=None)
def test_no_line_is_wider_than_asked_and_each_row_as_wide_as_the_others(one: Pipeline, width: int) -> None:
    lines = drawn(one, width)
    rows = [line for line in lines if line.startswith("stage ")]
    assert {len(line) for line in [lines[0], *rows]} == {len(rows[0])}
    assert len(rows[0]) <= width
    assert len(rows) == one.stages


def test_what_is_too_short_to_be_drawn_shows_what_takes_most_of_a_column() -> None:
    lines = drawn(Pipeline(forward=tuple(map(Fraction, (1, 40))), microbatches=500, schedule="1f1b"))
    assert set(lines[1].removeprefix("stage 0").strip()) == {":"}
    assert set(lines[2].removeprefix("stage 1").strip()) <= {"x", "<", ">"}
    assert ": idle for more than half" in lines[-1]
    assert "number" not in lines[-1]


def test_only_so_many_stages_are_drawn_and_the_rest_is_counted() -> None:
    one = run(pipeline("forward", MOST_ROWS + 5, 2))
    assert list(text(one, spell_duration))[-1] == "... and 5 more stages"
    picture = svg(one, spell_duration, title="many")
    assert picture.count(">stage ") == MOST_ROWS
    assert f"the first {MOST_ROWS} stages are drawn" in picture


@given(pipelines())
@settings(max_examples=50, deadline=None)
def test_bars_of_the_svg_lie_in_their_lane_and_do_not_overlap(one: Pipeline) -> None:
    root = ET.fromstring(svg(run(one), spell_duration, title="t"))  # noqa: S314 - our own text
    lanes: dict[str, list[tuple[int, int]]] = {}
    for rect in root.iter(f"{SVG}rect"):
        if rect.get("class") in {"f", "b", "m", "p"} and rect.get("height") == "28":
            x, width = int(rect.get("x", "")), int(rect.get("width", ""))
            lanes.setdefault(rect.get("y", ""), []).append((x, x + width))
    assert len(lanes) == one.stages
    for bars in lanes.values():
        assert all(first[1] <= second[0] for first, second in pairwise(bars))
        assert bars[0][0] >= 76
        assert bars[-1][1] <= 960 - 16


def test_the_svg_says_what_it_shows_and_loads_nothing() -> None:
    picture = svg(run(pipeline("1f1b", 4, 8)), spell_duration, title='<b> & "x"', name="one")
    root = ET.fromstring(picture)  # noqa: S314 - our own text
    assert root.get("role") == "img"
    title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert desc is not None
    assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}" == "one-title one-desc"
    assert title.text == '<b> & "x"'
    assert "4 stages work on 8 microbatches" in (desc.text or "")
    assert "idle for 27.3%" in (desc.text or "")
    assert "href" not in picture
    assert "@import" not in picture
    assert picture.count("url(") == picture.count("url(#one-hatch)")


def test_backward_is_told_from_forward_without_colour() -> None:
    picture = svg(run(pipeline("gpipe", 2, 2)), spell_duration, title="t")
    assert picture.count('class="b"') == picture.count('class="h"') == 5  # four bars and the key
    for label in (">F0<", ">F1<", ">B0<", ">B1<", "backward, hatched"):
        assert label in picture


def test_a_long_run_is_a_small_drawing() -> None:
    picture = svg(run(pipeline("1f1b", 8, 5000)), spell_duration, title="t")
    assert len(picture) < 500_000
    assert "both in turn" in picture


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_svg_by_itself(tmp_path: Path, scheme: str) -> None:
    require("playwright")
    chromium = require("chromium")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  an optional component

    path = tmp_path / "timeline.svg"
    path.write_text(svg(run(pipeline("1f1b", 4, 8)), spell_duration, title="t"), encoding="utf-8")
    flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, headless=True, args=flags)
        page = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        assert asked == [path.as_uri()]
        assert page.locator("svg").bounding_box() is not None
        colour = page.evaluate("getComputedStyle(document.querySelector('text')).fill")
        assert colour == ("rgb(27, 31, 36)" if scheme == "light" else "rgb(232, 236, 240)")
        browser.close()
