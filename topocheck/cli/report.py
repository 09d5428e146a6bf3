"""`topocheck report`: a kept report, shown again and checked."""

from __future__ import annotations

import gc
import textwrap
from collections.abc import Iterator, Sequence

import click

from topocheck.audit import Checked, check_file, check_inputs, check_verdict, given_files, pair
from topocheck.cli.launched import TakesCommand
from topocheck.cli.output import colour_wanted, terminal_width
from topocheck.cli.rerun import CannotRunError, declaring_found, run_again
from topocheck.cli.streams import say, show
from topocheck.errors import UsageError
from topocheck.gather.files import arguments
from topocheck.keptreport import Kept, read_kept
from topocheck.render.embedded import digest_of
from topocheck.render.text import printable

__all__ = ["report"]

WIDTH = 80
LABEL = 11
STATES = ("differs", "undecided", "same")
EXITS = {"same": 0, "differs": 1, "undecided": 3}


@click.group()
def report() -> None:
    """Show and check a report that `topocheck verify --html` or `--json` wrote."""


@report.command("show")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON, as verify --json wrote it.")
@click.option("--color/--no-color", "colour", default=None, help="Colour  [default: if stdout is a terminal]")
@click.option("-v", "--verbose", is_flag=True, help="Every rule, and the Rank -> Stage -> node -> GPU table.")
def show_report(file: str, as_json: bool, colour: bool | None, verbose: bool) -> int:
    """Print the report that FILE holds as verify printed it.

    Exit code 0; 1 where the report does not have the digest that the page states; 2 for a file without one.
    """
    kept = whole(file)
    if as_json:
        show(kept.document, exact=True)
    else:
        from topocheck.render import terminal  # noqa: PLC0415 - only where it is shown

        colours = colour_wanted(colour)
        show(terminal.render(kept.report, width=terminal_width(), colour=colours, verbose=verbose))
    if kept.embedded is not None and kept.embedded.digest != digest_of(kept.document):
        say(f"DIFFERS: {kept.name}: the report was changed: topocheck report check says where")
        return EXITS["differs"]
    return 0


@report.command("check", cls=TakesCommand)
@click.argument("file")
@click.argument("evidence", nargs=-1, metavar="[EVIDENCE...] [-- COMMAND...]")
@click.option("-v", "--verbose", is_flag=True, help="Every input, not only those that differ.")
@click.pass_context
def check_report(context: click.Context, file: str, evidence: tuple[str, ...], verbose: bool) -> int:
    """Check that FILE is what it was, and with EVIDENCE that its verdict still follows.

    The report has to have its digest, the page has to be what the report renders to, byte for byte, and every
    input has to have the digest that was recorded; then all rules are run again, at the time and with the
    options of the report. EVIDENCE is files and folders as verify took them, with plan, policy and baseline
    where those no longer lie where they did; a launch COMMAND that declared the plan follows --.

    Exit code 0 the same, 1 something differs, 2 FILE cannot be used, 3 not decided: something is missing, or
    another version of topocheck made it.
    """
    kept = whole(file)
    found = list(check_file(kept))
    if evidence:
        found += against(kept, evidence, context.obj)
    elif kept.embedded is None:
        found.append(
            Checked("digest", "undecided", "is not in a JSON report: only its evidence shows a change")
        )
    state = next((state for state in STATES if any(each.state == state for each in found)), "undecided")
    show("".join(f"{line}\n" for line in words(found, verbose=verbose)))
    first = next(each for each in found if each.state == state)
    rest = "" if evidence else "; the inputs and the verdict were not checked: give the evidence"
    if state == "same":
        say(f"SAME: {kept.name} is what it was{rest}")
    else:
        say(f"{state.upper()}: {kept.name}: {first.what} {first.said}")
    return EXITS[state]


def whole(path: str) -> Kept:
    """The report of a file. Raises InputError."""
    gc.disable()  # a report has no cycles: collecting it again and again only costs
    try:
        return read_kept(path)
    finally:
        gc.enable()


def against(kept: Kept, evidence: Sequence[str], command: tuple[str, ...] | None) -> Iterator[Checked]:
    """The inputs that the report names and the verdict over them. Raises UsageError."""
    names = [each.name for each in arguments(list(evidence))]
    if "-" in names:
        raise UsageError("the evidence is read twice, which standard input cannot be: give files")
    report = kept.report
    files = [] if report.audit is None else report.audit.files
    given = given_files(dict.fromkeys(names))
    pairs, extra = pair([*report.inputs, *files], declaring_found(files, given))
    checked = list(check_inputs(pairs, extra))
    yield from checked
    wrong = [each for each in checked if each.state != "same"]
    if wrong:
        yield Checked("verdict", "undecided", "was not run again: the inputs are not all those of the report")
        return
    try:
        yield check_verdict(report, run_again(report, pairs, command))
    except CannotRunError as error:
        yield Checked("verdict", "undecided", f"was not run again: {error}")


def words(found: Sequence[Checked], *, verbose: bool) -> Iterator[str]:
    """What was found, a line each; inputs that are the same are counted."""
    same = [each for each in found if each.state == "same" and each.what.startswith("input ")]
    for each in found:
        if verbose or each not in same:
            yield from line(each.state, f"{each.what} {each.said}")
    if same and not verbose:
        yield from line("same", f"{len(same)} input{'s' * (len(same) > 1)} by digest")


def line(state: str, text: str) -> list[str]:
    """`same       page has the digest ...`, wrapped; names and digests are never broken."""
    return textwrap.wrap(
        printable(text),
        WIDTH,
        initial_indent=state.ljust(LABEL),
        subsequent_indent=" " * LABEL,
        break_on_hyphens=False,
        break_long_words=False,
    )
