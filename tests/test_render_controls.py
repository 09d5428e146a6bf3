"""Every control of the HTML report, used in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import sample_report
from chromium import HOSTILE, REPORTS, Visit, axe_script, chromium, until, written

from topocheck.report import GroupReport, Report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BIG = 100
"""Nodes of a job that is large enough for an overview."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, once for this file."""
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Visit]:
    """The page of the failing job of two nodes."""
    with browser.new_context() as context:
        visit = Visit(context, written(sample_report.split_group(), tmp_path))
        yield visit
        assert visit.complaints == []
        assert len(visit.requests) == 1


@pytest.fixture
def swept(browser: Browser, tmp_path: Path) -> Iterator[Visit]:
    """The page of a job with an overview, two of its nodes marked."""
    with browser.new_context() as context:
        visit = Visit(context, written(sample_report.swept(BIG, marked=[7, 90]), tmp_path))
        yield visit
        assert visit.complaints == []
        assert len(visit.requests) == 1


def visible(page: Page, selector: str) -> list[str]:
    """Text of what is visible of these elements."""
    return [one.inner_text() for one in page.locator(selector).all() if one.is_visible()]


def rules_shown(page: Page) -> list[str]:
    """Rules of the checklist that are visible."""
    return visible(page, ".rules tr[id] > th")


def findings_shown(page: Page) -> list[str]:
    """Rules of the findings that are visible."""
    return visible(page, "article.finding[data-rule] h3 > a:first-of-type")


def rows(page: Page, place: int = 0) -> list[list[str]]:
    """Rows that the table of all ranks has drawn."""
    page.locator(f"#all-ranks-{place}").scroll_into_view_if_needed()
    page.locator(f"#all-ranks-{place} tbody tr:not(.space)").first.wait_for()
    drawn = f"#all-ranks-{place} tbody tr:not(.space)"
    found: list[list[str]] = page.evaluate(
        "drawn => [...document.querySelectorAll(drawn)].map(r => [...r.cells].map(one => one.textContent))",
        drawn,
    )
    return found


def column(page: Page, title: str) -> list[str]:
    """Cells of one column of the drawn rows."""
    drawn = rows(page)
    heads = [head.inner_text().split(" ▲")[0] for head in page.locator("#all-ranks-0 thead th").all()]
    return [row[heads.index(title)] for row in drawn]


def test_the_filter_by_state_severity_rank_and_node_shows_what_matches(opened: Visit) -> None:
    page = opened.page
    page.locator("#filter-state").select_option("unknown")
    until(page, "document.getElementById('filter-status').textContent")
    assert rules_shown(page) == ["NET001"]
    assert findings_shown(page) == []
    assert page.locator("#filter-status").inner_text().startswith("0 of 4 findings and 1 of 20 rules")
    page.locator("#filter-reset").click()
    page.locator("#filter-severity").select_option("warning")
    until(page, "document.querySelectorAll('article.finding.out').length === 3")
    assert findings_shown(page) == ["PP004"]
    page.locator("#filter-reset").click()
    page.locator("#filter-rank").fill("6")
    until(page, "document.querySelectorAll('article.finding.out').length === 3")
    assert findings_shown(page) == ["TP001"]
    page.locator("#filter-rank").fill("3, 5")
    until(page, "document.querySelectorAll('article.finding.out').length === 0")
    assert findings_shown(page) == ["TP001", "CAP001", "PP004", "VER007"]
    page.locator("#filter-reset").click()
    page.locator("#filter-node").fill("nobody")
    until(page, "document.querySelectorAll('article.finding.out').length === 4")
    page.locator("#filter-reset").click()
    assert len(rules_shown(page)) == 20
    assert page.locator("#filter-status").inner_text() == ""


def test_a_finding_whose_list_of_subjects_is_cut_stays_as_a_maybe(browser: Browser, tmp_path: Path) -> None:
    wrong = sample_report.finding("Many.", count=900)
    rules = sample_report.catalogue({"TP001": sample_report.failed(sample_report.by_id("TP001"), [wrong])})
    report = sample_report.report(
        "Bad.", rules, verdict="fail", reason="findings", placement=sample_report.placed()
    )
    with browser.new_context() as context:
        page = Visit(context, written(report, tmp_path)).page
        page.locator("#filter-rank").fill("7")
        until(page, "document.querySelector('article.finding.maybe')")
        assert "may be about it" in page.locator("#filter-status").inner_text()


