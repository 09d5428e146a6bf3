"""The report as one HTML file that asks nothing of anybody: no script, no request, no clock."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from topocheck.render import text
from topocheck.render.boxes import PALETTE
from topocheck.render.map import Drawing, draw
from topocheck.render.marks import worst_marks
from topocheck.render.overview import Overview, overview, worst_nodes
from topocheck.report import (
    GpuReport,
    PlacementReport,
    Placing,
    RankReport,
    Report,
    ReportedFinding,
    RuleReport,
)

__all__ = ["FORMAT", "render"]

FORMAT = "html"

MOST = {
    "rows": 512,
    "findings": 100,
    "findings_of_rule": 5,
    "evidence": 8,
    "evidence_of_rule": 3,
    "gaps": 200,
    "inputs": 256,
    "waivers": 100,
    "gone": 50,
    "notes": 256,
    "shapes": 12,
    "matrix": 16,
}
"""How many of each are shown; where more exist, the page says so and the JSON report has them."""

_MOST_TEXT = 600
_MOST_NAME = 100
_MOST_NODES = 64
_MOST_CELLS = 1024
_MOST_IN_DETAIL = 8
_MOST_WORLDS = 8
_COLUMNS = ("predicted", "claimed", "observed")
_MARKS = {"pass": "✓", "fail": "✗", "unknown": "?", "not-applicable": "-", "error": "!", "deselected": "-"}
_SIGNS = {"error": "✗", "warning": "!", "info": "i"}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of the table."""

    rank: RankReport
    gpu: GpuReport | None
    """The GPU as its node lists it, None if it is not listed."""
    severity: str
    """Worst mark, else empty."""
    columns: list[tuple[Placing | None, bool]]
    """What each column says, and whether that differs from where the rank is placed."""


