"""A page in a real headless Chromium, and what it asked for and complained about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sample_report
from real import require

from topocheck.render import html
from topocheck.render.lean import lean
from topocheck.report import Report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

__all__ = ["HOSTILE", "REPORTS", "Visit", "axe_script", "chromium", "until", "written"]

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "<script>document.title = 'owned'</script>\x1b[31m\u202e'\"" * 40
"""Markup, a terminal escape, a bidi override and quotes."""
REPORTS: dict[str, Callable[[], Report]] = {
    "healthy": sample_report.healthy,
    "split": sample_report.split_group,
    "unknown": sample_report.unknown_only,
    "big": lambda: sample_report.swept(12_500, rows=512, marked=[77, 9000]),
    "hostile": lambda: sample_report.hostile(HOSTILE),
}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium, started and ended; skips the test where it is missing."""
    require("playwright")
    path = require("chromium")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  an optional component

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """What a page asked for and complained about."""

    def __init__(self, context: BrowserContext, path: Path, link: str = "") -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page = context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri() + link)


def written(report: Report, folder: Path, *, identities: bool = False) -> Path:
    """The report as a file."""
    path = folder / "report.html"
    path.write_text(html.render(lean(report, uuids=identities)), encoding="utf-8")
    return path


def axe_script() -> str:
    """The axe-core that the package axe-playwright-python carries."""
    module = require("axe_playwright_python")
    return (Path(module).parent / "axe.min.js").read_text(encoding="utf-8")


def until(page: Page, expression: str) -> None:
    """Wait for an expression of the page to hold: `wait_for_function` would eval, which the page forbids."""
    for _ in range(600):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(expression)
