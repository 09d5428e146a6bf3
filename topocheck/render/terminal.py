"""The report for a terminal: a few lines when all is well, the decisive sentence first when not."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from topocheck.render.text import (
    VERDICT,
    asks,
    baseline_line,
    basis_line,
    broken_rules,
    cite,
    count_findings,
    count_rules,
    fold,
    gpus_of,
    layer_range,
    mute_rules,
    policy_line,
    printable,
    profile_line,
    shorten,
    waivers_to_mend,
    worst_first,
)
from topocheck.report import (
    GapReport,
    GpuReport,
    RankReport,
    Report,
    ReportedFinding,
    RuleReport,
    WaiverState,
)

__all__ = ["FORMAT", "render"]

FORMAT = "terminal"

_STYLES = {
    "pass": "bold green",
    "fail": "bold red",
    "unknown": "bold yellow",
    "broke": "bold magenta",
    "not applicable": "dim",
    "deselected": "dim",
    "error": "bold red",
    "warning": "bold yellow",
    "info": "bold cyan",
    "waived": "dim",
    "known": "dim",
    "head": "bold",
    "label": "dim",
}
_NARROWEST = 60
_MOST_TEXT = 600
_MOST_ITEMS = 20
_MOST_EVIDENCE = 3
_MOST_RANKS = 64
_LABEL = 10


class Line(msgspec.Struct, frozen=True):
    """One line: plain text, of which the parts from `start` to `end` may be coloured."""

    text: str
    start: int = 0
    end: int = 0
    style: str = ""


def render(report: Report, *, width: int = 80, colour: bool = False, verbose: bool = False) -> str:
    """The report as text, `width` columns wide (60 at least), ending in a newline.

    `colour` adds terminal colours if `rich` is installed; the text is the same with and without.
    `verbose` adds all missing evidence, the rules, and the table Rank -> Stage -> node -> GPU.
    """
    width = max(width, _NARROWEST)
    lines = list(_lines(report, width, verbose=verbose))
    return _coloured(lines, width) if colour else "".join(f"{line.text}\n" for line in lines)


def _coloured(lines: Sequence[Line], width: int) -> str:
    """The lines with colours; plain where `rich` is not installed."""
    try:
        from rich.console import Console  # noqa: PLC0415  an extra, and slow to import
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        return "".join(f"{line.text}\n" for line in lines)
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=True, color_system="standard", no_color=False, width=width, highlight=False
    )
    for line in lines:
        text = Text(line.text)
        if line.style:
            text.stylize(_STYLES[line.style], line.start, line.end)
        console.print(text, soft_wrap=True)
    return out.getvalue()


def _lines(report: Report, width: int, *, verbose: bool) -> Iterator[Line]:
    """All lines of the report, what matters most first."""
    word = report.verdict.upper()
    yield from _wrapped(f"{word}: {_safe(report.sentence)}", width, head=len(word) + 1, style=report.verdict)
    yield from _findings(report, width, verbose=verbose)
    yield from _waivers(report, width, verbose=verbose)
    yield from _broken(report, width)
    if report.verdict != "pass" or verbose:
        yield from _gaps(report, width, verbose=verbose)
    yield Line("")
    yield from _summary(report, width, verbose=verbose)
    if verbose:
        yield from _rules(report, width)
        yield from _ranks(report, width)


def _safe(text: str) -> str:
    """Text of others, on one line and not without end."""
    return shorten(printable(text), _MOST_TEXT)


def _wrapped(text: str, width: int, indent: str = "", head: int = 0, style: str = "") -> Iterator[Line]:
    """Paragraph whose first `head` characters are styled and whose other lines are indented."""
    pieces = textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False) or [""]
    yield Line(pieces[0], 0, head, style)
    yield from map(Line, pieces[1:])


def _labelled(label: str, text: str, width: int, indent: int = 2) -> Iterator[Line]:
    """`label     text`, the text wrapped in its own column."""
    lead = " " * indent + label.ljust(_LABEL)
    pieces = textwrap.wrap(text, width - len(lead), break_on_hyphens=False) or [""]
    yield Line((lead + pieces[0]).rstrip(), indent, indent + len(label), "label")
    yield from (Line(" " * len(lead) + piece) for piece in pieces[1:])


def _headed(title: str) -> Iterator[Line]:
    """Title of a part, set off by an empty line."""
    yield Line("")
    yield Line(title, 0, len(title), "head")


def _more(shown: int, total: int, what: str, width: int) -> Iterator[Line]:
    """Says what was left out."""
    if total > shown:
        yield from _wrapped(f"  ... and {total - shown} more {what}", width, "  ")


def _findings(report: Report, width: int, *, verbose: bool) -> Iterator[Line]:
    """Findings, worst first."""
    found = worst_first(report)
    shown = found if verbose else found[:_MOST_ITEMS]
    if shown:
        yield from _headed("Findings")
    for rule, finding in shown:
        yield from _finding(rule, finding, width)
    yield from _more(len(shown), len(found), "findings; --verbose shows them all", width)


def _finding(rule: RuleReport, finding: ReportedFinding, width: int) -> Iterator[Line]:
    """One finding: what is wrong, about what, on which evidence, and what to change."""
    word = finding.severity if finding.counts else "waived" if finding.waiver else "known"
    lead = f"  {_safe(rule.id)} {word}  "
    yield from _wrapped(lead + _safe(finding.message), width, "    ", len(lead), word)
    if finding.subjects or finding.count:
        yield from _labelled("about", _safe(fold(finding.subjects, finding.count)), width, 4)
    for number, evidence in enumerate(finding.evidence[:_MOST_EVIDENCE]):
        fact = f"{_safe(cite(evidence))}  {_safe(evidence.fact)}"
        yield from _labelled("evidence" if number == 0 else "", fact, width, 4)
    hidden = len(finding.evidence) - _MOST_EVIDENCE
    if hidden > 0:
        yield from _labelled("", f"and {hidden} more", width, 4)
    if finding.fix:
        yield from _labelled("fix", _safe(finding.fix), width, 4)
    if finding.waiver is not None:
        why = f"{finding.waiver.reason} ({finding.waiver.owner}, until {finding.waiver.expires})"
        yield from _labelled("waived", _safe(why), width, 4)
    elif finding.known:
        yield from _labelled("known", "the baseline has it already", width, 4)


def _waivers(report: Report, width: int, *, verbose: bool) -> Iterator[Line]:
    """Waivers that are in the way; `verbose` shows all."""
    wanted = report.waivers if verbose else waivers_to_mend(report)
    shown = wanted if verbose else wanted[:_MOST_ITEMS]
    if shown:
        yield from _headed("Waivers")
    for waiver in shown:
        yield from _waiver(waiver, width)
    yield from _more(len(shown), len(wanted), "waivers; --verbose shows them all", width)


def _waiver(waiver: WaiverState, width: int) -> Iterator[Line]:
    """One waiver: what became of it, why it is there, and what to change."""
    trouble = waiver.state in ("expired", "unused")
    lead = f"  {_safe(waiver.rule)} {'warning' if trouble else waiver.state}  "
    style = "warning" if trouble else "waived"
    yield from _wrapped(lead + _safe(waiver.note), width, "    ", len(lead), style)
    yield from _labelled("for", _safe(waiver.scope), width, 4)
    why = f"{waiver.reason} ({waiver.owner}, until {waiver.expires}; {waiver.source})"
    yield from _labelled("reason", _safe(why), width, 4)
    if waiver.fix:
        yield from _labelled("fix", _safe(waiver.fix), width, 4)


def _broken(report: Report, width: int) -> Iterator[Line]:
    """Rules that broke, named as what they are."""
    broken = broken_rules(report)
    if broken:
        yield from _headed("Broken rules (trouble of topocheck, not of the job)")
    for rule in broken[:_MOST_ITEMS]:
        lead = f"  {_safe(rule.id)} broke  "
        yield from _wrapped(lead + _safe(rule.reason), width, "    ", len(lead), "broke")
    yield from _more(_MOST_ITEMS, len(broken), "broken rules", width)


def _gaps(report: Report, width: int, *, verbose: bool) -> Iterator[Line]:
    """Evidence that is missing, which command gives it, and which rules wait for it."""
    mute = mute_rules(report)
    wanted = report.gaps if verbose else [gap for gap in report.gaps if gap.required]
    gaps = wanted if verbose else wanted[:_MOST_ITEMS]
    if gaps or mute:
        yield from _headed("Missing evidence")
    for number, gap in enumerate(gaps, 1):
        yield from _gap(number, gap, width)
    yield from _more(len(gaps), len(wanted), "missing; --verbose shows them all", width)
    optional = len(report.gaps) - len(wanted)
    if optional and gaps:
        text = f"{optional} more keep only optional rules undecided; --verbose shows them"
        yield from _wrapped(f"  {text}", width, "  ")
    for rule in mute[:_MOST_ITEMS]:
        lead = f"  {_safe(rule.id)} unknown  "
        yield from _wrapped(
            lead + _safe(rule.reason or "nothing to ask"), width, "    ", len(lead), "unknown"
        )
    yield from _more(_MOST_ITEMS, len(mute), "undecided rules", width)


def _gap(number: int, gap: GapReport, width: int) -> Iterator[Line]:
    """One gap."""
    about = fold(gap.about, gap.count)
    need = f"{gap.need} ({about})" if about else gap.need
    lead = f"  {number}. "
    yield from _wrapped(lead + _safe(need), width, " " * len(lead))
    if gap.supply:
        yield from _labelled("give", _safe(gap.supply), width, len(lead))
    if gap.rules:
        yield from _labelled("blocks", _safe(", ".join(gap.rules)), width, len(lead))


def _summary(report: Report, width: int, *, verbose: bool) -> Iterator[Line]:
    """Job, basis, assumptions and counts."""
    yield from _labelled("job", _safe(report.job), width)
    yield from _labelled("basis", basis_line(report), width)
    shown = report.assumptions if verbose else report.assumptions[:5]
    for number, assumption in enumerate(shown):
        yield from _labelled("assumed" if number == 0 else "", _safe(assumption), width)
    yield from _more(len(shown), len(report.assumptions), "assumptions; --verbose shows them all", width)
    for label, text in (("policy", policy_line(report)), ("baseline", baseline_line(report))):
        if text:
            yield from _labelled(label, _safe(text), width)
    for number, profile in enumerate(report.profiles if verbose else ()):
        yield from _labelled("profile" if number == 0 else "", _safe(profile_line(profile)), width)
    if report.baseline is not None and verbose:
        for one in report.baseline.gone:
            told = f"{one.rule} {one.cause}: {fold(one.subjects, len(one.subjects))}"
            yield from _labelled("gone" if one.decided else "unclear", _safe(told), width)
    yield from _labelled("rules", count_rules(report.counts), width)
    yield from _labelled("findings", count_findings(report.counts), width)
    if report.verdict == "pass" and not verbose and (report.gaps or mute_rules(report)):
        text = f"{report.counts.unknown} rules lack evidence, none of them required; --verbose lists it"
        yield from _labelled("missing", text, width)
    if verbose:
        for number, note in enumerate(report.notes):
            yield from _labelled("notes" if number == 0 else "", _safe(note), width)


def _rules(report: Report, width: int) -> Iterator[Line]:
    """All rules with their verdict and subjects."""
    yield from _headed("Rules")
    rows = [
        (rule.id, VERDICT[rule.verdict], f"{rule.passed}/{rule.failed}/{rule.unknown}", asks(rule))
        for rule in report.rules
    ]
    yield from _table(("rule", "verdict", "pass/fail/?", "asks"), rows, width, verdict=1)


def _ranks(report: Report, width: int) -> Iterator[Line]:
    """Rank -> Stage -> node -> GPU, the first ranks."""
    placements = {"": report.placement} if report.placement else {}
    placements |= {world.name: world.placement for world in report.worlds or () if world.placement}
    if not placements:
        return
    rows: list[tuple[str, ...]] = []
    for name, placement in placements.items():
        shown = placement.ranks[: _MOST_RANKS - len(rows)]
        gpus = gpus_of(placement, shown)
        first = (name,) if report.worlds else ()
        rows += [(*first, *_rank(rank, gpus.get(rank.rank))) for rank in shown]
    yield from _headed(f"Placement ({report.phase})")
    head = ("rank", "at", "stage", "layers", "node", "GPU", "known as")
    yield from _table(("world", *head) if report.worlds else head, rows, width)
    total = sum(max(placement.world, len(placement.ranks)) for placement in placements.values())
    yield from _more(len(rows), total, f"of {total} ranks; the JSON report has what is known", width)


def _rank(rank: RankReport, gpu: GpuReport | None) -> tuple[str, ...]:
    """One row of the placement."""
    at = " ".join(f"{axis}{index}" for axis, index in rank.coordinates.items())
    index = "?" if gpu is None or gpu.index is None else str(gpu.index)
    place = (rank.node or "unknown", index, rank.gpu or "unknown")
    return (str(rank.rank), at, str(rank.stage), layer_range(rank.layers), *place)


def _table(
    head: Sequence[str], rows: Iterable[Sequence[str]], width: int, verdict: int | None = None
) -> Iterator[Line]:
    """Aligned columns; the widest give way until the table fits."""
    cells = [[_safe(cell) for cell in row] for row in (head, *rows)]
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    while sum(sizes) + 2 * len(sizes) > width and max(sizes) > 4:
        sizes[sizes.index(max(sizes))] -= 1
    for number, row in enumerate(cells):
        texts = [shorten(cell, size).ljust(size) for cell, size in zip(row, sizes, strict=True)]
        line = "  " + "  ".join(texts)
        if number == 0:
            yield Line(line.rstrip(), 0, len(line), "label")
        elif verdict is not None:
            start = 2 + sum(size + 2 for size in sizes[:verdict])
            yield Line(line.rstrip(), start, start + sizes[verdict], row[verdict])
        else:
            yield Line(line.rstrip())
