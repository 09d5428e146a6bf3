"""What a command was asked, for the report: options that were given, and the files that declare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from topocheck.answer import Declared
from topocheck.inputfile import file_digest, name_of
from topocheck.planfile import hashed_plan
from topocheck.report import InputReport, OptionReport

__all__ = ["declared_in", "given_options", "with_files"]

BEARING = (
    "plan_path",
    "nodes",
    "policy",
    "baseline",
    "since",
    "record",
    "run",
    "max_age",
    "min_basis",
    "fail_on",
    "after_recovery",
    "exit_zero",
    "at",
)
"""Parameters that bear on the answer; the others say where outputs go and how they look."""
SOURCES: dict[ParameterSource | None, Any] = {
    ParameterSource.COMMANDLINE: "command line",
    ParameterSource.ENVIRONMENT: "environment",
}


def given_options(context: click.Context) -> list[OptionReport]:
    """Options of the running command that were given and bear on its answer."""
    options = {each.name: each for each in context.command.params if isinstance(each, click.Option)}
    return [
        OptionReport(name=options[name].opts[0], value=spelled(context.params[name]), source=SOURCES[source])
        for name in BEARING
        if name in options and (source := context.get_parameter_source(name)) in SOURCES
    ]


def spelled(value: object) -> str:
    """A value as text: `on` for a switch."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def with_files(declared: Declared, since: str | None) -> Declared:
    """The same with all files that declare: the plan's is there already. Raises UsageError."""
    found = list(declared.files)
    if declared.site is not None:
        found.append(declaring(declared.site.name, declared.site.digest, "policy"))
    if declared.baseline is not None:
        found.append(declaring(declared.baseline.name, declared.baseline.digest, "baseline"))
    if declared.record is not None:
        found.append(declaring(declared.record.name, declared.record.digest, "record"))
    if since is not None:
        found.append(earlier_look(since))
    return declared._replace(files=tuple(found))


def declared_in(path: str | Path) -> Declared:
    """The plan of a file. Raises PlanError."""
    plan, digest = hashed_plan(path)
    return Declared(plan, files=(declaring(str(path), digest, "plan"),))


def declaring(name: str, digest: str, kind: str, *notes: str) -> InputReport:
    """One file that declares."""
    return InputReport(name=name_of(name), kind=kind, digest=digest, hosts=[], notes=list(notes))


def earlier_look(name: str) -> InputReport:
    """The earlier look of --since; of a folder the digest is not taken. Raises UsageError."""
    path = Path(name)
    if not path.is_file():
        return declaring(name, "", "earlier look", "no single file: its digest was not taken")
    return declaring(name, file_digest(path), "earlier look")