def test_a_rank_that_is_none_is_said_to_be_none(opened: Visit) -> None:
    page = opened.page
    page.locator("#filter-rank").fill("seven")
    until(page, "document.getElementById('filter-rank').hasAttribute('aria-invalid')")
    assert len(findings_shown(page)) == 4


def test_a_link_to_a_finding_leads_to_it_through_any_filter(
    browser: Browser, opened: Visit, tmp_path: Path
) -> None:
    page = opened.page
    page.locator("#filter-state").select_option("pass")
    until(page, "document.querySelector('article.finding.out')")
    name = page.locator("article.finding").nth(1).get_attribute("id")
    page.evaluate("name => { location.hash = name }", name)
    until(page, "!document.querySelector('.out')")
    assert page.locator(f"#{name}").is_visible()
    with browser.new_context() as context:
        other = Visit(context, written(sample_report.split_group(), tmp_path), f"#{name}").page
        top = other.locator(f"#{name}").bounding_box()
        assert top is not None
        assert 0 <= top["y"] < 720


def test_links_stay_when_only_what_was_measured_changes(tmp_path: Path) -> None:
    report = sample_report.split_group()
    pages = [written(report, tmp_path).read_text(encoding="utf-8")]
    rules = [
        msgspec.structs.replace(
            rule,
            findings=[msgspec.structs.replace(one, message="Since an hour.") for one in rule.findings],
        )
        for rule in report.rules
    ]
    pages.append(written(msgspec.structs.replace(report, rules=rules), tmp_path).read_text(encoding="utf-8"))
    names = [[part.split('"')[0] for part in page.split('id="finding-')[1:]] for page in pages]
    assert len(names[0]) == 4
    assert names[0] == names[1]


def test_the_map_is_coloured_by_group_stage_or_replica_without_script(
    browser: Browser, tmp_path: Path
) -> None:
    report = msgspec.structs.replace(
        sample_report.healthy(), placement=sample_report.placed(tensor=2, pipeline=2, data=2)
    )
    with browser.new_context(java_script_enabled=False) as context:
        page = Visit(context, written(report, tmp_path)).page
        fills = []
        for way in ("tensor", "stage", "replica"):
            page.locator(f".by-{way}").first.check()
            assert page.locator(f".legend.{way}").is_visible()
            assert page.locator(".legend.tensor, .legend.stage, .legend.replica").count() == 3
            cells = page.locator("#detail-0 g.cell > rect").all()
            fills.append([cell.evaluate("one => getComputedStyle(one).fill") for cell in cells])
    number = [[fill.index(one) for one in fill] for fill in fills]
    assert number == [[0, 0, 2, 2, 4, 4, 6, 6], [0, 0, 2, 2, 0, 0, 2, 2], [0, 0, 0, 0, 4, 4, 4, 4]]


def test_the_map_grows_shrinks_and_fits_by_buttons_and_keys(opened: Visit) -> None:
    page = opened.page
    width = "document.getElementById('detail-0').getBoundingClientRect().width"
    before = page.evaluate(width)
    bar = page.locator(".zoom[data-for='detail-0'] button")
    bar.nth(0).click()
    assert page.evaluate(width) == pytest.approx(1.5 * before, rel=0.01)
    bar.nth(1).click()
    assert page.evaluate(width) == pytest.approx(before, rel=0.01)
    page.locator(".drawing .scroll").focus()
    page.keyboard.press("+")
    assert page.evaluate(width) == pytest.approx(1.5 * before, rel=0.01)
    page.keyboard.press("0")
    assert page.evaluate(width) == pytest.approx(before, rel=0.01)


