"""`topocheck demo`: a made job, healthy or broken, its files and its report."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from topocheck.checklist import Gate
from topocheck.cli.asked import declared_in
from topocheck.cli.output import colour_wanted, one_each, write_file, write_outputs
from topocheck.cli.streams import say, show
from topocheck.cli.verify import check
from topocheck.demo.job import TAKEN_AT
from topocheck.demo.scenario import EVIDENCE, SCENARIOS
from topocheck.errors import UsageError
from topocheck.report import OptionReport
from topocheck.spelling import suggest

__all__ = ["demo"]


@click.command()
@click.option("--list", "listing", is_flag=True, help="Name the scenarios and write nothing.")
@click.option(
    "-o",
    "--keep",
    "folder",
    metavar="DIR",
    help="Where the inputs go  [default: topocheck-demo-SCENARIO here]",
)
@click.option("--json", "json_path", metavar="PATH", help="Write the report as JSON; - is standard output.")
@click.option("--html", "html_path", metavar="PATH", help="Write the report as one HTML file.")
@click.option("--color/--no-color", "colour", default=None, help="Colour  [default: if stdout is a terminal]")
@click.option("-v", "--verbose", is_flag=True, help="Every rule, and the Rank -> Stage -> node -> GPU table.")
@click.argument("scenario", default="healthy")
def demo(  # noqa: PLR0917 - one parameter an option
    listing: bool,
    folder: str | None,
    json_path: str | None,
    html_path: str | None,
    colour: bool | None,
    verbose: bool,
    scenario: str,
) -> int:
    """Verify a made job, healthy or broken in one way, and leave its inputs to be changed and tried again."""
    if listing:
        width = max(map(len, SCENARIOS))
        show("".join(f"{name:{width}}  {made.says}\n" for name, made in SCENARIOS.items()))
        return 0
    wanted = one_each({"json": json_path, "html": html_path})
    place = Path(folder or f"topocheck-demo-{scenario}")
    write_inputs(place, files_of(scenario), again(place))
    say(f"inputs in {place}; the same again: {again(place)}")
    report = check(
        declared_in(place / "plan.yaml")._replace(options=options(place)),
        [str(place / EVIDENCE)],
        Gate(),
        at=TAKEN_AT,
        whole=bool(wanted) or verbose,
        digests=bool(wanted),
    )
    write_outputs(report, wanted, colour=colour_wanted(colour), verbose=verbose)
    return report.exit_code


def options(place: Path) -> list[OptionReport]:
    """Options of the command that verifies the written files."""
    given = {"--plan": str(place / "plan.yaml"), "--at": TAKEN_AT}
    return [OptionReport(name=name, value=value, source="command line") for name, value in given.items()]


def again(place: Path) -> str:
    """The command that verifies the written files."""
    plan, evidence = shlex.quote(str(place / "plan.yaml")), shlex.quote(str(place / EVIDENCE))
    return f"topocheck verify --at {TAKEN_AT} --plan {plan} {evidence}"


def files_of(scenario: str) -> dict[str, str]:
    """The files of a scenario. Raises UsageError for an unknown name."""
    if scenario not in SCENARIOS:
        meant = suggest(scenario, SCENARIOS)
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(SCENARIOS)}"
        raise UsageError(f"no scenario {scenario[:60]!r}: {hint}")
    return SCENARIOS[scenario].files()


def write_inputs(place: Path, files: dict[str, str], command: str) -> None:
    """Write the files; a folder that holds exactly them is taken as it is.

    Raises UsageError for a folder that holds others: they may be somebody's own.
    """
    try:
        if place.exists() and any(place.iterdir()):
            other = first_other(place, files)
            if other is None:
                return
            raise UsageError(
                f"{other}: is not what the demo writes, and is left alone: verify it with `{command}`, or "
                "choose another folder with -o DIR"
            )
        (place / EVIDENCE).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{place}: cannot be used as a folder: {error.strerror}") from None
    for name, text in files.items():
        write_file(place / name, text)


def first_other(place: Path, files: dict[str, str]) -> Path | None:
    """A file that is missing, that was changed, or that was added to the evidence."""
    for name, text in files.items():
        if not (place / name).is_file() or (place / name).read_bytes() != text.encode():
            return place / name
    known = {place / name for name in files}
    return next((path for path in sorted((place / EVIDENCE).iterdir()) if path not in known), None)
