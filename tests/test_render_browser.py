"""The HTML report in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import sample_report
from chromium import REPORTS, Visit, chromium, written

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, once for this file."""
    with chromium() as started:
        yield started


@pytest.mark.parametrize("scripts", [False, True])
@pytest.mark.parametrize("name", REPORTS)
def test_the_page_opens_without_a_request_or_a_complaint(
    browser: Browser, tmp_path: Path, name: str, *, scripts: bool
) -> None:
    report = REPORTS[name]()
    path = written(report, tmp_path)
    with browser.new_context(java_script_enabled=scripts) as context:
        visit = Visit(context, path)
        assert visit.requests == [path.as_uri()]
        assert visit.complaints == []
        assert visit.page.locator("h1").is_visible()
        assert visit.page.locator("main svg").first.is_visible()
        assert visit.page.title() != "owned"


def test_the_verdict_is_visible_without_scripts(browser: Browser, tmp_path: Path) -> None:
    report = sample_report.split_group()
    with browser.new_context(java_script_enabled=False) as context:
        page = Visit(context, written(report, tmp_path)).page
        assert page.get_by_text(report.sentence).first.is_visible()
        assert page.get_by_text("FAIL", exact=False).first.is_visible()
        assert page.get_by_text("Give both nodes slots=4").first.is_visible()


def test_hostile_text_is_shown_and_not_run(browser: Browser, tmp_path: Path) -> None:
    report = sample_report.hostile("<script>document.body.textContent = 'owned'</script>")
    with browser.new_context() as context:
        page = Visit(context, written(report, tmp_path)).page
        assert page.locator("h1").inner_text() == "<script>document.body.textContent = 'owned'</script>"
        assert page.locator("main script").count() == 0
        assert page.locator("h1").is_visible()


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("name", REPORTS)
def test_the_page_itself_never_scrolls_sideways(
    browser: Browser, tmp_path: Path, name: str, width: int
) -> None:
    with browser.new_context(viewport={"width": width, "height": 800}) as context:
        page = Visit(context, written(REPORTS[name](), tmp_path)).page
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_filter_of_the_checklist_needs_no_script(browser: Browser, tmp_path: Path) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = Visit(context, written(sample_report.split_group(), tmp_path)).page
        assert page.locator("#rule-EV001").is_visible()
        page.locator("#show-open").check()
        assert not page.locator("#rule-EV001").is_visible()
        assert page.locator("#rule-TP001").is_visible()
        assert not page.get_by_role("heading", name="Evidence", exact=True).is_visible()


def test_evidence_that_is_folded_on_screen_is_printed(browser: Browser, tmp_path: Path) -> None:
    report = sample_report.unknown_only()
    with browser.new_context() as context:
        page = Visit(context, written(report, tmp_path)).page
        folded = page.locator("#rule-TP002 details p").first
        assert not folded.is_visible()
        page.emulate_media(media="print")
        assert folded.is_visible()
        assert not page.locator("nav").is_visible()


def test_the_page_of_100_000_ranks_has_few_elements(browser: Browser, tmp_path: Path) -> None:
    report = sample_report.swept(12_500, rows=512, marked=[77, 5000, 9000])
    with browser.new_context() as context:
        page = Visit(context, written(report, tmp_path)).page
        assert page.evaluate("document.querySelectorAll('*').length") < 20_000
        assert page.locator("path.ring.error").first.is_visible()


def test_dark_and_light_differ(browser: Browser, tmp_path: Path) -> None:
    path = written(msgspec.structs.replace(sample_report.healthy(), placement=None), tmp_path)
    colours = []
    for scheme in ("light", "dark"):
        with browser.new_context(color_scheme=scheme) as context:
            page = Visit(context, path).page
            colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(255, 255, 255)", "rgb(16, 20, 24)"]