def test_ranks_nodes_and_gpus_are_found_on_the_map(opened: Visit) -> None:
    page = opened.page
    for text, hits in (("5", 1), ("0..2", 3), ("gpu-0001", 1), ("nothing-like-it", 0)):
        page.locator("#find-0").fill(text)
        page.locator("#find-go-0").click()
        until(page, "document.getElementById('find-status-0').textContent")
        assert page.locator("#detail-0 .hit").count() == hits, text
    assert page.locator("#find-status-0").inner_text() == "Nothing of that name is on the map."


def test_the_overview_finds_a_rank_and_shows_its_node(swept: Visit) -> None:
    page = swept.page
    page.locator("#find-0").fill("333")
    page.locator("#find-0").press("Enter")
    page.locator("#node-panel-0 h3").wait_for()
    assert page.locator("#node-panel-0 h3").inner_text() == "Node gpu-0041"
    assert page.locator("#sweep-0 .hit").count() == 1
    assert "333" in visible(page, "#node-panel-0 tbody th, #node-panel-0 tbody td")
    assert "nothing marked" in page.locator("#node-panel-0 p").first.inner_text()
    page.locator("#node-panel-0 [data-step='1']").click()
    assert page.locator("#node-panel-0 h3").inner_text() == "Node gpu-0042"
    page.locator("#node-panel-0 [data-step='-1']").focus()
    page.keyboard.press("Enter")
    assert page.locator("#node-panel-0 h3").inner_text() == "Node gpu-0041"
    page.get_by_role("button", name="Show its ranks in the table").click()
    until(page, "document.querySelector('#all-ranks-0 > p').textContent.startsWith('8 of 800')")
    assert column(page, "Rank") == [str(rank) for rank in range(328, 336)]


def test_a_cell_of_the_overview_is_its_node(swept: Visit) -> None:
    page = swept.page
    box = page.locator("#sweep-0").bounding_box()
    assert box is not None
    scale = box["width"] / float(page.locator("#sweep-0").get_attribute("width") or 0)
    # Node 90 is the 11th of the third row of 40 cells, 18 apart.
    spot = {"x": (150 + 10 * 18 + 7) * scale, "y": (12 + 2 * 18 + 9) * scale}
    page.locator("#sweep-0").click(position=spot)  # type: ignore[arg-type]
    page.locator("#node-panel-0 h3").wait_for()
    assert page.locator("#node-panel-0 h3").inner_text() == "Node gpu-0090"
    assert "marked by an error" in page.locator("#node-panel-0 p").first.inner_text()


def test_the_table_draws_a_screenful_and_every_rank_as_one_scrolls(swept: Visit) -> None:
    page = swept.page
    assert len(rows(page)) < 60
    page.evaluate("document.querySelector('.window').scrollTop = 1e9")
    until(page, "[...document.querySelectorAll('.window tbody th')].some(one => one.textContent === '799')")
    assert len(rows(page)) < 60
    table = page.locator("#all-ranks-0 .window table")
    assert table.get_attribute("aria-rowcount") == "801"
    assert not page.locator(".first-ranks").is_visible()


def test_the_table_is_sorted_by_any_column_up_and_down(swept: Visit) -> None:
    page = swept.page
    rows(page)
    page.get_by_role("button", name="Node", exact=True).click()
    assert page.locator("#all-ranks-0 [aria-sort='ascending']").inner_text() == "Node"
    assert column(page, "Node")[0] == "gpu-0000"
    page.get_by_role("button", name="Node", exact=True).click()
    assert rows(page)[0][0] == "792"
    assert page.locator("#all-ranks-0 [aria-sort='descending']").count() == 1
    page.get_by_role("button", name="Marked by").click()
    page.get_by_role("button", name="Marked by").click()
    assert column(page, "Marked by")[:2] == ["✗ TP002"] * 2