class PlacementView(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows of the placement, of one world if there are several."""

    name: str | None
    """Name of the world; None if it is the only one."""
    report: PlacementReport
    overview: Overview | None
    drawing: Drawing | None
    columns: list[str]
    """Columns of the table for which any row has something to say."""
    rows: list[Row]


class Action(msgspec.Struct, frozen=True):
    """Something to do, and why."""

    rule: str
    what: str
    why: str
    command: bool
    """`what` is a command that gives missing evidence, not a sentence."""


def render(report: Report) -> str:
    """The whole page, ending in a newline. The same report gives the same bytes."""
    environment = _environment()
    css = files("topocheck.templates").joinpath("report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    found = text.worst_first(report)
    page = environment.get_template("report.html.j2").render(
        report=report,
        css=Markup(css),  # noqa: S704  a file of ours, and it must reach the page byte by byte for its digest
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        actions=list(_actions(report, found)),
        findings=found,
        families=_families(report.rules),
        broken=text.broken_rules(report),
        mute=text.mute_rules(report),
        basis=text.basis_line(report),
        baseline=text.baseline_line(report),
        mend=text.waivers_to_mend(report),
        views=_views(report),
        worlds=len(report.worlds) if report.worlds else 1,
        most=MOST,
    )
    return page.rstrip("\n") + "\n"


@cache
def _environment() -> Environment:
    """Templates with autoescape on; all text passes `printable` before it is escaped."""
    environment = Environment(
        loader=PackageLoader("topocheck.templates", ""),
        autoescape=True,
        finalize=_safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        short=lambda said: text.shorten(text.printable(said), _MOST_NAME),
        asks=text.asks,
        cite=text.cite,
        fold=text.fold,
        layers=text.layer_range,
        ranges=text.ranges,
        shorten=text.shorten,
    )
    environment.globals.update(mark=_MARKS, sign=_SIGNS, words=text.VERDICT, palette=PALETTE)
    return environment


def _safe(value: Any) -> Any:
    """Text of others without controls and not without end; what a template itself made stays."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return text.shorten(text.printable(value), _MOST_TEXT)
    return "" if value is None else value


def _actions(report: Report, found: Iterable[tuple[RuleReport, ReportedFinding]]) -> Iterator[Action]:
    """What to do first: mend what shuts the gate, then supply what keeps it from being decided."""
    number = 0
    for rule, finding in found:
        if finding.fix and finding.counts and finding.severity != "info" and number < 3:
            number += 1
            yield Action(rule.id, finding.fix, finding.message, command=False)
    required = {rule.id for rule in report.rules if rule.required}
    for gap in report.gaps:
        if gap.supply and number < 4 and required.intersection(gap.rules):
            number += 1
            yield Action(", ".join(gap.rules[:6]), gap.supply, f"missing: {gap.need}", command=True)


def _families(rules: Iterable[RuleReport]) -> dict[str, list[RuleReport]]:
    """Rules by family, in the order of the catalogue."""
    families: dict[str, list[RuleReport]] = {}
    for rule in rules:
        families.setdefault(rule.family, []).append(rule)
    return families


def _views(report: Report) -> list[PlacementView]:
    """What is shown of the placement; of several worlds those that fail first, up to a few."""
    if report.placement:
        return [_view(None, report.placement)]
    worst = sorted(report.worlds or (), key=lambda world: ("fail", "unknown", "pass").index(world.verdict))
    chosen = {world.name for world in worst[:_MOST_WORLDS]}
    return [
        _view(world.name, world.placement)
        for world in report.worlds or ()
        if world.name in chosen and world.placement is not None
    ]


def _view(name: str | None, placement: PlacementReport) -> PlacementView:
    """The map or the overview, and the rows of the table."""
    cells = sum(len(node.gpus) for node in placement.nodes)
    many = len(placement.nodes) > _MOST_NODES or cells > _MOST_CELLS
    names = worst_nodes(placement, _MOST_IN_DETAIL) if many else None
    rows = _rows(placement)
    shown = {name for rank in rows for name in rank.sources}
    columns: list[str] = [name for name in _COLUMNS if name in shown]
    gpus = text.gpus_of(placement, rows)
    marked = worst_marks(placement.marks)
    return PlacementView(
        name=name,
        report=placement,
        overview=overview(placement) if many else None,
        drawing=draw(placement, names) if names is None or names else None,
        columns=columns,
        rows=[
            Row(
                rank=rank,
                gpu=gpus.get(rank.rank),
                severity=marked.get(rank.rank, ("", ""))[0],
                columns=[_column(rank, name) for name in columns],
            )
            for rank in rows
        ],
    )


def _rows(placement: PlacementReport) -> list[RankReport]:
    """Ranks of the table: all of them, or the marked ones and then the first ones."""
    if len(placement.ranks) <= MOST["rows"]:
        return placement.ranks
    marked = worst_marks(placement.marks)
    chosen = [rank for rank in placement.ranks if rank.rank in marked][: MOST["rows"]]
    for rank in placement.ranks:
        if len(chosen) == MOST["rows"]:
            break
        if rank.rank not in marked:
            chosen.append(rank)
    return sorted(chosen, key=lambda rank: rank.rank)


def _column(rank: RankReport, name: str) -> tuple[Placing | None, bool]:
    """What one column says of a rank, and whether it contradicts the place the verdict rests on.

    What either side does not know contradicts nothing.
    """
    placing = rank.sources.get(name)
    if placing is None:
        return None, False
    elsewhere = None not in (placing.node, rank.node) and placing.node != rank.node
    return placing, elsewhere or _other_gpu(placing.gpu, rank.gpu)


def _other_gpu(said: str | None, known: str | None) -> bool:
    """Two names of one kind that differ; a UUID and a bus id may well be one GPU."""
    if said is None or known is None:
        return False
    kinds = [(name.startswith(("GPU-", "MIG-")), ":" in name) for name in (said, known)]
    return kinds[0] == kinds[1] and said != known