@pytest.mark.parametrize(
    ("text", "place", "count"),
    [
        ("0..3, 700", "any column", 5),
        ("gpu-0041", "any column", 8),
        ("GPU-00000029-5eed-4a11-8000-000000000003", "UUID", 1),
        ("3", "Stage", 200),
        ("mlx5_3", "NIC", 100),
        ("nothing", "any column", 0),
    ],
)
def test_the_table_is_searched(swept: Visit, text: str, place: str, count: int) -> None:
    page = swept.page
    rows(page)
    page.locator("#all-ranks-0 select").select_option(label=place)
    page.locator("#all-ranks-0 input[type=search]").fill(text)
    until(page, f"document.querySelector('#all-ranks-0 > p').textContent === '{count} of 800 ranks'")
    page.get_by_role("button", name="Clear").click()
    assert page.locator("#all-ranks-0 > p").first.inner_text() == "800 of 800 ranks"


def test_marked_ranks_and_ranks_whose_columns_differ_are_shown_alone(opened: Visit) -> None:
    page = opened.page
    rows(page)
    page.get_by_label("only ranks whose columns differ").check()
    assert column(page, "Rank") == ["2"]
    assert column(page, "Claimed")[0].startswith("≠ gpu-0000")
    page.get_by_label("only ranks whose columns differ").uncheck()
    page.get_by_label("only marked ranks").check()
    assert len(rows(page)) == 8


def test_rows_are_copied_as_csv_that_no_spreadsheet_runs(browser: Browser, tmp_path: Path) -> None:
    placement = sample_report.placed(names='=HYPERLINK("x"),{:02d}')
    report = msgspec.structs.replace(sample_report.healthy(), placement=placement)
    with browser.new_context(permissions=["clipboard-read", "clipboard-write"]) as context:
        page = Visit(context, written(report, tmp_path)).page
        rows(page)
        page.locator("#all-ranks-0 input[type=search]").fill("4, 5")
        until(page, "document.querySelector('#all-ranks-0 > p').textContent === '2 of 8 ranks'")
        page.get_by_role("button", name="Copy as CSV").click()
        until(page, "document.querySelector('#all-ranks-0 > p').textContent.includes('clipboard')")
        text = page.evaluate("navigator.clipboard.readText()")
    lines = text.splitlines()
    assert lines[0].startswith("Rank,tp,Stage,Layers,Node,Local rank,GPU,NIC,Predicted")
    assert lines[1].startswith('4,0,1,16..31,"\'=HYPERLINK(""x""),01",')
    assert len(lines) == 3


def test_without_a_clipboard_the_rows_are_there_to_be_copied_by_hand(opened: Visit) -> None:
    page = opened.page
    rows(page)
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.get_by_role("button", name="Copy as CSV").click()
    page.locator(".csv textarea").wait_for()
    assert page.locator(".csv textarea").input_value().count("\n") == 9


def test_a_link_to_a_rank_opens_the_table_there(browser: Browser, tmp_path: Path) -> None:
    with browser.new_context() as context:
        path = written(sample_report.swept(BIG, marked=[7]), tmp_path)
        page = Visit(context, path, "#rank-650").page
        page.locator(".window tr.target").wait_for()
        assert page.locator(".window tr.target th").inner_text() == "650"
        assert page.locator(".window tr.target").is_visible()


@pytest.mark.parametrize("identities", [False, True])
def test_uuids_of_all_gpus_are_there_if_they_were_asked_for(
    browser: Browser, tmp_path: Path, *, identities: bool
) -> None:
    path = written(sample_report.swept(BIG, marked=[99]), tmp_path, identities=identities)
    with browser.new_context() as context:
        page = Visit(context, path, "#rank-792").page
        page.locator(".window tr.target").wait_for()
        assert sample_report.gpu_uuid(99, 0) in page.locator(".window tr.target").inner_text()
        page.locator("#all-ranks-0 input[type=search]").fill("700")
        until(page, "document.querySelector('#all-ranks-0 > p').textContent === '1 of 800 ranks'")
        told = sample_report.gpu_uuid(87, 4) in page.locator(".window tbody").inner_text()
        assert told is identities
        assert ("--html-identities" in page.locator("#all-ranks-0").inner_text()) is not identities


def test_each_world_has_a_table_of_its_own(browser: Browser, tmp_path: Path) -> None:
    from topocheck.report import WorldReport  # noqa: PLC0415

    one = sample_report.healthy()
    worlds = [
        WorldReport(
            name=name,
            job="vLLM",
            phase="predicted",
            verdict="pass",
            placement=sample_report.placed(names=names),
        )
        for name, names in (("prefill", "a-{:02d}"), ("decode", "b-{:02d}"))
    ]
    report = msgspec.structs.replace(one, placement=None, worlds=worlds)
    with browser.new_context() as context:
        visit = Visit(context, written(report, tmp_path))
        assert rows(visit.page, 0)[0][4] == "a-00"
        assert rows(visit.page, 1)[0][4] == "b-00"
        assert sample_report.gpu_uuid(0, 1) in rows(visit.page, 1)[1]
        assert visit.complaints == []


def test_all_is_reached_by_keyboard(opened: Visit) -> None:
    page = opened.page
    rows(page)
    reached = set()
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    for _ in range(200):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
    assert {"filter-state", "filter-rank", "filter-reset", "find-0", "find-go-0", "Fit"} <= reached
    assert {"Copy as CSV", "Node", "Clear", "TP001"} <= reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", [*REPORTS, "swept"])
def test_axe_finds_no_fault(browser: Browser, tmp_path: Path, name: str, scheme: str) -> None:
    axe = axe_script()
    made: Report = REPORTS[name]() if name in REPORTS else sample_report.swept(BIG, marked=[7, 90])
    with browser.new_context(color_scheme=scheme, bypass_csp=True) as context:  # type: ignore[arg-type]
        page = Visit(context, written(made, tmp_path)).page
        rows(page)
        if page.locator("#sweep-0").count():
            page.locator("#find-0").fill("9")
            page.locator("#find-go-0").click()
            page.locator("#find-status-0:not(:empty)").wait_for()
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert [
        (one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found["violations"]
    ] == []


def test_hostile_names_stay_text_in_everything_that_the_script_makes(
    browser: Browser, tmp_path: Path
) -> None:
    long = HOSTILE + "x" * 4096
    placement = sample_report.placed(
        tensor=8, pipeline=4, data=25, size=8, names=long.replace("{", "") + "{:03d}"
    )
    marks = [GroupReport(rule=long, severity="error", ranks=[8, 9], kind="edge")]
    report = msgspec.structs.replace(
        sample_report.hostile(long), placement=msgspec.structs.replace(placement, marks=marks)
    )
    with browser.new_context() as context:
        visit = Visit(context, written(report, tmp_path))
        page = visit.page
        rows(page)
        page.locator("#find-0").fill("9")
        page.locator("#find-go-0").click()
        page.locator("#node-panel-0 h3").wait_for()
        page.locator("#filter-node").fill("<script>")
        until(page, "document.getElementById('filter-status').textContent")
        assert page.locator("main script").count() == 0
        assert page.title() != "owned"
        assert "\u202e" not in page.locator("body").inner_text()
        assert "\x1b" not in page.locator("body").inner_text()
        assert visit.complaints == []
        assert visit.requests == [visit.requests[0]]


def test_paper_has_everything_whatever_the_filter_says(opened: Visit) -> None:
    page = opened.page
    rows(page)
    page.locator("#filter-state").select_option("pass")
    until(page, "document.querySelector('article.finding.out')")
    page.emulate_media(media="print")
    assert len(findings_shown(page)) == 4
    assert len(rules_shown(page)) == 20
    assert page.locator(".first-ranks table").is_visible()
    assert not page.locator("#all-ranks-0").is_visible()
    assert not page.locator("#filter").is_visible()
    assert page.locator("#rule-NET001 details p").first.is_visible()
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.ranks thead')).display")
        == "table-header-group"
    )
    assert page.evaluate("getComputedStyle(document.querySelector('.rules tr')).breakInside") == "avoid"


def test_the_page_prints_as_a4(browser: Browser, tmp_path: Path) -> None:
    with browser.new_context() as context:
        page = Visit(context, written(sample_report.swept(BIG, marked=[7]), tmp_path)).page
        printed = page.pdf(prefer_css_page_size=True)
    assert printed.startswith(b"%PDF")
    assert b"/MediaBox [0 0 594.95996 841.91998]" in printed or b"/MediaBox [0 0 595" in printed
